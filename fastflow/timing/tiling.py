"""The tiling search: which tiles of a GEMM move the fewest bytes for the time they take (6.1, 6.2).

A GEMM C[m, n] = A[m, k] B[k, n] is cut into tiles for the outermost on-chip memory, each of those
into tiles for the next one in, down to the registers. A tile (m, k, n) of a level holds its parts
of A, B and C (partial sums have 4 bytes) and fits one instance of the level.

Between a level and the one outside it, one operand stays put while the tiles of the others stream
by. With R tiles of this level along each dimension of the outer tile, and O the tiles along that
dimension of all outer levels together, the level's instances load over the whole GEMM

    A, m k elements,   O_n times where A stays,  O_n R_n where it does not
    B, k n elements,   O_m times where B stays,  O_m R_m
    C, m n elements,   O_k times where C stays,  O_k R_k, and every time but the first reads the
                       partial sums back; all but the last write them in 4 bytes.

These are bytes that the outer level's bandwidth serves. The registers' own traffic is Equation 5's.
Time is the largest of compute and all levels; ties go to the fewest main-memory bytes, then to the
fewest bytes of each level inwards.

Tried tiles come from a fixed, seeded sequence of directions. A tile grows along its direction by
doubling one dimension at a time until the next doubling would not fit. So a larger memory's tile
holds the smaller one's, and powers of two divide each other: with as many directions as are tried by
default, a better design is not told worse by the luck of its tiles.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.columns import Floats, Ints
from fastflow.timing.dataflow import register_accesses_per_flop

PARTIAL_SUM_BYTES = 4.0
A_STAYS, B_STAYS, C_STAYS = 0, 1, 2
OPERANDS = ("A", "B", "C")


class Gemms(NamedTuple):
    """Distinct GEMMs, each on the memory hierarchy of its chip; shape (gemms,).

    `capacity` and `bandwidth` are flat, shape (gemms * levels,), from the registers outwards.
    """

    m: Ints
    k: Ints
    n: Ints
    batch: Ints
    element_bytes: Floats
    compute_flops: Floats  # achievable [flop/s]
    dram_bandwidth: Floats  # achievable [B/s]
    unit_m: Ints  # shape of the matrix unit
    unit_k: Ints
    unit_n: Ints
    dataflow: Ints
    samples: Ints  # tiles tried at each level
    seed: Ints
    capacity: Floats  # of one instance [B]
    bandwidth: Floats  # achievable, all instances [B/s]


class Tilings(NamedTuple):
    """The best tiling of each GEMM.

    time [s] and compute_time [s] have shape (gemms,). `bytes` is flat, shape (gemms * (levels + 1),),
    what each level's bandwidth serves from the registers outwards, main memory last. `tile` is flat,
    shape (gemms * levels * 3,), as m, k, n; `stays` is flat, shape (gemms * levels,), the operand that
    stays put in the level.
    """

    time: Floats
    compute_time: Floats
    bytes: Floats
    tile: Ints
    stays: Ints


@kernel
def set_direction(level: int, sample: int, seed: int, direction: Floats) -> None:
    """Write the growth direction of a level's n-th tile into `direction`, (3,): shares that sum to 1.

    Directions are spread evenly over the simplex by the R2 sequence (Roberts, The Unreasonable
    Effectiveness of Quasirandom Sequences, 2018), another stretch of it for every seed and level.
    The first N tiles of a longer search are those of a search of N, so more samples never give a
    worse time.
    """
    plastic = 1.3247179572447460  # the real root of x^3 = x + 1
    index = 1.0 + sample + 1000.0 * level + 7919.0 * seed
    first, second = (0.5 + index / plastic) % 1.0, (0.5 + index / plastic**2) % 1.0
    direction[0] = min(first, second)
    direction[1] = max(first, second) - direction[0]
    direction[2] = 1.0 - max(first, second)


@kernel
def tile_bytes(m: float, k: float, n: float, element_bytes: float) -> float:
    """Return the bytes that the parts of A, B and C in an m x k x n tile take."""
    return element_bytes * (m * k + k * n) + PARTIAL_SUM_BYTES * m * n


@kernel
def grow_tile(direction: Floats, capacity: float, element_bytes: float, tile: Ints) -> None:
    """Write the tile that grows along a direction until it fills the capacity [B] into `tile`, (3,)."""
    tile[:] = 1
    doublings = np.zeros(3)
    for step in range(1, 90):
        grown = 0
        for axis in range(1, 3):
            if direction[axis] * step - doublings[axis] > direction[grown] * step - doublings[grown]:
                grown = axis
        tile[grown] *= 2
        doublings[grown] += 1.0
        if tile_bytes(tile[0], tile[1], tile[2], element_bytes) > capacity:
            tile[grown] //= 2
            return


@kernel
def operand_bytes(
    stays: int, m: float, k: float, n: float, outer: Ints, inner: Ints,
    element_bytes: float,
) -> float:  # fmt: skip
    """Return the bytes loaded and stored at a level when one operand stays put.

    m, k, n: the GEMM; outer, inner: tiles along m, k, n, shape (3,), of all outer levels together
    (O) and of this level in its outer tile (R).
    """
    loads_a = outer[2] * (1 if stays == A_STAYS else inner[2])
    loads_b = outer[0] * (1 if stays == B_STAYS else inner[0])
    passes_c = outer[1] * (1 if stays == C_STAYS else inner[1])
    moved = element_bytes * (m * k * loads_a + k * n * loads_b + m * n)
    return float(moved + 2.0 * PARTIAL_SUM_BYTES * m * n * (passes_c - 1))


@kernel
def best_operand(
    m: float, k: float, n: float, outer: Ints, inner: Ints, element_bytes: float
) -> tuple[int, float]:
    """Return which operand stays put for the fewest bytes, and those bytes."""
    best, fewest = A_STAYS, operand_bytes(A_STAYS, m, k, n, outer, inner, element_bytes)
    for stays in (B_STAYS, C_STAYS):
        moved = operand_bytes(stays, m, k, n, outer, inner, element_bytes)
        if moved < fewest:
            best, fewest = stays, moved
    return best, fewest


@kernel
def compare(time: float, moved: Floats, level: int, best_time: float, best_moved: Floats) -> int:
    """Return -1, 0 or 1: whether a tiling comes before, beside or after the best so far.

    Less time comes first, then fewer bytes from main memory in to `level`. For a tiling that is fixed
    only as far as `level`, time is a lower bound: 1 then means that it can no longer win.
    """
    if time != best_time:
        return -1 if time < best_time else 1
    for outer in range(moved.size - 1, level - 1, -1):
        if moved[outer] != best_moved[outer]:
            return -1 if moved[outer] < best_moved[outer] else 1
    return 0


@kernel
def compute_time(gemms: Gemms, g: int) -> float:
    """Return the time of a GEMM's operations alone [s], its sides filled up to whole matrix units."""
    m = np.ceil(gemms.m[g] / gemms.unit_m[g]) * gemms.unit_m[g]
    k = np.ceil(gemms.k[g] / gemms.unit_k[g]) * gemms.unit_k[g]
    n = np.ceil(gemms.n[g] / gemms.unit_n[g]) * gemms.unit_n[g]
    return float(2.0 * m * k * n * gemms.batch[g] / gemms.compute_flops[g])


