"""A fleet over time: requests that wait and run, first tokens, batches, caches by tier, servers."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.performance.serving.fleet.run import FleetRun
from fastflow.reporting.charts.style import QUALITATIVE, draw_heading
from fastflow.reporting.fleet_series import Panel, panels_of


def draw(run: FleetRun, title: str) -> Figure:
    """Return the figure of a simulated fleet; title: of its point."""
    panels = panels_of(run)
    height = 0.95 + 1.9 * len(panels)
    figure = Figure(figsize=(8.0, height))
    rows = figure.subplots(len(panels), 1, sharex=True)
    figure.subplots_adjust(left=0.08, right=0.97, top=1.0 - 0.95 / height, bottom=0.45 / height, hspace=0.42)
    hours = run.result.timeline.time.max(initial=0.0) > 2 * 3600.0
    unit, time = ("h", 3600.0) if hours else ("s", 1.0)
    for axes, panel in zip(rows, panels, strict=True):
        _draw_panel(axes, panel, time)
    rows[-1].set_xlabel(f"time [{unit}]")
    requests, ends = run.trace.isl.size, run.result.requests.end.max()
    draw_heading(
        figure, title, f"{requests:,} requests, the last of which ends after {ends / time:,.3g} {unit}"
    )
    return figure


def _draw_panel(axes: Axes, panel: Panel, time: float) -> None:
    """Draw a panel; time: of a unit of its axis [s]."""
    at, values = panel.time / time, [series.values for series in panel.series]
    names = [series.name for series in panel.series]
    if panel.is_stacked:
        step = "post" if panel.is_stepped else None
        axes.stackplot(at, *values, colors=QUALITATIVE, labels=names, alpha=0.85, step=step)
    else:
        marker = "." if panel.has_gaps else None
        for name, line, colour in zip(names, values, QUALITATIVE, strict=False):
            axes.plot(at, line, color=colour, label=name, marker=marker, markersize=3, linewidth=1.2)
    axes.set_title(panel.title + (f" [{panel.unit}]" if panel.unit else ""))
    axes.set_ylim(bottom=0.0)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=5, borderaxespad=0.0)
