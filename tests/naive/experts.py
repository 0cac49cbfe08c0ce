"""Loads of experts token by token, and their products block by block (docs/model_kernels.md)."""

import random
from fractions import Fraction
from math import ceil, comb, floor, sqrt

from tests.naive.blocks import LINE, SECTOR, Run, gain, of_b, soft, waiting, warp
from tests.naive.dataflow import register_accesses


def popularities(tokens, topk, experts, exponent):
    """Return midpoints of equal shares of a power law, the largest first."""
    low, high = (1, max(1, 0.8 * tokens)) if tokens * topk > experts else (0.01, 2)
    shares = [1 - (i + 0.5) / experts for i in range(experts)]
    if exponent == 1:
        return [low * (high / low) ** share for share in shares]
    p = 1 - exponent
    return [((high**p - low**p) * share + low**p) ** (1 / p) for share in shares]


def binomial_counts(tokens, topk, experts):
    """Return midpoints of equal shares of the tokens that choose an expert, the largest first."""
    chance, below, counts = Fraction(topk, experts), Fraction(0), []
    for count in range(tokens + 1):
        below += comb(tokens, count) * chance**count * (1 - chance) ** (tokens - count)
        while len(counts) < experts and below >= Fraction(2 * len(counts) + 1, 2 * experts):
            counts.append(count)
    return counts[::-1]


def loads(tokens, topk, experts, local, exponent, place, least=0, at_random=False, scattered=False):
    """Return the loads of the busiest device's experts; place: of experts, from the most popular one on.

    least: rows that each of them has at least; at_random: whether tokens choose at random; scattered: of
    experts of equal load the least popular come first.
    """
    own = chosen(tokens, topk, experts, local, exponent, place, at_random, scattered)
    return [max(least, load) for load in own]


