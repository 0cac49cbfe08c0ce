"""Projected gradient descent with averaged parameters: the paper's search (Section 7, Equation 6)."""

from __future__ import annotations

import numpy as np

from fastflow.analysis.search.optimizers.design_space import Space, fill, fit, random_designs
from fastflow.analysis.search.optimizers.simplex import project
from fastflow.core.tables import Floats

# The paper prints neither eta nor beta. Chosen by the best design of 10 starts of 100 steps on three
# problems of the case study: N12 HBM3 XDR RC-2-16-d16, N7 HBM2e NDR RC-1-8-d64 and N5 HBM2e XDR d512.
RATE = 0.06  # eta; scores are logarithms, shares have no unit
MEMORY = 0.5  # beta
CLIP = 0.05  # largest update of a share: a border between regions is a cliff, and its gradient no slope
DIFFERENCE = 0.1  # of a share: the authors' (nanocad-lab/DeepFlow, GD_search.py, alpha = 1.1)
MAX_DIFFERENCE = 1.6  # of a share; the response has steps, and a wider difference sees over them
MIN_DIFFERENCE = 0.01  # a difference of a share near 0 [share]


class Gradient:
    """One start of Equation 6; a step takes 1 + |W| evaluations, by forward differences.

    The norm is the sum of a budget's shares, as in the authors' program, so that designs have no slack;
    a difference is taken of the design that is scaled back into its budgets. Where a share does not
    change the score, its next difference is twice as wide. Where no share does and no difference can be
    wider, the search has converged, and restarts from a random design.
    """

    def __init__(self, space: Space, start: Floats, seed: int) -> None:
        """Begin at a design, shape (|W|,)."""
        self._space, self._seed, self._restarts = space, seed, 0
        self._begin(start)

    def _begin(self, start: Floats) -> None:
        self._design = self._average = start.copy()
        self._relative_difference = np.full(start.size, DIFFERENCE)

    def ask(self) -> Floats:
        """Return the design and, for every share, a design with a larger share; (1 + |W|, |W|)."""
        self._step = np.maximum(self._relative_difference * self._design, MIN_DIFFERENCE)
        larger = fit(self._design + np.diag(self._step), self._space)
        return np.vstack([self._design, larger])

    def tell(self, score: Floats) -> None:
        """Take the step; score: shape (1 + |W|,), lower is better."""
        difference = score[1:] - score[0]
        if not difference.any() and (self._relative_difference >= MAX_DIFFERENCE).all():
            self._restarts += 1
            self._begin(random_designs(1, self._space, (self._seed, self._restarts))[0])
            return
        self._relative_difference = np.where(
            difference == 0.0, np.minimum(2.0 * self._relative_difference, MAX_DIFFERENCE), DIFFERENCE
        )
        update = np.clip(RATE * difference / self._step, -CLIP, CLIP)
        updated = self._design - update
        norm = fill(np.abs(updated)[None], self._space)[0]
        self._average = MEMORY * self._average + (1.0 - MEMORY) * np.copysign(norm, updated)
        self._design = project(self._average[None], self._space)[0]
