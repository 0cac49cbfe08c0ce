"""Keys whose comma is no axis: `columns=train_s,mfu` is a list of names, `constraints` one of limits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

COLUMNS, CONSTRAINTS = "columns", "constraints"
_BARE = re.compile(rf"(\+{{0,2}}(?:{COLUMNS}|{CONSTRAINTS})=)(?!null$)([^'\"\[{{(][^'\"]*)")


def quote_columns(overrides: Iterable[str]) -> list[str]:
    """Return overrides with a list of columns, or of limits, in quotes; Hydra takes its comma for an axis."""
    return [
        _BARE.sub(r"\1'\2'", text) if isinstance(text, str) and _BARE.fullmatch(text) else text
        for text in overrides
    ]


def as_lists(overrides: Iterable[str], keys: Collection[str]) -> list[str]:
    """Return overrides of which `key=a,b` is a list for some keys, as Hydra's grammar has it."""
    texts = []
    for text in overrides:
        key, _, value = text.partition("=")
        is_list = key in keys and "," in value and value[:1] not in ("[", "'", '"')
        texts.append(f"{key}=[{value}]" if is_list else text)
    return texts


def joined(value: object) -> str:
    """Return a list of columns as a text; value: a text or a list."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value or "")
