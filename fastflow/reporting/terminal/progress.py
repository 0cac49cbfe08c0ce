"""Progress of a run: a bar on a terminal and in a notebook, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
from html import escape
from threading import Lock
from time import perf_counter
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from fastflow.config.messages import pluralize
from fastflow.engine.run.progress import Listener

_QUIET_S = 2.0  # a shorter run shows no progress
_LINE_PERIOD_S = 5.0  # between two lines without a terminal
_BAR_PERIOD_S = 0.2  # between two updates of a notebook's bar


class Compiling:
    """Reports compilation of kernels on standard error: with progress on a terminal, elsewhere once."""

    def __init__(self) -> None:
        """Start without output."""
        self._has_printed = False

    def __call__(self, name: str, index: int, total: int) -> None:
        """Report the kernel that compiles now; name: "" once all are compiled."""
        if sys.stderr.isatty():
            line = f"compiling kernels, once for this version: {index} of {total} ({name})" if name else ""
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif not self._has_printed:
            print(f"compiling {total} kernels, once for this version", file=sys.stderr, flush=True)
        self._has_printed = True


class Progress(Listener):
    """Shows the number of points, the rate and the remaining time on standard error."""

    def __init__(self, what: str = "", points: int = 0, unit: str = "points") -> None:
        """Take a title of the run, the number of points (0: unknown), and their unit."""
        self.what, self.points, self.unit = what, points, unit
        self.done = self.num_stored = 0
        self.seconds = 0.0
        self._lock = Lock()
        self._start = self._last_shown_s = perf_counter()
        self._bar: Any = None

    def __enter__(self) -> Self:
        """Start the clock."""
        self._start = self._last_shown_s = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the clock, and take the bar off the screen."""
        self.seconds = perf_counter() - self._start
        self._drop_bar()

    def start(self, what: str, of: int, unit: str = "points", there: int = 0) -> None:
        """Begin a new part of a run: its title and number of points; start the clock."""
        self.what, self.points, self.unit = what, of, unit
        self._drop_bar()
        self.begin(there)

    def _drop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def begin(self, num_stored: int) -> None:
        """Announce the run, and restart the clock: compilation does not count in the rate.

        num_stored: points of an earlier run; they count as done, but not in the rate.
        """
        self.done = self.num_stored = num_stored
        self._start = self._last_shown_s = perf_counter()
        self._announce(num_stored)

    def _announce(self, num_stored: int) -> None:
        """Print the title, and the number of points of an earlier run."""
        print(self.what, file=sys.stderr, flush=True)
        if num_stored:
            print(
                f"{num_stored:,} of {pluralize(self.points, 'point')} are there already, from an earlier run",
                file=sys.stderr,
                flush=True,
            )

    @property
    def rate(self) -> float:
        """Points a second so far, or in the whole run once it is over."""
        return (self.done - self.num_stored) / max(self.seconds or perf_counter() - self._start, 1e-9)

    def advance(self, points: int) -> None:
        """Note, from any thread, that more points are done."""
        with self._lock:
            self._advance(points)

    def _advance(self, points: int) -> None:
        self.done += points
        now = perf_counter()
        if points == 0 or now - self._start < _QUIET_S or self.done == self.points:
            return
        self._show(now)

    def _show(self, now: float) -> None:
        """Show the progress as a bar on a terminal, as lines elsewhere."""
        if sys.stderr.isatty():
            self._show_bar()
        elif now - self._last_shown_s >= (_LINE_PERIOD_S if self._last_shown_s > self._start else 0.0):
            self._last_shown_s = now
            print(self._line(now), file=sys.stderr, flush=True)

    def _line(self, now: float) -> str:
        """Return a line with the points done, the rate, and the remaining time."""
        rate = (self.done - self.num_stored) / (now - self._start)
        if not self.points:
            return f"{self.done:,} {self.unit}, {rate:,.0f} {self.unit}/s"
        left = (self.points - self.done) / rate
        return f"{self.done:,} of {self.points:,} {self.unit}, {rate:,.0f} {self.unit}/s, {left:.0f} s left"

    def _show_bar(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            total_text = f" of {self.points:,}" if self.points else ""
            remaining_columns = [TextColumn("left"), TimeRemainingColumn()] if self.points else []
            self._bar = Bar(
                TextColumn(f"{{task.completed:,.0f}}{total_text} {self.unit}"),
                BarColumn(),
                TextColumn(f"{{task.fields[rate]}} {self.unit}/s"),
                *remaining_columns,
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=self.points or None, rate="")
            self._bar.start()
        self._bar.update(self._task, completed=self.done, rate=f"{self.rate:,.0f}")


class InNotebook(Progress):
    """Shows a bar below the cell of a notebook, and at the end the number of points of a long run."""

    def __init__(self) -> None:
        """Start without a run."""
        super().__init__()
        self._display = ""

    def _announce(self, num_stored: int) -> None:
        """Print nothing: the bar shows long runs."""

    def _show(self, now: float) -> None:
        if now - self._last_shown_s < _BAR_PERIOD_S and self._display:
            return
        self._last_shown_s = now
        share = f' value="{self.done}" max="{self.points}"' if self.points else ""
        bar = f'<progress{share} style="width:20em"></progress>'
        self._publish(f"{self.what}: {self._line(now)}", bar)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the clock, and replace the bar by the number of points."""
        super().__exit__(kind, error, trace)
        if self._display:
            total = f" of {self.points:,}" if self.points else ""
            self._publish(f"{self.done:,}{total} {self.unit} in {self.seconds:.1f} s")

    def _publish(self, line: str, bar: str = "") -> None:
        """Show a line in the notebook, replacing the last line; bar: HTML before it."""
        from IPython.display import display, update_display

        shown = {"text/plain": line, "text/html": f"<div>{bar} {escape(line)}</div>"}
        if self._display:
            update_display(shown, display_id=self._display, raw=True)  # type: ignore[no-untyped-call]
        else:
            self._display = uuid4().hex
            display(shown, display_id=self._display, raw=True)  # type: ignore[no-untyped-call]
