"""Who hears how far a call is; calls of Python have somebody to tell in a notebook alone."""

from __future__ import annotations


class Listener:
    """Hears how far a call is, and says nothing; who shows it does these two otherwise."""

    def start(self, what: str, of: int, unit: str = "points", there: int = 0) -> None:
        """Hear what is to come in words, how much of it, what it is counted in, and how much is there.

        of: 0 where that is not known.
        """

    def advance(self, done: int) -> None:
        """Hear, from any thread, that more is done."""


SILENT = Listener()
