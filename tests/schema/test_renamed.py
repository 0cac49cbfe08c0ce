"""Names that have changed: of each the old one stands for a name that there is."""

from __future__ import annotations

import warnings

import pytest

import fastflow
from fastflow.schema import find_result
from fastflow.schema.renamed import COLUMNS, FUNCTIONS, new_column, old_column


@pytest.mark.parametrize("old", COLUMNS)
def test_an_old_column_is_a_column_of_today(old: str) -> None:
    asked = old.replace("l*", "l2")
    new = new_column(asked)
    assert new == COLUMNS[old].replace("l*", "l2")
    assert find_result(new) is not None
    assert find_result(asked) is None
    assert old_column(new) == asked


def test_no_two_columns_have_one_new_name() -> None:
    assert len({*COLUMNS.values()}) == len(COLUMNS)


@pytest.mark.parametrize("name", ["time_s", "l2_bound_frac", "gemm_l2_tile", "serve.batch", "own"])
def test_other_names_are_left_alone(name: str) -> None:
    assert new_column(name) == old_column(name) == name


@pytest.mark.parametrize("old", FUNCTIONS)
def test_an_old_function_is_the_one_of_today(old: str) -> None:
    new = FUNCTIONS[old]
    with pytest.warns(FutureWarning, match=f"^fastflow.{old} is now fastflow.{new}$") as warned:
        assert getattr(fastflow, old) is getattr(fastflow, new)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            _ = fastflow.nothing
