"""How tokens fall on the experts of a mixture: the loads of the device that has most to do.

*Equal*: as even as whole tokens allow.

*Power law*: the way ai-dynamo/aiconfigurator's collector draws them (collector/helper.py). An expert is as
popular as a draw from a density x^-exponent, between 1 and 0.8 of the tokens, or between 0.01 and 2 where
there are fewer choices than experts; loads are proportional to that, in whole tokens. No expert gets a token
twice, and what this and rounding leave over goes to those with least. Experts are dealt to devices by
chance, and the device with most tokens is the one that all wait for.

The collector draws at random, and averages five draws. Here popularities are the midpoints of as many equal
shares of their distribution as there are experts, so that only the dealing to devices is left to chance, and
`DRAWS` seeded shuffles stand for it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.distinct import kinds
from fastflow.tables import Floats, Ints, take

DRAWS = 4  # seeded shuffles of experts over devices; one gives loads that are off by 10% more, 16 as 4
MOST_POPULAR = 0.8  # of the tokens
FEW = (0.01, 2.0)  # least and most popular where choices are fewer than experts


class Routings(NamedTuple):
    """How tokens choose experts; shape (routings,)."""

    tokens: Ints  # of all devices that share the experts
    topk: Ints  # experts that a token chooses
    experts: Ints
    local: Ints  # experts of a device; these divide `experts`
    exponent: Floats  # of the power law; 0: equal loads


class Loads(NamedTuple):
    """Loads of the experts of a routing's busiest device, those of like load together.

    Draws, of one routing after the other, have groups; a group is some experts with as many tokens each.
    Experts without tokens are left out.
    """

    draw: Ints  # routing i has draws draw[i] to draw[i + 1]: (routings + 1,)
    group: Ints  # draw d has groups group[d] to group[d + 1]: (draws + 1,)
    tokens: Ints  # of each of a group's experts, at least 1: (groups,)
    count: Ints  # of such experts: (groups,)


class _Shuffles(NamedTuple):
    """Seeded orders of experts, `DRAWS` of each number: from the most popular one on."""

    offset: Ints  # of those of each routing
    place: Ints  # of each expert among all devices' experts
    rank: Ints  # its inverse


@lru_cache(maxsize=256)
def _shuffle(experts: int) -> tuple[Ints, Ints]:
    """Return `DRAWS` orders of so many experts behind each other, and their inverses."""
    orders = [np.random.default_rng([experts, draw]).permutation(experts) for draw in range(DRAWS)]
    return np.concatenate(orders), np.concatenate([np.argsort(order) for order in orders])


def _shuffles(experts: Ints) -> _Shuffles:
    numbers, which = np.unique(experts, return_inverse=True)
    orders = [_shuffle(int(number)) for number in numbers]
    if not orders:
        return _Shuffles(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    starts = np.cumsum([0, *(place.size for place, _ in orders)])
    return _Shuffles(
        starts[which], np.concatenate([o[0] for o in orders]), np.concatenate([o[1] for o in orders])
    )


@kernel
def _popularities(lowest: float, highest: float, exponent: float, out: Floats) -> None:
    """Write the midpoints of equal shares of a power law's distribution, the largest first."""
    power = 1.0 - exponent
    low, high = lowest**power, highest**power
    for r in range(out.size):
        share = 1.0 - (r + 0.5) / out.size
        if abs(power) < 1e-9:
            out[r] = lowest * (highest / lowest) ** share
        else:
            out[r] = np.exp(np.log((high - low) * share + low) / power)  # faster than a power


