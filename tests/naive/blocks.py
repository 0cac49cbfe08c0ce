"""A kernel library's GEMM as thread blocks, block by block (docs/model.md, "Kernel libraries").

Blocks a x b of C, over parts of the inner dimension, are handed to the bundles one by one; the clock of
each bundle is kept. What a block reads is counted slab by slab.
"""

from math import ceil, floor, inf, sqrt
from typing import NamedTuple

from tests.naive.dataflow import register_accesses

SECTOR = 32  # bytes along a row that a block takes at once


class Chip(NamedTuple):
    size: int  # of an element
    unit: tuple  # m, k, n
    dataflow: str
    peak: float
    flops: float  # achievable
    bandwidths: list  # registers outwards, main memory last
    capacities: list  # of one instance of each level
    dealt: int  # the outermost level of each bundle
    bundles: int
    registers: float  # of a bundle
    warp: tuple  # largest tile of a warp
    latency: float
    launch: float
    drive: float
    strided: float
    reach: float
    miss: float
    order: float
    parts: int


class Run(NamedTuple):
    time: float
    times: list
    moved: list
    block: tuple
    parts: int
    waves: int
    busy: float


def soft(times, order):
    if order == 0 or max(times) in (0.0, inf):
        return max(times)
    top = max(times)
    return top * sum((t / top) ** order for t in times) ** (1 / order)


def warp(side, most):
    """Return the side of a warp's tile: half the block's, at least 16, and never more than the block's."""
    return min(side, max(16, min(most, side / 2)))


def one(chip, m, k, n, batch, is_strided, a, b, parts):
    """Return how long a GEMM takes as blocks of a x b over so many parts, None for too short parts."""
    slab = ceil(SECTOR / chip.size)
    depth = ceil(k / parts / slab) * slab
    if parts > 1 and (depth < 4 * slab or depth * (parts - 1) >= k):
        return None
    work = [0] * chip.bundles  # blocks that each bundle gets
    handed = 0
    for _ in range(batch * parts):
        for _ in range(ceil(m / a)):
            for _ in range(ceil(n / b)):
                work[handed % chip.bundles] += 1
                handed += 1
    waves = max(work)
    together = max(1, floor(0.25 * chip.registers / (4 * a * b)))
    of_block = 2 * a * b * depth / (chip.flops / chip.bundles)
    side = sqrt(min(handed, chip.bundles * together) * a * b)
    extra = 0.0
    if is_strided:
        extra = chip.strided
        spanned = min(2 * side, m + n) * k * chip.size
        extra += chip.miss * max(0.0, 1 - chip.reach / spanned)
    rounds = ceil(waves / together)
    compute = waves * of_block * (1 + extra) + rounds * 2 * chip.latency

    slabs = handed * (depth // slab)
    loaded = slabs * (a + b) * slab * chip.size
    c = batch * m * n * chip.size
    whole_a, whole_b = batch * m * k * chip.size, batch * k * n * chip.size
    wm, wn = warp(a, chip.warp[0]), warp(b, chip.warp[1])
    moved = [register_accesses(chip.dataflow, 2 * m * k * n * batch, chip.unit, (wm, depth, wn)) * chip.size]
    for level in range(1, len(chip.bandwidths)):
        if level <= chip.dealt:
            flop = 2 * a * b * depth * handed
            read = flop * chip.size * (wm + wn) / (2 * wm * wn)
            moved.append(read + loaded)
        elif level == chip.dealt + 1:
            sums = 2 * 4 * batch * m * n * parts if parts > 1 else 0
            moved.append(loaded + c + sums)
        elif (whole_a + whole_b) / batch > chip.capacities[level - 1]:
            moved.append(whole_a * max(1, n / side) + whole_b * max(1, m / side) + c)
        else:
            moved.append(whole_a + whole_b + c)
    idle = waves * chip.bundles / handed
    serving = [x / w for x, w in zip(moved, chip.bandwidths, strict=True)]
    times = [compute, *(t * (idle if level <= chip.dealt else 1) for level, t in enumerate(serving))]
    launch = chip.launch * (2 if parts > 1 else 1)
    time = soft(times, chip.order) + launch
    power = chip.drive * 2 * m * k * n * batch / (chip.peak * time)
    if power > 1:
        times = [t * power ** (1 / 3) for t in times[:-1]] + times[-1:]
        time = soft(times, chip.order) + launch
    return Run(time, [*times, launch], moved, (a, b), parts, waves, handed / (waves * chip.bundles))


def run(chip, catalogue, m, k, n, batch, is_strided):
    """Return the run of least time; the first block and the fewest parts of several."""
    slab = ceil(SECTOR / chip.size)
    best = None
    for number, (a, b) in enumerate(catalogue):
        if number and 2 * (a + b) * slab * chip.size > chip.capacities[chip.dealt]:
            continue
        for parts in range(1, chip.parts + 1):
            if parts > 1 and ceil(m / a) * ceil(n / b) * batch >= 2 * chip.bundles:
                break
            found = one(chip, m, k, n, batch, is_strided, a, b, parts)
            if found and (best is None or found.time < best.time):
                best = found
    return best
