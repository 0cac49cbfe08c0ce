"""Figure of a search: the convergence of the best design, and its breakdown (section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.analysis.search.optimizers.design_space import BUDGET_LABELS, BUDGETS
from fastflow.config.messages import pluralize
from fastflow.core import units
from fastflow.core.errors import InputError
from fastflow.core.pareto import nondominated
from fastflow.engine.dataset.kinds import FRONT, SEARCH
from fastflow.engine.grid.plan import CHOICES
from fastflow.reporting.charts.style import SEQUENTIAL, display_name, draw_heading
from fastflow.reporting.colours import QUIET

if TYPE_CHECKING:
    from fastflow.engine.dataset.reader import Dataset

COMPONENTS = {
    "core": "#3d4f60", "l0": "#d5e8dc", "l1": "#97c6ac", "l2": "#3f9270", "l3": "#2a6b51", "l4": "#174633",
    "dram": "#e8702a", "intra": "#b5a7d6", "inter": "#3a0ca3", "link": "#c9a227",
}  # fmt: skip
"""Colours of components, consistent with the limiters of kernels (`style.LIMITERS`)."""
_MAX_DRAWN = 4  # candidates, or fronts, drawn
_BUDGET_PREFIXES = [["chip", budget] for budget in BUDGETS]


def columns_of(names: Sequence[str]) -> list[str]:
    """Return the columns that a figure needs of a history or a front, besides those that name candidates."""
    wanted = {"candidate", "step", "score", "objective", "second_objective", "feasible"}
    return [name for name in names if name in wanted or name.split(".")[:2] in _BUDGET_PREFIXES]


def labels_of(names: Sequence[str]) -> list[str]:
    """Return the columns that may label candidates: choices, swept keys, the strategy."""
    shares = tuple(f"chip.{budget}." for budget in BUDGETS)
    swept = [name for name in names if "." in name and not name.startswith(shares)]
    chosen = ("strategy", "microbatch", "recompute", "zero")
    return [name for name in (*CHOICES, *swept, *chosen) if name in names]


def draw_dataset(dataset: Dataset) -> Figure:
    """Draw a history as `draw`, or a front as `draw_front`; raises InputError for other datasets."""
    names = dataset.schema.names
    if dataset.kind not in (SEARCH, FRONT):
        raise InputError("dataset", dataset.folder.shown, "the history, or the front, of a search")
    labels = labels_of(names)
    frame = dataset.read([*labels, *(name for name in columns_of(names) if name not in labels)])
    axes = [dataset.axis(name) for name in ("objective", "second_objective") if name in frame]
    return draw(frame, labels, *axes) if dataset.kind == SEARCH else draw_front(frame, labels, *axes)


def draw(frame: pd.DataFrame, labels: Sequence[str], objective: str, second: str = "") -> Figure:
    """Draw the best objective over the designs scored, the best breakdown, and the front if it exists.

    frame: a history in the order of scoring; labels: its columns that name candidates; objective, second:
    labels of their axes.
    """
    has_front = "second_objective" in frame
    frame, objective, second = _scale_objectives(frame, objective, second)
    figure = Figure(figsize=(4.8 * (2 + has_front), 4.1))
    valid = _valid_designs(frame)
    rows, lowest = (valid, "objective") if len(valid) else (frame, "score")
    best = rows.sort_values(lowest, kind="stable").iloc[0]
    baseline = frame[frame["candidate"] == best["candidate"]].iloc[0]
    texts = _label_texts(best, distinguishing_labels(frame, labels))
    best_note = f"best of {len(frame):,} designs: {', '.join(texts)}"
    feasible = "" if best["feasible"] else "; none is feasible"
    draw_heading(figure, "A search for the best design", f"{best_note}{feasible}")
    width = figure.get_size_inches()[0]
    grid = figure.add_gridspec(
        1, 2 + has_front, left=0.8 / width, right=1 - 0.2 / width, bottom=0.13, top=0.8, wspace=0.31
    )
    _draw_convergence(figure.add_subplot(grid[0, 0]), frame, valid, labels, objective)
    _draw_breakdowns(figure.add_subplot(grid[0, 1]), baseline, best)
    if has_front:
        _draw_trade(figure.add_subplot(grid[0, 2]), valid, objective, second)
    return figure


def _scale_objectives(frame: pd.DataFrame, objective: str, second: str) -> tuple[pd.DataFrame, str, str]:
    """Return objectives in units that suit the smallest value, and the labels of their axes."""
    axis_labels = {"objective": objective, "second_objective": second}
    for name in [name for name in axis_labels if name in frame]:
        name_of, _, unit = axis_labels[name].removesuffix("]").rpartition(" [")
        scale = units.scale_of(frame[name].abs().min(), unit)
        frame = frame.assign(**{name: frame[name] / scale.size})
        axis_labels[name] = f"{name_of} [{scale.name}]"
    return frame, axis_labels["objective"], axis_labels["second_objective"]


def draw_front(frame: pd.DataFrame, labels: Sequence[str], objective: str, second: str) -> Figure:
    """Draw fronts, a row of panels each, and how their designs share the area and the power.

    frame: front after front, each in the order of the first objective; labels: as of `draw`.
    """
    frame, objective, second = _scale_objectives(frame, objective, second)
    fronts = _fronts(frame)
    shown = fronts[:_MAX_DRAWN]
    height = 0.8 + 3.5 * max(1, len(shown))
    figure = Figure(figsize=(12.6, height))
    about = f"{pluralize(len(frame), 'design')} on the Pareto front"
    more = f"; the first {len(shown)} of {len(fronts):,} fronts" if len(fronts) > len(shown) else ""
    draw_heading(figure, "Pareto front of two objectives", about + more)
    grid = figure.add_gridspec(
        max(1, len(shown)), 3, left=0.07, right=0.985, bottom=0.7 / height, top=1 - 0.85 / height,
        wspace=0.22, hspace=0.42,
    )  # fmt: skip
    varying = distinguishing_labels(frame, labels)
    for row, front in enumerate(shown):
        constant = [name for name in varying if len(front[name].unique()) == 1] or ["strategy"]
        name = f": {', '.join(_label_texts(front.iloc[0], constant))}" if len(fronts) > 1 else ""
        axes = figure.add_subplot(grid[row, 0])
        _draw_trade(axes, front, objective, second)
        axes.set_title(f"Front{name}")
        for column, budget in enumerate(BUDGETS[:2], start=1):
            _draw_along(figure.add_subplot(grid[row, column]), front, budget, objective)
    return figure


def _fronts(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Split rows into fronts: along a front the first objective rises and the second falls."""
    first, second = frame["objective"].diff(), frame["second_objective"].diff()
    number = (~((first > 0.0) & (second < 0.0))).cumsum()
    return [front for _, front in frame.groupby(number, sort=False)]