@kernel
def _fill(count: Ints, left: int, most: int, rank: Ints) -> None:
    """Give `left` tokens to the experts that have least, none more than `most`; count: falling.

    Of experts that have the same the last ones come first; rank: of the experts by their place.
    """
    first, last = count.size - 1, count.size - 1  # those that have least
    while left > 0 and count[last] < most:
        while first > 0 and count[first - 1] == count[last]:
            first -= 1
        level, those = count[last], last - first + 1
        above = most if first == 0 else count[first - 1]
        rise = min(above - level, left // those)
        if rise == 0:  # fewer are left than there are experts
            for place in range(count.size - 1, -1, -1):
                r = rank[place]
                if left > 0 and r >= first:
                    count[r] += 1
                    left -= 1
            return
        for r in range(first, last + 1):
            count[r] += rise
        left -= rise * those


@kernel
def _spread(popularity: Floats, tokens: int, topk: int, rank: Ints, count: Ints) -> None:
    """Write how many tokens experts get, by popularity: `topk` times `tokens` in all."""
    total, choices = popularity.sum(), tokens * topk
    left = choices
    for r in range(count.size):
        count[r] = min(tokens, int(np.rint(popularity[r] / total * choices)))
        left -= count[r]
    while left < 0:  # rounding gave too many
        for r in range(count.size - 1, -1, -1):
            if left < 0 and count[r] > 0:
                count[r] -= 1
                left += 1
    _fill(count, left, tokens, rank)


@kernel
def _busiest(count: Ints, place: Ints, local: int) -> int:
    """Return the device that gets most tokens, the first one of several."""
    sums = np.zeros(count.size // local, dtype=np.int64)
    for r in range(count.size):
        sums[place[r] // local] += count[r]
    return int(np.argmax(sums))


@kernel
def _deal(routings: Routings, shuffles: _Shuffles) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the columns of the routings' loads."""
    rows = routings.tokens.size
    draw, group = np.zeros(rows + 1, dtype=np.int64), np.zeros(DRAWS * rows + 1, dtype=np.int64)
    tokens, counts = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.int64)
    draws, groups = 0, 0
    for i in range(rows):
        experts, local, exponent = routings.experts[i], routings.local[i], routings.exponent[i]
        if groups + DRAWS * (local + 2) > tokens.size:
            more = 2 * tokens.size + DRAWS * (local + 2)
            tokens, counts = (
                np.append(tokens, np.empty(more, np.int64)),
                np.append(counts, np.empty(more, np.int64)),
            )
        devices, choices = experts // local, routings.tokens[i] * routings.topk[i]
        if exponent == 0.0:
            most = -(-choices // devices)
            for each, those in ((most // local + 1, most % local), (most // local, local - most % local)):
                if each > 0 and those > 0:
                    tokens[groups], counts[groups] = each, those
                    groups += 1
            draws += 1
            group[draws] = groups
        else:
            popularity, count = np.empty(experts), np.empty(experts, dtype=np.int64)
            least, most_popular = FEW
            if choices > experts:
                least, most_popular = 1.0, max(1.0, MOST_POPULAR * routings.tokens[i])
            _popularities(least, most_popular, exponent, popularity)
            for number in range(DRAWS if devices > 1 else 1):
                at = shuffles.offset[i] + number * experts
                place, rank = shuffles.place[at : at + experts], shuffles.rank[at : at + experts]
                _spread(popularity, routings.tokens[i], routings.topk[i], rank, count)
                device, start = _busiest(count, place, local), groups
                for r in range(experts):
                    if place[r] // local != device or count[r] == 0:
                        continue
                    if groups > start and tokens[groups - 1] == count[r]:
                        counts[groups - 1] += 1
                    else:
                        tokens[groups], counts[groups] = count[r], 1
                        groups += 1
                draws += 1
                group[draws] = groups
        draw[i + 1] = draws
    return draw, group[: draws + 1], tokens[:groups], counts[:groups]


def expert_loads(routings: Routings) -> tuple[Loads, Ints]:
    """Return the loads of the distinct routings, and each routing's place among these; shape (routings,)."""
    first, place = kinds(routings, routings.tokens.size)
    distinct = take(routings, first)
    return Loads(*_deal(distinct, _shuffles(distinct.experts))), place