def gate(meant, topk, experts):
    """Return the experts that DeepSeek-V3's gate chooses; meant: those with a high score, others have a low.

    Of equal ones it takes the first. Where groups have one expert each, it takes the first experts.
    """
    size = experts // 8
    if size == 1:
        return list(range(topk))
    best = [
        sum(sorted((e in meant for e in range(g * size, (g + 1) * size)), reverse=True)[:2]) for g in range(8)
    ]
    groups = sorted(range(8), key=lambda g: (-best[g], g))[:4]
    able = [e for e in range(experts) if e // size in groups]
    return sorted(able, key=lambda e: (e not in meant, e))[:topk]


def in_groups(tokens, topk, experts, local):
    """Return the loads of the first device's experts; each token is meant to choose one in each group."""
    size, got = experts // 8, [0] * experts
    for token in range(tokens):
        place = token % size if tokens >= size else token * size // tokens
        for expert in gate({group * size + place for group in range(8)}, topk, experts):
            got[expert] += 1
    return got[:local]


def in_groups_by_power_law(tokens, topk, experts, local, exponent, place, scattered):
    """Return the loads of the first device's experts behind the gate of groups.

    The busiest device and the first one change their places before. Experts are listed as often as they have
    tokens, the most popular ones first, and tokens take turns in going through the list.
    """
    got = dealt(tokens, topk, experts, exponent, place, scattered=scattered)
    devices = [list(range(i, i + local)) for i in range(0, experts, local)]
    busiest = max(devices, key=lambda device: sum(got[e] for e in device))
    moved = dict(zip(devices[0], busiest, strict=True)) | dict(zip(busiest, devices[0], strict=True))
    listed = [moved.get(expert, expert) for expert in place for _ in range(got[expert])]
    loads = [0] * experts
    for token in range(tokens):
        for expert in gate(set(listed[token::tokens]), topk, experts):
            loads[expert] += 1
    return loads[:local]


def chosen(tokens, topk, experts, local, exponent, place, at_random=False, scattered=False):
    """Return how many tokens chose each of the busiest device's experts."""
    if exponent == 0 and not at_random:
        got = [0] * local
        for i in range(ceil(tokens * topk * local / experts)):
            got[i % local] += 1
        return got
    got = dealt(tokens, topk, experts, exponent, place, at_random, scattered)
    devices = [got[i : i + local] for i in range(0, experts, local)]
    return max(devices, key=sum)


def dealt(tokens, topk, experts, exponent, place, at_random=False, scattered=False):
    """Return how many tokens chose each of all experts."""
    choices = tokens * topk
    popular = popularities(tokens, topk, experts, exponent) if not at_random else []
    popular = popular or binomial_counts(tokens, topk, experts)
    got = [0] * experts
    for expert, popularity in zip(place, popular, strict=True):
        got[expert] = min(tokens, round(popularity / sum(popular) * choices))
    rank = {expert: r for r, expert in enumerate(place)}
    while sum(got) > choices:  # one each is taken, from the least popular one on
        for expert in sorted(range(experts), key=rank.get, reverse=True):
            if sum(got) > choices and got[expert]:
                got[expert] -= 1
    while sum(got) < choices:  # the last one of those that have least gets one
        got[max(range(experts), key=lambda e: (-got[e], rank[e] if scattered else e))] += 1
    return got


def drawn(tokens, topk, experts, local, exponent, seed):
    """Return the loads of the busiest device where every token chooses different experts by itself.

    Experts are as popular as drawn.
    """
    chance = random.Random(seed)
    low, high = (1, 0.8 * tokens) if tokens * topk > experts else (0.01, 2)
    p = 1 - exponent
    popular = [((high**p - low**p) * chance.random() + low**p) ** (1 / p) for _ in range(experts)]
    got = [0] * experts
    for _ in range(tokens):
        left = list(range(experts))
        for _ in range(topk):
            chosen = chance.choices(left, [popular[i] for i in left])[0]
            left.remove(chosen)
            got[chosen] += 1
    return max((got[i : i + local] for i in range(0, experts, local)), key=sum)


def one(
    chip, experts, inner, cols, stored, of_weights, local, a, b, of_single, of_converted, visit, past_l1,
    second=False,
):  # fmt: skip
    """Return the run of a grouped product as blocks of a x b.

    experts: tokens of each, and how many of these there are; second: of the two products of a kernel, whose
    blocks have b of the inner dimension and all columns, and find their rows in L1.
    """
    slab = ceil(SECTOR / chip.size)
    clock, handed, depths, loaded, useful, c = [0.0] * chip.bundles, 0, [], 0, 0, 0
    products = []  # m, k of every expert
    for tokens, many in experts:
        assert many == int(many)
        for _ in range(int(many)):
            m, k = (inner, tokens) if of_weights else (tokens, inner)
            depth = ceil(k / slab) * slab if of_weights else k
            products.append((m, k))
            sums = 1
            if second:
                sums, depth = ceil(depth / b), ceil(cols / b) * min(depth, b)
            for _ in range(ceil(m / a) * (sums if second else ceil(cols / b))):
                clock[handed % chip.bundles] += 2 * a * b * depth
                depths.append(depth)
                handed += 1
                loaded += ((0 if second else a * chip.size) + b * of_b(chip)) * depth
            useful += 2 * tokens * inner * cols
            c += m * stored * chip.output * sums
    together = floor(0.25 * chip.registers / (4 * a * b))
    if chip.step > 0:
        lines = chip.stages * (a + b / chip.pair) * LINE
        together = min(together, floor(chip.capacities[chip.private] / lines))
    together = max(1, together)
    waves = ceil(handed / chip.bundles)
    rounds = ceil(waves / together)
    mean = sum(depths) / handed
    rate = chip.flops * (1 if chip.shared or chip.step == 0 else of_single)
    if chip.shared and chip.instructions:
        rate *= of_converted
    # as even as blocks of different depths are: no bundle less than its waves of the mean, or the deepest
    longest = max(waves * 2 * a * b * mean, 2 * a * b * max(depths)) * chip.bundles
    if len(set(depths)) == 1:
        assert abs(longest - max(clock) * chip.bundles) <= 1e-9 * longest
    idle = waves * chip.bundles / handed
    faster = gain(chip, longest / (2 * a * b * sum(depths)))
    compute = longest / rate / faster * (1 + chip.promotion)
    # a pair of numbers in a block's product takes its columns' weights once for its rows
    converts = longest / (2 * a) * chip.instructions / chip.issue / faster
    compute = max(compute, converts)
    compute += (1 if chip.persistent else waves) * 2 * chip.latency
    if chip.step > 0 and not chip.persistent:
        compute += c / chip.bandwidths[chip.private + 1]

    running = min(handed, chip.bundles * together) * a * b
    wm, wn = warp(a, chip.warp[0]), warp(b, chip.warp[1])
    moved = [register_accesses(chip.dataflow, useful, chip.unit, (wm, mean, wn)) * chip.size]
    for level in range(1, len(chip.bandwidths)):
        if level <= chip.private:
            once, other = min(a, b), max(a, b)
            if once < chip.warp[0]:
                once, other = other, once
            rows = min(chip.warp[0], once)
            groups, of_group = once / rows, rows + other / min(chip.pair, handed)
            read = 2 * a * b * sum(depths) * chip.size * (wm + wn) / (2 * wm * wn)
            moved.append(groups * of_group * sum(depths) * chip.size if chip.shared else read + loaded)
        elif level == chip.private + 1:
            rows = 0 if second else a * chip.size
            moved.append(sum(depths) * (rows + b * of_b(chip) / min(chip.cluster, handed)) + c)
        else:
            beyond = c
            for m, k in products:
                rows, columns = m * k * chip.size, k * cols * of_b(chip)
                if rows + columns > chip.capacities[-1]:
                    high = min(m, sqrt(running))
                    rows *= max(1, cols / (running / high))
                    columns *= max(1, m / high)
                beyond += columns if second else rows + columns
            moved.append(beyond)
    if chip.shared and chip.private > 0:
        moved[0] = handed * a * b * 4
    serving = [x / w for x, w in zip(moved, chip.bandwidths, strict=True)]
    serving[chip.private + 1] = max(
        serving[chip.private + 1],
        rounds * ceil(mean * chip.size / LINE) * chip.step,
        waves * loaded / handed / chip.fill,
    )
    times = [compute, *(t * waiting(chip, level, idle) for level, t in enumerate(serving))]
    launch = (0 if second else chip.launch) + (0 if chip.splits or second else visit * local)
    order = chip.order * (past_l1 if chip.stages == 1 else chip.overlap)
    time = soft(times, order) + launch
    power = chip.drive * useful / (chip.peak * time)
    if power > 1:
        times = [t * power ** (1 / 3) for t in times[:-1]] + times[-1:]
        time = soft(times, order) + launch
    return Run(time, [*times, launch], moved, (a, b), 1, waves, handed / (waves * chip.bundles))
