"""CMA-ES over designs, with restarts (N. Hansen, arXiv:1604.00772), by the package `cmaes`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastflow.analysis.search.optimizers.design_space import Space, fit, random_designs
from fastflow.core.tables import Floats

SIGMA = 0.1  # of the first generation, in roots of shares
MAX_GENERATIONS_WITHOUT_GAIN = 30  # generations without a gain after which a search has converged
GAIN = 1e-4  # of a score, a logarithm
MAX_POPULATION = 100  # population; a restart doubles it up to here


class Evolution:
    """One start of CMA-ES; a step is a generation, of 4 + 3 ln |W| evaluations before any restart.

    A share is the square of a coordinate, and a budget that is overdrawn is scaled back: shares of 0 and
    slack are then ordinary points, and no design has to be repaired. Only the order of the scores counts,
    so cliffs between regions do no harm. A converged search restarts from a random design, with twice
    the population (A. Auger and N. Hansen, CEC 2005).
    """

    def __init__(self, space: Space, start: Floats, seed: int, sigma: float = SIGMA) -> None:
        """Begin at a design, shape (|W|,); sigma: of the first generation, in roots of shares."""
        self._space, self._seed, self._sigma = space, seed, sigma
        self.restarts = 0
        self._begin(start, None)

    def _begin(self, start: Floats, population: int | None) -> None:
        from cmaes import CMA  # here: it may load SciPy, which takes a second

        seed = int(np.random.SeedSequence((self._seed, self.restarts)).generate_state(1)[0])
        roots = np.sqrt(start)
        self._search = CMA(mean=roots, sigma=self._sigma, seed=seed, population_size=population)
        self._roots = self._draw()
        self._roots[0] = roots  # the start itself
        self._best_score, self._generations_without_gain = np.inf, 0

    def __getstate__(self) -> dict[str, Any]:
        """Return the whole state for another process: CMA's own pickle lacks its random numbers."""
        return vars(self) | {"_search": vars(self._search)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        from cmaes import CMA

        search = CMA.__new__(CMA)
        vars(search).update(state["_search"])
        vars(self).update(state | {"_search": search})

    def _draw(self) -> Floats:
        return np.array([self._search.ask() for _ in range(self._search.population_size)])

    def ask(self) -> Floats:
        """Return a generation's designs, shape (population, |W|)."""
        return fit(self._roots**2, self._space)

    def tell(self, score: Floats) -> None:
        """Take the generation's scores, shape (population,), lower is better."""
        self._search.tell(list(zip(self._roots, score.tolist(), strict=True)))
        has_gained = score.min() < self._best_score - GAIN
        self._best_score = score.min() if has_gained else self._best_score
        self._generations_without_gain = 0 if has_gained else self._generations_without_gain + 1
        if self._generations_without_gain > MAX_GENERATIONS_WITHOUT_GAIN or self._search.should_stop():
            self.restarts += 1
            start = random_designs(1, self._space, (self._seed, self.restarts))[0]
            self._begin(start, min(2 * self._search.population_size, MAX_POPULATION))
        else:
            self._roots = self._draw()
