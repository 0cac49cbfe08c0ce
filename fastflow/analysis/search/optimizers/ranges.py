"""How far each share of a best design can move alone while its objective stays within a tolerance.

A search scores designs near its path, so that what it has scored says little of other designs that are as
good. After a search each share is varied by itself: one that grows takes what is unused of its budget first,
then of the others in proportion; what a smaller one leaves goes to the others in proportion. A few values on
either side of the best one are scored together, each four times as far away as the one before, then the ends
of what is within the tolerance are bisected. How far a value is away is said by the logarithm of the odds of
a share, so that from 1% to 2% is as far as from 98% to 99%.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastflow.analysis.search.optimizers.design_space import Space
from fastflow.core.tables import Floats, Ints

TOLERANCE = 0.01
"""Relative, of an objective: what is so near to the best is as good. What a model says of two neighbours has
nearly the same error, so that their ratio is much surer than either of their times (`typical_error`)."""
LOWEST, HIGHEST = 0.002, 0.98
"""Shares that are tried at most, unless the best is near: beyond, a part or all others are hardly there."""
_NEAR = 8.0  # times nearer to 0 or 1 than the best share is tried, too
_RATIO = 4.0  # times as far away is the next value
_HARDLY = 1e-6  # of a share that is none, for its odds
FEWEST, VALUES, ROUNDS = 2, 8, 3
"""Values of a share that are tried at first, half on either side; and how often both ends are bisected."""
ALWAYS = 256
"""Designs that may be tried even where the search itself has scored fewer, up to twice as many as it has."""

Measure = Callable[[Ints, Floats], Floats]
"""Returns objectives of designs, infinite where one is not feasible; takes whose designs they are."""


class Ranges(NamedTuple):
    """What is within a tolerance of best designs; low, high: (problems, shares)."""

    low: Floats
    high: Floats
    least: Floats
    """The least objective that was measured, (problems,)."""


def varied(designs: Floats, shares: Ints, values: Floats, space: Space) -> Floats:
    """Return designs with another value of one share each, the others of its budget as the module says.

    designs: (designs, |W|); shares, values: which share, and its value, (designs,).
    """
    rows = np.arange(shares.size)
    others = space.budget == space.budget[shares][:, None]
    others[rows, shares] = False
    rest, center = np.where(others, designs, 0.0).sum(axis=1), designs[rows, shares]
    left = np.where(values > center, np.minimum(1.0 - values, rest), rest + center - values)
    scale = np.divide(left, rest, out=np.ones(rest.size), where=rest > 0.0)
    moved = np.where(others, designs * scale[:, None], designs)
    moved[rows, shares] = values
    return moved


class _Ends:
    """The ends of what is within the tolerance, of every share of every problem; (problems x shares,)."""

    def __init__(self, center: Floats, low: Floats, high: Floats, limit: Floats) -> None:
        """Begin with the best shares and the ends that are known.

        limit: the objective that is just within the tolerance.
        """
        self.center, self.low, self.high, self.limit = _odds(center), low.copy(), high.copy(), limit
        self.below, self.above = np.full((2, low.size), np.nan)  # the nearest beyond them that are not within

    def tell(self, rows: Ints, values: Floats, objective: Floats) -> None:
        """Take the objectives of some shares' values."""
        is_within = objective <= self.limit[rows]
        np.fmin.at(self.low, rows[is_within], values[is_within])
        np.fmax.at(self.high, rows[is_within], values[is_within])
        lower = ~is_within & (values < self.low[rows])
        upper = ~is_within & (values > self.high[rows])
        np.fmax.at(self.below, rows[lower], values[lower])
        np.fmin.at(self.above, rows[upper], values[upper])

    def ask(self) -> tuple[Ints, Floats]:
        """Return the middles between the ends and what is beyond them, and of which rows they are."""
        lower, upper = (np.flatnonzero(~np.isnan(beyond)) for beyond in (self.below, self.above))
        rows = np.concatenate([lower, upper])
        inner = _odds(np.concatenate([self.low[lower], self.high[upper]])) - self.center[rows]
        outer = _odds(np.concatenate([self.below[lower], self.above[upper]])) - self.center[rows]
        far = np.abs(outer) / _RATIO  # where nothing within is known on this side, or hardly
        far = np.maximum(far, np.sqrt(np.abs(inner * outer)))
        return rows, _share(self.center[rows] + np.copysign(far, outer))


def ranges_of(
    best: Floats, objective: Floats, known: tuple[Floats, Floats], space: Space, spent: int, tolerance: float,
    measure: Measure,
) -> Ranges:  # fmt: skip
    """Return the lowest and the highest value of every share within a tolerance of the best objective.

    best: the best design of each problem, (problems, shares); objective: theirs, (problems,); known: lowest
    and highest shares within the tolerance among designs that were scored before, as `best`; spent: designs
    that the search has scored of a problem; tolerance: relative, of the objective.
    """
    problem, share = (places.ravel() for places in np.indices(best.shape))
    center, least = best.ravel(), objective.copy()
    limit = (objective * (1.0 + tolerance))[problem]
    ends = _Ends(center, np.minimum(center, known[0].ravel()), np.maximum(center, known[1].ravel()), limit)
    most = max(spent, min(ALWAYS, 2 * spent))
    count = min(max(most // best.shape[1], FEWEST), VALUES) // 2
    far_ends = np.minimum(LOWEST, center / _NEAR), np.maximum(HIGHEST, 1.0 - (1.0 - center) / _NEAR)
    ladder = np.concatenate([_ladder(center, end, count) for end in far_ends])
    rows, values = np.tile(np.arange(center.size), len(ladder)), ladder.ravel()
    used = 0
    for _ in range(1 + ROUNDS):
        used += rows.size
        if not rows.size or (used > rows.size and used > most * len(best)):
            break
        objectives = measure(problem[rows], varied(best[problem[rows]], share[rows], values, space))
        np.fmin.at(least, problem[rows], objectives)
        ends.tell(rows, values, objectives)
        rows, values = ends.ask()
    return Ranges(ends.low.reshape(best.shape), ends.high.reshape(best.shape), least)


def _odds(share: Floats) -> Floats:
    """Return the logarithm of the odds of shares."""
    kept = np.clip(share, _HARDLY, 1.0 - _HARDLY)
    return np.asarray(np.log(kept / (1.0 - kept)))


def _share(odds: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-odds)))


def _ladder(center: Floats, end: Floats, count: int) -> Floats:
    """Return some values from each share towards an end, each further away than the last; (count, shares).

    A single one is a part of the way.
    """
    start, stop = _odds(center), _odds(end)
    steps = _RATIO ** (np.arange(1.0, count + 1.0) - max(count, 2))[:, None]
    return _share(start + steps * (stop - start))
