"""Fitting the few physical scalars of a chip to measured times: robust least squares, and what it knows.

Residuals are log(predicted / measured), so that a time twice too long weighs as much as one half too short,
and all sizes alike. The loss is soft L1 (Triggs et al., Bundle Adjustment, 2000, section 3.2), which
outliers move little. Scalars are sought by their logarithms: a step is a share of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from fastflow.core.tables import Bools, Floats

Model = Callable[[Floats], Floats]
"""From the values of all scalars to the predicted times of all rows [s]."""

_F_SCALE = 0.1  # log residual from which a row counts as an outlier: 10%, twice the noise between sources
_STEP = 0.01  # of a scalar, either way, in a derivative: beyond the steps of a piecewise model
_WIDE = 0.2  # relative standard error from which a file does not determine a scalar
_INSIDE = 0.02  # how far inside its bounds a start is, relative
_AT_BOUND = 0.005  # how near a bound is the bound, relative
_MOST_STEPS = 25
_STARTS = ((1.0, 1.0), (0.6, 2.0), (0.9, 0.5))  # shares, and others over the chip's own; the first is its own
_SOME_TIME = 5e-6  # [s], where the chip's own is 0

FITTED, AT_BOUND, NOT_DETERMINED = "fitted", "at its bound", "not determined"


class Bounds(NamedTuple):
    """What physics allows; shape (scalars,)."""

    low: Floats
    high: Floats
    is_share: Bools  # a scalar is a share of a peak; others are sought around the chip's own figure
    nothing: Floats  # what the low bound stands for: that of a time is there for its logarithm


class Fit(NamedTuple):
    """What was found; shape (scalars,)."""

    figures: Floats
    standard_errors: Floats  # NaN at a bound, and where not determined
    states: list[str]  # FITTED, AT_BOUND or NOT_DETERMINED


class _Found(NamedTuple):
    """A minimum over the scalars that are free."""

    x: Floats  # logarithms of all scalars
    jacobian: Floats  # weighted, of those that are free: (rows, free)
    cost: float


class _Problem(NamedTuple):
    """Rows to fit, and what is allowed; in logarithms."""

    model: Model
    measured: Floats
    low: Floats
    high: Floats

    def minimum(self, start: Floats, free: Bools) -> _Found:
        """Seek from one start the minimum over the free scalars; the others stay as they are."""
        log_measured = np.log(self.measured)

        def whole(of_free: Floats) -> Floats:
            x = start.copy()
            x[free] = of_free
            return x

        def residuals(of_free: Floats) -> Floats:
            return np.asarray(np.log(self.model(np.exp(whole(of_free)))) - log_measured)

        def jacobian(of_free: Floats) -> Floats:
            columns = []
            for place in range(of_free.size):
                ends = []
                for step in (-_STEP, _STEP):
                    moved = of_free.copy()
                    moved[place] = np.clip(moved[place] + step, self.low[free][place], self.high[free][place])
                    ends.append((moved[place], residuals(moved)))
                (left, before), (right, after) = ends
                columns.append((after - before) / (right - left))
            return np.stack(columns, axis=1)

        low, high = self.low[free], self.high[free]
        done = least_squares(
            residuals,
            np.clip(start[free], low + _INSIDE, high - _INSIDE),
            jac=jacobian,
            bounds=(low, high),
            loss="soft_l1",
            f_scale=_F_SCALE,
            xtol=1e-5,
            ftol=1e-6,
            max_nfev=_MOST_STEPS,
        )
        return _Found(whole(done.x), np.asarray(done.jac), float(done.cost))


def fit(model: Model, measured: Floats, own: Floats, bounds: Bounds) -> Fit:
    """Fit scalars to measured times.

    measured: [s], shape (rows,), more rows than scalars; own: the chip's figures, shape (scalars,), which
    stay where the rows do not determine a scalar: where its relative standard error is above 20%, and the
    chip's figure explains the rows as well.
    """
    problem = _Problem(model, measured, np.log(bounds.low), np.log(bounds.high))
    own_x = np.log(np.clip(own, bounds.low, bounds.high))
    free = np.ones(own.size, dtype=np.bool_)
    tested = np.zeros(own.size, dtype=np.bool_)
    best = min((problem.minimum(x, free) for x in _starts(own, bounds)), key=lambda found: found.cost)
    while free.any():
        spread, variance = _standard_errors(best, free, measured.size)
        wide = np.where(free & ~tested, spread, 0.0)
        widest = int(wide.argmax())
        if wide[widest] <= _WIDE:
            break
        tested[widest] = True
        others = free & (np.arange(own.size) != widest)
        start = np.where(others, best.x, own_x)
        restricted = _at(problem, start) if not others.any() else problem.minimum(start, others)
        if 2.0 * (restricted.cost - best.cost) <= 4.0 * variance:  # within two standard errors of the best
            best, free = restricted, others
    return _fit(best, free, own, bounds, measured.size)


def _starts(own: Floats, bounds: Bounds) -> list[Floats]:
    """Return the logarithms to start from, the chip's own figures first."""
    some = np.where(own > 0.0, own, _SOME_TIME)
    found = []
    for number, (share, of_own) in enumerate(_STARTS):
        start = np.where(bounds.is_share, own if number == 0 else share, some * of_own)
        found.append(np.log(np.clip(start, bounds.low, bounds.high)))
    return found


