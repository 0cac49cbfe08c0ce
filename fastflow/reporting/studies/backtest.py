"""Real chips beside what the generator makes of their budgets alone (docs/backtest.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastflow.reporting.charts.style import APART, head
from fastflow.reporting.colours import QUIET
from fastflow.reporting.studies.claims import Claim, judge

QUANTITIES = {
    "compute_flops": "tensor rate", "dram_capacity_B": "memory", "dram_Bps": "memory rate", "l2_B": "L2",
    "l2_Bps": "L2 rate",
}  # fmt: skip
COLUMNS = ("chip", "pins", "scaling", "model.m", "time_s", *QUANTITIES)
NEAR = 0.2
"""Within which a quantity or a gain comes out."""
_RULES = {"foundry": "by foundries' figures", "paper": "by the paper's rule"}
_REAL, _MADE = "kept", "none"
_ROOM = {"left": 0.07, "right": 0.99, "top": 0.76, "bottom": 0.07, "hspace": 0.35}
_PRODUCTS = {16: "thin product", 8192: "large product"}


def _of(frame: pd.DataFrame, pins: str, scaling: str, m: int) -> pd.DataFrame:
    """Return the rows of one product on real chips, or on those that a rule makes, by chip."""
    rows = frame[(frame["pins"] == pins) & (frame["scaling"] == scaling) & (frame["model.m"] == m)]
    return rows[rows["time_s"].notna()].drop_duplicates("chip").set_index("chip")


def _chips(frame: pd.DataFrame) -> list[str]:
    """Return the chips, in the order of the grid."""
    return [str(name) for name in dict.fromkeys(frame["chip"])]


def _differences(frame: pd.DataFrame, scaling: str) -> dict[tuple[str, str], float]:
    """Return how far every quantity of every chip is from the real one, as a share of it."""
    m = max(_PRODUCTS)
    made, real = _of(frame, _MADE, scaling, m), _of(frame, _REAL, scaling, m)
    return {
        (chip, name): float(made[column][chip] / real[column][chip]) - 1.0
        for chip in _chips(frame)
        for column, name in QUANTITIES.items()
    }


def _gains(frame: pd.DataFrame, scaling: str) -> dict[tuple[str, str], float]:
    """Return how far the gain of every generation is from the real one, as a share of it."""
    found = {}
    for m, product in _PRODUCTS.items():
        made, real = (_of(frame, pins, scaling, m)["time_s"] for pins in (_MADE, _REAL))
        for before, after in pairwise(_chips(frame)):
            gain = float(made[before]) / float(made[after])
            found[f"{before} to {after}", product] = gain * float(real[after]) / float(real[before]) - 1.0
    return found


def _judged(
    of: Callable[[pd.DataFrame, str], dict[tuple[str, str], float]], frame: pd.DataFrame, scaling: str
) -> tuple[str, bool]:
    """Say in words how many of some differences are within `NEAR`, and whether all are."""
    off = of(frame, scaling)
    near = sum(abs(value) <= NEAR for value in off.values())
    where, what = max(off, key=lambda key: abs(off[key]))
    return f"{near} of {len(off)}, the farthest {where} {what} {off[where, what]:+.0%}", near == len(off)


def _absent(frame: pd.DataFrame, scaling: str) -> Sequence[str]:
    """Name the points that a claim needs and that have no time."""
    chips = _chips(frame)
    if len(chips) < 2:
        return ["a second chip"]
    return [
        f"{chip} (pins={pins}, scaling={scaling}, m={m})"
        for pins in (_REAL, _MADE)
        for m in _PRODUCTS
        for chip in chips
        if chip not in _of(frame, pins, scaling, m).index
    ]


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Judge whether the generator comes out, by either rule of scaling."""
    found = []
    for scaling, rule in _RULES.items():
        absent = _absent(frame, scaling)
        quantities = f"{rule}, tensor rate, memory and L2 of all chips are within {NEAR:.0%} of the real ones"
        gains = f"{rule}, gains of a generation are within {NEAR:.0%} of the real ones"
        found += [
            judge(quantities, absent, partial(_judged, _differences, frame, scaling)),
            judge(gains, absent, partial(_judged, _gains, frame, scaling)),
        ]
    return found


def draw(frame: pd.DataFrame) -> Figure:
    """Draw how far the quantities of every chip are from the real ones, a panel for each rule."""
    chips, width = _chips(frame), 0.8 / len(QUANTITIES)
    figure = Figure(figsize=(9.6, 5.1))
    about = f"generated over real, from die area, power, package and what was bought; grey: within {NEAR:.0%}"
    head(figure, "Chips from their budgets alone", about)
    panels = figure.subplots(2, sharey=True, gridspec_kw=_ROOM)
    for axes, (scaling, rule) in zip(panels, _RULES.items(), strict=True):
        axes.axhspan(-NEAR, NEAR, color="#eef1f4")
        off = {} if _absent(frame, scaling) else _differences(frame, scaling)
        for number, name in enumerate(QUANTITIES.values()):
            at = np.arange(len(chips)) + (number - (len(QUANTITIES) - 1) / 2.0) * width
            height = [off.get((chip, name), np.nan) for chip in chips]
            axes.bar(at, height, width=0.9 * width, color=APART[number], label=name)
            for x, y in zip(at, height, strict=True):
                if y == y:
                    below = y < 0.0
                    axes.annotate(
                        f"{y:+.0%}", (x, y), (0.0, -2.5 if below else 0.5), textcoords="offset points",
                        ha="center", va="top" if below else "bottom", size=6.5, color=QUIET,
                    )  # fmt: skip
        axes.axhline(0.0, color=QUIET, linewidth=0.8)
        axes.set_title(f"{rule} (scaling={scaling})")
        axes.set_xticks(range(len(chips)), chips)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.0%}")
        axes.margins(y=0.18)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(labels), loc="upper left", bbox_to_anchor=(0.02, 0.89))
    return figure
