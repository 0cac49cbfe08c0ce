"""Texts of the program as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#$|~])")


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, also in a cell of a table."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Return a text as code, also in a cell of a table."""
    return "`" + text.replace("|", "\\|") + "`" if text else ""


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; cells are Markdown."""
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]
