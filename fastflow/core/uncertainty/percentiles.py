"""What samples say: percentiles of results, and the chance that one design beats another."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats

PERCENTILES = (10, 50, 90)
DISTINGUISHABLE = 0.9
"""A design that is better with at least this chance can be told from the other."""


def percentiles(samples: Floats) -> Floats:
    """Return 10th, 50th and 90th percentile of samples that are numbers, (3, points); NaN where none is.

    samples: (points, samples).
    """
    known = np.isfinite(samples)
    found = np.full((len(PERCENTILES), samples.shape[0]), np.nan)
    whole = known.all(axis=1)
    if whole.any():
        found[:, whole] = np.percentile(samples[whole], PERCENTILES, axis=1)
    for place in np.flatnonzero(known.any(axis=1) & ~whole).tolist():
        found[:, place] = np.percentile(samples[place, known[place]], PERCENTILES)
    return found


def chance(one: Floats, other: Floats, more_is_better: bool = False) -> Floats:
    """Return how likely one design is better than another, sample by sample; NaN where neither has a result.

    one, other: (..., samples) with the same draws; a sample without a result (NaN) loses to one that has one,
    and equal ones count half.
    """
    worst = -np.inf if more_is_better else np.inf
    lacks = np.isnan(one) & np.isnan(other)
    first, second = (np.where(np.isnan(samples), worst, samples) for samples in (one, other))
    won = first > second if more_is_better else first < second
    points = np.where(lacks, np.nan, won + 0.5 * (first == second))
    counted = (~lacks).sum(axis=-1)
    with np.errstate(invalid="ignore"):
        found: Floats = np.nansum(points, axis=-1) / np.where(counted > 0, counted, np.nan)
    return found
