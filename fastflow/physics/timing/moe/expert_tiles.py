"""Time of grouped GEMMs whose tiles follow a rule of their library, on chips with tensor memory (Blackwell).

These libraries multiply experts there, which do not compare tiles as `grouped_gemm.py` does:

- *cutlass*: CUTLASS's grouped kernels take pointers to the operands of each expert (pointer arrays, example
  75 of NVIDIA/cutlass). Blocks have the 128 rows of an instruction (tcgen05.mma, NVIDIA PTX documentation).
  They make a tensor map for each expert in global memory before they load its first slab. So a tile waits
  (`Rule.tile`), and loads and products of different experts hardly overlap: their times add up (order 1);
- *tuned*: the same library with kernels that TensorRT-LLM's tuner chose. They overlap, and their operands are
  swapped (swap_ab of its moe_gemm): columns of weights are the instruction's 128 rows, and tiles have a power
  of two of tokens, for the mean expert;
- *deepgemm*: DeepGEMM's masked layout, blocks of 128 rows as well, one tensor map for all experts. Blocks
  look for their tile expert by expert (`Rule.visit`);
- *trtllm*: TensorRT-LLM's batched kernels (trtllmGenKernels). Columns of weights are the instruction's 128
  rows, and tiles have a power of two of tokens: those that an expert of this device would get if it got the
  choices of all devices (`rows_of_trtllm`).

The time of a kernel is the soft maximum of two parts, and its launch:

- *products*: tiles run in waves, one on a bundle; rows of a tile without tokens take as long as others. The
  first loads and the last results of a kernel have nothing to overlap with (`Rule.last`);
- *main memory*: weights of experts with tokens, rows and results, once each.

Converted weights (mxfp4 with activations of 16 bits) take time on vector lanes beside that of products.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.library.gemm_table import Gemm, Machines, Products, make_gemm
from fastflow.physics.timing.library.thread_blocks import Costs, Launched, time_sustained, write_tiles
from fastflow.physics.timing.moe.expert_load import REPEATED_DRAWS, Loads, Routings
from fastflow.physics.timing.tiling.tile_sets import PARTIAL_SUM_BYTES

COMPARED, CUTLASS, DEEPGEMM, TRTLLM, TUNED, SORTED = 0, 1, 2, 3, 4, 5
"""Libraries of grouped GEMMs: `grouped_gemm.py` (COMPARED, SORTED), and those of this module."""
INSTRUCTION_BYTES = 32.0  # of a row, in the inner dimension of an instruction (tcgen05.mma, NVIDIA PTX)
COLUMNS = 128.0  # of weights, in a tile
ROWS_OF_INSTRUCTION = 128.0  # of tcgen05.mma
TRTLLM_ROWS, TRTLLM_CONVERTED_ROWS = (8.0, 256.0), 64.0
"""Least and most rows of trtllm's tiles; most where weights are converted (the names of its kernels)."""
TUNED_ROWS = (16.0, 128.0)
"""Least and most rows of tuned tiles (cutlass_heuristic.cpp of NVIDIA/TensorRT-LLM)."""


class Rule(NamedTuple):
    """How a library runs grouped GEMMs."""

    tile: float  # time of a tile beside its products: first loads, and results on their way out [s]
    order: float  # of the soft maximum of products and main memory
    maps: float  # time before the first load [s]
    visit: float  # time for an expert of the device [s]
    last: float  # time of a kernel for each row of a tile, its first loads and last results [s]


# Calibrated: 9,269 layers of experts on B200 (ai-dynamo/aiconfigurator@095f58a)
RULES = {
    CUTLASS: Rule(tile=2.65e-6, order=1.0, maps=3.4e-6, visit=0.0, last=0.0),
    TUNED: Rule(tile=2.11e-6, order=1.93, maps=6.24e-6, visit=0.0, last=0.0),
    DEEPGEMM: Rule(tile=0.2e-6, order=2.75, maps=4.2e-6, visit=0.155e-6, last=0.0),
    TRTLLM: Rule(tile=0.58e-6, order=1.5, maps=2.25e-6, visit=0.0, last=0.0255e-6),
}
# Instructions of a lane that convert a weight of mxfp4 to 16 bits, over those that Marlin's code counts.
# Calibrated: 297 layers of mxfp4 with activations of 16 bits on B200 (as above)
OF_MARLIN = 6.0
# Of the last cache, for weights that SMs of both dies read: each die's half keeps a copy. Layers of less than
# 63 MB of weights take no time to read on B200 when they run again and again, larger ones do
OF_CACHE = 0.5


class Tiles(NamedTuple):
    """Rules of grouped GEMMs; (products,)."""

    rows: Floats  # of a tile
    tile: Floats
    order: Floats
    start: Floats  # maps, visits, first loads and last results [s]


