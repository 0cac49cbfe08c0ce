"""A kernel library's GEMM as thread blocks, block by block (docs/model_kernels.md, "Kernel libraries").

Blocks a x b of C, over parts of the inner dimension, are handed to the bundles one by one; the clock of
each bundle is kept. What a block reads is counted slab by slab.
"""

from math import ceil, floor, inf, sqrt
from typing import NamedTuple

from tests.naive import warm_cache
from tests.naive.dataflow import register_accesses
from tests.naive.voltage import highest_voltage, speed

SECTOR = 32  # bytes along a row that a block takes at once
LINE = 128  # bytes along a row that a step of its pipeline takes


class Chip(NamedTuple):
    size: int  # of an element of A and B
    output: int  # of one of C
    unit: tuple  # m, k, n
    dataflow: str
    peak: float
    flops: float  # achievable
    bandwidths: list  # registers outwards, main memory last
    capacities: list  # of one instance of each level
    private: int  # the outermost level of each bundle
    bundles: int
    registers: float  # of a bundle
    warp: tuple  # largest tile of a warp
    latency: float
    step: float  # least time of a block for a line of every row
    shared: bool  # whether units read operands in L1
    cluster: int
    pair: int  # bundles that multiply the columns of B together
    persistent: bool
    overlap: float  # times the order of the soft maximum
    splits: bool  # whether there are kernels that split the inner dimension
    promotion: float
    launch: float
    drive: float
    strided: float
    reach: float
    miss: float
    order: float
    parts: int
    spare: tuple = ()  # what banks could move over what they do, of each level; empty: 1
    supply: tuple = (1.0, 0.3, 1.0)  # of the cores with all at work, threshold, highest [V]
    boosts: bool = False  # whether idle bundles leave what they have
    stored: float = 0.0  # of an element of B in memory; 0: as of A
    instructions: float = 0.0  # that a lane takes to convert an element of B
    issue: float = 1e13  # of lanes, of all bundles
    stages: int = 4  # slabs of a block in L1
    fill: float = inf  # what a bundle loads a second from the level beyond its own
    late_launch: float = 0.0  # more, of a kernel that starts after the end of the one before
    cache: float = 0.0  # all of the last level on chip, if it is shared
    beyond: float = 0.0  # of the latency, in main memory


class Run(NamedTuple):
    time: float
    times: list
    moved: list
    block: tuple
    parts: int
    waves: int
    busy: float


def of_b(chip):
    """Return the bytes of an element of B in memory."""
    return chip.stored or chip.size


def converting(chip, b, depth):
    """Return how long a bundle's lanes convert the columns of a block."""
    return b * depth * chip.instructions / (chip.issue / chip.bundles)


def soft(times, order):
    if order == 0 or max(times) in (0.0, inf):
        return max(times)
    top = max(times)
    return top * sum((t / top) ** order for t in times) ** (1 / order)


def warp(side, most):
    """Return the side of a warp's tile: half the block's, at least 16, and never more than the block's."""
    return min(side, max(16, min(most, side / 2)))


def gain(chip, idle):
    """Return how much faster cores run that take the power of idle ones; idle: cores for each that works."""
    voltage, threshold, highest = chip.supply
    return speed(highest_voltage(idle, voltage, threshold, voltage, highest), voltage, threshold)


def waiting(chip, level, idle):
    """Return how many times as long a level takes with bundles idle, whose power goes to the others."""
    if level > chip.private:
        return 1
    return max(1, idle / (chip.spare[level] if chip.spare else 1))


