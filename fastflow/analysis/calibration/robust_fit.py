"""Fit of the few physical scalars of a chip to measured times: robust least squares, with standard errors.

Residuals are log(predicted / measured), so that a time twice too long weighs as much as a time half too
short, and all sizes alike. The loss is soft L1 (Triggs et al., Bundle Adjustment, 2000, section 3.2), which
outliers move little. The variables are logarithms of the scalars: a step is relative.
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
_MAX_ERROR = 0.2  # relative standard error from which a file does not determine a scalar
_START_MARGIN = 0.02  # how far inside its bounds a start is, relative
_AT_BOUND = 0.005  # how near a bound is the bound, relative
_MIN_VARIANCE = 1e-8  # of the rows: a minimum is found, and times are printed, to 1e-4 at best
_MAX_STEPS = 25
# shares, and other scalars over the library's; the first start is the library's values
_STARTS = ((1.0, 1.0), (0.6, 2.0), (0.9, 0.5))

FITTED, AT_BOUND, NOT_DETERMINED = "fitted", "at its bound", "not determined"


class Bounds(NamedTuple):
    """Physical bounds; shape (scalars,)."""

    low: Floats
    high: Floats
    is_share: Bools  # a scalar is a share of a peak; starts of the others are relative to the library's
    at_low: Floats  # reported at the low bound: 0 for a time, whose bound only keeps the logarithm finite


class Fit(NamedTuple):
    """Fitted scalars; shape (scalars,)."""

    figures: Floats
    standard_errors: Floats  # NaN at a bound, and where not determined
    states: list[str]  # FITTED, AT_BOUND or NOT_DETERMINED


class Settings(NamedTuple):
    """What a fit knows of its model."""

    step: float = 0.01
    """Of a scalar, either way, in a derivative: beyond the steps of a piecewise model."""
    zero_start: Floats = np.array(5e-6)
    """Where scalars start whose figure is 0 [s], (scalars,) or one for all."""
    max_variance: float = float("inf")
    """Of the rows, beyond which their errors are the model's and not noise."""


_OF_KERNELS = Settings()


class _Minimum(NamedTuple):
    """A minimum over the scalars that are free."""

    x: Floats  # logarithms of all scalars
    jacobian: Floats  # weighted, of those that are free: (rows, free)
    cost: float


class _Problem(NamedTuple):
    """Rows to fit, and bounds; in logarithms."""

    model: Model
    measured: Floats
    low: Floats
    high: Floats
    step: float

    def minimum(self, start: Floats, free: Bools) -> _Minimum:
        """Find a minimum over the free scalars from one start; the others are fixed."""
        log_measured = np.log(self.measured)

        def all_scalars(free_values: Floats) -> Floats:
            x = start.copy()
            x[free] = free_values
            return x

        def residuals(free_values: Floats) -> Floats:
            return np.asarray(np.log(self.model(np.exp(all_scalars(free_values)))) - log_measured)

        def jacobian(free_values: Floats) -> Floats:
            columns = []
            for index in range(free_values.size):
                points = []
                for step in (-self.step, self.step):
                    shifted = free_values.copy()
                    shifted[index] = np.clip(
                        shifted[index] + step, self.low[free][index], self.high[free][index]
                    )
                    points.append((shifted[index], residuals(shifted)))
                (left, before), (right, after) = points
                columns.append((after - before) / (right - left))
            return np.stack(columns, axis=1)

        low, high = self.low[free], self.high[free]
        solution = least_squares(
            residuals,
            np.clip(start[free], low + _START_MARGIN, high - _START_MARGIN),
            jac=jacobian,
            bounds=(low, high),
            loss="soft_l1",
            f_scale=_F_SCALE,
            xtol=1e-5,
            ftol=1e-6,
            max_nfev=_MAX_STEPS,
        )
        return _Minimum(all_scalars(solution.x), np.asarray(solution.jac), float(solution.cost))


