"""Elasticities: relative changes of a result by relative changes of parameters, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from fastflow.analysis.sensitivity.parameters import Parameter
from fastflow.core.reasons.codes import Code
from fastflow.core.reasons.forms import is_zero
from fastflow.core.tables import Columns, Floats, Inputs

INSENSITIVE = 0.001  # a smaller elasticity counts as 0
_CURVED = 0.05  # smallest difference of both sides that counts as nonlinear
_LIMITER, _STRATEGY = "bound_by", "strategy"
_COUNTS = ("mcus", "bundles", "l0_banks", "l1_banks", "l2_banks", "dram_devices")
_MAX_COUNTS = 2  # that explain a nonlinearity
Evaluate = Callable[[Columns], Columns]
"""Input columns to result columns, and SHORT_REASON, of the same points."""
SHORT_REASON = "short_reason"
"""Column of `Reason.short`, beside `reason_code`."""


class Elasticity(NamedTuple):
    """Elasticity of one parameter, by decrease, increase and both; NaN with a reason where there is none."""

    left: float
    right: float
    both: float
    nonlinearity: str
    reason: str
    reason_code: str = ""

    @property
    def insensitive(self) -> bool:
        """Whether the result does not depend on the parameter: neither side changes it."""
        return not self.reason and all(
            abs(side) < INSENSITIVE for side in (self.left, self.right) if side == side
        )


def perturb(inputs: Inputs, parameters: Sequence[Parameter], step: float) -> Columns:
    """Return a point, followed by the point with each parameter made less and more; (1 + 2 x parameters,).

    inputs: of the point, (1,); step: relative change of a parameter.
    """
    columns = {key: np.repeat(column, 1 + 2 * len(parameters)) for key, column in inputs.items()}
    for index, parameter in enumerate(parameters):
        for side, factor in ((1, 1.0 - step), (2, 1.0 + step)):
            columns[parameter.key][side + 2 * index] = parameter.value * factor
    return columns


def elasticities(
    results: Columns, parameters: Sequence[Parameter], objective: str, step: float
) -> list[Elasticity]:
    """Return the elasticity of an objective to every parameter, by differences in logarithms.

    results: of the points of `perturb`.
    """
    logs = logarithms(results[objective])
    per_parameter = []
    for index, parameter in enumerate(parameters):
        less, more = 1 + 2 * index, 2 + 2 * index
        per_parameter.append(_elasticity(parameter, logs, results, less, more, step))
    return per_parameter


def logarithms(values: Any) -> Floats:
    """Return logarithms of results, NaN without a result above 0; shape (points,)."""
    plain = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: Floats = np.where(plain > 0.0, np.log(np.abs(plain)), np.nan)
    return logs


def _elasticity(
    parameter: Parameter, logs: Floats, results: Columns, less: int, more: int, step: float
) -> Elasticity:
    """Return the elasticity of one parameter; less, more: rows of results with it decreased and increased."""
    if parameter.value == 0.0:
        return Elasticity(np.nan, np.nan, np.nan, "", str(is_zero()), Code.ZERO.label)
    left, right = _one_sided(logs, less, more, step)
    is_bounded = parameter.value * (1.0 + step) > parameter.high
    if is_bounded:
        right = np.nan
    if np.isnan(left) and np.isnan(right):
        row = less if results[SHORT_REASON][less] else more
        reason, code = (str(results[name][row]) for name in (SHORT_REASON, "reason_code"))
        return Elasticity(np.nan, np.nan, np.nan, "", reason, code)
    if np.isnan(left) or np.isnan(right):
        side, other = ("less", more) if np.isnan(right) else ("more", less)
        reason = (
            f"at most {parameter.high:g}"
            if is_bounded and other == more
            else str(results[SHORT_REASON][other])
        )
        return Elasticity(left, right, right if np.isnan(left) else left, f"{side} alone: {reason}", "")
    both = float(logs[more] - logs[less]) / (np.log1p(step) - np.log1p(-step))
    cause = _nonlinearity(results, less, more, step) if _is_nonlinear(left, right) else ""
    return Elasticity(left, right, both, cause, "")


def _one_sided(logs: Floats, less: int, more: int, step: float) -> tuple[float, float]:
    """Return elasticities of logarithms to a decrease and to an increase of a parameter; row 0: unchanged."""
    return float(logs[less] - logs[0]) / np.log1p(-step), float(logs[more] - logs[0]) / np.log1p(step)


def _is_nonlinear(left: float, right: float) -> bool:
    """Say whether both sides differ by more than the tolerance."""
    return abs(right - left) > max(_CURVED, 0.2 * max(abs(left), abs(right)))


def _nonlinearity(results: Columns, less: int, more: int, step: float) -> str:
    """Say why both sides of a parameter differ.

    Counts are named if they are nonlinear themselves: at most two, the least linear first.
    """
    rows = (less, 0, more)
    for name, word in ((_STRATEGY, "strategy"), (_LIMITER, "limiter")):
        if name in results and results[name][less] != results[name][more]:
            return f"{word}: {_sequence(results[name], rows)}"
    uneven = {}
    for name in _COUNTS:
        if name in results:
            left, right = _one_sided(logarithms(results[name]), less, more, step)
            if _is_nonlinear(left, right):
                uneven[name] = abs(right - left)
    most = sorted(uneven, key=lambda name: -uneven[name])[:_MAX_COUNTS]
    if not most:
        return "curved"
    return "whole units: " + ", ".join(f"{_sequence(results[name], rows)} {name}" for name in most)


def _sequence(values: Any, rows: Sequence[int]) -> str:
    """Write the values of successive rows: "4 to 3", "3 to 4 to 3"."""
    texts = [f"{values[row]:,}" if values.dtype.kind in "iu" else str(values[row]) for row in rows]
    return " to ".join(text for text, _ in groupby(texts))
