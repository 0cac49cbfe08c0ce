"""The page of a fleet: results with their limits, over time, as distributions, by group; and its inputs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

import numpy as np
from rich.text import Text

from fastflow.core.tables import Floats
from fastflow.core.units import scales, show
from fastflow.engine.dataset.reader import Dataset
from fastflow.performance.serving.fleet.run import FleetRun
from fastflow.performance.serving.slo import COMPARED
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.physics.workload.request_trace import read_trace
from fastflow.reporting.fleet_series import Curve, Panel, curves_of, first_tokens, panels_of, session_curves
from fastflow.reporting.html.columns import page_title, provenance_of
from fastflow.reporting.html.content import Headline, Listing
from fastflow.reporting.html.elements import filled, headline, listing, pairs
from fastflow.reporting.terminal.latencies import LATENCY_WORDS, SESSION_WORDS, Limits, limits_of
from fastflow.reporting.terminal.serving import load_of
from fastflow.reporting.terminal.tables import (
    LABEL,
    assumption_lines,
    has_value,
    point_title,
    quantity,
    validation_lines,
)
from fastflow.schema import find_input

_STATISTICS = {"mean": "", "median": "_p50", "90%": "_p90", "95%": "_p95", "99%": "_p99"}
_OF_GROUPS = ("ttft", "tpot", "e2e"), (50, 95, 99)
_INPUTS = ("parallel.strategy", "router.", "serve.", "server.", "system.")
"""Keys, and sections of keys, that the page lists."""


def fleet_page(run: FleetRun, row: Mapping[str, Any], inputs: Mapping[str, Any], dataset: Dataset) -> bytes:
    """Return the file of the page of a fleet, UTF-8; row: of its point in its dataset.

    inputs: of the point, scalars by dotted key.
    """
    limits = limits_of(inputs)
    lines = [plain(point_title(row)), ", ".join(load_of(inputs, simulated=True))]
    if not row["feasible"]:
        lines.append(f"Not feasible: {row['reason']}")
    notes = [_note(line) for line in (*validation_lines([row]), *assumption_lines([row]))]
    values = {
        "title": escape(page_title(dataset, "Fleet")),
        "summary": "".join(f"<p>{escape(line)}</p>" for line in lines)
        + "".join(f'<p class="note">{escape(note)}</p>' for note in notes),
        "provenance": pairs(provenance_of(dataset, "sweep")),
        "headlines": "".join(map(headline, _headlines(row, limits))),
        "time_note": escape(_time_note(run)),
        "listings": "".join(map(listing, _listings(row, limits))),
        "inputs": _inputs(inputs),
    }
    return filled("fleet.html", values, _data(run, inputs, limits), ("fleet.js",))


def plain(line: str) -> str:
    """Return a line of the screen without its markup."""
    return Text.from_markup(line).plain


def _note(line: str) -> str:
    """Return a line of the screen whose label, if any, ends in a colon."""
    label, rest = plain(line)[:LABEL].strip(), plain(line)[LABEL:]
    return f"{label}: {rest}" if label else rest


def _statistic(limits: Limits) -> str:
    """Return the statistic of requests that limits are compared with."""
    if limits.percentile == 0.0:
        return "mean"
    return "median" if limits.percentile == 50.0 else f"{limits.percentile:g}%"


def _headlines(row: Mapping[str, Any], limits: Limits) -> Iterator[Headline]:
    words = _statistic(limits)
    for name, what in LATENCY_WORDS.items():
        limit = limits.max_s.get(name, 0.0)
        if not has_value(row, f"{name}_s"):
            continue
        if limit > 0.0:
            verdict = "missed" if row[COMPARED[name]] > limit else "met"
            value = quantity(COMPARED[name], row[COMPARED[name]])
            yield Headline(f"Time {what}, {words}", value, f"limit {show(limit, 's')}: {verdict}")
        else:
            value = quantity(f"{name}_p99_s", row[f"{name}_p99_s"])
            note = f"median {quantity(f'{name}_p50_s', row[f'{name}_p50_s'])}"
            yield Headline(f"Time {what}, 99%", value, note)
    rate = quantity("requests_per_s", row["requests_per_s"])
    if has_value(row, "goodput_per_s"):
        share = row["goodput_per_s"] / row["requests_per_s"]
        good = quantity("goodput_per_s", row["goodput_per_s"])
        yield Headline("Goodput", good, f"{share:.1%} of {rate} are within the limits")
    else:
        yield Headline("Requests", rate, "no limit is set (serve.slo)")
    per_device = quantity("tokens_per_s_per_device", row["tokens_per_s_per_device"])
    tokens = quantity("tokens_per_s", row["tokens_per_s"])
    yield Headline("Output tokens", tokens, f"{per_device} on each of {row['devices']:,} devices")
    hits, read = f"{row['prefix_hit_rate']:.1%}", f"{row['tier_hit_rate']:.1%} read from lower tiers"
    yield Headline("Prompts in the cache", hits, read)
    starts = f", started {row['server_starts']:,.0f} times" if row["server_starts"] else ""
    yield Headline("Servers on", f"{row['servers_on']:,.3g}", f"mean over time{starts}")
    if has_value(row, "sessions"):
        longest = f"99% within {quantity('session_p99_s', row['session_p99_s'])}"
        median = f"median {quantity('session_p50_s', row['session_p50_s'])}"
        yield Headline("Sessions", f"{row['sessions']:,.0f}", f"{median}, {longest}")


def _time_note(run: FleetRun) -> str:
    note = "Drag over a chart to zoom into its time; point at it for values."
    if run.is_split:
        note += " Requests that were preempted count as running."
    return note


def _listings(row: Mapping[str, Any], limits: Limits) -> Iterator[Listing]:
    """Yield the tables of the page."""
    yield _latencies(row, limits)
    for name, title in (("classes", "Classes of service"), ("turns", "Turns of sessions")):
        if has_value(row, name) and row[name]:
            yield _groups(title, json.loads(row[name]))
        if name == "classes" and has_value(row, "sessions"):
            columns = ("", "median", "99%")
            rows = tuple(
                (words, *(quantity(f"{key}{part}_s", row[f"{key}{part}_s"]) for part in ("_p50", "_p99")))
                for key, words in SESSION_WORDS.items()
            )
            yield Listing("Sessions", f"Of {row['sessions']:,.0f} sessions.", columns, rows)


def _latencies(row: Mapping[str, Any], limits: Limits) -> Listing:
    """Return the times of requests as a table."""
    words = _statistic(limits)
    limited = any(limit > 0.0 for limit in limits.max_s.values())
    rows = []
    for name, what in LATENCY_WORDS.items():
        if not has_value(row, f"{name}_s"):
            continue
        cells = [quantity(f"{name}{part}_s", row.get(f"{name}{part}_s")) for part in _STATISTICS.values()]
        limit = limits.max_s.get(name, 0.0)
        if limited and limit > 0.0:
            verdict = "missed" if row[COMPARED[name]] > limit else "met"
            cells += [f"{words} within {show(limit, 's')}", verdict]
        elif limited:
            cells += ["any", ""]
        rows.append((what, *cells))
    more = ("limit (serve.slo)", "") if limited else ()
    return Listing("Time that a request takes", "", ("", *_STATISTICS, *more), tuple(rows))


def _groups(title: str, groups: Mapping[str, Mapping[str, float]]) -> Listing:
    """Return the results of groups of requests as a table."""
    times, shares = _OF_GROUPS
    names = [(f"{name}_p{share}_s", f"{name} {share}%") for name in times for share in shares]
    columns = ("", "requests", *(words for _, words in names), "goodput", "in the cache", "from lower tiers")
    rows = tuple(
        (
            name,
            f"{group['requests']:,}",
            *(quantity(key, group[key]) if key in group else "" for key, _ in names),
            quantity("goodput_per_s", group["goodput_per_s"]),
            *(f"{group[key]:.1%}" for key in ("prefix_hit_rate", "tier_hit_rate")),
        )
        for name, group in groups.items()
    )
    return Listing(title, "The last two columns are shares of the tokens of prompts.", columns, rows)


def _inputs(inputs: Mapping[str, Any]) -> str:
    """Return the keys of the sections that the fleet follows from, as a table."""
    rows = []
    for key in sorted(key for key in inputs if key.startswith(_INPUTS)):
        column = find_input(key)
        rows.append((key, quantity(key, inputs[key]), column.meaning if column is not None else ""))
    cells = "".join(
        f'<tr><td class="text">{escape(key)}</td><td>{escape(value)}</td><td class="text">{escape(meaning)}'
        "</td></tr>"
        for key, value, meaning in rows
    )
    head = '<tr><th class="text">key</th><th>value</th><th class="text">meaning</th></tr>'
    return f'<div class="table inputs"><table><thead>{head}</thead><tbody>{cells}</tbody></table></div>'


def _data(run: FleetRun, inputs: Mapping[str, Any], limits: Limits) -> bytes:
    """Return the data of the charts, compressed."""
    file = read_trace(str(inputs[TRACE]))
    limited = first_tokens(run).title
    charts = [
        {
            "title": f"Time {LATENCY_WORDS[name]}",
            "curves": [_curve(curve) for curve in curves],
            "limit": limits.max_s.get(name, 0.0),
        }
        for name, curves in curves_of(run, file).items()
        if curves
    ]
    sessions = session_curves(run, file)
    if sessions:
        charts.append({"title": "Sessions", "curves": [_curve(curve) for curve in sessions], "limit": 0.0})
    data = {
        "units": {unit: scales(unit) for unit in ("s", "")},
        "until": float(run.result.requests.end.max()),
        "panels": [
            _panel(panel, limits.max_s["ttft"] if panel.title == limited else 0.0) for panel in panels_of(run)
        ],
        "times": charts,
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), 9, mtime=0)


def _panel(panel: Panel, limit: float) -> dict[str, Any]:
    return {
        "title": panel.title, "unit": panel.unit, "time": _numbers(panel.time),
        "series": [{"name": series.name, "values": _numbers(series.values)} for series in panel.series],
        "is_stacked": panel.is_stacked, "is_stepped": panel.is_stepped, "has_gaps": panel.has_gaps,
        "limit": limit,
    }  # fmt: skip


def _curve(curve: Curve) -> dict[str, Any]:
    word = "turn" if curve.name.isdigit() else "turns"
    name = f"{word} {curve.name}" if curve.by == "turn" else curve.name
    return {
        "by": curve.by, "name": name, "values": _numbers(curve.values), "shares": _numbers(curve.shares)
    }  # fmt: skip


def _numbers(values: Floats | Iterable[float]) -> list[float | None]:
    """Return numbers with as many digits as a chart shows, None for NaN."""
    return [None if np.isnan(value) else float(f"{value:.6g}") for value in values]
