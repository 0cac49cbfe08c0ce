"""Time of a GEMM of a kernel library: thread blocks of a few shapes, distributed over the bundles (6.1).

A library does not search tiles. It has kernels for a few *block tiles* a x b of C. A block iterates over
slabs of the inner dimension, with its part of C in registers and the slabs of A and B in L1. Its time has
these parts:

- *compute*: blocks run in waves, one block per bundle (SM); the last wave leaves some bundles idle, and
  blocks at the edge take as long as whole blocks. As many blocks as the registers hold are resident on a
  bundle, and each such round begins and ends with one trip through the memories;
- *L1*: warps read the slabs, each for its tile, a quarter of the block's (Kerr et al., CUTLASS: Fast Linear
  Algebra in CUDA C++, 2017), and the slabs are written to it. Since Hopper matrix units read their operands
  from L1, for the 64 rows of an instruction (NVIDIA PTX documentation). On Blackwell the units of two bundles
  compute a tile together, each with half of the columns in its L1;
- *next level* (L2): every block's slabs, and C. Blocks of a cluster share loads (multicast). Each slab of a
  block is loaded, read and multiplied with a latency that does not depend on its bytes: so few blocks do not
  reach the whole bandwidth (Little's law). Nor does one bundle load faster than its own port;
- *levels beyond*: concurrent blocks cover a square of C, and the operands are read once per square, or once
  in total where the cache holds them;
- *conversion*: weights that are stored in fewer bits than they are multiplied in are read so, and each block
  converts its slabs of them on vector lanes. Units that read operands from registers multiply meanwhile
  (Marlin, arXiv:2408.11743, section 3.4), units that read them from L1 wait;
- *end of a block*: it writes its sums while its units wait, or multiply the next block where they have
  persistent kernels. The end of the last blocks follows all else, as a launch precedes it;
- *launch*, twice where the inner dimension is split into parts: a second kernel sums them. It reads the sums
  of all parts from the next level and writes C, after the end of the first.

Resources near saturation delay each other, so that the time of a kernel is the soft maximum of these,
(sum of t^order)^(1/order). Order 0 is the plain maximum, the roofline.

*Sustained clock*: a chip whose active units at the highest clock would exceed the power budget lowers the
clock until the power fits: dynamic power falls with the cube of frequency where voltage follows it (4.4.1).
The power counts useful operations, since padded operations switch nothing.

*Strided operands*: where both operands are stored along the inner dimension, each row of a block is in
another page. Chips whose address translation covers less than these rows take longer (Jia et al.,
arXiv:1804.06826, section 3.7).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.library.gemm_table import Gemm, Machines, Memory, Products, make_gemm
from fastflow.physics.timing.tile_catalogue import Catalogue
from fastflow.physics.timing.tiling.boost import boost_of, level_time
from fastflow.physics.timing.tiling.dataflow import register_accesses_per_flop
from fastflow.physics.timing.tiling.tile_sets import PARTIAL_SUM_BYTES
from fastflow.physics.timing.warm_cache import hit_rates

# Of the soft maximum in all kernels except single GEMMs, whose order is in conf/tiling/blocks.yaml,
# calibrated on all GEMMs of docs/validation.md
ORDER = 4.0
SLAB_BYTES = 32.0  # of a row in a slab: a sector, the least unit of a transfer
STEP_BYTES = 128.0  # of a row in a step of the pipeline of slabs: a cache line
# Steps of a vector that a warp loads before it waits: 32 lanes load 16 B each, four times.
# Calibrated: 16 fits products of one row on an A100 better than 8 or 32 (ai-dynamo/aiconfigurator@095f58a)
STEPS_OF_A_VECTOR = 16.0
LEAST_OF_A_WARP = 16.0  # side of a warp's tile
SHARE_OF_SUMS = 0.25  # of the registers; the others hold operands, the next slab and addresses
SLABS_OF_A_PART = 4  # least slabs of a part of the inner dimension
# Most rows of a tile with converted weights, where units read registers (thread_m_blocks of
# IST-DASLab/marlin@0f102e1)
CONVERTED_ROWS = 64.0
FEW_PARTS = 8  # up to which every number is tried; above, 12, 18, 27, ...


class Launched(NamedTuple):
    """The launches of GEMMs or of other kernels; shape (gemms,) unless given."""

    time: Floats  # launches included [s]
    # compute, each level, main memory, launches with all that adds to the others in full (gemms, levels + 3)
    times: Floats
    bytes: Floats  # served by each level, main memory last (gemms, levels + 1)
    tile: Ints  # m, k, n of each level (gemms, levels, 3); of passes (0, levels, 3)
    parts: Ints
    waves: Ints
    busy: Floats  # share of active bundles, over all waves
    energy_ratio: Floats  # energy of an operation, over that with all bundles active
    executed: Floats  # operations of whole tiles; 0: no more than those that count
    candidates: Ints  # blocks and parts that were compared


class Block(NamedTuple):
    """A candidate for a GEMM: blocks of a x b of C."""

    a: float
    b: float
    depth: float  # of the inner dimension that a block has
    parts: float  # of the inner dimension
    resident: float  # blocks on a bundle


class Hits(NamedTuple):
    """What the last cache holds of the operands and of C of a GEMM, as shares; see `warm_cache`."""

    rows: float  # of A
    columns: float  # of B
    output: float


class Costs(NamedTuple):
    """Workspace for the costs of one candidate, rows of `Launched`."""

    times: Floats  # (levels + 3,)
    moved: Floats  # bytes, (levels + 1,)


def empty_launched(rows: int, levels: int) -> Launched:
    """Return a table of `rows` launches to write to."""
    return Launched(
        time=np.empty(rows),
        times=np.empty((rows, levels + 3)),
        bytes=np.empty((rows, levels + 1)),
        tile=np.empty((rows, levels, 3), dtype=np.int64),
        parts=np.empty(rows, dtype=np.int64),
        waves=np.empty(rows, dtype=np.int64),
        busy=np.empty(rows),
        energy_ratio=np.ones(rows),
        executed=np.zeros(rows),
        candidates=np.empty(rows, dtype=np.int64),
    )


@lean_kernel
def soft_maximum(times: Floats, count: int, order: float) -> float:
    """Return the soft maximum of the first `count` times [s]; order 0 is the maximum."""
    longest = 0.0
    for i in range(count):
        longest = max(longest, times[i])
    if order == 0.0 or longest == 0.0 or longest == np.inf:
        return longest
    total = 0.0
    for i in range(count):
        share = times[i] / longest
        total += (share * share) ** 2 if order == 4.0 else share**order
    root = np.sqrt(np.sqrt(total)) if order == 4.0 else total ** (1.0 / order)  # roots are faster
    return float(longest * root)


@lean_kernel
def resident_blocks(gemm: Gemm, a: float, b: float) -> float:
    """Return how many blocks of a x b are resident on a bundle.

    At least one, and as many as registers hold the sums of; where the steps of a block take a least time, L1
    must hold their slabs too.
    """
    fit = np.floor(SHARE_OF_SUMS * gemm.cores.registers / (PARTIAL_SUM_BYTES * a * b))
    if gemm.overheads.step > 0.0:
        fit = min(
            fit, np.floor(gemm.cores.room / (gemm.reads.stages * (a + b / gemm.reads.pair) * STEP_BYTES))
        )
    return float(max(1.0, fit))


@lean_kernel
def warp_side(side: float, most: float) -> float:
    """Return the side of a warp's tile: half of its block's, within bounds; most: on this chip."""
    return float(min(side, max(LEAST_OF_A_WARP, min(most, side / 2.0))))


@lean_kernel
def sides_from_l1(gemm: Gemm, a: float, b: float, blocks: float) -> float:
    """Return the rows and columns of slabs that the units of a block read from L1, with repeated reads."""
    warp_m, pair = gemm.reads.warp_m, gemm.reads.pair
    read_once = min(a, b) if min(a, b) >= warp_m else max(a, b)
    return float(read_once + a * b / (min(warp_m, read_once) * min(pair, blocks)))


@lean_kernel
def time_sustained(gemm: Gemm, flop: float, order: float, times: Floats) -> float:
    """Return the time of blocks at the sustained clock [s]; changes `times` from the highest clock to it.

    flop: useful operations; order: of the soft maximum of `times`.
    """
    levels = gemm.levels
    total = soft_maximum(times, levels + 2, order) + times[levels + 2]
    power = gemm.cores.drive * flop / (gemm.cores.peak * total)
    if power > 1.0:
        for i in range(levels + 1):  # all but main memory
            times[i] *= power ** (1.0 / 3.0)
        total = soft_maximum(times, levels + 2, order) + times[levels + 2]
    return float(total)


@lean_kernel
def _written(gemm: Gemm, parts: float) -> float:
    """Return the bytes that blocks write: C, or the sums of every part."""
    size = PARTIAL_SUM_BYTES if parts > 1.0 else gemm.output
    return float(gemm.batch * gemm.m * gemm.n * size * parts)


@lean_kernel
def _time_second_kernel(gemm: Gemm, parts: float, serving: float) -> float:
    """Return the time of the kernel that adds the sums of all parts, after the end of the first [s].

    One trip brings the sums and one takes C away. None goes to main memory, since the cache has the sums.
    """
    overheads = gemm.overheads
    trips = 2.0 * (overheads.latency - gemm.cache.beyond)
    moved = _written(gemm, parts) + _written(gemm, 1.0)
    return float(overheads.launch + overheads.late + trips + moved / serving)


@lean_kernel
def _hits(gemm: Gemm, b: float) -> Hits:
    """Return what the last cache holds; b: columns of a block."""
    cache, batch = gemm.cache, gemm.batch
    rows, columns, output = hit_rates(
        cache.copies, batch * gemm.m * gemm.k * gemm.size, batch * gemm.k * gemm.n * gemm.weight,
        batch * gemm.m * gemm.n * gemm.output, cache.capacity, cache.part, np.ceil(gemm.n / b),
    )  # fmt: skip
    return Hits(rows=rows, columns=columns, output=output)


@lean_kernel
def _time_compute(
    gemm: Gemm, alone: float, a: float, rounds: float, side: float, parts: float, serving: float, hits: Hits
) -> float:
    """Return the compute time with all overheads [s]; alone: without overheads.

    a: rows of a block; rounds: of blocks; side: of the square of C that concurrent blocks cover; serving:
    bandwidth of writes of C.
    """
    overheads = gemm.overheads
    extra = overheads.strided + overheads.promotion
    if overheads.miss > 0.0:
        spanned = min(2.0 * side, gemm.m + gemm.n) * gemm.k * gemm.size
        extra += overheads.miss * max(0.0, 1.0 - overheads.reach / spanned)
    trips = 1.0 if overheads.persistent else rounds
    multiplying, converting = alone * (1.0 + extra), alone * gemm.conversion / a
    time = multiplying + converting if gemm.reads.shared else max(multiplying, converting)
    nearer = (min(hits.rows, hits.columns) + hits.output) * gemm.cache.beyond
    time += trips * (2.0 * overheads.latency - nearer)
    if overheads.step > 0.0 and not overheads.persistent:
        time += _written(gemm, parts) / serving * (1.0 - 1.0 / rounds)
    return time


@lean_kernel
def _move_inside(gemm: Gemm, block: Block, blocks: float, padded: float, flop: float, moved: Floats) -> None:
    """Write the bytes that the private levels serve to all blocks into `moved` of `Costs`.

    padded, flop: operations with and without padding.
    """
    a, b, depth, size = block.a, block.b, block.depth, gemm.size
    warp_m, warp_n = warp_side(a, gemm.reads.warp_m), warp_side(b, gemm.reads.warp_n)
    accesses = register_accesses_per_flop(gemm.cores.unit, 1.0 / warp_m, 1.0 / depth, 1.0 / warp_n)
    moved[0] = flop * size * accesses
    if gemm.reads.shared and gemm.private > 0:
        moved[0] = PARTIAL_SUM_BYTES * a * b * blocks
    for level in range(1, gemm.private + 1):
        if gemm.reads.shared:
            moved[level] = blocks * depth * size * sides_from_l1(gemm, a, b, blocks)
        else:
            moved[level] = padded * size * (warp_m + warp_n) / (2.0 * warp_m * warp_n)
            moved[level] += blocks * depth * (a * size + b * gemm.weight)


@lean_kernel
def _move_outside(
    gemm: Gemm, block: Block, blocks: float, side: float, capacity: Floats, hits: Hits, moved: Floats
) -> None:
    """Write the bytes that the shared levels serve to all blocks into `moved` of `Costs`.

    side: of the square of C that concurrent blocks cover. Of parts the first kernel alone counts.
    """
    a, b, private = block.a, block.b, gemm.private
    columns_once = b * gemm.weight / min(gemm.reads.cluster, blocks)
    moved[private + 1] = blocks * block.depth * (a * gemm.size + columns_once) + _written(gemm, block.parts)
    rows, columns = gemm.batch * gemm.m * gemm.k * gemm.size, gemm.batch * gemm.k * gemm.n * gemm.weight
    for level in range(private + 2, gemm.levels + 1):
        row_reads = column_reads = 1.0
        if (rows + columns) / gemm.batch > capacity[level - 1]:
            row_reads, column_reads = max(1.0, gemm.n / side), max(1.0, gemm.m / side)
        cached = hits if level == gemm.levels else Hits(0.0, 0.0, 0.0)
        moved[level] = rows * row_reads * (1.0 - cached.rows) + columns * column_reads * (
            1.0 - cached.columns
        )
        moved[level] += _written(gemm, 1.0) * (1.0 - cached.output)


@lean_kernel
def _time_blocks(gemm: Gemm, block: Block, memory: Memory, costs: Costs, best: float) -> float:
    """Return the time of a candidate for a GEMM [s], and write its costs.

    Returns infinity early where the time exceeds `best`: the soft maximum and a lower clock only add to the
    longest time.
    """
    a, b, levels, private, times = block.a, block.b, gemm.levels, gemm.private, costs.times
    blocks = np.ceil(gemm.m / a) * np.ceil(gemm.n / b) * gemm.batch * block.parts
    cores, overheads = gemm.cores, gemm.overheads
    waves = np.ceil(blocks / cores.bundles)
    rounds, launch = np.ceil(waves / block.resident), overheads.launch
    serving = memory.bandwidth[private + 1]
    if block.parts > 1.0:
        launch += _time_second_kernel(gemm, block.parts, serving)
    if overheads.step > 0.0:
        launch += _written(gemm, block.parts) / serving / rounds  # the end of the last round
    at_once = STEP_BYTES * (STEPS_OF_A_VECTOR if min(a, b) == 1.0 else 1.0)
    steps = rounds * np.ceil(block.depth * gemm.size / at_once) * overheads.step
    if steps + launch > best:
        return np.inf
    idle = waves * cores.bundles / blocks
    padded, flop = 2.0 * a * b * block.depth * blocks, 2.0 * gemm.m * gemm.k * gemm.n * gemm.batch
    slower = idle
    if cores.headroom > 1.0:
        pace, _ = boost_of(idle, cores.threshold, cores.headroom)
        slower *= pace
    alone = padded * slower / cores.flops
    if alone + launch > best:
        return np.inf
    # of the square of C of concurrent blocks
    side = np.sqrt(min(blocks, cores.bundles * block.resident) * a * b)
    hits = _hits(gemm, b)
    times[0] = _time_compute(gemm, alone, a, rounds, side, block.parts, serving, hits)
    _move_inside(gemm, block, blocks, padded, flop, costs.moved)
    _move_outside(gemm, block, blocks, side, memory.capacity, hits, costs.moved)
    for level in range(levels + 1):
        served, driven = memory.bandwidth[level], memory.driven[level]
        times[1 + level] = level_time(costs.moved[level], served, driven, idle)
    if block.parts > 1.0:  # of the second kernel
        costs.moved[private + 1] += _written(gemm, block.parts) + _written(gemm, 1.0)
    filling = waves * block.depth * (a * gemm.size + b * gemm.weight) / gemm.reads.fill
    times[private + 2] = max(times[private + 2], steps, filling)
    times[levels + 2] = launch
    for i in range(levels + 2):
        if times[i] + launch > best:
            return np.inf
    return time_sustained(gemm, flop, gemm.order, times)


@kernel
def write_tiles(gemm: Gemm, a: float, b: float, depth: float, tile: Ints) -> None:
    """Write each level's m, k, n: of the warp, of the block's slab, of the square of concurrent blocks.

    depth: of the inner dimension that a block has; tile: (levels, 3).
    """
    slab = min(depth, np.ceil(SLAB_BYTES / gemm.size))
    side = np.sqrt(gemm.cores.bundles * resident_blocks(gemm, a, b) * a * b)
    for level in range(gemm.levels):
        m, n, k = a, b, slab
        if level < gemm.private:
            m, n = warp_side(a, gemm.reads.warp_m), warp_side(b, gemm.reads.warp_n)
        elif level > gemm.private:
            m, n, k = side, side, depth
        tile[level, 0] = int(np.ceil(min(m, gemm.m)))
        tile[level, 1] = int(min(k, gemm.k))
        tile[level, 2] = int(np.ceil(min(n, gemm.n)))


@kernel
def run_blocks(
    products: Products, machines: Machines, single: Ints, batched: Ints, catalogue: Catalogue, out: Launched
) -> None:
    """Write the launch of each GEMM with the block and the number of parts of least time.

    single, batched: index of each point's library in the catalogue for single and for batched GEMMs,
    (points,). Of equal times the first block and the fewest parts win.
    """
    memories, levels = machines.memories, out.tile.shape[1]
    costs = Costs(np.empty(levels + 3), np.empty(levels + 1))
    for g in range(products.m.size):
        p = products.point[g]
        gemm = make_gemm(products, machines, g)
        cores, rows = gemm.cores, batched[p] if products.batch[g] > 1 else single[p]
        memory = Memory(memories.capacity[p], memories.bandwidth[p], memories.driven[p])
        slab = np.ceil(SLAB_BYTES / gemm.size)
        most_rows = np.inf if gemm.reads.shared else CONVERTED_ROWS
        out.time[g], out.candidates[g] = np.inf, 0
        for row in range(catalogue.offset[rows], catalogue.offset[rows + 1]):
            a, b = catalogue.m[row], catalogue.n[row]
            if (a == 1.0 and gemm.m > 1.0) or (b == 1.0 and gemm.n > 1.0):
                continue  # a tile for vectors, and this operand is no vector
            if row > catalogue.offset[rows] and 2.0 * (a + b) * slab * gemm.size > cores.room:
                continue  # L1 holds a slab in use and a slab in flight
            if row > catalogue.offset[rows] and gemm.conversion > 0.0 and a > most_rows:
                continue
            resident = resident_blocks(gemm, a, b)
            unsplit = np.ceil(gemm.m / a) * np.ceil(gemm.n / b) * gemm.batch
            parts = 0
            while True:
                parts += 1 if parts < FEW_PARTS else parts // 2
                if parts > machines.parts[p] or (parts > 1 and unsplit >= 2.0 * cores.bundles):
                    break
                depth = np.ceil(gemm.k / parts / slab) * slab
                is_short = depth < SLABS_OF_A_PART * slab or depth * (parts - 1) >= gemm.k
                if parts > 1 and is_short:
                    continue
                block = Block(a, b, depth, float(parts), resident)
                total = _time_blocks(gemm, block, memory, costs, out.time[g])
                is_first = out.candidates[g] == 0
                out.candidates[g] += is_first or total < np.inf
                if is_first or total < out.time[g]:
                    out.time[g], out.parts[g] = total, parts
                    out.times[g], out.bytes[g] = costs.times, costs.moved
                    blocks = unsplit * parts
                    waves = np.ceil(blocks / cores.bundles)
                    out.waves[g], out.busy[g] = int(min(waves, 2.0**62)), blocks / (waves * cores.bundles)
                    write_tiles(gemm, a, b, depth, out.tile[g])
        if cores.headroom > 1.0:
            _, out.energy_ratio[g] = boost_of(1.0 / out.busy[g], cores.threshold, cores.headroom)
