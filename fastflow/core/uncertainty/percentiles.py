"""Statistics of samples: percentiles of results, and the probability that a design is better than another."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats

PERCENTILES = (10, 50, 90)
DISTINGUISHABLE = 0.9
"""Two designs are distinguishable where either is better with at least this probability."""


def percentiles(samples: Floats) -> Floats:
    """Return 10th, 50th and 90th percentile of finite samples, (3, points); NaN where there is none.

    samples: (points, samples).
    """
    known = np.isfinite(samples)
    values = np.full((len(PERCENTILES), samples.shape[0]), np.nan)
    is_complete = known.all(axis=1)
    if is_complete.any():
        values[:, is_complete] = np.percentile(samples[is_complete], PERCENTILES, axis=1)
    for index in np.flatnonzero(known.any(axis=1) & ~is_complete).tolist():
        values[:, index] = np.percentile(samples[index, known[index]], PERCENTILES)
    return values


def chance(left: Floats, right: Floats, more_is_better: bool = False) -> Floats:
    """Return the probability that a design is better than another; NaN where neither has a result.

    left, right: (..., samples) with the same draws; a sample without a result (NaN) loses to a sample with a
    result, and equal samples count half.
    """
    worst = -np.inf if more_is_better else np.inf
    is_missing = np.isnan(left) & np.isnan(right)
    first, second = (np.where(np.isnan(samples), worst, samples) for samples in (left, right))
    is_better = first > second if more_is_better else first < second
    scores = np.where(is_missing, np.nan, is_better + 0.5 * (first == second))
    num_known = (~is_missing).sum(axis=-1)
    with np.errstate(invalid="ignore"):
        share: Floats = np.nansum(scores, axis=-1) / np.where(num_known > 0, num_known, np.nan)
    return share
