"""Elasticities: relative changes of a result for those of a figure, one figure at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastflow.analysis.figures import Figure
from fastflow.tables import Columns, Floats, Inputs

FLAT = 0.001  # an elasticity that counts as none
_CURVED = 0.05  # a difference of both sides that counts
_LIMITER, _STRATEGY = "bound_by", "strategy"
_COUNTS = ("mcus", "bundles", "l0_banks", "l1_banks", "l2_banks", "dram_devices")
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
        """Whether nothing follows from the figure."""
        return all(abs(side) < FLAT for side in (self.left, self.right) if side == side)


def elasticities(
    inputs: Inputs, figures: Sequence[Figure], evaluate: Evaluate, objective: str, step: float
) -> list[Elasticity]:
    """Return the elasticity of an objective to every figure, by differences in logarithms.

    inputs: of one point; step: what a figure is changed by, as a share. All points are evaluated in one call:
    the point itself, then every figure less and more.
    """
    count = len(figures)
    columns = {key: np.repeat(column, 1 + 2 * count) for key, column in inputs.items()}
    for place, figure in enumerate(figures):
        for side, factor in ((1, 1.0 - step), (2, 1.0 + step)):
            columns[figure.key][side + 2 * place] = figure.value * factor
    results = evaluate(columns)
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
    down, up = np.log1p(-step), np.log1p(step)
    left = (logs[less] - logs[0]) / down
    bounded = figure.value * (1.0 + step) > figure.high
    right = np.nan if bounded else (logs[more] - logs[0]) / up
    if np.isnan(left) and np.isnan(right):
        return Elasticity(np.nan, np.nan, np.nan, "", _said(results, less) or _said(results, more))
    if np.isnan(left) or np.isnan(right):
        side, other = ("less", more) if np.isnan(right) else ("more", less)
        why = f"at most {figure.high:g}" if bounded and other == more else _said(results, other)
        return Elasticity(left, right, right if np.isnan(left) else left, f"{side} alone: {why}", "")
    both = (logs[more] - logs[less]) / (up - down)
    return Elasticity(left, right, both, _kink(left, right, results, less, more), "")


def _said(results: Columns, row: int) -> str:
    """Return the reason of a point without a result, in few words."""
    return str(results["reason"][row]).split(":")[0].split(" (")[0]


def _kink(left: float, right: float, results: Columns, less: int, more: int) -> str:
    """Say why both sides differ, where they do."""
    if abs(right - left) <= max(_CURVED, 0.2 * max(abs(left), abs(right))):
        return ""
    for name, word in ((_STRATEGY, "strategy"), (_LIMITER, "limiter")):
        if name in results and results[name][less] != results[name][more]:
            return f"{word}: {results[name][less]} to {results[name][more]}"
    for name in _COUNTS:
        if name in results and results[name][less] != results[name][more]:
            return f"whole units: {results[name][less]:,} to {results[name][more]:,} {name}"
    return "curved"
