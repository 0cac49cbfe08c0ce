"""How far a grid is: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
from time import perf_counter
from types import TracebackType
from typing import Any

_QUIET = 2.0  # seconds; a run that takes less says nothing of its progress
_PAUSE = 5.0  # seconds between two lines where there is no terminal


class Progress:
    """Shows on standard error how many points are done, how fast, and how long the rest will take."""

    def __init__(self, points: int) -> None:
        """Take the number of points to come."""
        self.points = points
        self.done = 0
        self.seconds = 0.0
        self._start = self._said = perf_counter()
        self._bar: Any = None

    def __enter__(self) -> Progress:
        """Start the clock."""
        self._start = self._said = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the clock, and take the bar off the screen."""
        self.seconds = perf_counter() - self._start
        if self._bar is not None:
            self._bar.stop()

    def advance(self, points: int) -> None:
        """Note that more points are done."""
        self.done += points
        now = perf_counter()
        if now - self._start < _QUIET or self.done == self.points:
            return
        if sys.stderr.isatty():
            self._show_bar()
        elif now - self._said >= (_PAUSE if self._said > self._start else 0.0):
            self._said = now
            rate = self.done / (now - self._start)
            left = (self.points - self.done) / rate
            print(
                f"{self.done:,} of {self.points:,} points, {rate:,.0f} a second, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    def _show_bar(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.completed:,.0f} of {task.total:,.0f} points"),
                BarColumn(),
                TextColumn("{task.fields[rate]} points/s, left"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=self.points, rate="")
            self._bar.start()
        rate = self.done / (perf_counter() - self._start)
        self._bar.update(self._task, completed=self.done, rate=f"{rate:,.0f}")
