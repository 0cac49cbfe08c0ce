"""Figure of a search: the convergence of the best design, and its breakdown (section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.analysis.search.optimizers.design_space import BUDGETS
from fastflow.config.messages import counted
from fastflow.core import units
from fastflow.core.pareto import nondominated
from fastflow.reporting.charts.style import SCALE, head, written
from fastflow.reporting.colours import QUIET

COMPONENTS = {
    "core": "#3d4f60", "l0": "#d5e8dc", "l1": "#97c6ac", "l2": "#3f9270", "l3": "#2a6b51", "l4": "#174633",
    "dram": "#e8702a", "intra": "#b5a7d6", "inter": "#3a0ca3", "link": "#c9a227",
}  # fmt: skip
"""Colours of what shares go to, as of what limits kernels (`style.LIMITERS`)."""
_MOST = 4  # candidates, or fronts, drawn
_BREAKDOWNS = [["chip", budget] for budget in BUDGETS]


def columns_of(names: Sequence[str]) -> list[str]:
    """Return the columns that a figure needs of a history or a front, beside those that name candidates."""
    wanted = {"candidate", "step", "score", "objective", "second_objective", "feasible"}
    return [name for name in names if name in wanted or name.split(".")[:2] in _BREAKDOWNS]


def draw(frame: pd.DataFrame, labels: Sequence[str], objective: str, second: str = "") -> Figure:
    """Draw the best objective over the designs scored, the best breakdown, and a front if there is one.

    frame: a history in the order of scoring; labels: its columns that name candidates; objective, second: how
    their axes are called.
    """
    has_front = "second_objective" in frame
    frame, objective, second = _scaled(frame, objective, second)
    figure = Figure(figsize=(4.8 * (2 + has_front), 4.1))
    counted = _counted(frame)
    rows, lowest = (counted, "objective") if len(counted) else (frame, "score")
    best = rows.sort_values(lowest, kind="stable").iloc[0]
    own = frame[frame["candidate"] == best["candidate"]].iloc[0]
    what = f"best of {len(frame):,} designs: {', '.join(_named(best, telling(frame, labels)))}"
    feasible = "" if best["feasible"] else "; none is feasible"
    head(figure, "A search for the best design", f"{what}{feasible}")
    width = figure.get_size_inches()[0]
    grid = figure.add_gridspec(
        1, 2 + has_front, left=0.8 / width, right=1 - 0.2 / width, bottom=0.13, top=0.8, wspace=0.31
    )
    _draw_convergence(figure.add_subplot(grid[0, 0]), frame, counted, labels, objective)
    _draw_breakdowns(figure.add_subplot(grid[0, 1]), own, best)
    if has_front:
        _draw_trade(figure.add_subplot(grid[0, 2]), counted, objective, second)
    return figure


def _scaled(frame: pd.DataFrame, objective: str, second: str) -> tuple[pd.DataFrame, str, str]:
    """Return objectives in units that suit the least of them, and how their axes are called then."""
    called = {"objective": objective, "second_objective": second}
    for name in [name for name in called if name in frame]:
        what, _, unit = called[name].removesuffix("]").rpartition(" [")
        scale = units.scale_of(frame[name].abs().min(), unit)
        frame = frame.assign(**{name: frame[name] / scale.size})
        called[name] = f"{what} [{scale.name}]"
    return frame, called["objective"], called["second_objective"]


def draw_front(frame: pd.DataFrame, labels: Sequence[str], objective: str, second: str) -> Figure:
    """Draw fronts, a row of panels each, and how their designs share the area and the power.

    frame: front after front, each in the order of the first objective; labels: as of `draw`.
    """
    frame, objective, second = _scaled(frame, objective, second)
    fronts = _fronts(frame)
    shown = fronts[:_MOST]
    height = 0.8 + 3.5 * max(1, len(shown))
    figure = Figure(figsize=(12.6, height))
    about = f"{counted(len(frame), 'design')} on the Pareto front"
    more = f"; the first {len(shown)} of {len(fronts):,} fronts" if len(fronts) > len(shown) else ""
    head(figure, "Pareto front of two objectives", about + more)
    grid = figure.add_gridspec(
        max(1, len(shown)), 3, left=0.07, right=0.985, bottom=0.7 / height, top=1 - 0.85 / height,
        wspace=0.22, hspace=0.42,
    )  # fmt: skip
    of_all = telling(frame, labels)
    for row, front in enumerate(shown):
        alike = [name for name in of_all if len(front[name].unique()) == 1] or ["strategy"]
        name = f": {', '.join(_named(front.iloc[0], alike))}" if len(fronts) > 1 else ""
        axes = figure.add_subplot(grid[row, 0])
        _draw_trade(axes, front, objective, second)
        axes.set_title(f"Front{name}")
        for place, budget in enumerate(BUDGETS[:2], start=1):
            _draw_along(figure.add_subplot(grid[row, place]), front, budget, objective)
    return figure


def _fronts(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Cut rows where a front ends: along one the first objective rises and the second falls."""
    first, second = frame["objective"].diff(), frame["second_objective"].diff()
    number = (~((first > 0.0) & (second < 0.0))).cumsum()
    return [front for _, front in frame.groupby(number, sort=False)]


