"""Output of a server's calibration: what the runs have, figures before and after, and the errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from fastflow.analysis.calibration.robust_fit import AT_BOUND, NOT_DETERMINED
from fastflow.analysis.calibration.servers.fitted_server import (
    FittedServer,
    error_frame,
    figure_frame,
    mean_errors,
    run_frame,
    time_frame,
)
from fastflow.analysis.calibration.servers.replay import STATISTICS, left_out
from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.reporting.terminal.latencies import LATENCY_WORDS
from fastflow.reporting.terminal.tables import Part, console, new_sheet, print_parts, records

if TYPE_CHECKING:
    import pandas as pd

_WORDS = dict(zip(STATISTICS, ("mean", "50%", "99%"), strict=True))
_CHECK = "check the model, its data type, the chip, the layout and the server's limits"
_FAR = 0.15  # mean relative error after a fit


def show(fitted: FittedServer) -> None:
    """Print a calibration, and how its files were read."""
    out, task = console(), fitted.task
    runs, figures = run_frame(fitted), figure_frame(fitted)
    tools = ", ".join(dict.fromkeys(runs["tool"]))
    requests = pluralize(int(runs["requests"].sum()), "request")
    of_runs = pluralize(len(runs), "run")
    out.print(f"[bold]{requests} in {of_runs} of {tools}: {task.where}, server {task.server}[/]")
    for line in [*left_out(task.loads), *(note for load in task.loads for note in load.notes())]:
        out.print(line, markup=False)
    errors = error_frame(fitted)
    print_parts(parts(runs, figures, time_frame(fitted), errors))
    out.print()
    print(summary(errors))


def summary(errors: pd.DataFrame) -> str:
    """Return the mean errors of both times as a sentence; errors: of a calibration."""
    said = ", ".join(
        f"{name} {after:.1%} (before: {before:.1%})" for name, before, after in mean_errors(errors)
    )
    return f"mean relative error: {said}"


def verdicts(figures: pd.DataFrame, errors: pd.DataFrame) -> list[str]:
    """Say which figures are at a bound, and which times figures of the host do not explain."""
    far = [f"{name} is still {after:.0%} off" for name, _, after in mean_errors(errors) if after > _FAR]
    lines = []
    for row in records(figures):
        if row["state"] == AT_BOUND:
            is_zero, value = row["after"] == 0.0, units.show(float(row["after"]), "s")
            verdict = "these runs show no such time" if is_zero and not far else "the mechanism is wrong"
            lines.append(f"{row['figure']} is at its bound, {value}: {verdict}")
    if far:
        lines.append(f"figures of the host do not explain these times ({', '.join(far)}): {_CHECK}")
    return lines


def parts(
    runs: pd.DataFrame, figures: pd.DataFrame, times: pd.DataFrame, errors: pd.DataFrame
) -> Iterator[Part]:
    """Yield the tables of a calibration: its runs, the times before and after, its figures, and verdicts."""
    yield from _observed(runs)
    sheet = new_sheet(
        "Predicted",
        [("run", False), ("time", False), ("", False), ("measured", True), ("before", True), ("error", True),
         ("after", True), ("error", True)],
    )  # fmt: skip
    shown = ("", "")
    for row in records(times):
        first = (row["run"], row["time"])
        cells = [row["run"] if first[0] != shown[0] else "", row["time"] if first != shown else ""]
        shown = first
        cells += [_WORDS[row["statistic"]], units.show(row["measured_s"], "s")]
        for name in ("before_s", "after_s"):
            error = row[name] / row["measured_s"] - 1.0
            cells += [units.show(row[name], "s"), f"{error:+.1%}"]
        sheet.add_row(*cells)
    yield sheet
    sheet = new_sheet(
        "Figures", [("server.", False), ("before", True), ("after", True), ("std. error", True), ("", False)]
    )
    for row in records(figures):
        values = [units.show(float(row[name]), "s", 4) for name in ("before", "after", "standard_error")]
        is_undetermined = row["state"] == NOT_DETERMINED
        state = "not determined by these runs, not changed" if is_undetermined else row["state"]
        sheet.add_row(row["figure"], *values, "" if state == "fitted" else state)
    yield sheet
    yield from map(Text, verdicts(figures, errors))


def _observed(runs: pd.DataFrame) -> Iterator[Part]:
    """Yield the tables of what was read."""
    columns = [("run", False), ("requests", True), ("arrive", False)]
    for name in ("prompt", "answer"):
        columns += [(f"{name} {word}" if word == "mean" else word, True) for word in _WORDS.values()]
    sheet = new_sheet("Requests, with tokens of prompts and answers", columns)
    for row in records(runs):
        lengths = [
            f"{row[f'{name}_{statistic}']:,.0f}" for name in ("isl", "osl") for statistic in STATISTICS
        ]
        sheet.add_row(row["run"], f"{row['requests']:,}", row["arrivals"], *lengths)
    yield sheet
    sheet = new_sheet(
        "Measured", [("run", False), ("time", False), *((word, True) for word in _WORDS.values())]
    )
    for row in records(runs):
        name = row["run"]
        for time, words in LATENCY_WORDS.items():
            cells = [units.show(float(row[f"{time}_{statistic}_s"]), "s") for statistic in STATISTICS]
            sheet.add_row(name, f"{words} ({time})", *cells)
            name = ""
    yield sheet
