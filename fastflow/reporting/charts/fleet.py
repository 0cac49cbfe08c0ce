"""A fleet over time: requests that wait and run, first tokens, caches by tier, servers that are on."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.core.tables import Floats
from fastflow.performance.serving.fleet.run import FleetRun
from fastflow.reporting.charts.style import QUALITATIVE, draw_heading

_TIERS = ("devices", "host", "flash", "remote")
_BINS = 60


def draw(run: FleetRun, title: str) -> Figure:
    """Return the figure of a simulated fleet; title: of its point."""
    timeline = run.result.timeline
    scales = bool(np.ptp(timeline.open) > 0 or timeline.starting.any())
    rows = 4 if scales else 3
    height = 0.95 + 1.9 * rows
    figure = Figure(figsize=(8.0, height))
    panels = figure.subplots(rows, 1, sharex=True)
    figure.subplots_adjust(left=0.08, right=0.97, top=1.0 - 0.95 / height, bottom=0.45 / height, hspace=0.42)
    hours = timeline.time.max(initial=0.0) > 2 * 3600.0
    unit, time = ("h", 3600.0) if hours else ("s", 1.0)
    at = timeline.time / time
    _requests(panels[0], at, timeline.waiting, timeline.running)
    _first_tokens(panels[1], run, time)
    _caches(panels[2], at, timeline.used_tokens, timeline.cached_tokens)
    if scales:
        panels[3].step(at, timeline.open, where="post", color=QUALITATIVE[0], label="take requests")
        both = timeline.open + timeline.starting
        panels[3].step(at, both, where="post", color=QUALITATIVE[3], label="or start", linewidth=0.8)
        _finish(panels[3], "Servers")
    panels[-1].set_xlabel(f"time [{unit}]")
    requests, ends = run.trace.isl.size, run.result.requests.end.max()
    draw_heading(
        figure, title, f"{requests:,} requests, the last of which ends after {ends / time:,.3g} {unit}"
    )
    return figure


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.set_ylim(bottom=0.0)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=5, borderaxespad=0.0)


def _requests(axes: Axes, at: Floats, waiting: Floats, running: Floats) -> None:
    axes.stackplot(at, running, waiting, colors=QUALITATIVE[:2], labels=("running", "waiting"), alpha=0.85)
    _finish(axes, "Requests")


def _first_tokens(axes: Axes, run: FleetRun, time: float) -> None:
    """Draw percentiles of the time to the first token, by the time of arrival."""
    count = run.trace.isl.size
    sent, ttft = run.result.served.arrived[:count], run.result.requests.first[:count]
    ttft = ttft - sent
    edges = np.linspace(0.0, max(float(sent.max(initial=0.0)), 1e-9), _BINS + 1)
    bins = np.clip(np.digitize(sent, edges) - 1, 0, _BINS - 1)
    middles = 0.5 * (edges[1:] + edges[:-1]) / time
    for percentile, colour in ((50, QUALITATIVE[0]), (99, QUALITATIVE[1])):
        values = [
            np.percentile(ttft[bins == i], percentile) if (bins == i).any() else np.nan for i in range(_BINS)
        ]
        axes.plot(middles, values, color=colour, label=f"{percentile}th percentile", marker=".", markersize=3)
    _finish(axes, "Time to the first token [s], by arrival")


def _caches(axes: Axes, at: Floats, used: Floats, cached: Floats) -> None:
    """Draw the tokens that are in the caches."""
    labels = ["in use", *(f"kept: {name}" for name in _TIERS[: cached.shape[1]])]
    axes.stackplot(at, used / 1e6, *(cached.T / 1e6), colors=QUALITATIVE, labels=labels, alpha=0.85)
    _finish(axes, "Texts in caches [million tokens]")