@kernel
def grow_candidates(gemms: Gemms, g: int, levels: int, candidates: Ints, counts: Ints) -> None:
    """Write the distinct tiles that GEMM g tries at each level.

    candidates: shape (levels, samples, 3) or more; counts: how many of them each level has, (levels,).
    """
    direction = np.empty(3)
    for level in range(levels):
        tiles, count = candidates[level], 0
        capacity = gemms.capacity[g * levels + level]
        for sample in range(gemms.samples[g]):
            set_direction(level, sample, gemms.seed[g], direction)
            grow_tile(direction, capacity, gemms.element_bytes[g], tiles[count])
            known = False
            for other in range(count):
                known = known or (tiles[other] == tiles[count]).all()
            count += 0 if known else 1
        counts[level] = count


@kernel
def shares_candidates(gemms: Gemms, g: int, levels: int) -> bool:
    """Return whether GEMM g tries the same tiles as the one before it."""
    if g == 0 or gemms.element_bytes[g] != gemms.element_bytes[g - 1]:
        return False
    if gemms.samples[g] != gemms.samples[g - 1] or gemms.seed[g] != gemms.seed[g - 1]:
        return False
    here, before = (
        gemms.capacity[g * levels : (g + 1) * levels],
        gemms.capacity[(g - 1) * levels : g * levels],
    )
    return bool((here == before).all())


