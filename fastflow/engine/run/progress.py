"""Listeners to the progress of a call; Python calls have one in a notebook only."""

from __future__ import annotations


class Listener:
    """A silent listener to progress; subclasses that show it override both methods."""

    def start(self, what: str, of: int, unit: str = "points", there: int = 0) -> None:
        """Receive the description of the work, its amount, its unit, and the amount already done.

        of: 0 where the amount is unknown.
        """

    def advance(self, done: int) -> None:
        """Receive further amounts of finished work, from any thread."""


SILENT = Listener()
