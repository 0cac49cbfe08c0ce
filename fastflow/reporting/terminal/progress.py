"""Progress of a run: a bar on a terminal and in a notebook, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
from html import escape
from threading import Lock
from time import perf_counter
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from fastflow.config.messages import counted
from fastflow.engine.run.progress import Listener

_QUIET = 2.0  # seconds; a run that takes less says nothing of its progress
_PAUSE = 5.0  # seconds between two lines where there is no terminal
_BLINK = 0.2  # seconds between two looks of a notebook's bar


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


class Progress(Listener):
    """Shows on standard error how many points are done, how fast, and how long the rest will take."""

    def __init__(self, what: str = "", points: int = 0, unit: str = "points") -> None:
        """Take what is to come in words, the number of points (0: not known), and what they are called."""
        self.what, self.points, self.unit = what, points, unit
        self.done = self.there = 0
        self.seconds = 0.0
        self._lock = Lock()
        self._start = self._said = perf_counter()
        self._bar: Any = None

    def __enter__(self) -> Self:
        """Start the clock."""
        self._start = self._said = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the clock, and take the bar off the screen."""
        self.seconds = perf_counter() - self._start
        self._drop_bar()

    def start(self, what: str, of: int, unit: str = "points", there: int = 0) -> None:
        """Hear what is to come, after what came before, and start the clock."""
        self.what, self.points, self.unit = what, of, unit
        self._drop_bar()
        self.begin(there)

    def _drop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def begin(self, there: int) -> None:
        """Say what is to come, and start the clock anew: compiling is no part of the rate.

        Points that an earlier run has left count as done, but not in the rate.
        """
        self.done = self.there = there
        self._start = self._said = perf_counter()
        self._announce(there)

    def _announce(self, there: int) -> None:
        """Say what is to come, and what is there."""
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
        self._show(now)

    def _show(self, now: float) -> None:
        """Show how far the run is, in the way of where it runs."""
        if sys.stderr.isatty():
            self._show_bar()
        elif now - self._said >= (_PAUSE if self._said > self._start else 0.0):
            self._said = now
            print(self._line(now), file=sys.stderr, flush=True)

    def _line(self, now: float) -> str:
        """Say how much is done, how fast, and how long the rest will take."""
        rate = (self.done - self.there) / (now - self._start)
        if not self.points:
            return f"{self.done:,} {self.unit}, {rate:,.0f} {self.unit}/s"
        left = (self.points - self.done) / rate
        return f"{self.done:,} of {self.points:,} {self.unit}, {rate:,.0f} {self.unit}/s, {left:.0f} s left"

    def _show_bar(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            of = f" of {self.points:,}" if self.points else ""
            left = [TextColumn("left"), TimeRemainingColumn()] if self.points else []
            self._bar = Bar(
                TextColumn(f"{{task.completed:,.0f}}{of} {self.unit}"),
                BarColumn(),
                TextColumn(f"{{task.fields[rate]}} {self.unit}/s"),
                *left,
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=self.points or None, rate="")
            self._bar.start()
        self._bar.update(self._task, completed=self.done, rate=f"{self.rate:,.0f}")


class InNotebook(Progress):
    """Shows a bar below the cell of a notebook, and at the end what was done, unless that took no time."""

    def __init__(self) -> None:
        """Know of nothing to come."""
        super().__init__()
        self._display = ""

    def _announce(self, there: int) -> None:
        """Say nothing: the bar does, of what takes long."""

    def _show(self, now: float) -> None:
        if now - self._said < _BLINK and self._display:
            return
        self._said = now
        share = f' value="{self.done}" max="{self.points}"' if self.points else ""
        bar = f'<progress{share} style="width:20em"></progress>'
        self._publish(f"{self.what}: {self._line(now)}", bar)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the clock, and put how much was done in the place of the bar."""
        super().__exit__(kind, error, trace)
        if self._display:
            of = f" of {self.points:,}" if self.points else ""
            self._publish(f"{self.done:,}{of} {self.unit} in {self.seconds:.1f} s")

    def _publish(self, line: str, bar: str = "") -> None:
        """Show a line in the notebook, in the place of the last one; bar: HTML before it."""
        from IPython.display import display, update_display

        shown = {"text/plain": line, "text/html": f"<div>{bar} {escape(line)}</div>"}
        if self._display:
            update_display(shown, display_id=self._display, raw=True)  # type: ignore[no-untyped-call]
        else:
            self._display = uuid4().hex
            display(shown, display_id=self._display, raw=True)  # type: ignore[no-untyped-call]
