"""Which columns of a dataset a table shows, where the user says it: `columns=`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from fastflow.config.list_keys import COLUMNS
from fastflow.config.messages import suggestion
from fastflow.core.errors import InputError

_FEW = 12  # columns of a dataset that are named where none is close


def chosen_columns(written: str, names: Sequence[str]) -> list[str]:
    """Return the columns of a dataset that a list of names and patterns is of, in the order of the list.

    written: such as "train_s,*_usd"; "" for none. names: of the dataset, whose order those of a pattern have.
    Raises InputError for a name, or a pattern, of no column.
    """
    found: list[str] = []
    for one in filter(None, map(str.strip, written.split(","))):
        here = [name for name in names if fnmatchcase(name, one)]
        if not here:
            close = suggestion(one, names)
            some = "" if close else f", such as {', '.join(names[-_FEW:])}"
            raise InputError(COLUMNS, one, f"columns of these points, or patterns such as *_usd{some}{close}")
        found += here
    return list(dict.fromkeys(found))
