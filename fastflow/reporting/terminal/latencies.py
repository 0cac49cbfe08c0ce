"""Latencies of served requests: their means and percentiles, and the limits that they are compared with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rich.table import Table as Sheet

from fastflow.core import units
from fastflow.core.reasons.codes import Code
from fastflow.performance.serving.slo import COMPARED, LIMITS, PERCENTILE
from fastflow.reporting.terminal.tables import has_value, new_sheet, quantity

LATENCY_WORDS = {"ttft": "to the first token", "tpot": "per further token", "e2e": "to the last token"}
SESSION_WORDS = {"session": "from first request to last token", "session_wait": "waiting for answers"}
_STATISTICS = {"mean": "", "median": "_p50", "90%": "_p90", "99%": "_p99"}


class Limits(NamedTuple):
    """Limits of `serve.slo` for a point."""

    max_s: Mapping[str, float]  # of each latency [s]; 0: no limit
    percentile: float  # of requests; 0: their mean


NO_LIMITS = Limits(dict.fromkeys(LIMITS, 0.0), 0.0)


def limits_of(inputs: Mapping[str, Any]) -> Limits:
    """Return the limits of `serve.slo`; inputs: of one point."""
    return Limits({name: float(inputs[key]) for name, key in LIMITS.items()}, float(inputs[PERCENTILE]))


def latency_sheet(row: Mapping[str, Any], limits: Limits) -> Sheet:
    """Return the latencies as a table; the statistic that limits are compared with is the last."""
    shown = [name for name in LATENCY_WORDS if has_value(row, f"{name}_s")]
    parts = {
        label: part
        for label, part in _STATISTICS.items()
        if not part or any(has_value(row, f"{name}{part}_s") for name in shown)
    }
    is_simulated = any(has_value(row, f"{name}_p99_s") for name in shown)
    limited = any(limit > 0.0 for limit in limits.max_s.values())
    met_text = "[bold red]met so far[/]" if row["reason_code"] == Code.OVERLOAD.label else "met"
    if limited:
        compared = f"{limits.percentile:g}%" if is_simulated and limits.percentile > 0.0 else "mean"
        compared = "median" if compared == "50%" else compared
        parts[compared] = parts.pop(compared, "_slo")
    allowed = [("allowed", True), ("", False)] if limited else []
    names = [("", False), *((name, True) for name in parts), *allowed]
    sheet = new_sheet("Time that a request takes", names)
    for name in shown:
        cells = [quantity(f"{name}{part}_s", row.get(f"{name}{part}_s")) for part in parts.values()]
        limit = limits.max_s.get(name, 0.0)
        if limited and limit > 0.0:
            verdict = "[bold red]missed[/]" if row[COMPARED[name]] > limit else met_text
            cells += [units.show(limit, "s"), verdict]
        elif limited:
            cells += ["any", ""]
        sheet.add_row(f"{LATENCY_WORDS[name]} ({name}_s)", *cells)
    return sheet


def group_sheets(row: Mapping[str, Any]) -> Iterator[Sheet]:
    """Yield the results of classes of service, of sessions, and of their turns, where requests have them."""
    yield from _groups(row, "classes", "Classes of service")
    if has_value(row, "sessions"):
        yield _sessions(row)
        yield from _groups(row, "turns", "Turns of sessions")


def _sessions(row: Mapping[str, Any]) -> Sheet:
    """Return the times of sessions as a table."""
    sheet = new_sheet("Sessions", [("", False), ("median", True), ("99%", True), ("", False)])
    notes = f"of {row['sessions']:,.0f} sessions", "e2e_s of all requests of a session"
    for (name, words), note in zip(SESSION_WORDS.items(), notes, strict=True):
        columns = f"{name}_p50_s", f"{name}_p99_s"
        sheet.add_row(f"{words} ({name}_*_s)", *(quantity(column, row[column]) for column in columns), note)
    return sheet


def _groups(row: Mapping[str, Any], name: str, title: str) -> Iterator[Sheet]:
    """Yield the results of groups of requests, where the column of their text has any."""
    if not has_value(row, name) or not row[name]:
        return
    times = ("ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s", "e2e_p99_s")
    names = [time.removesuffix("_s").replace("_p", " ") + "%" for time in times]
    columns = ("requests", *names, "in the cache")
    sheet = new_sheet(title, [("", False), *((column, True) for column in columns)])
    for group, of_group in json.loads(row[name]).items():
        values = (quantity(time, of_group[time]) if time in of_group else "" for time in times)
        sheet.add_row(group, f"{of_group['requests']:,}", *values, f"{of_group['prefix_hit_rate']:.1%}")
    yield sheet
