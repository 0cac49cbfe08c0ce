"""Search over strategy, architecture and model in turn, for each node (section 9.2, Figure 10)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.reporting.charts.style import SEQUENTIAL, display_name, draw_heading
from fastflow.reporting.studies.claims import Claim, judge
from fastflow.reporting.studies.fig09 import NODES

NAIVE = "d512"
PAPER_MODEL = {"model.hidden": 16384, "model.layers": 2, "model.batch": 16384, "model.sequence": 20}
LEVELS = ("naive strategy", "best strategy", "and architecture", "and model")
COLUMNS = (
    "tech", "mem", "net", "strategy", *PAPER_MODEL, "time_s", "feasible",
    "baseline_objective", "baseline_feasible",
)  # fmt: skip
ABOUT_TWICE = (1.6, 2.5)  # 2 within a quarter
MARGINAL = (0.16, 0.375)  # the paper's 20 to 30%, within a quarter
MEANINGFUL = 0.30  # more than the paper's marginal gain
ALMOST_TWO = 1.5  # nodes

Curve = dict[str, list[float]]
"""Level to the times [s] by index in NODES, NaN for none."""


def curves(frame: pd.DataFrame) -> dict[tuple[str, str], Curve]:
    """Return times by memory and network; a ranking of `python -m fastflow.search -m +sweeps=fig10`.

    A level is the best of feasible designs, or of all designs if none is feasible. The naive strategy is
    never feasible here, as in the paper.
    """
    by_technology: dict[tuple[str, str], Curve] = {}
    for (mem, net), rows_of_technology in frame.groupby(["mem", "net"], sort=False, observed=True):
        curve: Curve = {level: [] for level in LEVELS}
        for node in NODES:
            rows = rows_of_technology[rows_of_technology["tech"] == node]
            paper = rows[(rows[list(PAPER_MODEL)] == list(PAPER_MODEL.values())).all(axis=1)]
            naive = paper[paper["strategy"] == NAIVE]
            times = (
                _least_time(naive, "baseline_objective", "baseline_feasible"),
                _least_time(paper, "baseline_objective", "baseline_feasible"),
                _least_time(paper, "time_s", "feasible"),
                _least_time(rows, "time_s", "feasible"),
            )
            for level, time in zip(LEVELS, times, strict=True):
                curve[level].append(time)
        by_technology[str(mem), str(net)] = curve
    return by_technology


def _least_time(rows: pd.DataFrame, time: str, feasible: str) -> float:
    fits = rows[rows[feasible].astype(bool)]
    return float((fits if len(fits) else rows)[time].min())


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Judge the claims of section 9.2 on co-optimisation, for each memory and network."""
    judged = []
    for (mem, net), curve in curves(frame).items():
        where = f"with {display_name(mem)} and {display_name(net)}"
        missing = [
            f"{display_name(node)} {level}"
            for level in LEVELS
            for node, time in zip(NODES, curve[level], strict=True)
            if time != time
        ]
        for text, decide in (
            ("the strategy alone is worth about 2x", _judge_strategy),
            ("the architecture adds a meaningful gain at N12 and N7", _judge_mature_nodes),
            ("the architecture adds 20 to 30% from N5 on", _judge_advanced_nodes),
            ("the model adds as much as almost two nodes, at N12, N7 and N5", _judge_model),
        ):
            judged.append(judge(f"{where}, {text}", missing, partial(decide, curve)))
    return judged


def _ratios(curve: Curve, before: str, after: str) -> list[float]:
    return [a / b for a, b in zip(curve[before], curve[after], strict=True)]


def _format_by_node(values: Sequence[float], form: str) -> str:
    return ", ".join(
        f"{display_name(node)} {form.format(value)}" for node, value in zip(NODES, values, strict=False)
    )


def _judge_strategy(curve: Curve) -> tuple[str, bool]:
    ratios = _ratios(curve, LEVELS[0], LEVELS[1])
    return _format_by_node(ratios, "{:.2f}x"), all(
        ABOUT_TWICE[0] <= ratio <= ABOUT_TWICE[1] for ratio in ratios
    )


