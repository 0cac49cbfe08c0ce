"""Mirror descent with wide differences, then CMA-ES: fastflow's default search.

At the best breakdown every share of a budget is proportional to its elasticity, the relative gain in
score by a relative gain in share: moving a share between components then gains nothing.
Exponentiated gradient (J. Kivinen and M. Warmuth, Information and Computation 132, 1997), which is mirror
descent with the entropy as its mirror, grows the shares whose elasticity exceeds them and shrinks the
others, by factors. It gets near the best breakdown in a few steps, even if shares are wrong by factors.
The steps of the response (whole memory devices, lanes, banks) end its use soon; CMA-ES continues from there.
"""

from __future__ import annotations

import numpy as np

from fastflow.analysis.search.optimizers.cma_es import Evolution
from fastflow.analysis.search.optimizers.design_space import Space, fill, random_designs, sums, with_slack
from fastflow.core.tables import Floats

# Chosen on the three problems that gradient.py names, and N2 HBM4 GDR RC-1-16-d32.
DIFFERENCE = 0.5  # of the logarithm of a share: wide enough to see over the response's steps
RATES = np.array([0.25, 0.5, 1.0, 2.0])  # tried together, the best rate taken
CLIP = 1.0  # largest change: of a score, and of the logarithm of a share
MIN_SHARE = 1e-3  # a share of 0 could never grow
MIN_SHARE_OF_ELASTICITY = 0.02  # of smaller shares an elasticity is no direction but a step of the response
MAX_TURNS = 10  # at most, each of differences and a line search; a turn without a gain is the last
SIGMA = 0.06  # of CMA-ES around the best design so far, in roots of shares


class Mirror:
    """One start; a step takes, in turn, an evaluation for each share and budget, or for each rate of RATES.

    Slack is a share like the others here, so that a search finds it where it helps. After CMA-ES has
    converged, the search restarts from a random design.
    """

    def __init__(self, space: Space, start: Floats, seed: int) -> None:
        """Begin at a design, shape (|W|,)."""
        self._space, self._seed, self._restarts = space, seed, 0
        self._space_with_slack = with_slack(space)
        self._begin(start)

    def _begin(self, start: Floats) -> None:
        slack = 1.0 - sums(start[None], self._space)[0]
        self._best, self._best_score = np.concatenate([start, slack]), np.inf
        self._designs: Floats = self._best[None]
        self._steps = self._steps_without_gain = 0
        self._cma: Evolution | None = None

    def _fill(self, shares: Floats) -> Floats:
        return fill(np.maximum(shares, MIN_SHARE), self._space_with_slack)

    def ask(self) -> Floats:
        """Return the next step's designs, shape (evaluations, |W|)."""
        if self._cma is not None:
            return self._cma.ask()
        designs: Floats = self._designs[:, : self._space.budget.size]
        return designs

    def tell(self, score: Floats) -> None:
        """Take the scores of the designs of `ask`, lower is better."""
        if self._cma is not None:
            self._cma.tell(score)
            if self._cma.restarts:
                self._restarts += 1
                self._begin(random_designs(1, self._space, (self._seed, self._restarts))[0])
            return
        lowest = int(np.argmin(score))
        self._steps_without_gain += 1
        if score[lowest] < self._best_score:
            self._best, self._best_score = self._designs[lowest], float(score[lowest])
            self._steps_without_gain = 0
        self._steps += 1
        if self._steps > 2 * MAX_TURNS or self._steps_without_gain == 2:
            best = self._best[: self._space.budget.size]
            self._cma = Evolution(self._space, best, self._seed + self._restarts, SIGMA)
        elif self._steps % 2:
            self._ask_differences()
        else:
            self._ask_line_search(score)

    def _ask_differences(self) -> None:
        """Ask for the best design so far with each share larger, or in every other turn smaller.

        A step of the response may lie on either side.
        """
        self._center = self._fill(self._best[None])[0]
        self._log_change = DIFFERENCE if self._steps % 4 == 1 else -DIFFERENCE
        self._designs = fill(
            self._center * np.exp(self._log_change * np.eye(self._center.size)), self._space_with_slack
        )
        self._center_score = self._best_score

    def _ask_line_search(self, score: Floats) -> None:
        """Ask for a step along the gradient of the differences, at every rate."""
        gain = np.clip(self._center_score - score, -CLIP, CLIP) / self._log_change
        growth = np.outer(RATES, gain / np.maximum(self._center, MIN_SHARE_OF_ELASTICITY))
        self._designs = self._fill(self._center * np.exp(np.clip(growth, -CLIP, CLIP)))
