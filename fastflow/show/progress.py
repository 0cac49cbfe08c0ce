"""Progress of a run: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
from threading import Lock
from time import perf_counter
from types import TracebackType
from typing import Any

from fastflow.configuration.wording import counted

_QUIET = 2.0  # seconds; a run that takes less says nothing of its progress
_PAUSE = 5.0  # seconds between two lines where there is no terminal


class Compiling:
    """Says on standard error that kernels compile: how far on a terminal, elsewhere once."""

    def __init__(self) -> None:
        """Say nothing yet."""
        self._said = False

    def __call__(self, name: str, place: int, of: int) -> None:
        """Note that a kernel is compiled now; name: "" once all are."""
        if sys.stderr.isatty():
            line = f"compiling kernels, once for this version: {place} of {of} ({name})" if name else ""
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif not self._said:
            print(f"compiling {of} kernels, once for this version", file=sys.stderr, flush=True)
        self._said = True


class Progress:
    """Shows on standard error how many points are done, how fast, and how long the rest will take."""

    def __init__(self, what: str, points: int, unit: str = "points") -> None:
        """Take what is to come in words, the number of points, and what they are called."""
        self.what, self.points, self.unit = what, points, unit
        self.done = self.there = 0
        self.seconds = 0.0
        self._lock = Lock()
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

    def begin(self, there: int) -> None:
        """Say what is to come, and start the clock anew: compiling is no part of the rate.

        Points that an earlier run has left count as done, but not in the rate.
        """
        self.done = self.there = there
        self._start = self._said = perf_counter()
        print(self.what, file=sys.stderr, flush=True)
        if there:
            print(
                f"{there:,} of {counted(self.points, 'point')} are there already, from an earlier run",
                file=sys.stderr,
                flush=True,
            )

    @property
    def rate(self) -> float:
        """Points a second so far, or in the whole run once it is over."""
        return (self.done - self.there) / max(self.seconds or perf_counter() - self._start, 1e-9)

    def advance(self, points: int) -> None:
        """Note, from any thread, that more points are done."""
        with self._lock:
            self._advance(points)

    def _advance(self, points: int) -> None:
        self.done += points
        now = perf_counter()
        if points == 0 or now - self._start < _QUIET or self.done == self.points:
            return
        if sys.stderr.isatty():
            self._show_bar()
        elif now - self._said >= (_PAUSE if self._said > self._start else 0.0):
            self._said = now
            rate = (self.done - self.there) / (now - self._start)
            left = (self.points - self.done) / rate
            print(
                f"{self.done:,} of {self.points:,} {self.unit}, {rate:,.0f} {self.unit}/s, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    def _show_bar(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + self.unit),
                BarColumn(),
                TextColumn("{task.fields[rate]} " + self.unit + "/s, left"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=self.points, rate="")
            self._bar.start()
        self._bar.update(self._task, completed=self.done, rate=f"{self.rate:,.0f}")
