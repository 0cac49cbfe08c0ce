"""Lines of advice on standard error: that a name has changed, and to what."""

from __future__ import annotations

import sys

_given: set[str] = set()


def advise(line: str, about: str = "") -> None:
    """Print a line on standard error, once in a process; about: what only the first line is printed of."""
    if (about or line) not in _given:
        _given.add(about or line)
        print(line, file=sys.stderr, flush=True)