@kernel
def search_one(gemms: Gemms, g: int, levels: int, candidates: Ints, counts: Ints, out: Tilings) -> None:
    """Try every combination of the candidate tiles of all levels for GEMM g; write the best to `out`.

    candidates, counts: as `grow_candidates` writes them. Depth first from the outermost level, so
    that what an outer tile moves is found once for all tiles inside it; a branch that can no longer
    beat the best is left.
    """
    m, k, n = float(gemms.m[g]), float(gemms.k[g]), float(gemms.n[g])
    size, batch = gemms.element_bytes[g], float(gemms.batch[g])
    floor = compute_time(gemms, g)
    # per level: tile, tiles along each dimension in all levels outside it, choice, bytes, time so far
    tile = np.empty((levels + 1, 3), dtype=np.int64)
    outer = np.ones((levels + 1, 3), dtype=np.int64)
    tile[levels, 0], tile[levels, 1], tile[levels, 2] = gemms.m[g], gemms.k[g], gemms.n[g]
    inner = np.empty(3, dtype=np.int64)
    moved = np.zeros(levels + 1)
    stays = np.zeros(levels, dtype=np.int64)
    so_far = np.full(levels + 1, floor)
    chosen = np.full(levels, -1, dtype=np.int64)
    best_moved = np.full(levels + 1, np.inf)
    best_time = np.inf
    level = levels - 1
    while level < levels:
        chosen[level] += 1
        if chosen[level] == counts[level]:
            chosen[level] = -1
            level += 1
            continue
        for axis in range(3):
            tile[level, axis] = min(candidates[level, chosen[level], axis], tile[level + 1, axis])
            inner[axis] = -(-tile[level + 1, axis] // tile[level, axis])
            outer[level, axis] = outer[level + 1, axis] * inner[axis]
        stays[level], served = best_operand(m, k, n, outer[level + 1], inner, size)
        moved[level + 1] = served * batch
        index = g * levels + level + 1
        serving = gemms.dram_bandwidth[g] if level == levels - 1 else gemms.bandwidth[index]
        so_far[level] = max(so_far[level + 1], moved[level + 1] / serving)
        if compare(so_far[level], moved, level + 1, best_time, best_moved) > 0:
            continue
        if level > 0:
            level -= 1
            continue
        accesses = register_accesses_per_flop(
            gemms.dataflow[g], gemms.unit_m[g], gemms.unit_k[g], gemms.unit_n[g],
            tile[0, 0], tile[0, 1], tile[0, 2],
        )  # fmt: skip
        moved[0] = 2.0 * m * k * n * batch * accesses * size
        time = max(so_far[0], moved[0] / gemms.bandwidth[g * levels])
        if compare(time, moved, 0, best_time, best_moved) < 0:
            best_time = time
            best_moved[:] = moved
            out.tile[g * levels * 3 : (g + 1) * levels * 3] = tile[:levels].ravel()
            out.stays[g * levels : (g + 1) * levels] = stays
    out.time[g], out.compute_time[g] = best_time, floor
    out.bytes[g * (levels + 1) : (g + 1) * (levels + 1)] = best_moved


@kernel
def search(gemms: Gemms, levels: int) -> Tilings:
    """Return the best tiling of every GEMM, each on `levels` on-chip levels."""
    count = gemms.m.size
    out = Tilings(
        np.empty(count),
        np.empty(count),
        np.empty(count * (levels + 1)),
        np.empty(count * levels * 3, dtype=np.int64),
        np.empty(count * levels, dtype=np.int64),
    )
    most = 0
    for g in range(count):
        most = max(most, gemms.samples[g])
    # one more than can be distinct: a tile is written there before it is compared
    candidates = np.empty((levels, most + 1, 3), dtype=np.int64)
    counts = np.zeros(levels, dtype=np.int64)
    for g in range(count):
        if not shares_candidates(gemms, g, levels):
            grow_candidates(gemms, g, levels, candidates, counts)
        search_one(gemms, g, levels, candidates, counts, out)
    return out
