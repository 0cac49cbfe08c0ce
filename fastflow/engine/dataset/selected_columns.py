"""The columns of a dataset that a table shows: `columns=`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from fastflow.config.list_keys import COLUMNS
from fastflow.config.messages import suggestion
from fastflow.core.advice import advise
from fastflow.core.errors import InputError
from fastflow.schema.renamed import old_column

_MAX_NAMED = 12  # columns that a message lists where no name is similar


def select_columns(written: str, names: Sequence[str]) -> list[str]:
    """Return the columns of a dataset that match names and patterns, in the order of the list.

    written: such as "train_s,*_usd"; "" for none. names: of the dataset, whose order those of a pattern have.
    Raises InputError for a name or pattern that matches no column.
    """
    selected: list[str] = []
    for pattern in filter(None, map(str.strip, written.split(","))):
        matches = [name for name in names if fnmatchcase(name, pattern)] or _renamed(pattern, names)
        if not matches:
            close = suggestion(pattern, names)
            examples = "" if close else f", such as {', '.join(names[-_MAX_NAMED:])}"
            raise InputError(
                COLUMNS, pattern, f"columns of these points, or patterns such as *_usd{examples}{close}"
            )
        selected += matches
    return list(dict.fromkeys(selected))


def _renamed(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the columns whose name of before 0.2.0 matches a pattern, and say their new names."""
    matches = [name for name in names if fnmatchcase(old_column(name), pattern)]
    for name in matches:
        advise(f"{COLUMNS}={pattern}: the column {old_column(name)} is now {name}")
    return matches
