"""Euclidean projection of designs onto their budgets (Equation 6's Project)."""

from __future__ import annotations

import numpy as np

from fastflow.analysis.search.optimizers.design_space import Space
from fastflow.core.tables import Floats


def project(designs: Floats, space: Space) -> Floats:
    """Return the nearest designs whose shares are not negative and sum to at most 1 in every budget.

    designs: shape (designs, |W|).
    """
    projected = np.empty_like(designs)
    for budget in range(int(space.budget.max()) + 1):
        of_budget = space.budget == budget
        projected[:, of_budget] = _project(designs[:, of_budget])
    return projected


def _project(shares: Floats) -> Floats:
    """Project each row on one budget's simplex, its inside included.

    The nearest point is inside where the shares that are not negative sum to at most 1. Elsewhere it
    is on the face whose shares sum to 1, found by sorting (J. Duchi et al., ICML 2008, figure 1).
    """
    clipped = np.maximum(shares, 0.0)
    descending = -np.sort(-shares, axis=1)
    # the threshold if the k largest shares are positive: true of the last k whose k-th share is above it
    thresholds = (np.cumsum(descending, axis=1) - 1.0) / np.arange(1, shares.shape[1] + 1)
    last = np.count_nonzero(descending > thresholds, axis=1) - 1
    threshold = np.take_along_axis(thresholds, np.maximum(last, 0)[:, None], axis=1)
    inside = clipped.sum(axis=1, keepdims=True) <= 1.0
    return np.where(inside, clipped, np.maximum(shares - threshold, 0.0))
