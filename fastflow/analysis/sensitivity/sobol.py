"""Sobol's indices: which figures the variance of a result comes from, where all vary at once."""

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


def base_of(samples: int, variables: int) -> int:
    """Return how many rows each matrix has: a power of 2, of which variables + 2 fit the samples."""
    rows = max(samples // (variables + 2), 1)
    return 1 << (rows.bit_length() - 1)


def sobol(evaluate: Callable[[Floats], Floats], variables: int, samples: int, seed: int) -> Indices:
    """Return the indices of a function of variables that are even over 0 to 1.

    evaluate: points (rows, variables) to values (rows,), NaN where there is none. samples: the most points
    that it is asked for; at least two rows are taken of each matrix. Design and estimators are SciPy's
    (scrambled Sobol' points; Saltelli et al., Computer Physics Communications 181(2), 2010). The same seed
    gives the same indices, to the bit.
    """
    from scipy.stats import bootstrap, qmc, sobol_indices

    rows = max(base_of(samples, variables), 2)
    design = qmc.Sobol(2 * variables, rng=np.random.default_rng(seed)).random(rows)
    first, second = design[:, :variables], design[:, variables:]
    mixed = np.repeat(first[None], variables, axis=0)
    for place in range(variables):
        mixed[place, :, place] = second[:, place]
    values = evaluate(np.concatenate([first, second, mixed.reshape(-1, variables)]))
    failed = int(np.isnan(values).sum())
    if failed:
        values = np.where(np.isnan(values), np.nanmean(values) if failed < values.size else 0.0, values)
    f_a, f_b = values[None, :rows], values[None, rows : 2 * rows]
    f_ab = values[2 * rows :].reshape(variables, 1, rows)

    def indices(index: Ints) -> Floats:
        found = sobol_indices(
            func={"f_A": f_a[:, index], "f_B": f_b[:, index], "f_AB": f_ab[..., index]}, n=rows
        )
        return np.array([np.atleast_1d(found.first_order), np.atleast_1d(found.total_order)])

    with np.errstate(invalid="ignore", divide="ignore"):
        whole = indices(np.arange(rows))
        interval = bootstrap(
            (np.arange(rows),), indices, n_resamples=_RESAMPLES, confidence_level=_INTERVAL, vectorized=False,
            method="percentile", rng=np.random.default_rng(seed),
        ).confidence_interval  # fmt: skip
    error = 0.5 * (interval.high - interval.low)
    return Indices(whole[0], error[0], whole[1], error[1], failed)