def _draw_along(axes: Axes, front: pd.DataFrame, budget: str, objective: str) -> None:
    """Draw the shares of a budget of the designs of a front, a bar each."""
    keys = [str(key) for key in front if str(key).startswith(f"chip.{budget}.")]
    parts = [key.rpartition(".")[2] for key in keys]
    positions, bottom = np.arange(len(front)), np.zeros(len(front))
    for key, part in zip(keys, parts, strict=True):
        share = front[key].to_numpy()
        axes.bar(positions, share, bottom=bottom, width=0.94, color=COMPONENTS[part], label=part)
        bottom = bottom + share
    ticks = np.unique(np.linspace(0, len(front) - 1, min(len(front), 7)).round().astype(int))
    axes.set_xticks(ticks, [f"{front['objective'].iloc[tick]:.3g}" for tick in ticks])
    axes.set_xlim(-0.6, max(len(front), 6) - 0.4)
    axes.set_ylim(0.0, 1.0)
    axes.set_yticks([0.0, 0.5, 1.0], ["0%", "50%", "100%"])
    axes.grid(visible=False)
    axes.set_xlabel(objective, labelpad=1.0)
    axes.set_title(f"Shares of {budget}, one bar per design")
    axes.legend(ncols=len(parts), loc="upper center", bbox_to_anchor=(0.5, -0.13), columnspacing=0.7,
                handlelength=0.9, handletextpad=0.3, fontsize=7.5)  # fmt: skip