def fit(
    model: Model,
    measured: Floats,
    library: Floats,
    bounds: Bounds,
    settings: Settings = _OF_KERNELS,
) -> Fit:
    """Fit scalars to measured times.

    measured: [s], shape (rows,), more rows than scalars; library: the chip's figures, shape (scalars,), which
    are kept where the rows do not determine a scalar: where its relative standard error is above 20%, and the
    chip's figure explains the rows as well.
    """
    problem = _Problem(model, measured, np.log(bounds.low), np.log(bounds.high), settings.step)
    library_x = np.log(np.clip(library, bounds.low, bounds.high))
    free = np.ones(library.size, dtype=np.bool_)
    tested = np.zeros(library.size, dtype=np.bool_)
    best = min(
        (problem.minimum(x, free) for x in _starts(library, bounds, settings.zero_start)),
        key=lambda minimum: minimum.cost,
    )
    while free.any():
        errors, variance = _standard_errors(best, free, measured.size, settings.max_variance)
        open_errors = np.where(free & ~tested, errors, 0.0)
        widest = int(open_errors.argmax())
        if open_errors[widest] <= _MAX_ERROR:
            break
        tested[widest] = True
        others = free & (np.arange(library.size) != widest)
        start = np.where(others, best.x, library_x)
        restricted = _fixed_minimum(problem, start) if not others.any() else problem.minimum(start, others)
        if 2.0 * (restricted.cost - best.cost) <= 4.0 * variance:  # within two standard errors of the best
            best, free = restricted, others
    return _fit(best, free, library, bounds, measured.size, settings.max_variance)


def _starts(library: Floats, bounds: Bounds, default: Floats) -> list[Floats]:
    """Return the logarithms to start from, the library's values first; default: where these are 0."""
    positive = np.where(library > 0.0, library, default)
    starts = []
    for number, (share, of_library) in enumerate(_STARTS):
        start = np.where(bounds.is_share, library if number == 0 else share, positive * of_library)
        starts.append(np.log(np.clip(start, bounds.low, bounds.high)))
    return starts


def _fixed_minimum(problem: _Problem, x: Floats) -> _Minimum:
    """Return the point and its cost where no scalar is free."""
    z = (np.log(problem.model(np.exp(x)) / problem.measured) / _F_SCALE) ** 2
    cost = 0.5 * _F_SCALE**2 * float((2.0 * (np.sqrt(1.0 + z) - 1.0)).sum())
    return _Minimum(x, np.empty((z.size, 0)), cost)


def _standard_errors(minimum: _Minimum, free: Bools, rows: int, max_variance: float) -> tuple[Floats, float]:
    """Return the relative standard errors of the free scalars, NaN for others, and the rows' variance."""
    variance = 2.0 * minimum.cost / max(rows - int(free.sum()), 1)
    variance = min(max(variance, _MIN_VARIANCE), max_variance)
    curvature = minimum.jacobian.T @ minimum.jacobian
    # a scalar that no row depends on gets a huge error instead of a division by zero
    curvature += np.eye(len(curvature)) * max(1e-12 * float(curvature.max(initial=0.0)), 1e-30)
    errors = np.full(free.size, np.nan)
    errors[free] = np.sqrt(variance * np.diag(np.linalg.inv(curvature)))
    return errors, variance


def _fit(
    minimum: _Minimum, free: Bools, library: Floats, bounds: Bounds, rows: int, max_variance: float
) -> Fit:
    """Return the fit of every scalar; those at a bound are set to it, and left out of the standard errors."""
    values = np.exp(minimum.x)
    high = free & (values >= bounds.high * (1.0 - _AT_BOUND))
    low = free & (values <= bounds.low * (1.0 + _AT_BOUND))
    inside = free & ~high & ~low
    errors, _ = _standard_errors(
        minimum._replace(jacobian=minimum.jacobian[:, inside[free]]), inside, rows, max_variance
    )
    values = np.select([~free, high, low], [library, bounds.high, bounds.at_low], values)
    states = np.select([~free, ~inside], [NOT_DETERMINED, AT_BOUND], FITTED)
    return Fit(values, errors * values, states.tolist())


def draw_held_out(groups: NDArray[np.int64], share: float, seed: int) -> Bools:
    """Draw held-out rows, about `share` of all; rows of one group are drawn together.

    groups: numbers from 0, shape (rows,). At most that share is drawn: none where every group is larger.
    """
    size = np.bincount(groups)
    num_left = round(share * groups.size)
    drawn = np.zeros(size.size, dtype=np.bool_)
    for group in np.random.default_rng(seed).permutation(size.size).tolist():
        if size[group] <= num_left:
            drawn[group] = True
            num_left -= int(size[group])
    return np.asarray(drawn[groups], dtype=np.bool_)
