"""The search space of tilings: GEMMs, memory hierarchies, and paths through a GEMM's tiles (6.1, 6.2)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.tiling.dataflow import Unit, Units, make_unit
from fastflow.physics.timing.tiling.tile_sets import TileSets
from fastflow.physics.timing.tiling.traffic import Operands, filled, operands, stationary_of

M, K, N = 0, 1, 2
"""Axes of a GEMM; in a candidate and in a row of a path, the visits along each."""
PER_M, PER_K, PER_N = 3, 4, 5
"""1 / side of the tile."""
PARTS, COMPUTE, IDLE = 6, 7, 8
"""Parts of the inner dimension; compute time [s] and idle factor once tiles are distributed."""
MOVED, TIME, ACCESSED = 9, 10, 11
"""Bytes moved in to the tile's level; time [s] of the levels fixed so far; bytes of register accesses."""
_TILE_COLUMNS, _PATH_COLUMNS = 9, 12
PART = 3
"""Exponent of the part of the inner dimension, after the exponents of the sides."""
VISITS, FILLED, INVERSE = 0, 1, 2
"""Of a side of 2^e, at most the GEMM's: tiles along the axis, side in whole matrix units, 1 / side."""


class Hierarchies(NamedTuple):
    """Unique memory hierarchies with their matrix units; shape (hierarchies,).

    `bandwidth` and `driven` are flat, shape (hierarchies * (levels + 1),), from the registers outwards, main
    memory last; `tiles` is flat, shape (hierarchies * levels,), the tile set of each level.
    """

    element_bytes: Floats  # of operands, as they are multiplied
    weight_bytes: Floats  # of B, as it is stored
    compute_flops: Floats  # achievable [flop/s]
    units: Units
    private_level: Ints  # the level whose tiles are distributed over its instances, -1 for none
    instances: Floats  # of that level
    threshold: Floats  # as in `Boost`
    headroom: Floats
    bandwidth: Floats  # achievable, all instances [B/s]
    driven: Floats  # as in `Memories`, in the layout of `bandwidth`
    tiles: Ints


class Gemms(NamedTuple):
    """Unique GEMMs, each on a hierarchy; shape (gemms,)."""

    hierarchy: Ints
    m: Ints
    k: Ints
    n: Ints
    batch: Ints


class Tilings(NamedTuple):
    """The best tiling of each GEMM; shape (gemms,) unless given.

    `bytes` is flat, shape (gemms * (levels + 1),), what each level's bandwidth serves from the registers
    outwards, main memory last. `tile` is flat, shape (gemms * levels * 3,), as m, k, n; `stationary` is flat,
    shape (gemms * levels,), the stationary operand of the level.
    """

    time: Floats  # [s]
    compute_time: Floats  # idle instances included [s]
    bytes: Floats
    tile: Ints
    stationary: Ints
    parts: Ints  # of the inner dimension, on different instances (split-K)
    waves: Ints  # of tiles, one per instance of the private level
    idle: Floats  # instances over active instances, over all waves
    candidates: Ints  # how many tiles, or whole tilings, the search evaluated


class Problem(NamedTuple):
    """One GEMM on its hierarchy, as plain numbers."""

    whole: Operands
    unit: Unit
    batch: float
    top_m: int  # exponent of the smallest power of two that holds the side
    top_k: int
    top_n: int
    flops: float  # achievable [flop/s]
    floor: float  # time of the operations with nothing idle [s]
    access: float  # bytes of register accesses at one access an operation
    levels: int
    private: int  # the level whose tiles are distributed, -1 for none
    instances: float
    threshold: float
    headroom: float
    closed: bool  # a clipped tile of the private level is a candidate too


class Rates(NamedTuple):
    """Rates of the levels of a GEMM's hierarchy, main memory last; (levels + 1,)."""

    bandwidth: Floats  # as in `Hierarchies`
    driven: Floats


class Candidates(NamedTuple):
    """The tiles of one GEMM at every level."""

    counts: Ints  # of each level, and last of the private level without splits, (levels + 1,)
    exponent: Ints  # of their sides, and PART, (levels + 1, 4, candidates)
    column: Floats  # M to IDLE, (levels, 9, candidates)
    longest: Ints  # exponents of the longest side along each axis, (levels, 3)
    least: Floats  # the fewest visits of any candidate, (levels, 3)


