"""The loads of experts of a mixture (MoE): tokens per expert on the device with the largest load.

*Equal*: as even as whole tokens allow.

*Power law*: as in ai-dynamo/aiconfigurator's collector (collector/helper.py). The popularity of an expert is
a draw from a density x^-exponent, between 1 and 0.8 of the tokens, or between 0.01 and 2 where there are
fewer choices than experts; loads are proportional to it, in whole tokens. No expert gets a token twice, and
tokens left over by this and by rounding go to the experts of least load. Experts are assigned to devices at
random, and all devices wait for the device with most tokens.

*Random*: each token chooses its experts at random, all of them as likely (the tuner of ROCm/aiter draws
scores), so the tokens of an expert follow a binomial distribution.

Of experts of equal load, those of the last device come first, or, where loads are *scattered*, any: rows of
the benchmark differ in it, perhaps by how its sort orders equal keys.

*Capacity*: an expert takes no more than `most` rows; the other tokens that chose it are dropped (Switch
Transformer, arXiv:2101.03961, section 2.2).

*Grouped*: these loads behind DeepSeek-V3's gate (`gate_of_groups.py`); the device with the first experts is
timed.

The collector draws at random, and averages five draws. Here popularities are the midpoints of equal quantiles
of their distribution, one for each expert, so that only the assignment to devices is random: `DRAWS` seeded
shuffles.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints, take
from fastflow.physics.timing.moe.gate_of_groups import GROUPS, assign_evenly_in_groups, assign_in_groups

# Seeded assignments of experts to devices. Mean errors of 12,000 layers are 0.4 to 1.1 points larger with
# one, 0.1 to 0.2 smaller with 16
DRAWS = 4
REPEATED_DRAWS = 5.0  # that a collector runs in turn where loads follow a power law (collect_moe.py)
MAX_KEPT = 2**18  # routings
MAX_POPULAR = 0.8  # of the tokens
FEW = (0.01, 2.0)  # least and most popular where choices are fewer than experts
TIE = 1e-9  # of probabilities, below which they are equal
DEVIATIONS = 12.0  # from the mean, beyond which no quantile is looked for


class Routings(NamedTuple):
    """How tokens choose experts; shape (routings,)."""

    tokens: Ints  # of all devices that share the experts
    topk: Ints  # experts that a token chooses
    experts: Ints
    local: Ints  # experts of a device, a divisor of `experts`
    exponent: Floats  # of the power law; 0: equal loads
    least: Ints  # least rows of each expert of a device, even without tokens; 0: no padding
    random: Bools  # tokens choose at random, whatever the exponent
    scattered: Bools  # left-over tokens go to experts of any device, not those of the last one
    grouped: Bools  # behind a gate that limits a token to `CHOSEN_GROUPS` of `GROUPS`
    most: Ints  # rows of each expert, beyond which tokens are dropped; 0: no limit


class Loads(NamedTuple):
    """Loads of the experts of a routing's busiest device, in groups of equal load.

    Experts without rows are left out. The groups of all draws of a routing are listed.
    """

    group: Ints  # routing i has groups group[i] to group[i + 1]: (routings + 1,)
    tokens: Floats  # rows of each of a group's experts, a whole number of at least 1: (groups,)
    experts: Floats  # number of experts, a mean over draws: (groups,)


class _Shuffles(NamedTuple):
    """Seeded orders of experts by popularity, `DRAWS` orders for each number of experts."""

    offset: Ints  # of each routing's orders
    position: Ints  # of each expert in the concatenated experts of all devices
    rank: Ints  # its inverse


@lru_cache(maxsize=32)
def _shuffle(experts: int) -> tuple[Ints, Ints]:
    """Return `DRAWS` concatenated permutations of experts, and their inverses."""
    orders = [np.random.default_rng([experts, draw]).permutation(experts) for draw in range(DRAWS)]
    return np.concatenate(orders), np.concatenate([np.argsort(order) for order in orders])


def _shuffles(experts: Ints) -> _Shuffles:
    numbers, inverse = np.unique(experts, return_inverse=True)
    orders = [_shuffle(int(number)) for number in numbers]
    if not orders:
        return _Shuffles(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    starts = np.cumsum([0, *(position.size for position, _ in orders)])
    return _Shuffles(
        starts[inverse],
        np.concatenate([order[0] for order in orders]),
        np.concatenate([order[1] for order in orders]),
    )


@lean_kernel
def popularities(lowest: float, highest: float, exponent: float, out: Floats) -> None:
    """Write the midpoints of equal quantiles of a power law, the largest first."""
    power = 1.0 - exponent
    low, high = lowest**power, highest**power
    for r in range(out.size):
        share = 1.0 - (r + 0.5) / out.size
        if abs(power) < 1e-9:
            out[r] = lowest * (highest / lowest) ** share
        else:
            out[r] = np.exp(np.log((high - low) * share + low) / power)  # faster than a power


@lean_kernel
def _binomial_counts(tokens: int, chance: float, out: Floats) -> None:
    """Write the midpoints of equal quantiles of a binomial distribution, the largest first."""
    if chance >= 1.0:
        out[:] = tokens
        return
    mean = tokens * chance
    reach = DEVIATIONS * np.sqrt(mean * (1.0 - chance)) + DEVIATIONS
    count = max(0.0, np.floor(mean - reach))
    log = math.lgamma(tokens + 1.0) - math.lgamma(count + 1.0) - math.lgamma(tokens - count + 1.0)
    each = np.exp(log + count * np.log(chance) + (tokens - count) * np.log1p(-chance))
    below = each  # probability of `count` tokens or fewer
    for r in range(out.size - 1, -1, -1):
        share = 1.0 - (r + 0.5) / out.size
        while below < share - TIE and count < min(tokens, mean + reach):
            each *= (tokens - count) / (count + 1.0) * chance / (1.0 - chance)
            count += 1.0
            below += each
        out[r] = count


@lean_kernel
def _fill(count: Ints, left: int, most: int, rank: Ints, scattered: bool) -> None:
    """Add `left` tokens to the experts of least load, up to `most` each; count: in descending order.

    Of experts of equal load the last positions come first, or the least popular ones where `scattered`;
    rank: of the expert at each position.
    """
    first, last = count.size - 1, count.size - 1  # the experts of least load
    while left > 0 and count[last] < most:
        while first > 0 and count[first - 1] == count[last]:
            first -= 1
        level, lowest = count[last], last - first + 1
        above = most if first == 0 else count[first - 1]
        rise = min(above - level, left // lowest)
        if rise == 0:  # fewer tokens than experts are left
            for position in range(count.size - 1, -1, -1):
                r = position if scattered else rank[position]
                if left > 0 and r >= first:
                    count[r] += 1
                    left -= 1
            return
        for r in range(first, last + 1):
            count[r] += rise
        left -= rise * lowest


@lean_kernel
def _assign_tokens(
    popularity: Floats, tokens: int, topk: int, rank: Ints, scattered: bool, count: Ints
) -> None:
    """Write the tokens of each expert by popularity, `topk` times `tokens` in total."""
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
    _fill(count, left, tokens, rank, scattered)


@lean_kernel
def _busiest(count: Ints, rank: Ints, local: int) -> int:
    """Return the first position of the device with most tokens, of equal devices the first."""
    best, most = 0, -1
    for start in range(0, count.size, local):
        total = 0
        for position in range(start, start + local):
            total += count[rank[position]]
        if total > most:
            best, most = start, total
    return best


@lean_kernel
def _assign_evenly(choices: int, local: int, tokens: Floats, count: Floats, groups: int) -> int:
    """Write the groups of experts of an even load of `choices`; returns the end of the groups."""
    for rows, number in (
        (choices // local + 1, choices % local),
        (choices // local, local - choices % local),
    ):
        if rows > 0 and number > 0:
            tokens[groups], count[groups] = rows, number
            groups += 1
    return groups


@lean_kernel
def _list_loads(loads: Floats, share: float, tokens: Floats, count: Floats, groups: int) -> int:
    """Write groups of experts, `share` of each expert; returns the end of the groups."""
    start = groups
    for load in loads:
        if load > 0.0:
            if groups == start or tokens[groups - 1] != load:
                tokens[groups], count[groups] = load, 0.0
                groups += 1
            count[groups - 1] += share
    return groups


@lean_kernel
def _pad_experts(least: int, local: int, tokens: Floats, count: Floats, first: int, groups: int) -> int:
    """Pad every expert to `least` rows, also experts without tokens; returns the end of the groups."""
    idle = float(local)
    for group in range(first, groups):
        tokens[group] = max(tokens[group], least)
        idle -= count[group]
    if idle > 1e-9:
        tokens[groups], count[groups] = least, idle
        groups += 1
    return groups


@lean_kernel
def _drop_tokens(most: int, tokens: Floats, first: int, groups: int) -> None:
    """Leave every expert `most` rows at most; 0: all that it has."""
    for group in range(first, groups if most > 0 else first):
        tokens[group] = min(tokens[group], most)


@kernel
def _compute_loads(routings: Routings, shuffles: _Shuffles) -> tuple[Ints, Floats, Floats]:
    """Return the columns of the routings' loads."""
    group = np.zeros(routings.tokens.size + 1, dtype=np.int64)
    tokens, counts, groups = np.empty(1024), np.empty(1024), 0
    for i in range(routings.tokens.size):
        experts, local, exponent = routings.experts[i], routings.local[i], routings.exponent[i]
        room = DRAWS * local + 3
        if groups + room > tokens.size:
            tokens = np.append(tokens, np.empty(tokens.size + room))
            counts = np.append(counts, np.empty(counts.size + room))
        devices, choices = experts // local, routings.tokens[i] * routings.topk[i]
        least = routings.least[i]
        in_groups = routings.grouped[i] and experts % GROUPS == 0 and not routings.random[i]
        if exponent == 0.0 and not routings.random[i]:
            if in_groups and (routings.topk[i] == GROUPS or experts == GROUPS):
                loads = assign_evenly_in_groups(routings.tokens[i], routings.topk[i], experts)
                groups = _list_loads(loads[:local], 1.0, tokens, counts, groups)
            else:
                groups = _assign_evenly(-(-choices // devices), local, tokens, counts, groups)
            _drop_tokens(routings.most[i], tokens, group[i], groups)
            if least > 0:
                groups = _pad_experts(least, local, tokens, counts, group[i], groups)
            group[i + 1] = groups
            continue
        popularity, count = np.empty(experts), np.empty(experts, dtype=np.int64)
        rarest, most = FEW
        if choices > experts:
            rarest, most = 1.0, max(1.0, MAX_POPULAR * routings.tokens[i])
        if routings.random[i]:
            _binomial_counts(routings.tokens[i], routings.topk[i] / experts, popularity)
        else:
            popularities(rarest, most, exponent, popularity)
        draws = DRAWS if devices > 1 or in_groups else 1
        for number in range(draws):
            begin = shuffles.offset[i] + number * experts
            position, rank = (
                shuffles.position[begin : begin + experts],
                shuffles.rank[begin : begin + experts],
            )
            _assign_tokens(
                popularity, routings.tokens[i], routings.topk[i], rank, routings.scattered[i], count
            )
            busiest = _busiest(count, rank, local)
            if in_groups:
                loads = assign_in_groups(
                    count, position, busiest, local, routings.tokens[i], routings.topk[i]
                )
                groups = _list_loads(loads[:local], 1.0 / draws, tokens, counts, groups)
                continue
            loads, listed = np.zeros(local), 0  # of the busiest device, by popularity
            for r in range(experts):
                if busiest <= position[r] < busiest + local:
                    loads[listed] = count[r]
                    listed += 1
            groups = _list_loads(loads, 1.0 / draws, tokens, counts, groups)
        _drop_tokens(routings.most[i], tokens, group[i], groups)
        if least > 0:
            groups = _pad_experts(least, local, tokens, counts, group[i], groups)
        group[i + 1] = groups
    return group, tokens[:groups].copy(), counts[:groups].copy()


def expert_loads(routings: Routings) -> tuple[Loads, Ints]:
    """Return loads of unique routings, and the inverse; shape (routings,).

    Kernels of a layer need the same loads one after the other: the loads of earlier calls are cached.
    """
    cached, loads = getattr(_cache, "loads", _EMPTY)
    cached = cached if cached.tokens.size < MAX_KEPT else _EMPTY[0]
    loads = loads if cached.tokens.size else _EMPTY[1]
    combined = Routings(*map(np.concatenate, zip(cached, routings, strict=True)))
    first, inverse = unique_rows(combined, combined.tokens.size)
    new_rows = first[cached.tokens.size :]
    if new_rows.size:
        cached, new_routings = take(combined, first), take(combined, new_rows)
        group, tokens, experts = _compute_loads(new_routings, _shuffles(new_routings.experts))
        loads = Loads(
            group=np.concatenate([loads.group, loads.group[-1] + group[1:]]),
            tokens=np.concatenate([loads.tokens, tokens]),
            experts=np.concatenate([loads.experts, experts]),
        )
        _cache.loads = cached, loads
    return loads, inverse[combined.tokens.size - routings.tokens.size :]


_cache = threading.local()
_NO_INTS = np.zeros(0, dtype=np.int64)
_NO_FLAGS = np.zeros(0, dtype=np.bool_)
_EMPTY = (
    Routings(
        _NO_INTS,
        _NO_INTS,
        _NO_INTS,
        _NO_INTS,
        np.zeros(0),
        _NO_INTS,
        _NO_FLAGS,
        _NO_FLAGS,
        _NO_FLAGS,
        _NO_INTS,
    ),
    Loads(np.zeros(1, dtype=np.int64), np.zeros(0), np.zeros(0)),
)


@kernel
def mean_rows(loads: Loads) -> Floats:
    """Return the rows of the busiest device: choices of its experts; shape (routings,)."""
    rows = np.zeros(loads.group.size - 1)
    for i in range(rows.size):
        for group in range(loads.group[i], loads.group[i + 1]):
            rows[i] += loads.tokens[group] * loads.experts[group]
    return rows
