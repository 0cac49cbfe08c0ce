"""Time of grouped GEMMs of experts: one launch, with the tiles of all experts distributed over bundles.

A grouped GEMM is C_e[m_e, n] = A_e[m_e, k] B_e[k, n] for every expert e with m_e tokens (as in example 24 of
NVIDIA/cutlass, TensorRT-LLM's mixtures and DeepGEMM). The gradient of its rows is a grouped GEMM too, with k
and n swapped; that of its weights, dB_e[k, n] = A_e^T[k, m_e] dC_e[m_e, n], is summed over an expert's tokens
instead. Its time follows `thread_blocks.py`, with these differences:

- one tile a x b is chosen for all experts, for their mean number of tokens (TensorRT-LLM's profiler times
  even loads), from those of the library with `LEAST_COLUMNS` columns or more. Where active bundles use the
  power of idle ones (`tiling/boost.py`), it is the fastest for these loads, so that more bundles slow no
  GEMM;
- blocks of all experts run in waves together, and the inner dimension is never split;
- the operands of every expert with tokens are read once, or more often where they exceed the cache; an expert
  without tokens moves no bytes;
- where weights are converted to a wider type, units that read operands from L1 reach `OF_CONVERTED` of their
  rate;
- a library may choose the rows of a tile itself (`block_rows`);
- units that read operands from registers reach `OF_SINGLE` of their rate in a single GEMM;
- where blocks search their tile expert by expert, each expert takes `VISIT`; blocks of a library that sorts
  its rows by expert look it up in a table (SORTED: fused_moe_kernel of vLLM and SGLang);
- a library may have tiles of its own for experts (`chip.blocks.grouped`), and no search for them: aiter's,
  whose tuner times the loads themselves. Its weights lie in the order in which registers take them, and go
  past L1 (`PAST_L1` of `device.py`).

aiter can run both products of an expert in one kernel (fmoe_*_g1u1 of ROCm/aiter, hsa): a block has some rows
of an expert and a slice of its gate and up columns. It multiplies the result, which stays in L1, by the
slice's rows of the second matrix, and adds all columns of the product to the tokens' in memory. So the second
product runs in the blocks of the first, with no launch, and loads weights alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints, Texts, take
from fastflow.physics.timing.device import PAST_L1, Device
from fastflow.physics.timing.library.gemm_table import (
    Gemm,
    Machines,
    Memory,
    Operands,
    Products,
    machines_of,
    make_gemm,
)
from fastflow.physics.timing.library.thread_blocks import (
    ORDER,
    SLAB_BYTES,
    STEP_BYTES,
    Costs,
    Launched,
    empty_launched,
    resident_blocks,
    sides_from_l1,
    soft_maximum,
    time_sustained,
    warp_side,
    write_tiles,
)
from fastflow.physics.timing.moe.expert_load import Loads, Routings, expert_loads
from fastflow.physics.timing.moe.expert_tiles import (
    COMPARED,
    SORTED,
    run_tiles,
    tiles_of,
    weight_hit_rate,
)
from fastflow.physics.timing.tile_catalogue import Catalogue, read_catalogue
from fastflow.physics.timing.tiling.boost import boost_of, level_time
from fastflow.physics.timing.tiling.dataflow import register_accesses_per_flop
from fastflow.physics.timing.tiling.tile_sets import PARTIAL_SUM_BYTES

LEAST_COLUMNS = 128.0  # of a grouped product's tiles (cutlass_heuristic.cpp of NVIDIA/TensorRT-LLM)
ROWS_BEFORE_HOPPER = (32.0, 128.0)  # of these tiles, where units read registers (the same)
LEAST_ROWS = 16.0  # where units read L1 (the same, whose rows are the weights' columns)
# Rate of compute over that of single products, where units read operands from registers. Calibrated: 3,000
# layers of experts on an A100 (ai-dynamo/aiconfigurator@095f58a)
OF_SINGLE = 0.7
# Rate of compute over that of single products, where units read operands from L1 and weights come converted
# from registers. Calibrated: 486 layers of mxfp4 on an H100 (as above), with TRITON_TRIPS
OF_CONVERTED = 0.45
# Time to check an expert in the search for a tile [s]: a library without split-K (DeepGEMM) checks experts
# one by one, CUTLASS 32 at a time. Calibrated: 3,000 layers of fp8 in blocks on an H100 (as above)
VISIT = 0.1e-6


SEPARATE, FIRST, SECOND = 0, 1, 2  # in a kernel of its own; of the two products of a kernel
# Rows and columns of C in a block of the first product, gate and up; rows and slices of the inner dimension
# in one of the second (the names of the kernels in hsa/gfx942/fmoe of ROCm/aiter: 16x128, 32x256, 64x256)
FUSED_TILES = {FIRST: "16x256 32x512 64x512", SECOND: "16x128 32x256 64x256"}
TRITON_ROWS = (16.0, 128.0)  # least and most of a tile (the function that `rows_of_triton` names)


class GroupedProducts(NamedTuple):
    """Grouped GEMMs of the experts of a device, a launch each; shape (products,).

    The gradient of the rows has `inner` and `cols` swapped; that of the weights has those of the forward
    pass.
    """

    point: Ints
    routing: Routings  # how tokens choose experts, each (products,)
    inner: Ints  # k
    cols: Ints  # n
    stored: Ints  # columns that are stored; fewer with a fused gate
    of_weights: Bools  # the gradient of weights: summed over tokens
    size: Floats  # of an operand's element [B]
    weight: Floats  # of a weight as it is stored [B]
    conversion: Floats  # instructions of a lane that convert a weight
    output: Floats  # of an element of C [B]
    block_rows: Floats  # of a tile; 0: the library compares tiles
    stage: Ints  # SEPARATE, or FIRST or SECOND of the two products of a kernel
    library: Ints  # of `expert_tiles.py`; `COMPARED`: the library of this module
    reread: Floats  # weights of an expert that are read again and again; 0: they come from main memory


class _Groups(NamedTuple):
    """The groups of experts with the same number of tokens, of one grouped GEMM."""

    tokens: Floats  # of each expert of a group, (groups,)
    experts: Floats  # of a group, (groups,)
    of_weights: bool  # see `GroupedProducts`
    stored: float  # share of C that is stored
    sliced: bool  # blocks have a slice of the inner dimension, and all columns of C
    cached: float  # share of weights in the last cache from the run before


class _Sums(NamedTuple):
    """Sums over the blocks of a launch."""

    blocks: float
    padded: float  # operations with padding [flop]
    deepest: float  # longest inner dimension of a block
    flop: float  # operations without padding
    slabs: float  # read by blocks, as they are multiplied [B]
    rows: float  # of these, and
    columns: float  # of the others as they are stored [B]
    c: float  # stored [B]
    beyond: float  # of operands from outside the cache [B]


@lean_kernel
def _sum_groups(gemm: Gemm, a: float, b: float, groups: _Groups, capacity: float) -> _Sums:
    """Return the sums over the blocks of a x b of groups of experts.

    capacity: of the cache of operands [B].
    """
    tokens, count, of_weights = groups.tokens, groups.experts, groups.of_weights
    slab = np.ceil(SLAB_BYTES / gemm.size)
    blocks, padded, deepest, flop, depths, c = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(tokens.size):
        m = gemm.m if of_weights else tokens[i]
        k = np.ceil(tokens[i] / slab) * slab if of_weights else gemm.k
        tiles, copies = np.ceil(m / a) * np.ceil(gemm.n / b) * count[i], 1.0
        if groups.sliced:
            copies = np.ceil(k / b)
            tiles = np.ceil(m / a) * copies * count[i]
            k = np.ceil(gemm.n / b) * min(k, b)
        blocks += tiles
        padded += 2.0 * a * b * k * tiles
        depths += tiles * k
        deepest = max(deepest, k)
        flop += 2.0 * tokens[i] * count[i] * gemm.n * (gemm.m if of_weights else gemm.k)
        c += m * gemm.n * count[i] * groups.stored * gemm.output * copies
    at_once = min(blocks, gemm.cores.bundles * resident_blocks(gemm, a, b))
    running = at_once * a * b  # elements of C
    beyond = 0.0
    for i in range(tokens.size):
        m, k = (gemm.m, tokens[i]) if of_weights else (tokens[i], gemm.k)
        rows, columns = m * k * gemm.size, k * gemm.n * gemm.weight
        if rows + columns > capacity:
            high = min(m, np.sqrt(running))
            rows *= max(1.0, gemm.n * high / running)
            columns *= max(1.0, m / high)
        columns_read = columns * (1.0 - groups.cached)
        beyond += (columns_read if groups.sliced else rows + columns_read) * count[i]
    slabs, rows, columns = (a + b) * depths * gemm.size, a * depths * gemm.size, b * depths * gemm.weight
    if groups.sliced:
        rows = 0.0
    return _Sums(blocks, padded, deepest, flop, slabs, rows, columns, c, beyond)


@lean_kernel
def _time_groups(
    gemm: Gemm, a: float, b: float, groups: _Groups, visited: float, least: float, memory: Memory,
    costs: Costs,
) -> tuple[float, float, float]:  # fmt: skip
    """Return the time of a grouped GEMM as blocks of a x b [s], the number of blocks, and the energy ratio.

    Writes the costs. visited: experts that a block checks one by one. least: a longer time is returned as
    infinity.
    """
    levels, private, size, times, moved = gemm.levels, gemm.private, gemm.size, costs.times, costs.moved
    sums = _sum_groups(gemm, a, b, groups, memory.capacity[levels - 1])
    blocks, resident = max(1.0, sums.blocks), resident_blocks(gemm, a, b)
    cores, reads, overheads = gemm.cores, gemm.reads, gemm.overheads
    waves = np.ceil(blocks / cores.bundles)
    idle, rounds = waves * cores.bundles / blocks, np.ceil(waves / resident)
    rate = cores.flops if reads.shared or overheads.step == 0.0 else OF_SINGLE * cores.flops
    if reads.shared and gemm.conversion > 0.0:
        rate *= OF_CONVERTED
    longest = max(sums.padded * idle, 2.0 * a * b * sums.deepest * cores.bundles)
    # all wait for the longest block
    pace, energy_ratio = boost_of(longest / sums.padded, cores.threshold, cores.headroom)
    times[0] = longest * pace / rate * (1.0 + overheads.promotion)
    converting = longest * pace / cores.flops * gemm.conversion / a
    times[0] = max(times[0], converting)
    times[0] += (1.0 if overheads.persistent else waves) * 2.0 * overheads.latency
    if overheads.step > 0.0 and not overheads.persistent:
        times[0] += sums.c / memory.bandwidth[private + 1]
    warp_m, warp_n = warp_side(a, reads.warp_m), warp_side(b, reads.warp_n)
    depth = sums.padded / (2.0 * a * b * blocks)
    accesses = register_accesses_per_flop(cores.unit, 1.0 / warp_m, 1.0 / depth, 1.0 / warp_n)
    moved[0] = sums.flop * size * accesses
    if reads.shared and private > 0:
        moved[0] = PARTIAL_SUM_BYTES * a * b * blocks
    for level in range(1, private + 1):
        if reads.shared:
            moved[level] = sums.slabs * sides_from_l1(gemm, a, b, blocks) / (a + b)
        else:
            moved[level] = sums.padded * size * (warp_m + warp_n) / (2.0 * warp_m * warp_n)
            moved[level] += sums.rows + sums.columns
    moved[private + 1] = sums.rows + sums.columns / min(reads.cluster, blocks) + sums.c
    for level in range(private + 2, levels + 1):
        moved[level] = sums.beyond + sums.c
    for level in range(levels + 1):
        served, driven = memory.bandwidth[level], memory.driven[level]
        times[1 + level] = level_time(moved[level], served, driven, idle)
    steps = rounds * np.ceil(depth * size / STEP_BYTES) * overheads.step
    filling = waves * (sums.rows + sums.columns) / blocks / reads.fill
    times[private + 2] = max(times[private + 2], steps, filling)
    times[levels + 2] = (0.0 if groups.sliced else overheads.launch) + visited * VISIT

    if soft_maximum(times, levels + 2, 0.0) + times[levels + 2] > least:
        return np.inf, blocks, energy_ratio
    return time_sustained(gemm, sums.flop, gemm.order, times), blocks, energy_ratio


@lean_kernel
def _is_grouped(gemm: Gemm, a: float, b: float) -> bool:
    """Return whether libraries have grouped GEMMs of blocks of a x b."""
    if gemm.reads.shared:
        return bool(b >= LEAST_COLUMNS and a >= LEAST_ROWS)
    return bool(b == LEAST_COLUMNS and ROWS_BEFORE_HOPPER[0] <= a <= ROWS_BEFORE_HOPPER[1])


@lean_kernel
def _choose(
    gemm: Gemm, catalogue: Catalogue, rows: tuple[int, int], groups: _Groups, block_rows: float,
    memory: Memory, costs: Costs, grouped_only: bool,
) -> tuple[int, int]:  # fmt: skip
    """Return the tile of least time for groups of experts, and how many tiles were compared.

    rows: of the catalogue, first and last + 1; block_rows: of tiles, 0 for any; grouped_only: whether all
    tiles are those of grouped GEMMs. Where libraries have no grouped GEMM of these tiles, all are compared.
    """
    best, least, compared = rows[0], np.inf, 0
    any_grouped, any_rows = False, False
    for row in range(rows[0], rows[1]):
        is_grouped = not grouped_only and _is_grouped(gemm, catalogue.m[row], catalogue.n[row])
        any_grouped |= is_grouped
        any_rows |= is_grouped and catalogue.m[row] == block_rows
    for row in range(rows[0], rows[1]):
        a, b = catalogue.m[row], catalogue.n[row]
        if a == 1.0 or b == 1.0 or (any_grouped and not _is_grouped(gemm, a, b)):
            continue
        if any_rows and a != block_rows:
            continue
        total, _, _ = _time_groups(gemm, a, b, groups, 0.0, least, memory, costs)
        compared += 1
        if total < least:
            best, least = row, total
    return best, compared


@kernel
def _run_groups(
    grouped: GroupedProducts, products: Products, routing: Ints, loads: Loads, machines: Machines,
    catalogue: Catalogue, single: Ints, grouped_only: Bools, out: Launched,
) -> None:  # fmt: skip
    """Write the launch of each grouped GEMM, with the mean of its routing's draws.

    products: the same as GEMMs on `machines`, with the rows of C where these are no tokens. routing: index of
    the loads of each. single: index of each machine's library in the catalogue; grouped_only: which of them
    have tiles of grouped GEMMs alone.
    """
    memories, levels = machines.memories, out.tile.shape[1]
    out.parts[:] = 1
    costs = Costs(np.empty(levels + 3), np.empty(levels + 1))
    mean, total = np.empty(1), np.empty(1)
    for g in range(grouped.inner.size):
        p, of_weights = products.point[g], grouped.of_weights[g]
        gemm = make_gemm(products, machines, g)
        stored = grouped.stored[g] / gemm.n
        memory = Memory(memories.capacity[p], memories.bandwidth[p], memories.driven[p])
        first, last = loads.group[routing[g]], loads.group[routing[g] + 1]
        tokens, count = loads.tokens[first:last], loads.experts[first:last]
        mean[0], total[0] = 0.0, 0.0
        for i in range(tokens.size):
            mean[0] += tokens[i] * count[i]
            total[0] += count[i]
        mean[0] = np.ceil(mean[0] / total[0])
        tile_rows = (catalogue.offset[single[p]], catalogue.offset[single[p] + 1])
        capacity = memory.capacity[levels - 1]
        cached = weight_hit_rate(gemm, count, grouped.reread[g], grouped.routing, g, capacity)
        sliced = grouped.stage[g] == SECOND
        groups = _Groups(tokens, count, of_weights, stored, sliced, cached)
        even = _Groups(mean, total, of_weights, stored, sliced, cached)
        row, out.candidates[g] = _choose(
            gemm, catalogue, tile_rows, groups if machines.boost.enabled[p] or grouped_only[p] else even,
            grouped.block_rows[g], memory, costs, grouped_only[p],
        )  # fmt: skip
        a, b = catalogue.m[row], catalogue.n[row]
        visited = float(grouped.routing.local[g])
        if machines.library.splits[p] or grouped_only[p] or grouped.library[g] == SORTED:
            visited = 0.0
        out.time[g], blocks, out.energy_ratio[g] = _time_groups(
            gemm, a, b, groups, visited, np.inf, memory, costs
        )
        out.times[g], out.bytes[g] = costs.times, costs.moved
        waves = np.ceil(blocks / gemm.cores.bundles)
        out.waves[g], out.busy[g] = int(waves), blocks / (waves * gemm.cores.bundles)
        write_tiles(gemm, a, b, mean[0] if of_weights else gemm.k, out.tile[g])


def rows_of_triton(routing: Routings) -> Floats:
    """Return the rows of triton_kernels' tiles: a power of two for the choices of an expert of this device.

    The choices of other devices' experts count too (make_default_opt_flags_nvidia of triton-lang/triton,
    python/triton_kernels, as in TensorRT-LLM 1.3).
    """
    each = np.maximum(routing.tokens * routing.topk // routing.local, 1)
    rows: Floats = np.clip(2.0 ** np.ceil(np.log2(each)), TRITON_ROWS[0], TRITON_ROWS[1])
    return rows


def _grouped(device: Device) -> Device:
    """Return devices whose single GEMMs have the steps of grouped ones, and weights where theirs are."""
    library = device.library
    overlap = np.where(library.stages == 1.0, PAST_L1, library.overlap)
    return device._replace(library=library._replace(single_step=library.step, overlap=overlap))


def _tiles(device: Device, stage: Ints) -> tuple[Texts, Bools]:
    """Return the tiles of grouped GEMMs on each device, and which of these are of grouped GEMMs alone."""
    tiles = np.where(device.grouped_blocks == "", device.blocks, device.grouped_blocks)
    for number, text in FUSED_TILES.items():
        tiles = np.where(stage == number, text, tiles)
    return tiles, (device.grouped_blocks != "") | (stage != SEPARATE)


def _write(launched: Launched, rows: Ints, run: Callable[..., None], *arguments: Any) -> None:
    """Write the launches of some rows."""
    part = empty_launched(rows.size, launched.tile.shape[1])
    run(*arguments, part)
    for column, values in zip(launched, part, strict=True):
        column[rows] = values


def run_grouped(device: Device, grouped: GroupedProducts, loads: Loads, routing: Ints) -> Launched:
    """Return the launch of each grouped GEMM, computed on the unique ones.

    loads: of unique routings; routing: index of the loads of each GEMM.
    """
    first, inverse = unique_rows((grouped[0], routing, *grouped[2:]), routing.size)
    distinct, routing_rows = take(grouped, first), take(routing, first)
    operands = Operands(distinct.size, distinct.weight, distinct.conversion)
    machine_columns = (distinct.point, *operands, distinct.output, distinct.stage)
    machine_rows, machine = unique_rows(machine_columns, routing_rows.size)
    point = distinct.point[machine_rows]
    machine_device, order = _grouped(take(device, point)), np.full(point.size, ORDER)
    unsplit = np.ones(point.size, dtype=np.int64)
    machines = machines_of(
        machine_device, take(operands, machine_rows), distinct.output[machine_rows], order, unsplit
    )
    products = Products(
        point=machine,
        m=distinct.inner,
        k=distinct.inner,
        n=distinct.cols,
        batch=np.ones(routing_rows.size, dtype=np.int64),
        strided=np.zeros(routing_rows.size, dtype=np.bool_),
        copies=np.zeros(routing_rows.size, dtype=np.int64),
    )
    tiles, grouped_only = _tiles(machine_device, distinct.stage[machine_rows])
    catalogue, single = read_catalogue(tiles)
    launched = empty_launched(routing_rows.size, device.levels)
    compares = np.isin(distinct.library, (COMPARED, SORTED))
    by_rule, compared = np.flatnonzero(~compares), np.flatnonzero(compares)
    if compared.size:
        parts = take(distinct, compared), take(products, compared), routing_rows[compared]
        _write(launched, compared, _run_groups, *parts, loads, machines, catalogue, single, grouped_only)
    if by_rule.size:
        rows = take(distinct, by_rule)
        of_rules = tiles_of(rows.library, rows.routing, rows.conversion)
        gemms, columns = take(products, by_rule), (rows.stored, rows.routing, rows.reread)
        _write(
            launched, by_rule, run_tiles, of_rules, gemms, *columns, routing_rows[by_rule], loads, machines
        )
    return launched if first.size == inverse.size else take(launched, inverse)


def time_grouped(device: Device, grouped: GroupedProducts) -> Launched:
    """Return the launch of each grouped GEMM on the busiest device of its routing."""
    return run_grouped(device, grouped, *expert_loads(grouped.routing))