def _at(problem: _Problem, x: Floats) -> _Found:
    """Return what there is to find where no scalar is free."""
    z = (np.log(problem.model(np.exp(x)) / problem.measured) / _F_SCALE) ** 2
    cost = 0.5 * _F_SCALE**2 * float((2.0 * (np.sqrt(1.0 + z) - 1.0)).sum())
    return _Found(x, np.empty((z.size, 0)), cost)


def _standard_errors(found: _Found, free: Bools, rows: int) -> tuple[Floats, float]:
    """Return the relative standard errors of the free scalars, NaN for others, and the rows' variance."""
    variance = 2.0 * found.cost / max(rows - int(free.sum()), 1)
    curvature = found.jacobian.T @ found.jacobian
    # without this a scalar that no row depends on has none, instead of a huge one
    curvature += np.eye(len(curvature)) * max(1e-12 * float(curvature.max(initial=0.0)), 1e-30)
    spread = np.full(free.size, np.nan)
    # a file that agrees to the last bit has no spread either
    spread[free] = np.sqrt(np.maximum(variance, 1e-12) * np.diag(np.linalg.inv(curvature)))
    return spread, variance


def _fit(found: _Found, free: Bools, own: Floats, bounds: Bounds, rows: int) -> Fit:
    """Say what was found of every scalar: those at a bound are on it, and spread no others."""
    values = np.exp(found.x)
    high = free & (values >= bounds.high * (1.0 - _AT_BOUND))
    low = free & (values <= bounds.low * (1.0 + _AT_BOUND))
    inside = free & ~high & ~low
    spread, _ = _standard_errors(found._replace(jacobian=found.jacobian[:, inside[free]]), inside, rows)
    values = np.select([~free, high, low], [own, bounds.high, bounds.nothing], values)
    states = np.select([~free, ~inside], [NOT_DETERMINED, AT_BOUND], FITTED)
    return Fit(values, spread * values, states.tolist())


def held_back(groups: NDArray[np.int64], share: float, seed: int) -> Bools:
    """Draw rows to hold back, about `share` of all; rows of one group stay together.

    groups: numbers from 0, shape (rows,). At most that share is drawn: none where every group is larger.
    """
    size = np.bincount(groups)
    left = round(share * groups.size)
    drawn = np.zeros(size.size, dtype=np.bool_)
    for group in np.random.default_rng(seed).permutation(size.size).tolist():
        if size[group] <= left:
            drawn[group] = True
            left -= int(size[group])
    return np.asarray(drawn[groups], dtype=np.bool_)
