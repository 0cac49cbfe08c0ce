"""The figure of a search's history: how the best design was reached, and what it is made of (section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.figures.shapes import QUIET
from fastflow.optimize.pareto import nondominated
from fastflow.optimize.space import BUDGETS
from fastflow.studies.style import SCALE, head, written

COMPONENTS = {
    "core": "#3d4f60", "l0": "#d5e8dc", "l1": "#97c6ac", "l2": "#3f9270", "l3": "#2a6b51", "l4": "#174633",
    "dram": "#e8702a", "intra": "#b5a7d6", "inter": "#3a0ca3",
}  # fmt: skip
"""Colours of what shares go to, as of what limits kernels (`style.LIMITERS`)."""
_MOST = 4  # candidates drawn
_BREAKDOWNS = [["chip", budget] for budget in BUDGETS]


def columns_of(names: Sequence[str]) -> list[str]:
    """Return the columns that a figure needs of a history or a front, beside those that name candidates."""
    wanted = {"candidate", "objective", "second_objective", "feasible"}
    return [name for name in names if name in wanted or name.split(".")[:2] in _BREAKDOWNS]


def draw(frame: pd.DataFrame, labels: Sequence[str], objective: str, second: str = "") -> Figure:
    """Draw the best objective over the designs scored, the best breakdown, and a front if there is one.

    frame: a history in the order of scoring; labels: its columns that name candidates; objective, second: how
    their axes are called.
    """
    has_front = "second_objective" in frame
    figure = Figure(figsize=(4.8 * (2 + has_front), 4.1))
    counted = _counted(frame)
    best = (counted if len(counted) else frame).sort_values("objective", kind="stable").iloc[0]
    own = frame[frame["candidate"] == best["candidate"]].iloc[0]
    what = f"best of {len(frame):,} designs: {', '.join(_named(best, _telling(frame, labels)))}"
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


def draw_front(frame: pd.DataFrame, objective: str, second: str) -> Figure:
    """Draw a front, and how its designs share the area and the power; rows in its order."""
    figure = Figure(figsize=(12.6, 4.1))
    head(figure, "The front of two objectives", f"{len(frame):,} designs that no other beats in both")
    grid = figure.add_gridspec(1, 3, left=0.06, right=0.985, bottom=0.16, top=0.8, wspace=0.25)
    _draw_trade(figure.add_subplot(grid[0, 0]), frame, objective, second)
    for place, budget in enumerate(BUDGETS[:2], start=1):
        axes = figure.add_subplot(grid[0, place])
        keys = [str(key) for key in frame if str(key).startswith(f"chip.{budget}.")]
        parts = [key.rpartition(".")[2] for key in keys]
        shares = [frame[key].to_numpy() for key in keys]
        axes.stackplot(frame["objective"], shares, colors=[COMPONENTS[part] for part in parts], labels=parts)
        axes.set_ylim(0.0, 1.0)
        axes.set_yticks([0.0, 0.5, 1.0], ["0%", "50%", "100%"])
        axes.set_xlabel(objective)
        axes.set_title(f"Shares of {budget}")
        axes.legend(ncols=len(parts), loc="upper center", bbox_to_anchor=(0.5, -0.13), columnspacing=0.7,
                    handlelength=0.9, handletextpad=0.3, fontsize=7.5)  # fmt: skip
    return figure


def _counted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the designs that count: the feasible ones, or those with a time where none is."""
    timed = frame[frame["objective"].notna()]
    return timed[timed["feasible"]] if timed["feasible"].any() else timed


def _telling(frame: pd.DataFrame, labels: Sequence[str]) -> list[str]:
    """Return the labels that are not the same in every row, or the strategy."""
    return [name for name in labels if len(set(frame[name].map(str))) > 1] or ["strategy"]


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
    order = counted.groupby("candidate")["objective"].min().sort_values(kind="stable").index[:_MOST]
    telling = _telling(counted[counted["candidate"].isin(order)], labels) if len(counted) else []
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
            label=", ".join(_named(rows.iloc[0], telling)),
        )
    axes.set_xscale("log")
    axes.set_xlabel("designs scored of the candidate")
    axes.set_ylabel(objective)
    axes.set_title("Best so far")
    if len(order):
        axes.legend(loc="upper right")
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
    axes.set_title("Front")