class Path(NamedTuple):
    """A tile at each level, from the outside in; the row beyond the outermost level is the GEMM itself."""

    column: Floats  # M to ACCESSED, (levels + 1, 12)
    exponent: Ints  # of the sides, (levels + 1, 3)


class Layout(NamedTuple):
    """Workspace for the candidates of one GEMM and two paths through them, reused for every GEMM."""

    sides: Floats  # VISITS, FILLED, INVERSE by axis and exponent, (3, 3, exponents)
    longest: Ints  # exponent of the longest tile of a set, by those of m and n, (exponents + 1, exponents)
    seen: Ints  # mark of the last call with the tile of these exponents, by m, k, n
    candidates: Candidates
    path: Path
    best: Path


@lean_kernel
def _exponent(side: int) -> int:
    """Return the exponent of the smallest power of two that holds a side."""
    fraction, exponent = math.frexp(float(side))
    return exponent - 1 if fraction == 0.5 else exponent


def new_layout(gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int) -> Layout:
    """Return a workspace for any of the GEMMs. Not a kernel: it runs once, and would take 1 s to compile."""
    most = int(np.diff(sets.offset).max(initial=1))
    longest = max(int(side.max(initial=1)) for side in (gemms.m, gemms.k, gemms.n))
    instances = hierarchies.instances.max(initial=1.0)
    rows = most * (3 + int(np.ceil(np.log2(instances))))  # parts about double until no instance is idle
    exponents = (longest - 1).bit_length() + 1
    return Layout(
        sides=np.empty((3, 3, exponents)),
        longest=np.empty((exponents + 1, exponents), dtype=np.int64),
        seen=np.zeros((exponents, exponents, exponents), dtype=np.int64),
        candidates=Candidates(
            counts=np.zeros(levels + 1, dtype=np.int64),
            exponent=np.empty((levels + 1, 4, rows), dtype=np.int64),
            column=np.empty((levels, _TILE_COLUMNS, rows)),
            longest=np.empty((levels, 3), dtype=np.int64),
            least=np.empty((levels, 3)),
        ),
        path=_new_path(levels),
        best=_new_path(levels),
    )


def _new_path(levels: int) -> Path:
    """Return a workspace for a path."""
    return Path(
        column=np.empty((levels + 1, _PATH_COLUMNS)), exponent=np.empty((levels + 1, 3), dtype=np.int64)
    )


@lean_kernel
def _fill_axis(axis: int, side: int, unit: float, sides: Floats) -> int:
    """Fill an axis's table; returns the exponent of the smallest power of two that holds the side."""
    top = _exponent(side)
    for e in range(top + 1):
        tile = min(float(1 << e), float(side))
        sides[VISITS, axis, e] = np.ceil(side / tile)
        sides[FILLED, axis, e] = filled(tile, unit)
        sides[INVERSE, axis, e] = 1.0 / tile
    return top


@lean_kernel
def make_problem(
    gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, levels: int, g: int, layout: Layout
) -> Problem:
    """Fill the tables of GEMM g's sides, start both paths at the whole GEMM, and return its numbers."""
    h = gemms.hierarchy[g]
    m, k, n, batch = float(gemms.m[g]), float(gemms.k[g]), float(gemms.n[g]), float(gemms.batch[g])
    unit = make_unit(hierarchies.units, h)
    sides = layout.sides
    top_m = _fill_axis(M, gemms.m[g], unit.m, sides)
    top_k = _fill_axis(K, gemms.k[g], unit.k, sides)
    top_n = _fill_axis(N, gemms.n[g], unit.n, sides)
    volume = sides[FILLED, M, top_m] * sides[FILLED, K, top_k] * sides[FILLED, N, top_n]
    size, flops = hierarchies.element_bytes[h], hierarchies.compute_flops[h]
    floor = 2.0 * volume * batch / flops
    path, exponent = layout.path.column, layout.path.exponent
    exponent[levels, M], exponent[levels, K], exponent[levels, N] = top_m, top_k, top_n
    for axis in range(3):
        path[levels, axis] = 1.0
        path[levels, PER_M + axis] = sides[INVERSE, axis, exponent[levels, axis]]
    path[levels, PARTS], path[levels, COMPUTE], path[levels, IDLE] = 1.0, floor, 1.0
    path[levels, TIME] = floor
    private, closed = hierarchies.private_level[h], False
    if private >= 0:
        closed = sets.closed[hierarchies.tiles[h * levels + private]]
    best = layout.best.column
    best[0, TIME] = np.inf
    for level in range(levels):
        best[level, MOVED] = np.inf
    return Problem(
        whole=operands(m, k, n, batch, size, hierarchies.weight_bytes[h]),
        unit=unit,
        batch=batch,
        top_m=top_m,
        top_k=top_k,
        top_n=top_n,
        flops=flops,
        floor=floor,
        access=2.0 * m * k * n * batch * size,
        levels=levels,
        private=private,
        instances=hierarchies.instances[h],
        threshold=hierarchies.threshold[h],
        headroom=hierarchies.headroom[h],
        closed=closed,
    )


