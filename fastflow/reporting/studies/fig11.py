"""Packages of several accelerators, with strategy and architecture searched for each (9.2, Figure 11)."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from fastflow.core.units import percent
from fastflow.reporting.charts.style import SEQUENTIAL, display_name, draw_heading
from fastflow.reporting.studies.claims import COUNTS, Claim, gain, judge

SIZES = (1, 2, 4, 8, 16, 32)
"""Accelerators of a package."""
COLUMNS = ("tech", "mem", "net", "system.package.devices", "strategy", "time_s", "feasible")
AT_MOST = 0.40  # the paper's "roughly 32% at best", within a quarter

Point = tuple[str, str, str]
"""Logic node, memory, network."""


def times(frame: pd.DataFrame) -> dict[Point, dict[int, float]]:
    """Return the best time by technology and accelerators a package [s].

    frame: a ranking of `python -m fastflow.search -m +sweeps=fig11`. Of feasible designs, or of all
    if none is.
    """
    times_by_point: dict[Point, dict[int, float]] = {}
    keys = ["tech", "mem", "net", "system.package.devices"]
    for key, rows in frame.groupby(keys, sort=False, observed=True):
        tech, mem, net, size = map(str, key)
        fits = rows[rows["feasible"].astype(bool)]
        time = float((fits if len(fits) else rows)["time_s"].min())
        if time == time:
            times_by_point.setdefault((tech, mem, net), {})[int(size)] = time
    return times_by_point


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Judge the claims of section 9.2 on packages."""
    times_by_point = times(frame)
    missing = [
        f"{_name(point)} in packages of {size}"
        for point, row in times_by_point.items()
        for size in SIZES
        if size not in row
    ] or ([] if times_by_point else ["any point"])
    return [
        judge("larger packages gain at most about 32%", missing, lambda: _judge_best_gain(times_by_point)),
        judge(
            "beyond 4 accelerators per package the gain is marginal",
            missing,
            lambda: _judge_beyond_four(times_by_point),
        ),
    ]


def _name(point: Point) -> str:
    return " ".join(map(display_name, point))


def _judge_best_gain(times_by_point: dict[Point, dict[int, float]]) -> tuple[str, bool]:
    gains = {point: gain(row[1], min(row.values())) for point, row in times_by_point.items()}
    figure = ", ".join(f"{_name(point)} {percent(value)}" for point, value in gains.items())
    return figure, max(gains.values()) <= AT_MOST


def _judge_beyond_four(times_by_point: dict[Point, dict[int, float]]) -> tuple[str, bool]:
    gains = {
        point: gain(min(row[size] for size in SIZES[:3]), min(row.values()))
        for point, row in times_by_point.items()
    }
    figure = ", ".join(f"{_name(point)} {percent(value)}" for point, value in gains.items())
    return figure, max(gains.values()) < COUNTS


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the speedup of packages over single accelerators, a panel a network, a line a node."""
    times_by_point = times(frame)
    networks = list(dict.fromkeys((mem, net) for _, mem, net in times_by_point))
    figure = Figure(figsize=(4.6 * max(1, len(networks)) + 0.6, 4.0))
    about = "speedup over single accelerators; strategy and architecture searched for each size"
    draw_heading(figure, "Accelerators per package (section 9.2)", about)
    width = figure.get_size_inches()[0]
    grid = figure.add_gridspec(
        1, max(1, len(networks)), left=0.6 / width, right=1 - 0.15 / width, bottom=0.12, top=0.78, wspace=0.1
    )
    most = max((row[1] / min(row.values()) for row in times_by_point.values() if 1 in row), default=1.0)
    for index, (mem, net) in enumerate(networks):
        axes = figure.add_subplot(grid[0, index])
        nodes = [point for point in times_by_point if point[1:] == (mem, net) and 1 in times_by_point[point]]
        for number, point in enumerate(nodes):
            row = times_by_point[point]
            sizes = sorted(row)
            axes.plot(
                range(len(sizes)),
                [row[1] / row[size] for size in sizes],
                color=SEQUENTIAL[1:][number % (len(SEQUENTIAL) - 1)],
                marker="o",
                markersize=4,
                linewidth=1.6,
                label=f"{display_name(point[0])}, {row[1]:.2f} s without",
            )
            axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axes.axhline(1.32, color="#9aa7b4", linewidth=0.9, linestyle="--")
        axes.text(0.0, 1.325, "the paper's best, 32%", size=7, color="#5c6b7a", va="bottom")
        axes.set_ylim(0.97, max(1.45, 1.06 * most))
        axes.set_title(f"{display_name(mem)}, {display_name(net)}")
        axes.set_xlabel("accelerators per package")
        axes.legend(loc="upper left", ncols=3, fontsize=7.5, columnspacing=1.2, handlelength=1.4)
        if index == 0:
            axes.set_ylabel("speedup")
    return figure
