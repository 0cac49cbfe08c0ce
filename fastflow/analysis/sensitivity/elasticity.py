"""Elasticities: relative changes of a result for those of a figure, one figure at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from fastflow.analysis.sensitivity.parameters import Figure
from fastflow.core.tables import Columns, Floats, Inputs

FLAT = 0.001  # an elasticity that counts as none
_CURVED = 0.05  # a difference of both sides that counts
_LIMITER, _STRATEGY = "bound_by", "strategy"
_COUNTS = ("mcus", "bundles", "l0_banks", "l1_banks", "l2_banks", "dram_devices")
_MOST_COUNTS = 2  # that explain a kink
Evaluate = Callable[[Columns], Columns]
"""Input columns to result columns, and `reason`, of the same points."""


class Elasticity(NamedTuple):
    """What follows from one figure; NaN where there is none, with a reason."""

    left: float
    right: float
    both: float
    kink: str
    reason: str

    @property
    def flat(self) -> bool:
        """Whether nothing follows from the figure: neither side moves the result."""
        return not self.reason and all(abs(side) < FLAT for side in (self.left, self.right) if side == side)


def changed(inputs: Inputs, figures: Sequence[Figure], step: float) -> Columns:
    """Return a point, and after it the point with every figure less and more; (1 + 2 x figures,).

    inputs: of the point, (1,); step: what a figure is changed by, as a share.
    """
    columns = {key: np.repeat(column, 1 + 2 * len(figures)) for key, column in inputs.items()}
    for place, figure in enumerate(figures):
        for side, factor in ((1, 1.0 - step), (2, 1.0 + step)):
            columns[figure.key][side + 2 * place] = figure.value * factor
    return columns


def elasticities(
    results: Columns, figures: Sequence[Figure], objective: str, step: float
) -> list[Elasticity]:
    """Return the elasticity of an objective to every figure, by differences in logarithms.

    results: of the points that `changed` returns.
    """
    logs = logarithms(results[objective])
    found = []
    for place, figure in enumerate(figures):
        less, more = 1 + 2 * place, 2 + 2 * place
        found.append(_elasticity(figure, logs, results, less, more, step))
    return found


def logarithms(values: Any) -> Floats:
    """Return logarithms of results, NaN of what is none or not above 0; shape (points,)."""
    plain = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: Floats = np.where(plain > 0.0, np.log(np.abs(plain)), np.nan)
    return logs


def _elasticity(
    figure: Figure, logs: Floats, results: Columns, less: int, more: int, step: float
) -> Elasticity:
    """Return what follows from one figure, whose points with less and more of it are two rows of results."""
    if figure.value == 0.0:
        return Elasticity(np.nan, np.nan, np.nan, "", "is 0")
    left, right = _sides(logs, less, more, step)
    bounded = figure.value * (1.0 + step) > figure.high
    if bounded:
        right = np.nan
    if np.isnan(left) and np.isnan(right):
        return Elasticity(np.nan, np.nan, np.nan, "", _said(results, less) or _said(results, more))
    if np.isnan(left) or np.isnan(right):
        side, other = ("less", more) if np.isnan(right) else ("more", less)
        why = f"at most {figure.high:g}" if bounded and other == more else _said(results, other)
        return Elasticity(left, right, right if np.isnan(left) else left, f"{side} alone: {why}", "")
    both = float(logs[more] - logs[less]) / (np.log1p(step) - np.log1p(-step))
    kink = _kink(results, less, more, step) if _differ(left, right) else ""
    return Elasticity(left, right, both, kink, "")


def _sides(logs: Floats, less: int, more: int, step: float) -> tuple[float, float]:
    """Return elasticities of what has these logarithms, for less of a figure and for more; row 0: neither."""
    return float(logs[less] - logs[0]) / np.log1p(-step), float(logs[more] - logs[0]) / np.log1p(step)


def _differ(left: float, right: float) -> bool:
    """Say whether both sides differ by so much that it counts."""
    return abs(right - left) > max(_CURVED, 0.2 * max(abs(left), abs(right)))


def _said(results: Columns, row: int) -> str:
    """Return the reason of a point without a result, in few words."""
    return str(results["reason"][row]).split(":")[0].split(" (")[0].removesuffix(" is invalid")


def _kink(results: Columns, less: int, more: int, step: float) -> str:
    """Say why both sides of a figure differ.

    Of counts, those that do not follow the figure evenly themselves: at most two, the least even first.
    """
    rows = (less, 0, more)
    for name, word in ((_STRATEGY, "strategy"), (_LIMITER, "limiter")):
        if name in results and results[name][less] != results[name][more]:
            return f"{word}: {_course(results[name], rows)}"
    uneven = {}
    for name in _COUNTS:
        if name in results:
            left, right = _sides(logarithms(results[name]), less, more, step)
            if _differ(left, right):
                uneven[name] = abs(right - left)
    most = sorted(uneven, key=lambda name: -uneven[name])[:_MOST_COUNTS]
    if not most:
        return "curved"
    return "whole units: " + ", ".join(f"{_course(results[name], rows)} {name}" for name in most)


def _course(values: Any, rows: Sequence[int]) -> str:
    """Write what a value is in one row after the other: "4 to 3", "3 to 4 to 3"."""
    told = [f"{values[row]:,}" if values.dtype.kind in "iu" else str(values[row]) for row in rows]
    return " to ".join(one for one, _ in groupby(told))