def _judge_mature_nodes(curve: Curve) -> tuple[str, bool]:
    gains = [ratio - 1.0 for ratio in _ratios(curve, LEVELS[1], LEVELS[2])]
    return _format_by_node(gains[:2], "{:.0%}"), min(gains[:2]) >= MEANINGFUL


def _judge_advanced_nodes(curve: Curve) -> tuple[str, bool]:
    gains = [ratio - 1.0 for ratio in _ratios(curve, LEVELS[1], LEVELS[2])]
    figure = ", ".join(
        f"{display_name(node)} {gain:.0%}" for node, gain in zip(NODES[2:], gains[2:], strict=True)
    )
    return figure, all(MARGINAL[0] <= gain <= MARGINAL[1] for gain in gains[2:])


def equivalent_nodes(curve: Curve, node_index: int) -> float:
    """Return the number of nodes after which the architecture alone is as fast as with the model at a node.

    Logarithms of time are interpolated between nodes, up to the last node.
    """
    target, times = log(curve[LEVELS[3]][node_index]), [log(time) for time in curve[LEVELS[2]]]
    for later in range(node_index, len(times) - 1):
        if times[later + 1] <= target:
            fall = times[later] - times[later + 1]
            return later - node_index + ((times[later] - target) / fall if fall > 0.0 else 1.0)
    return float(len(times) - 1 - node_index)


def _judge_model(curve: Curve) -> tuple[str, bool]:
    nodes = [equivalent_nodes(curve, node_index) for node_index in range(3)]
    gains = [ratio - 1.0 for ratio in _ratios(curve, LEVELS[2], LEVELS[3])]
    parts = [
        f"{display_name(node)} {count:.1f} nodes ({gain:.0%})"
        for node, count, gain in zip(NODES, nodes, gains, strict=False)
    ]
    return ", ".join(parts), min(nodes) >= ALMOST_TWO


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the time of every level over nodes, a panel for each memory and network."""
    by_technology = curves(frame)
    figure = Figure(figsize=(7.2 * max(1, len(by_technology)) + 0.4, 4.6))
    about = "time of one iteration; every level adds one search to the level before"
    if not frame.loc[frame["strategy"] == NAIVE, "baseline_feasible"].any():
        about += f"; {NAIVE} fits its memory at no point"
    draw_heading(figure, "Strategy, architecture and model searched together (section 9.2)", about)
    width = figure.get_size_inches()[0]
    grid = figure.add_gridspec(
        1,
        max(1, len(by_technology)),
        left=0.62 / width,
        right=1 - 0.15 / width,
        bottom=0.08,
        top=0.8,
        wspace=0.12,
    )
    for index, ((mem, net), curve) in enumerate(by_technology.items()):
        axes = figure.add_subplot(grid[0, index])
        _draw_levels(axes, curve)
        axes.set_title(f"{display_name(mem)}, {display_name(net)}")
        axes.set_ylabel("time [s]")
        if index == 0:
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="upper right", ncols=2, bbox_to_anchor=(1.0 - 0.1 / width, 0.99)
            )
    return figure


def _draw_levels(axes: Axes, curve: Curve) -> None:
    """Draw a group of bars a node, a bar a level, with its gain over the level before."""
    wide = 0.2
    for number, level in enumerate(LEVELS):
        at = [node + (number - 1.5) * wide for node in range(len(NODES))]
        axes.bar(at, curve[level], width=wide * 0.92, color=SEQUENTIAL[number], label=level)
        if number:
            before = curve[LEVELS[number - 1]]
            for x, time, previous in zip(at, curve[level], before, strict=True):
                if time == time and previous == previous:
                    axes.text(
                        x, time, f" {previous / time:.2f}x", rotation=90, size=7, ha="center", va="bottom"
                    )
    axes.set_xticks(range(len(NODES)), [display_name(node) for node in NODES])
