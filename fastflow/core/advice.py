"""Lines of advice on standard error: that a name has changed, and to what."""

from __future__ import annotations

import sys

_given: set[str] = set()


def advise(line: str) -> None:
    """Print a line on standard error, once in a process."""
    if line not in _given:
        _given.add(line)
        print(line, file=sys.stderr, flush=True)
