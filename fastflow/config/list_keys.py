"""Keys whose comma is no axis: `columns=train_s,mfu` is one list of names."""

from __future__ import annotations

import re
from collections.abc import Iterable

COLUMNS = "columns"
_BARE = re.compile(rf"(\+{{0,2}}{COLUMNS}=)(?!null$)([^'\"\[{{(][^'\"]*)")


def as_one_value(overrides: Iterable[str]) -> list[str]:
    """Return overrides in which a list of columns is one text; Hydra reads its comma as an axis otherwise."""
    return [
        _BARE.sub(r"\1'\2'", text) if isinstance(text, str) and _BARE.fullmatch(text) else text
        for text in overrides
    ]


def joined(value: object) -> str:
    """Return a list of columns as one text: it may be written as a list, too."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value or "")