def _valid_designs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the feasible designs, or else the designs with a time."""
    timed = frame[frame["objective"].notna()]
    return timed[timed["feasible"]] if timed["feasible"].any() else timed


def distinguishing_labels(frame: pd.DataFrame, labels: Sequence[str]) -> list[str]:
    """Return the labels that vary among rows, or else the strategy."""
    return [name for name in labels if len(frame[name].unique()) > 1] or ["strategy"]


def _label_texts(row: pd.Series[Any], labels: Sequence[str]) -> list[str]:
    """Return the labels of a candidate as texts; a number stands after the last part of its key."""
    return [
        f"{name.rpartition('.')[2]} {row[name]}" if "." in name else display_name(str(row[name]))
        for name in labels
    ]


def _draw_convergence(
    axes: Axes, frame: pd.DataFrame, valid: pd.DataFrame, labels: Sequence[str], objective: str
) -> None:
    """Draw the best objective so far of the best candidates, over the designs of each."""
    design_index = frame.groupby("candidate").cumcount()
    searched = valid["candidate"].isin(frame.loc[frame["step"] > 0, "candidate"].unique())
    valid = valid[searched] if searched.any() else valid
    order = valid.groupby("candidate")["objective"].min().sort_values(kind="stable").index[:_MAX_DRAWN]
    shown_labels = distinguishing_labels(valid[valid["candidate"].isin(order)], labels)
    for number, candidate in enumerate(order):
        rows = valid[valid["candidate"] == candidate]
        falls = rows["objective"].cummin()
        last = int(design_index[frame["candidate"] == candidate].max()) + 1
        axes.step(
            [*(design_index[rows.index] + 1), last],
            [*falls, falls.iloc[-1]],
            where="post",
            color=SEQUENTIAL[::-1][number],
            linewidth=1.5,
            label=", ".join(_label_texts(rows.iloc[0], shown_labels)),
        )
    axes.set_xscale("log")
    axes.set_xlabel("designs scored of this candidate")
    axes.set_ylabel(objective)
    axes.set_title("Best so far")
    if len(order):
        axes.legend(loc="best", fontsize=7.5, handlelength=1.2)
    else:
        axes.text(0.5, 0.5, "no design makes a chip", transform=axes.transAxes, ha="center", color=QUIET)


def _draw_breakdowns(axes: Axes, baseline: pd.Series[Any], best: pd.Series[Any]) -> None:
    """Draw every budget as a bar before the search and a bar after it."""
    labels, labelled = [], set()
    for index, budget in enumerate(BUDGETS):
        keys = [str(key) for key in baseline.index if str(key).startswith(f"chip.{budget}.")]
        for after, row in enumerate((baseline, best)):
            at, left = index * 2.6 + after, 0.0
            labels.append((at, f"{BUDGET_LABELS[budget]}, {'best' if after else 'baseline'}"))
            for key in keys:
                part, share = key.rpartition(".")[2], float(row[key])
                label = None if part in labelled else part
                labelled.add(part)
                axes.barh(at, share, left=left, height=0.86, color=COMPONENTS[part], label=label)
                if share > 0.055:
                    colour = "#26323d" if part in ("l0", "l1", "intra", "dram") else "white"
                    axes.text(
                        left + share / 2, at, f"{share:.0%}", size=6.5, color=colour, ha="center", va="center"
                    )
                left += share
    axes.set_yticks([at for at, _ in labels], [text for _, text in labels])
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.0)
    axes.set_xticks([0.0, 0.5, 1.0], ["0%", "50%", "100%"])
    axes.grid(visible=False)
    axes.set_title("Breakdown")
    axes.legend(ncols=len(labelled), loc="upper center", bbox_to_anchor=(0.45, -0.05), columnspacing=0.7,
                handlelength=0.9, handletextpad=0.3, fontsize=7.5)  # fmt: skip


def _draw_trade(axes: Axes, valid: pd.DataFrame, objective: str, second: str) -> None:
    """Draw designs by both objectives around their front."""
    axes.set_title("Front")
    if valid.empty:
        axes.text(0.5, 0.5, "no design makes a chip", transform=axes.transAxes, ha="center", color=QUIET)
        return
    first_values, second_values = valid["objective"].to_numpy(), valid["second_objective"].to_numpy()
    front = nondominated(first_values, second_values)
    axes.plot(first_values, second_values, ".", color="#c9d3dc", markersize=2.5, rasterized=True)
    corners = [(first_values[index], second_values[index]) for index in front[:1]]
    for before, after in pairwise(front):
        corners += [(first_values[after], second_values[before]), (first_values[after], second_values[after])]
    axes.plot(*zip(*corners, strict=True), color=SEQUENTIAL[2], linewidth=1.2)
    axes.plot(first_values[front], second_values[front], "o", color=SEQUENTIAL[2], markersize=3.2)
    for low, high, limit in (
        (first_values[front].min(), first_values[front].max(), axes.set_xlim),
        (second_values[front].min(), second_values[front].max(), axes.set_ylim),
    ):
        room = max(high - low, 0.02 * high)
        limit(low - 0.06 * room, high + 0.5 * room)
    axes.set_xlabel(objective)
    axes.set_ylabel(second)
