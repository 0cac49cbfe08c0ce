"""Real chips, and chips generated from their budgets alone (docs/backtest.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastflow.reporting.charts.style import QUALITATIVE, draw_heading
from fastflow.reporting.colours import QUIET
from fastflow.reporting.studies.claims import Claim, judge

QUANTITIES = {
    "compute_flops": "tensor rate", "dram_capacity_B": "memory", "dram_Bps": "memory rate", "l2_B": "L2",
    "l2_Bps": "L2 rate",
}  # fmt: skip
COLUMNS = ("chip", "calibration", "scaling", "model.m", "time_s", *QUANTITIES)
TOLERANCE = 0.2
"""Tolerance of quantities and gains."""
_RULES = {"foundry": "by foundries' figures", "paper": "by the paper's rule"}
_REAL, _GENERATED = "measured", "none"
_MARGINS = {"left": 0.07, "right": 0.99, "top": 0.76, "bottom": 0.07, "hspace": 0.35}
_PRODUCTS = {16: "thin product", 8192: "large product"}


def _rows_of(frame: pd.DataFrame, calibration: str, scaling: str, m: int) -> pd.DataFrame:
    """Return the rows of a product on real or on generated chips, by chip."""
    rows = frame[
        (frame["calibration"] == calibration) & (frame["scaling"] == scaling) & (frame["model.m"] == m)
    ]
    return rows[rows["time_s"].notna()].drop_duplicates("chip").set_index("chip")


def _chips(frame: pd.DataFrame) -> list[str]:
    """Return the chips, in the order of the grid."""
    return [str(name) for name in dict.fromkeys(frame["chip"])]


def _differences(frame: pd.DataFrame, scaling: str) -> dict[tuple[str, str], float]:
    """Return the relative differences of every quantity of every chip from the real chip."""
    m = max(_PRODUCTS)
    generated, real = _rows_of(frame, _GENERATED, scaling, m), _rows_of(frame, _REAL, scaling, m)
    return {
        (chip, name): float(generated[column][chip] / real[column][chip]) - 1.0
        for chip in _chips(frame)
        for column, name in QUANTITIES.items()
    }


def _gains(frame: pd.DataFrame, scaling: str) -> dict[tuple[str, str], float]:
    """Return the relative differences of the gain of every generation from the real gain."""
    differences = {}
    for m, product in _PRODUCTS.items():
        generated, real = (
            _rows_of(frame, calibration, scaling, m)["time_s"] for calibration in (_GENERATED, _REAL)
        )
        for before, after in pairwise(_chips(frame)):
            gain = float(generated[before]) / float(generated[after])
            differences[f"{before} to {after}", product] = (
                gain * float(real[after]) / float(real[before]) - 1.0
            )
    return differences


def _judge_differences(
    compute: Callable[[pd.DataFrame, str], dict[tuple[str, str], float]], frame: pd.DataFrame, scaling: str
) -> tuple[str, bool]:
    """Return the number of differences within `TOLERANCE` in words, and whether all are."""
    differences = compute(frame, scaling)
    near = sum(abs(value) <= TOLERANCE for value in differences.values())
    chip, name = max(differences, key=lambda key: abs(differences[key]))
    return (
        f"{near} of {len(differences)}, the farthest {chip} {name} {differences[chip, name]:+.0%}",
        near == len(differences),
    )


def _missing_points(frame: pd.DataFrame, scaling: str) -> Sequence[str]:
    """Return the names of the points without a time that a claim needs."""
    chips = _chips(frame)
    if len(chips) < 2:
        return ["a second chip"]
    return [
        f"{chip} (calibration={calibration}, scaling={scaling}, m={m})"
        for calibration in (_REAL, _GENERATED)
        for m in _PRODUCTS
        for chip in chips
        if chip not in _rows_of(frame, calibration, scaling, m).index
    ]


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Judge the accuracy of the generator, by both rules of scaling."""
    judged = []
    for scaling, rule in _RULES.items():
        missing = _missing_points(frame, scaling)
        quantities = (
            f"{rule}, tensor rate, memory and L2 of all chips are within {TOLERANCE:.0%} of the real ones"
        )
        gains = f"{rule}, gains of a generation are within {TOLERANCE:.0%} of the real ones"
        judged += [
            judge(quantities, missing, partial(_judge_differences, _differences, frame, scaling)),
            judge(gains, missing, partial(_judge_differences, _gains, frame, scaling)),
        ]
    return judged


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the relative differences of the quantities of every chip, a panel for each rule."""
    chips, width = _chips(frame), 0.8 / len(QUANTITIES)
    figure = Figure(figsize=(9.6, 5.1))
    within = f"grey: within {TOLERANCE:.0%}"
    about = f"generated over real, from die area, power, package and what was bought; {within}"
    draw_heading(figure, "Chips from their budgets alone", about)
    panels = figure.subplots(2, sharey=True, gridspec_kw=_MARGINS)
    for axes, (scaling, rule) in zip(panels, _RULES.items(), strict=True):
        axes.axhspan(-TOLERANCE, TOLERANCE, color="#eef1f4")
        differences = {} if _missing_points(frame, scaling) else _differences(frame, scaling)
        for number, name in enumerate(QUANTITIES.values()):
            positions = np.arange(len(chips)) + (number - (len(QUANTITIES) - 1) / 2.0) * width
            height = [differences.get((chip, name), np.nan) for chip in chips]
            axes.bar(positions, height, width=0.9 * width, color=QUALITATIVE[number], label=name)
            for x, y in zip(positions, height, strict=True):
                if y == y:
                    is_negative = y < 0.0
                    axes.annotate(
                        f"{y:+.0%}", (x, y), (0.0, -2.5 if is_negative else 0.5), textcoords="offset points",
                        ha="center", va="top" if is_negative else "bottom", size=6.5, color=QUIET,
                    )  # fmt: skip
        axes.axhline(0.0, color=QUIET, linewidth=0.8)
        axes.set_title(f"{rule} (scaling={scaling})")
        axes.set_xticks(range(len(chips)), chips)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.0%}")
        axes.margins(y=0.18)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(labels), loc="upper left", bbox_to_anchor=(0.02, 0.89))
    return figure
