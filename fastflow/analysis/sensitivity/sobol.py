"""Sobol's indices: shares of parameters in the variance of a result, where all parameters vary at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints

_RESAMPLES = 100
_INTERVAL = 0.9


class Indices(NamedTuple):
    """Indices of every variable, with half of their 90% intervals; shape (variables,)."""

    first: Floats
    first_error: Floats
    total: Floats
    total_error: Floats
    failed: int  # points without a result, which count as the mean of the others


def rows_per_matrix(samples: int, variables: int) -> int:
    """Return the rows of each matrix: a power of 2, so that variables + 2 matrices fit the samples."""
    rows = max(samples // (variables + 2), 1)
    return 1 << (rows.bit_length() - 1)


def sobol(evaluate: Callable[[Floats], Floats], variables: int, samples: int, seed: int) -> Indices:
    """Return the indices of a function of variables that are uniform over 0 to 1.

    evaluate: points (rows, variables) to values (rows,), NaN where there is none. samples: the most points
    to evaluate; each matrix has two rows or more. Design and estimators are SciPy's
    (scrambled Sobol' points; Saltelli et al., Computer Physics Communications 181(2), 2010). The same seed
    gives the same indices, to the bit.
    """
    from scipy.stats import bootstrap, qmc, sobol_indices

    rows = max(rows_per_matrix(samples, variables), 2)
    design = qmc.Sobol(2 * variables, rng=np.random.default_rng(seed)).random(rows)
    first, second = design[:, :variables], design[:, variables:]
    mixed = np.repeat(first[None], variables, axis=0)
    for index in range(variables):
        mixed[index, :, index] = second[:, index]
    values = evaluate(np.concatenate([first, second, mixed.reshape(-1, variables)]))
    failed = int(np.isnan(values).sum())
    if failed:
        values = np.where(np.isnan(values), np.nanmean(values) if failed < values.size else 0.0, values)
    f_a, f_b = values[None, :rows], values[None, rows : 2 * rows]
    f_ab = values[2 * rows :].reshape(variables, 1, rows)

    def indices(rows_drawn: Ints) -> Floats:
        estimates = sobol_indices(
            func={"f_A": f_a[:, rows_drawn], "f_B": f_b[:, rows_drawn], "f_AB": f_ab[..., rows_drawn]}, n=rows
        )
        return np.array([np.atleast_1d(estimates.first_order), np.atleast_1d(estimates.total_order)])

    with np.errstate(invalid="ignore", divide="ignore"):
        point_estimates = indices(np.arange(rows))
        interval = bootstrap(
            (np.arange(rows),), indices, n_resamples=_RESAMPLES, confidence_level=_INTERVAL, vectorized=False,
            method="percentile", rng=np.random.default_rng(seed),
        ).confidence_interval  # fmt: skip
    error = 0.5 * (interval.high - interval.low)
    return Indices(point_estimates[0], error[0], point_estimates[1], error[1], failed)
