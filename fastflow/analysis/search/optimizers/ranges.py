"""How far each share of a best design can move alone with its objective within a tolerance.

A search scores designs near its path, which says little of other designs that are as good. After a search
each share is varied by itself: a growing share takes the slack of its budget first, then of the others in
proportion; a shrinking share leaves its part to the others in proportion. A few values on either side of the
best value are scored together, each four times as far away as the value before, then the ends
of the range are bisected. Distances are differences of the logarithm of the odds of a share, so that from 1%
to 2% is as far as from 98% to 99%.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastflow.analysis.search.optimizers.design_space import Space
from fastflow.core.tables import Floats, Ints

TOLERANCE = 0.01
"""Relative, of an objective: designs so near to the best count as good. Predictions of two similar designs
have nearly the same error, so that their ratio is much surer than either time (`typical_error`)."""
MIN_SHARE, MAX_SHARE = 0.002, 0.98
"""Range of tried shares, unless the best is near an end: beyond, a component or all others hardly exist."""
_CLOSER = 8.0  # shares so many times closer to 0 or 1 than the best are tried, too
_RATIO = 4.0  # of the distances of successive values
_MIN_CLIPPED_SHARE = 1e-6  # for the odds of a share of 0
MIN_VALUES, MAX_VALUES, ROUNDS = 2, 8, 3
"""Values of a share that are tried at first, half on either side; and how often both ends are bisected."""
ALWAYS = 256
"""Designs that may be tried even where the search itself has scored fewer, up to twice as many as it has."""

Measure = Callable[[Ints, Floats], Floats]
"""From problems and designs to objectives, infinite for infeasible designs."""


class Ranges(NamedTuple):
    """Ranges of shares within a tolerance of best designs; low, high: (problems, shares)."""

    low: Floats
    high: Floats
    least: Floats
    """The least objective that was measured, (problems,)."""


def with_share(designs: Floats, shares: Ints, values: Floats, space: Space) -> Floats:
    """Return designs with another value of one share each, the others of its budget scaled in proportion.

    designs: (designs, |W|); shares, values: which share, and its value, (designs,).
    """
    rows = np.arange(shares.size)
    others = space.budget == space.budget[shares][:, None]
    others[rows, shares] = False
    sum_of_others, center = np.where(others, designs, 0.0).sum(axis=1), designs[rows, shares]
    left_for_others = np.where(
        values > center, np.minimum(1.0 - values, sum_of_others), sum_of_others + center - values
    )
    scale = np.divide(
        left_for_others, sum_of_others, out=np.ones(sum_of_others.size), where=sum_of_others > 0.0
    )
    result = np.where(others, designs * scale[:, None], designs)
    result[rows, shares] = values
    return result


class _Brackets:
    """Brackets of the ends of the range of every share of every problem; (problems x shares,)."""

    def __init__(self, center: Floats, low: Floats, high: Floats, limit: Floats) -> None:
        """Begin with the best shares and the known ends.

        limit: the largest objective within the tolerance.
        """
        self.center, self.low, self.high, self.limit = _log_odds(center), low.copy(), high.copy(), limit
        self.below, self.above = np.full((2, low.size), np.nan)  # the nearest tried values outside

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
        """Return rows, and the middles between their ends and the nearest values outside."""
        lower, upper = (np.flatnonzero(~np.isnan(beyond)) for beyond in (self.below, self.above))
        rows = np.concatenate([lower, upper])
        inner = _log_odds(np.concatenate([self.low[lower], self.high[upper]])) - self.center[rows]
        outer = _log_odds(np.concatenate([self.below[lower], self.above[upper]])) - self.center[rows]
        distance = np.abs(outer) / _RATIO  # where the known range hardly reaches this side
        distance = np.maximum(distance, np.sqrt(np.abs(inner * outer)))
        return rows, _share(self.center[rows] + np.copysign(distance, outer))


def ranges_of(
    best: Floats, objective: Floats, known_ends: tuple[Floats, Floats], space: Space, num_scored: int,
    tolerance: float, measure: Measure,
) -> Ranges:  # fmt: skip
    """Return the lowest and the highest value of every share within a tolerance of the best objective.

    best: the best design of each problem, (problems, shares); objective: of these, (problems,); known_ends:
    lowest and highest shares within the tolerance among designs that the search scored, as `best`;
    num_scored: designs that the search scored of a problem; tolerance: relative, of the objective.
    """
    problem, share = (indices.ravel() for indices in np.indices(best.shape))
    center, least = best.ravel(), objective.copy()
    limit = (objective * (1.0 + tolerance))[problem]
    ends = _Brackets(
        center, np.minimum(center, known_ends[0].ravel()), np.maximum(center, known_ends[1].ravel()), limit
    )
    most_tried = max(num_scored, min(ALWAYS, 2 * num_scored))
    num_values = min(max(most_tried // best.shape[1], MIN_VALUES), MAX_VALUES) // 2
    far_ends = np.minimum(MIN_SHARE, center / _CLOSER), np.maximum(MAX_SHARE, 1.0 - (1.0 - center) / _CLOSER)
    ladder = np.concatenate([_steps_towards(center, end, num_values) for end in far_ends])
    rows, values = np.tile(np.arange(center.size), len(ladder)), ladder.ravel()
    num_tried = 0
    for _ in range(1 + ROUNDS):
        num_tried += rows.size
        if not rows.size or (num_tried > rows.size and num_tried > most_tried * len(best)):
            break
        objectives = measure(problem[rows], with_share(best[problem[rows]], share[rows], values, space))
        np.fmin.at(least, problem[rows], objectives)
        ends.tell(rows, values, objectives)
        rows, values = ends.ask()
    return Ranges(ends.low.reshape(best.shape), ends.high.reshape(best.shape), least)


def _log_odds(share: Floats) -> Floats:
    """Return the logarithm of the odds of shares."""
    kept = np.clip(share, _MIN_CLIPPED_SHARE, 1.0 - _MIN_CLIPPED_SHARE)
    return np.asarray(np.log(kept / (1.0 - kept)))


def _share(odds: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-odds)))


def _steps_towards(center: Floats, end: Floats, count: int) -> Floats:
    """Return some values from each share towards an end, each further away than the last; (count, shares).

    A single value is a part of the way.
    """
    start, stop = _log_odds(center), _log_odds(end)
    steps = _RATIO ** (np.arange(1.0, count + 1.0) - max(count, 2))[:, None]
    return _share(start + steps * (stop - start))
