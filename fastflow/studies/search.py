"""The figure of a search's history: how the best design was reached, and what it is made of (section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fastflow.figures.shapes import QUIET
from fastflow.optimize.objective import LACKS_MEMORY
from fastflow.optimize.pareto import nondominated
from fastflow.optimize.space import BUDGETS
from fastflow.studies.style import SCALE, head, written

COMPONENTS = {
    "core": "#3d4f60", "l0": "#d5e8dc", "l1": "#97c6ac", "l2": "#3f9270", "l3": "#2a6b51", "l4": "#174633",
    "dram": "#e8702a", "intra": "#b5a7d6", "inter": "#3a0ca3",
}  # fmt: skip
"""Colours of what shares go to, as of what limits kernels (`style.LIMITERS`)."""
_MOST = 4  # candidates drawn


def columns_of(names: Sequence[str]) -> list[str]:
    """Return the columns of a history that its figure needs."""
    wanted = {"design", "candidate", "score", "objective", "second_objective", "feasible", "tech", "strategy"}
    return [name for name in names if name in wanted or name.split(".")[:2] in _BREAKDOWNS]


_BREAKDOWNS = [["chip", budget] for budget in BUDGETS]


def draw(frame: pd.DataFrame, objective: str, second: str = "") -> Figure:
    """Draw the best objective over the designs scored, the best breakdown, and a front if there is one.

    frame: a history in the order of scoring; objective, second: how their axes are called.
    """
    has_front = "second_objective" in frame
    widths = [1.0, 1.0, 1.0] if has_front else [1.0, 1.0]
    figure = Figure(figsize=(4.6 * len(widths), 4.1))
    counted = _feasible(frame)
    best = counted.sort_values("objective", kind="stable").iloc[0]
    own = frame[frame["candidate"] == best["candidate"]].iloc[0]
    about = f"best of {len(frame):,} designs: {written(str(best['tech']))}, {best['strategy']}"
    head(figure, "A search for the best design", about)
    width = figure.get_size_inches()[0]
    grid = figure.add_gridspec(
        1, len(widths), left=0.62 / width, right=1 - 0.2 / width, bottom=0.13, top=0.8, wspace=0.29
    )
    _draw_convergence(figure.add_subplot(grid[0, 0]), frame, counted, objective)
    _draw_breakdowns(figure.add_subplot(grid[0, 1]), own, best)
    if has_front:
        _draw_front(figure.add_subplot(grid[0, 2]), counted, objective, second)
    return figure


def _feasible(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the designs that count: the feasible ones, or those with a time where none is."""
    timed = frame[(frame["score"] < LACKS_MEMORY) & frame["objective"].notna()]
    return timed[timed["feasible"]] if timed["feasible"].any() else timed


def _draw_convergence(axes: Axes, frame: pd.DataFrame, counted: pd.DataFrame, objective: str) -> None:
    """Draw the best objective so far of the best candidates, over their own designs."""
    place = frame.groupby("candidate").cumcount()
    order = counted.groupby("candidate")["objective"].min().sort_values(kind="stable").index[:_MOST]
    for number, candidate in enumerate(order):
        rows = counted[counted["candidate"] == candidate]
        falls = rows["objective"].cummin()
        last = int(place[frame["candidate"] == candidate].max()) + 1
        at = [*(place[rows.index] + 1), last]
        axes.step(
            at,
            [*falls, falls.iloc[-1]],
            where="post",
            color=SCALE[::-1][number],
            linewidth=1.5,
            label=f"{written(str(rows['tech'].iloc[0]))}, {rows['strategy'].iloc[0]}",
        )
    axes.set_xscale("log")
    axes.set_xlabel("designs scored of the candidate")
    axes.set_ylabel(objective)
    axes.set_title("Best so far")
    axes.legend(loc="upper right")


def _draw_breakdowns(axes: Axes, own: pd.Series[float], best: pd.Series[float]) -> None:
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


def _draw_front(axes: Axes, counted: pd.DataFrame, objective: str, second: str) -> None:
    """Draw every design by both objectives, and the front."""
    first, other = counted["objective"].to_numpy(), counted["second_objective"].to_numpy()
    edge = nondominated(first, other)
    axes.plot(first, other, ".", color="#c9d3dc", markersize=2.5)
    corners = [(first[edge[0]], other[edge[0]])]
    for before, after in pairwise(edge):
        corners += [(first[after], other[before]), (first[after], other[after])]
    axes.plot(*zip(*corners, strict=True), color=SCALE[2], linewidth=1.2)
    axes.plot(first[edge], other[edge], "o", color=SCALE[2], markersize=3.2)
    axes.set_xlim(0.97 * first.min(), np.quantile(first, 0.8))
    axes.set_ylim(0.97 * other.min(), np.quantile(other, 0.8))
    axes.set_xlabel(objective)
    axes.set_ylabel(second)
    axes.set_title("Front")
    axes.tick_params(colors=QUIET)