@lean_kernel
def is_better(levels: int, path: Floats, best: Floats) -> bool:
    """Return whether a whole path comes before the best so far; both are columns of a `Path`.

    Less time comes first, then fewer bytes from main memory inwards, then larger tiles from the
    outside, then fewer parts of the inner dimension.
    """
    if path[0, TIME] != best[0, TIME]:
        return bool(path[0, TIME] < best[0, TIME])
    for level in range(levels - 1, -1, -1):
        if path[level, MOVED] != best[level, MOVED]:
            return bool(path[level, MOVED] < best[level, MOVED])
    if path[0, ACCESSED] != best[0, ACCESSED]:
        return bool(path[0, ACCESSED] < best[0, ACCESSED])
    for level in range(levels - 1, -1, -1):
        for axis in range(3):
            if path[level, axis] != best[level, axis]:
                return bool(path[level, axis] < best[level, axis])
    return bool(path[0, PARTS] < best[0, PARTS])


@lean_kernel
def moves_more(levels: int, inner: int, path: Floats, best: Floats) -> bool:
    """Return whether a path, fixed from the outside to a level, moves more bytes than the best so far."""
    for level in range(levels - 1, inner - 1, -1):
        if path[level, MOVED] != best[level, MOVED]:
            return bool(path[level, MOVED] > best[level, MOVED])
    return False


@lean_kernel
def copy_path(levels: int, path: Path, best: Path) -> None:
    """Keep a path as the best so far."""
    for level in range(levels + 1):
        for column in range(_PATH_COLUMNS):
            best.column[level, column] = path.column[level, column]
        for axis in range(3):
            best.exponent[level, axis] = path.exponent[level, axis]


def new_tilings(gemms: int, levels: int) -> Tilings:
    """Return a workspace for the tilings of so many GEMMs."""
    return Tilings(
        time=np.empty(gemms),
        compute_time=np.empty(gemms),
        bytes=np.empty(gemms * (levels + 1)),
        tile=np.empty(gemms * levels * 3, dtype=np.int64),
        stationary=np.empty(gemms * levels, dtype=np.int64),
        parts=np.empty(gemms, dtype=np.int64),
        waves=np.empty(gemms, dtype=np.int64),
        idle=np.empty(gemms),
        candidates=np.empty(gemms, dtype=np.int64),
    )


@lean_kernel
def write_tiling(problem: Problem, layout: Layout, evaluated: int, g: int, out: Tilings) -> None:
    """Write the best tiling of GEMM g to `out`."""
    best, exponent, inverse = layout.best.column, layout.best.exponent, layout.sides[INVERSE]
    levels = problem.levels
    out.time[g], out.compute_time[g], out.idle[g] = best[0, TIME], best[0, COMPUTE], best[0, IDLE]
    out.parts[g], out.candidates[g], out.waves[g] = int(best[0, PARTS]), evaluated, 1
    if problem.private >= 0:
        tiles = best[problem.private, M] * best[problem.private, N] * best[0, PARTS] * problem.batch
        out.waves[g] = int(min(np.ceil(tiles / problem.instances), 2.0**62))
    out.bytes[g * (levels + 1)] = best[0, ACCESSED]
    for level in range(levels):
        out.bytes[g * (levels + 1) + level + 1] = best[level, MOVED]
        for axis in range(3):
            side = np.rint(1.0 / inverse[axis, exponent[level, axis]])
            out.tile[(g * levels + level) * 3 + axis] = int(side)
        passes = best[level + 1, K]
        if level == problem.private:
            passes = max(passes, best[level, PARTS])
        out.stationary[g * levels + level] = stationary_of(
            problem.whole, best[level + 1, M], passes, best[level + 1, N],
            best[level, M], best[level, K], best[level, N],
        )  # fmt: skip