def one(chip, m, k, n, batch, is_strided, a, b, parts, copies=0):
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
    together = floor(0.25 * chip.registers / (4 * a * b))
    if chip.step > 0:  # a line of every row is in L1 for each stage
        lines = chip.stages * (a + b / chip.pair) * LINE
        together = min(together, floor(chip.capacities[chip.private] / lines))
    together = max(1, together)
    of_block = 2 * a * b * depth / (chip.flops / chip.bundles)
    side = sqrt(min(handed, chip.bundles * together) * a * b)
    extra = chip.promotion
    if is_strided:
        extra += chip.strided
        spanned = min(2 * side, m + n) * k * chip.size
        extra += chip.miss * max(0.0, 1 - chip.reach / spanned)
    rounds = ceil(waves / together)
    idle = waves * chip.bundles / handed
    multiplies, converts = of_block * (1 + extra), converting(chip, b, depth)
    compute = waves * (multiplies + converts if chip.shared else max(multiplies, converts)) / gain(chip, idle)
    whole = (batch * m * k * chip.size, batch * k * n * of_b(chip), batch * m * n * chip.output)
    held = warm_cache.product(copies, *whole, chip.cache, chip.capacities[-1], ceil(n / b))
    first, last = chip.latency - min(held[:2]) * chip.beyond, chip.latency - held[2] * chip.beyond
    compute += (1 if chip.persistent else rounds) * (first + last)
    near = chip.bandwidths[chip.private + 1]
    c = batch * m * n * chip.output
    sums = 4 * batch * m * n * parts if parts > 1 else 0
    ends = (sums or c) / near if chip.step > 0 else 0  # what is stored at the ends of blocks
    compute += 0 if chip.persistent else ends * (rounds - 1) / rounds

    slabs = handed * (depth // slab)
    loaded = slabs * (a * chip.size + b * of_b(chip)) * slab
    whole_a, whole_b = batch * m * k * chip.size, batch * k * n * of_b(chip)
    wm, wn = warp(a, chip.warp[0]), warp(b, chip.warp[1])
    moved = [register_accesses(chip.dataflow, 2 * m * k * n * batch, chip.unit, (wm, depth, wn)) * chip.size]
    for level in range(1, len(chip.bandwidths)):
        if level <= chip.private:
            flop = 2 * a * b * depth * handed
            read = flop * chip.size * (wm + wn) / (2 * wm * wn)
            once, other = min(a, b), max(a, b)
            if once < chip.warp[0]:
                once, other = other, once
            rows = min(chip.warp[0], once)  # that an instruction multiplies by the block's other side
            columns = other / min(chip.pair, handed)  # in this bundle's L1
            of_instructions = once / rows * (rows + columns) * depth * chip.size
            moved.append(handed * of_instructions if chip.shared else read + loaded)
        elif level == chip.private + 1:
            alone = slabs * (a * chip.size + b * of_b(chip) / min(chip.cluster, handed)) * slab
            moved.append(alone + (sums or c))
        else:
            again = (whole_a + whole_b) / batch > chip.capacities[level - 1]
            rows, columns = (whole_a * max(1, n / side), whole_b * max(1, m / side)) if again else whole[:2]
            in_cache = held if level == len(chip.bandwidths) - 1 else (0, 0, 0)
            moved.append(sum(b * (1 - h) for b, h in zip((rows, columns, c), in_cache, strict=True)))
    if chip.shared and chip.private > 0:
        moved[0] = handed * a * b * 4  # sums alone
    serving = [x / w for x, w in zip(moved, chip.bandwidths, strict=True)]
    line = LINE * (16 if 1 in (a, b) else 1)
    serving[chip.private + 1] = max(
        serving[chip.private + 1],
        rounds * ceil(depth * chip.size / line) * chip.step,
        waves * (a * chip.size + b * of_b(chip)) * depth / chip.fill,  # of the bundle with most blocks
    )
    times = [compute, *(t * waiting(chip, level, idle) for level, t in enumerate(serving))]
    launch = chip.launch + ends / rounds  # the last end waits for all else
    if parts > 1:  # a second kernel adds the sums of the parts
        trips = 2 * (chip.latency - chip.beyond)
        launch += chip.launch + chip.late_launch + trips + (sums + c) / near
        moved[chip.private + 1] += sums + c
    order = chip.order * chip.overlap
    time = soft(times, order) + launch
    power = chip.drive * 2 * m * k * n * batch / (chip.peak * time)
    if power > 1:
        times = [t * power ** (1 / 3) for t in times[:-1]] + times[-1:]
        time = soft(times, order) + launch
    return Run(time, [*times, launch], moved, (a, b), parts, waves, handed / (waves * chip.bundles))


def run(chip, catalogue, m, k, n, batch, is_strided, copies=0):
    """Return the run of least time; the first block and the fewest parts of several."""
    slab = ceil(SECTOR / chip.size)
    best = None
    for number, (a, b) in enumerate(catalogue):
        if (a == 1 and m > 1) or (b == 1 and n > 1):
            continue
        if number and 2 * (a + b) * slab * chip.size > chip.capacities[chip.private]:
            continue
        if number and chip.instructions and not chip.shared and a > 64:
            continue
        for parts in (1, 2, 3, 4, 5, 6, 7, 8, 12, 18, 27, 40):
            if parts > (chip.parts if chip.splits else 1):
                break
            if parts > 1 and ceil(m / a) * ceil(n / b) * batch >= 2 * chip.bundles:
                break
            found = one(chip, m, k, n, batch, is_strided, a, b, parts, copies)
            if found and (best is None or found.time < best.time):
                best = found
    return best
