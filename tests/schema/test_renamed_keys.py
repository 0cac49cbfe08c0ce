"""The table of renamed names: new names exist, old ones do not, and the documentation lists all."""

import re
from pathlib import Path

import pytest

from fastflow.config.catalog import groups
from fastflow.schema import find_input
from fastflow.schema.renamed import FUNCTIONS, KEYS, VALUES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "renames.md"


@pytest.mark.parametrize("old", KEYS)
def test_old_names_are_gone_and_new_ones_are_there(old):
    new = KEYS[old]
    assert find_input(old) is None
    assert old not in groups()
    assert new not in KEYS
    assert find_input(new) is not None or new in groups() or new in ("compare", "sensitivity.relative_range")


def test_old_values_are_gone_and_new_ones_are_there():
    for key, values in VALUES.items():
        column = find_input(key)
        if column is not None:
            assert not values.keys() & set(column.choices)
            assert set(values.values()) <= set(column.choices)


def test_the_page_lists_the_table():
    rows = re.findall(r"^\| (`.*`) \|$", PAGE.read_text(), re.MULTILINE)
    keys = [f"`{old}` | `{new}`" for old, new in KEYS.items()]
    values = [f"`{key}` | `{old}` | `{new}`" for key, table in VALUES.items() for old, new in table.items()]
    functions = [f"`fastflow.{old}` | `fastflow.{new}`" for old, new in FUNCTIONS.items()]
    assert rows == keys + values + functions
