"""Mirror descent with wide differences, then CMA-ES: this project's own search.

At the best breakdown every share of a budget is proportional to its elasticity, the relative gain in
score by a relative gain in share: what is moved from one component to another then gains nothing.
Exponentiated gradient (J. Kivinen and M. Warmuth, Information and Computation 132, 1997), which is mirror
descent with the entropy as its mirror, grows the shares whose elasticity exceeds them and shrinks the
others, by factors. It therefore gets near in a few steps from anywhere, where shares are wrong by factors.
The steps of the response (whole memory devices, lanes, banks) end its use soon; CMA-ES goes on from there.
"""

from __future__ import annotations

import numpy as np

from fastflow.analysis.search.optimizers.cma_es import Evolution
from fastflow.analysis.search.optimizers.design_space import Space, fill, random_designs, sums, with_slack
from fastflow.core.tables import Floats

# Chosen on the three problems that gradient.py names, and N2 HBM4 GDR RC-1-16-d32.
DIFFERENCE = 0.5  # of the logarithm of a share: wide enough to see over the response's steps
RATES = np.array([0.25, 0.5, 1.0, 2.0])  # tried together, the best one taken
CLIP = 1.0  # largest change: of a score, and of the logarithm of a share
LEAST = 1e-3  # a share of 0 could never grow again
SMALL = 0.02  # share; an elasticity beside a smaller one is no direction but a step of the response
TURNS = 10  # at most, each of differences and a line search; one without a gain is the last
SPREAD = 0.06  # of CMA-ES around the best design so far, in roots of shares


class Mirror:
    """One start; a step takes, in turn, an evaluation a share and budget, or one a rate of RATES.

    Slack is a share like the others here: a score that gains by it finds it. What CMA-ES ends with
    starts again from a random design.
    """

    def __init__(self, space: Space, start: Floats, seed: int) -> None:
        """Begin at a design, shape (|W|,)."""
        self._space, self._seed, self._restarts = space, seed, 0
        self._whole = with_slack(space)
        self._begin(start)

    def _begin(self, start: Floats) -> None:
        slack = 1.0 - sums(start[None], self._space)[0]
        self._best, self._score = np.concatenate([start, slack]), np.inf
        self._asked: Floats = self._best[None]
        self._steps = self._idle = 0
        self._later: Evolution | None = None

    def _fill(self, shares: Floats) -> Floats:
        return fill(np.maximum(shares, LEAST), self._whole)

    def ask(self) -> Floats:
        """Return the next step's designs, shape (evaluations, |W|)."""
        if self._later is not None:
            return self._later.ask()
        designs: Floats = self._asked[:, : self._space.budget.size]
        return designs

    def tell(self, score: Floats) -> None:
        """Take the scores of the designs asked for, lower is better."""
        if self._later is not None:
            self._later.tell(score)
            if self._later.restarts:
                self._restarts += 1
                self._begin(random_designs(1, self._space, (self._seed, self._restarts))[0])
            return
        lowest = int(np.argmin(score))
        self._idle += 1
        if score[lowest] < self._score:
            self._best, self._score, self._idle = self._asked[lowest], float(score[lowest]), 0
        self._steps += 1
        if self._steps > 2 * TURNS or self._idle == 2:
            best = self._best[: self._space.budget.size]
            self._later = Evolution(self._space, best, self._seed + self._restarts, SPREAD)
        elif self._steps % 2:
            self._differ()
        else:
            self._descend(score)

    def _differ(self) -> None:
        """Ask for the best design so far with each share in turn larger, or in every other turn smaller.

        A step of the response may lie on either side.
        """
        self._centre = self._fill(self._best[None])[0]
        self._change = DIFFERENCE if self._steps % 4 == 1 else -DIFFERENCE
        self._asked = fill(self._centre * np.exp(self._change * np.eye(self._centre.size)), self._whole)
        self._known = self._score

    def _descend(self, score: Floats) -> None:
        """Ask for what the differences lead to, at every rate."""
        gain = np.clip(self._known - score, -CLIP, CLIP) / self._change
        growth = np.outer(RATES, gain / np.maximum(self._centre, SMALL))
        self._asked = self._fill(self._centre * np.exp(np.clip(growth, -CLIP, CLIP)))
