"""Tables of keys in pages: written from the registry behind a comment that says which keys."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from fastflow.core.field import Column
from fastflow.schema import INPUTS

_TABLE = re.compile(r"^<!-- keys: (?P<patterns>[^\n]+) -->\n(?:\|[^\n]*\n)*", re.MULTILINE)
"""A comment such as `<!-- keys: server.*, net.all_reduce_backend -->`, and the table right behind it."""
_NO_LIMIT = 1e6
"""An upper bound from here on only keeps results finite: tables do not show it."""
_NOUNS = {"bool": "true, false", "str": "text", "int": "whole number", "float": "number"}


def with_key_tables(page: str) -> str:
    """Return a page of Markdown with its tables of keys as the registry has them today.

    A table follows a comment of one line, `<!-- keys: PATTERNS -->`: names of inputs, or patterns such as
    `server.*`, between commas. Rows are in the order of the patterns. Raises ValueError where no input has
    such a name.
    """
    return _TABLE.sub(
        lambda match: "\n".join((match[0].partition("\n")[0], *_table(match["patterns"]), "")), page
    )


def _table(patterns: str) -> list[str]:
    columns = (column for pattern in patterns.split(",") for column in _columns(pattern.strip()))
    rows = (
        f"| `{column.name}` | {_values(column)} | {column.meaning} |" for column in dict.fromkeys(columns)
    )
    return ["| key | values | meaning |", "|---|---|---|", *rows]


def _columns(pattern: str) -> list[Column]:
    columns = [column for column in INPUTS if column.name == pattern or fnmatchcase(column.name, pattern)]
    if not columns:
        raise ValueError(f"{pattern!r}: no input of fastflow/schema/ has this name")
    return columns


def _values(column: Column) -> str:
    """Return the allowed values, shorter than the registry's own words for them."""
    if column.choices:
        return ", ".join(column.choices)
    bounds = [f"{'>' if column.above_low else '≥'} {column.low:g}"] if column.low > float("-inf") else []
    bounds += [f"≤ {column.high:g}"] if column.high < _NO_LIMIT else []
    unit = f", in {column.unit}" if column.unit else ""
    or_auto = "" if column.auto is None else ", or auto"
    return f"{_NOUNS[column.kind]} {' and '.join(bounds)}".strip() + unit + or_auto
