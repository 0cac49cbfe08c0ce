"""Fused attention as pairs of tiles of queries and keys, and the time of a kernel of these pairs (6.1).

`forward.py` makes the pairs of the forward pass, `backward.py` those of the backward pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.timing.device import Boost, Device, Library, Memories, has_power_reserve
from fastflow.physics.timing.library.thread_blocks import ORDER, Launched, soft_maximum
from fastflow.physics.timing.tiling.boost import boost_of
from fastflow.physics.timing.tiling.dataflow import Units, make_unit, register_accesses_per_flop

# Rate of A100's instructions (mma.sync), over that of units that read L1 (arXiv:2402.13499)
OLD_INSTRUCTIONS = 0.629
SHARE_OF_SUMS = 0.5  # of the registers, for scores and outputs; operands, addresses and masks take the others
TAIL = 0.5  # of the longest block, after the others: the mean for blocks in random order
# Dependent trips of a block. Calibrated on 3,400 prefills of an A100 (ai-dynamo/aiconfigurator@095f58a)
TRIPS = 8.0
# And of persistent blocks with an atomic tile counter and paged keys, as TensorRT-LLM's on Hopper. Calibrated
# on 7,760 prefills of an H100 (the same)
TRIPS_OF_TILES = 12.0


class Attentions(NamedTuple):
    """Attention of many queries, each on the machine of a point; shape (kernels,).

    A mask is aligned at the end: the last query sees the last key.
    """

    point: Ints
    sequences: Ints
    q_len: Ints
    kv_len: Ints
    heads: Ints
    kv_heads: Ints
    head_dim: Ints  # of queries and keys
    value_dim: Ints
    window: Ints  # keys up to a query's position, inclusive; as many after it if not causal; 0: all
    causal: Bools
    flash: Ints  # version of FlashAttention, 1 or 2; 0: the library's kernel for the chip
    size: Floats  # of an element of Q [B]
    cache: Floats  # of an element of K and V [B]; smaller types are converted on vector lanes
    output: Floats  # of an element of the output [B]
    hits: Floats  # share of all bytes that the last cache holds from the run before (`timing.warm_cache`)


class Bundles(NamedTuple):
    """The bundles that blocks run on; shape (points,)."""

    flops: Floats  # achievable, all bundles [flop/s]
    exponentials: Floats  # [1/s]
    lanes: Floats  # operations of vector lanes [1/s]
    memories: Memories
    number: Floats
    boost: Boost
    has_power_reserve: Bools  # whether active bundles can use the power of idle ones
    accesses: Floats  # of registers by a matrix unit [1/flop]


class Blocks(NamedTuple):
    """The blocks of one kernel, and the tiles that they iterate over."""

    rows: float  # of a block
    columns: float  # of the tiles that a block iterates over
    number: float
    per_head: float  # blocks that read the same keys and values, or queries
    pairs: float  # of all blocks
    longest: float  # most pairs of a block
    masked: float  # pairs that a window masks at their left
    sums: float  # in registers, a block [B]
    tiles: float  # in L1, a block [B]


class PairWork(NamedTuple):
    """The work of a pair of tiles."""

    flop: float
    registers: float  # [B]
    inner: float  # through L1 [B]
    operations: float  # of vector lanes
    mask_operations: float  # further ones of a pair that a window masks
    outer: float  # from L2 [B]
    added: float  # to sums in L2 [B]


class Pairs(NamedTuple):
    """One kernel as pairs of tiles."""

    blocks: Blocks
    per_pair: PairWork
    rate: float  # share of the units' rate that its instructions reach
    block_bytes: float  # all that blocks read and write once [B]
    streamed: float  # tiles that blocks iterate over, read once [B]
    launches: float
    ends: float  # pairs of a block whose products and softmax have nothing to overlap with
    overlapped: bool  # softmax of one tile, and products of another
    hits: float  # see `Attentions`
    power: float  # of an operation, over that of products
    executed: float  # operations of whole tiles, hidden pairs of a query and a key included


@lean_kernel
def count_tiles(
    rows: float, columns: float, a: float, b: float, behind: float, ahead: float
) -> tuple[float, float, float]:
    """Return the number of visible pairs of tiles, the most of a tile of rows, and those masked at the left.

    Row r sees the columns r + behind to r + ahead; a and b, rows and columns of a tile, are powers of two.
    """
    tiles, longest, masked = 0.0, 0.0, 0.0
    per_b, first = 1.0 / b, 0.0
    while first < rows:
        last = min(first + a, rows) - 1.0
        low, high = max(0.0, first + behind), min(columns - 1.0, last + ahead)
        if low <= high:
            start = np.floor(low * per_b)
            visible = np.floor(high * per_b) + 1.0 - start
            tiles += visible
            longest = max(longest, visible)
            masked += max(0.0, min(np.ceil((last + behind) * per_b) - start, visible))
        first += a
    return tiles, longest, masked


@lean_kernel
def power_of_two(value: float, up: bool) -> float:
    """Return a value of at least 1 rounded up or down to a power of two."""
    power = np.log2(value)
    return float(2.0 ** (np.ceil(power) if up else np.floor(power)))


@lean_kernel
def visible_keys(work: Attentions, g: int) -> tuple[float, float]:
    """Return the first and the last key that query 0 sees; the first may be negative."""
    offset = float(work.kv_len[g] - work.q_len[g])
    window = float(work.window[g]) if work.window[g] > 0 else np.inf
    return offset - window + 1.0, offset if work.causal[g] else offset + window - 1.0


@lean_kernel
def slowdown(idle: float, driven: float) -> float:
    """Return how many times as long a level of a bundle takes where it has the power of idle ones."""
    return max(1.0, driven * idle) / idle if driven > 0.0 else 1.0


@lean_kernel
def _time_inside(
    pairs: Pairs, bundles: Bundles, library: Library, p: int, idle: float, limits: Floats
) -> tuple[float, float, float]:
    """Return the time of the bundles [s], their mean active time, and its part in products and softmax.

    idle: bundles over active bundles; limits: workspace, (levels + 3,).
    """
    blocks, per_pair, memories = pairs.blocks, pairs.per_pair, bundles.memories
    private, bandwidth = max(memories.private[p], 0), memories.bandwidth[p]
    pace, _ = boost_of(idle, bundles.boost.threshold[p], bundles.boost.headroom[p])
    number = bundles.number[p]
    slow = number * pace  # bundles at full power with the same rate as one boosted bundle
    limits[0] = per_pair.flop * slow / (bundles.flops[p] * pairs.rate)
    for level in range(private + 1):
        shared = number * slowdown(idle, memories.driven[p, level])
        limits[level + 1] = (per_pair.registers if level == 0 else per_pair.inner) * shared / bandwidth[level]
    lanes = slow / bundles.lanes[p]
    softmax = blocks.rows * blocks.columns * slow / bundles.exponentials[p] + per_pair.operations * lanes
    compute = blocks.pairs * (limits[0] + softmax) / number
    pair = soft_maximum(limits, private + 2, ORDER)
    pair = np.sqrt(pair**2 + softmax**2) if pairs.overlapped else pair + softmax
    begin = (TRIPS_OF_TILES if library.shared[p] else TRIPS) * library.latency[p] + pairs.ends * pair
    mask_time = per_pair.mask_operations * lanes
    work = (blocks.pairs * pair + blocks.masked * mask_time + blocks.number * begin) / number
    longest = blocks.longest * pair + min(blocks.masked, 1.0) * mask_time + begin
    if blocks.longest * blocks.number == blocks.pairs:
        return max(work, np.ceil(blocks.number / number) * longest), work, compute
    return max(longest, work + TAIL * _resident_blocks(pairs, bundles, library, p) * longest), work, compute


@lean_kernel
def _resident_blocks(pairs: Pairs, bundles: Bundles, library: Library, p: int) -> float:
    """Return how many blocks are resident on a bundle."""
    blocks, memories = pairs.blocks, bundles.memories
    room = memories.capacity[p, max(memories.private[p], 0)]
    fit = min(np.floor(SHARE_OF_SUMS * library.registers[p] / blocks.sums), np.floor(room / blocks.tiles))
    return float(max(1.0, min(fit, np.ceil(blocks.number / bundles.number[p]))))


@lean_kernel
def _move(pairs: Pairs, bundles: Bundles, library: Library, p: int, moved: Floats) -> None:
    """Write the bytes that each level serves into `moved`, (levels + 1,)."""
    blocks, per_pair = pairs.blocks, pairs.per_pair
    private = max(bundles.memories.private[p], 0)
    for level in range(private + 1):
        moved[level] = blocks.pairs * (per_pair.registers if level == 0 else per_pair.inner)
    moved[private + 1] = pairs.block_bytes + blocks.pairs * (per_pair.outer + per_pair.added)
    running = min(blocks.number, bundles.number[p] * _resident_blocks(pairs, bundles, library, p))
    # Of a partly filled tile, only existing keys are read
    all_reads = min(blocks.pairs * per_pair.outer, pairs.streamed * blocks.per_head)
    reread = all_reads / min(blocks.per_head, running)
    heads = np.ceil(running / blocks.per_head)
    working_set = pairs.streamed * heads * blocks.per_head / blocks.number
    for level in range(private + 2, len(moved)):
        fits = working_set <= bundles.memories.capacity[p, level - 1]
        moved[level] = pairs.block_bytes + (pairs.streamed if fits else max(pairs.streamed, reread))
    moved[len(moved) - 1] *= 1.0 - pairs.hits


@lean_kernel
def _time_pairs(
    pairs: Pairs, bundles: Bundles, library: Library, p: int, times: Floats, moved: Floats, limits: Floats
) -> tuple[float, float, float]:  # fmt: skip
    """Return a kernel's time on the machine of point p [s], `Launched.busy` and `Launched.energy_ratio`.

    Writes `times` and `moved`, columns of `Launched`. limits: workspace, (levels + 3,).
    """
    memories, boost = bundles.memories, bundles.boost
    private, last = max(memories.private[p], 0), len(moved) - 1
    inside, work, compute = _time_inside(pairs, bundles, library, p, 1.0, limits)
    idle, power_share = inside / work if work > 0.0 else 1.0, 1.0
    if bundles.has_power_reserve[p] and idle > 1.0:
        power_share = idle
        inside, work, compute = _time_inside(pairs, bundles, library, p, power_share, limits)
        idle = inside / work
    _move(pairs, bundles, library, p, moved)
    times[0] = compute * idle
    for level in range(last + 1):
        slower = slowdown(power_share, memories.driven[p, level]) * idle if level <= private else 1.0
        times[level + 1] = moved[level] / memories.bandwidth[p, level] * slower
    times[last + 2] = pairs.launches * library.launch[p]
    limits[0], outside = inside, last - private
    for i in range(outside):
        limits[1 + i] = times[private + 2 + i]
    total = soft_maximum(limits, 1 + outside, ORDER) + times[last + 2]
    flop = pairs.power * pairs.per_pair.flop * pairs.blocks.pairs
    power = library.drive[p] * flop / (library.peak_flops[p] * total)
    if power > 1.0:
        slower = power ** (1.0 / 3.0)
        for i in range(last + 1):  # all but main memory
            times[i] *= slower
        for i in range(outside):  # which is the last of these
            limits[i] *= slower
        total = soft_maximum(limits, 1 + outside, ORDER) + times[last + 2]
    _, energy_ratio = boost_of(power_share, boost.threshold[p], boost.headroom[p])
    return float(total), float(1.0 / idle), float(energy_ratio)


@lean_kernel
def run_pairs(
    pairs: Pairs, bundles: Bundles, library: Library, p: int, sides: tuple[int, int, int], limits: Floats,
    out: Launched, g: int,
) -> None:  # fmt: skip
    """Write the launch of kernel g on the machine of point p.

    sides: rows, head and columns; limits: workspace, (levels + 3,).
    """
    out.time[g], out.busy[g], out.energy_ratio[g] = _time_pairs(
        pairs, bundles, library, p, out.times[g], out.bytes[g], limits
    )
    out.executed[g] = pairs.executed
    out.waves[g] = int(min(np.ceil(pairs.blocks.number / bundles.number[p]), 2.0**62))
    out.parts[g], out.candidates[g] = 1, 1
    for level in range(out.tile.shape[1]):
        is_shared = level > bundles.memories.private[p]
        out.tile[g, level, 0] = sides[0] if is_shared else min(sides[0], int(pairs.blocks.rows))
        out.tile[g, level, 1] = sides[1]
        out.tile[g, level, 2] = sides[2] if is_shared else min(sides[2], int(pairs.blocks.columns))


@lean_kernel
def instruction_rate(shared: bool, flash: int) -> tuple[bool, float]:
    """Return whether a kernel's instructions read L1, and their share of the units' rate.

    shared: whether the chip's units read L1; flash: version of FlashAttention, 0 for none.
    """
    if flash == 0:
        return shared, 1.0
    return False, OLD_INSTRUCTIONS if shared else 1.0


def bundles_of(device: Device) -> Bundles:
    """Return the bundles of every point."""
    return Bundles(
        flops=device.matrix_flops,
        exponentials=device.special_functions,
        lanes=device.vector_peak / 2.0,
        memories=device.memories,
        number=device.instances,
        boost=device.boost,
        has_power_reserve=has_power_reserve(device),
        accesses=_accesses(device.units),
    )


@kernel
def _accesses(units: Units) -> Floats:
    """Return the register accesses per operation of every point's matrix unit, with infinite reuse."""
    accesses = np.empty(units.m.size)
    for p in range(units.m.size):
        accesses[p] = register_accesses_per_flop(make_unit(units, p), 0.0, 0.0, 0.0)
    return accesses