def rows_of_trtllm(routing: Routings, most: Floats) -> Floats:
    """Return the rows of trtllm's tiles.

    A power of two, for the choices of all devices on the experts of this device (computeSelectedTileN of
    NVIDIA/TensorRT-LLM, namespace trtllmGenFp8BlockScaleMoe).
    """
    each = np.maximum(routing.tokens * routing.topk / routing.local, 1.0)
    rows: Floats = np.clip(2.0 ** np.ceil(np.log2(each)), TRTLLM_ROWS[0], most)
    return rows


def rows_of_tuned(routing: Routings) -> Floats:
    """Return the rows of tuned tiles: a power of two for the mean expert."""
    each = np.maximum(routing.tokens * routing.topk / routing.experts, 1.0)
    rows: Floats = np.clip(2.0 ** np.ceil(np.log2(each)), *TUNED_ROWS)
    return rows


def tiles_of(library: Ints, routing: Routings, converted: Floats) -> Tiles:
    """Return the tiles of grouped GEMMs; library: a key of `RULES` each; converted: instructions."""
    columns = [np.empty(library.size) for _ in Rule._fields]
    for name, rule in RULES.items():
        for column, value in zip(columns, rule, strict=True):
            column[library == name] = value
    tile, order, maps, visit, last = columns
    most = np.where(converted > 0.0, TRTLLM_CONVERTED_ROWS, TRTLLM_ROWS[1])
    rows = np.where(library == TUNED, rows_of_tuned(routing), ROWS_OF_INSTRUCTION)
    rows = np.where(library == TRTLLM, rows_of_trtllm(routing, most), rows)
    return Tiles(rows, tile, order, maps + visit * routing.local + last * rows)


@lean_kernel
def weight_hit_rate(
    gemm: Gemm, experts: Floats, reread: float, routing: Routings, i: int, capacity: float
) -> float:
    """Return the share of weights that the last cache holds from the run before; i: of the routing.

    The least recently used lines are replaced: a larger set replaces each of its lines before the next read.
    """
    if reread == 0.0:
        return 0.0
    busy = experts.sum() * (REPEATED_DRAWS if routing.exponent[i] > 0.0 else 1.0)
    working_set = min(busy, float(routing.local[i])) * reread * gemm.weight
    return 1.0 if working_set <= capacity else 0.0


@kernel
def run_tiles(
    tiles: Tiles, products: Products, stored: Ints, routings: Routings, reread: Floats, routing: Ints,
    loads: Loads, machines: Machines, out: Launched,
) -> None:  # fmt: skip
    """Write the launch of each grouped GEMM.

    products: as GEMMs on `machines`. stored: columns of C that are stored. routings, reread: see
    `GroupedProducts`. routing: index of the loads of each.
    """
    memories, levels = machines.memories, out.tile.shape[1]
    out.parts[:], out.candidates[:] = 1, 1
    costs = Costs(np.empty(levels + 3), np.empty(levels + 1))
    for g in range(products.k.size):
        p = products.point[g]
        gemm = make_gemm(products, machines, g)
        times, moved, cores = costs.times, costs.moved, gemm.cores
        a, b, k = tiles.rows[g], COLUMNS, gemm.k
        blocks, rows, experts = 0.0, 0.0, 0.0
        first, last = loads.group[routing[g]], loads.group[routing[g] + 1]
        cache = OF_CACHE * memories.capacity[p, levels - 1]
        cached = weight_hit_rate(gemm, loads.experts[first:last], reread[g], routings, g, cache)
        for i in range(first, last):
            blocks += np.ceil(loads.tokens[i] / a) * loads.experts[i]
            rows += loads.tokens[i] * loads.experts[i]
            experts += loads.experts[i]
        blocks = max(1.0, blocks * np.ceil(gemm.n / b))
        waves = np.ceil(blocks / cores.bundles)
        flop, c = 2.0 * rows * k * gemm.n, rows * stored[g] * gemm.output
        times[:] = 0.0
        of_columns = waves * cores.bundles * 2.0 * b * k / cores.flops
        times[0] = waves * tiles.tile[g] + of_columns * (a + gemm.conversion * OF_MARLIN)
        moved[0] = 2.0 * PARTIAL_SUM_BYTES * a * b * blocks * np.ceil(k * gemm.size / INSTRUCTION_BYTES)
        for level in range(1, gemm.private + 1):
            moved[level] = 2.0 * (a + b) * k * gemm.size * blocks
        moved[gemm.private + 1] = (a * gemm.size + b * gemm.weight) * k * blocks + c
        for level in range(gemm.private + 2, levels + 1):
            moved[level] = experts * k * gemm.n * gemm.weight * (1.0 - cached) + rows * k * gemm.size + c
        from_cache = experts * k * gemm.n * gemm.weight * cached
        times[levels] = from_cache / memories.bandwidth[p, levels - 1]
        times[levels + 1] = moved[levels] / memories.bandwidth[p, levels]
        times[levels + 2] = gemm.overheads.launch + tiles.start[g]
        out.time[g] = time_sustained(gemm, flop, tiles.order[g], times)
        out.times[g], out.bytes[g] = times, moved
        out.waves[g], out.busy[g] = int(waves), blocks / (waves * cores.bundles)
        write_tiles(gemm, a, b, k, out.tile[g])