def _draw_along(axes: Axes, front: pd.DataFrame, budget: str, objective: str) -> None:
    """Draw how the designs of a front share a budget, a bar each."""
    keys = [str(key) for key in front if str(key).startswith(f"chip.{budget}.")]
    parts = [key.rpartition(".")[2] for key in keys]
    at, bottom = np.arange(len(front)), np.zeros(len(front))
    for key, part in zip(keys, parts, strict=True):
        share = front[key].to_numpy()
        axes.bar(at, share, bottom=bottom, width=0.94, color=COMPONENTS[part], label=part)
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


def _counted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the designs that count: the feasible ones, or those with a time where none is."""
    timed = frame[frame["objective"].notna()]
    return timed[timed["feasible"]] if timed["feasible"].any() else timed


def telling(frame: pd.DataFrame, labels: Sequence[str]) -> list[str]:
    """Return the labels that are not the same in every row, or the strategy."""
    return [name for name in labels if len(frame[name].unique()) > 1] or ["strategy"]


def _named(row: pd.Series[Any], labels: Sequence[str]) -> list[str]:
    """Write what tells a candidate apart; a number after the last part of its key."""
    return [
        f"{name.rpartition('.')[2]} {row[name]}" if "." in name else written(str(row[name]))
        for name in labels
    ]


def _draw_convergence(
    axes: Axes, frame: pd.DataFrame, counted: pd.DataFrame, labels: Sequence[str], objective: str
) -> None:
    """Draw the best objective so far of the best candidates, over their own designs."""
    place = frame.groupby("candidate").cumcount()
    searched = counted["candidate"].isin(frame.loc[frame["step"] > 0, "candidate"].unique())
    counted = counted[searched] if searched.any() else counted
    order = counted.groupby("candidate")["objective"].min().sort_values(kind="stable").index[:_MOST]
    apart = telling(counted[counted["candidate"].isin(order)], labels)
    for number, candidate in enumerate(order):
        rows = counted[counted["candidate"] == candidate]
        falls = rows["objective"].cummin()
        last = int(place[frame["candidate"] == candidate].max()) + 1
        axes.step(
            [*(place[rows.index] + 1), last],
            [*falls, falls.iloc[-1]],
            where="post",
            color=SCALE[::-1][number],
            linewidth=1.5,
            label=", ".join(_named(rows.iloc[0], apart)),
        )
    axes.set_xscale("log")
    axes.set_xlabel("designs scored of this candidate")
    axes.set_ylabel(objective)
    axes.set_title("Best so far")
    if len(order):
        axes.legend(loc="best", fontsize=7.5, handlelength=1.2)
    else:
        axes.text(0.5, 0.5, "no design makes a chip", transform=axes.transAxes, ha="center", color=QUIET)


def _draw_breakdowns(axes: Axes, own: pd.Series[Any], best: pd.Series[Any]) -> None:
    """Draw every budget as a bar before the search and one after it."""
    labels, named = [], set()
    for place, budget in enumerate(BUDGETS):
        keys = [str(key) for key in own.index if str(key).startswith(f"chip.{budget}.")]
        for after, row in enumerate((own, best)):
            at, left = place * 2.6 + after, 0.0
            labels.append((at, f"{budget}, {'best' if after else 'own'}"))
            for key in keys:
                part, share = key.rpartition(".")[2], float(row[key])
                label = None if part in named else part
                named.add(part)
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
    axes.legend(ncols=len(named), loc="upper center", bbox_to_anchor=(0.45, -0.05), columnspacing=0.7,
                handlelength=0.9, handletextpad=0.3, fontsize=7.5)  # fmt: skip


def _draw_trade(axes: Axes, counted: pd.DataFrame, objective: str, second: str) -> None:
    """Draw designs by both objectives around their front."""
    axes.set_title("Front")
    if counted.empty:
        axes.text(0.5, 0.5, "no design makes a chip", transform=axes.transAxes, ha="center", color=QUIET)
        return
    first, other = counted["objective"].to_numpy(), counted["second_objective"].to_numpy()
    edge = nondominated(first, other)
    axes.plot(first, other, ".", color="#c9d3dc", markersize=2.5, rasterized=True)
    corners = [(first[place], other[place]) for place in edge[:1]]
    for before, after in pairwise(edge):
        corners += [(first[after], other[before]), (first[after], other[after])]
    axes.plot(*zip(*corners, strict=True), color=SCALE[2], linewidth=1.2)
    axes.plot(first[edge], other[edge], "o", color=SCALE[2], markersize=3.2)
    for low, high, limit in (
        (first[edge].min(), first[edge].max(), axes.set_xlim),
        (other[edge].min(), other[edge].max(), axes.set_ylim),
    ):
        room = max(high - low, 0.02 * high)
        limit(low - 0.06 * room, high + 0.5 * room)
    axes.set_xlabel(objective)
    axes.set_ylabel(second)
