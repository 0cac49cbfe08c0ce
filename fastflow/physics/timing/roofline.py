"""The hierarchical roofline: one launch of every kernel on its device (6.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import Words, hashes, unique_rows
from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints, take
from fastflow.physics.timing.device import Boost, Device, Memories
from fastflow.physics.timing.library.gemm_table import Operands, Products, columns_of, machines_of
from fastflow.physics.timing.library.thread_blocks import Launched, empty_launched, run_blocks
from fastflow.physics.timing.tile_catalogue import read_catalogue
from fastflow.physics.timing.tiling.boost import boost_of, level_time
from fastflow.physics.timing.tiling.brute_force import search_all
from fastflow.physics.timing.tiling.cache import search_cached
from fastflow.physics.timing.tiling.search_space import Gemms, Hierarchies, Tilings
from fastflow.physics.timing.tiling.tile_sets import TileSets, make_tile_sets
from fastflow.physics.timing.tiling.traffic import C_STATIONARY


class TilingOptions(NamedTuple):
    """How the GEMMs of each point are timed; shape (points,)."""

    element_bytes: Floats  # of operands, as they are multiplied
    weight_bytes: Floats  # of B, as it is stored
    conversion: Floats  # instructions that convert an element of B
    output_bytes: Floats
    samples: Ints  # tiles that the search tries at each level, 0 for all powers of two
    seed: Ints
    brute: Bools  # search by brute force
    blocks: Bools  # by a kernel library's blocks instead of a search
    overlap: Floats  # order of the soft maximum of a kernel's times; 0: the maximum
    parts: Ints  # of the inner dimension, at most


class KernelWork(NamedTuple):
    """Kernels to time, m = 0 for a memory-bound pass; shape (kernels,)."""

    point: Ints
    m: Ints
    k: Ints
    n: Ints
    batch: Ints
    strided: Bools  # both operands are stored along the inner dimension
    copies: Ints  # see `Products`
    pass_bytes: Floats
    pass_flop: Floats
    options: TilingOptions  # of the points


class Fused(NamedTuple):
    """Kernels of a type that has a timing function."""

    rows: Ints  # indices of the kernels
    share: Any  # the work of each kernel: a table of columns (rows,)
    time: Callable[[Device, Any], tuple[Launched, Floats]]  # the launch of each, and its operations
    device: Device


class Timing(NamedTuple):
    """One launch of every kernel; shape (kernels,) unless given."""

    time: Floats  # launch included [s]
    flop: Floats
    limiter: Ints  # column of `times` that is largest
    times: Floats  # columns as in `limiter_names`: (kernels, levels + 3)
    bytes: Floats  # served by each level from the registers outwards, main memory: (kernels, levels + 1)
    tiling: Ints  # index of the tiling below; kernels share tilings
    tile: Ints  # m, k, n of each level; 0 for a memory-bound pass: (tilings, levels, 3)
    stationary: Ints  # stationary operand of each level, -1 for none: (tilings, levels)
    parts: Ints  # of the inner dimension, on different bundles (split-K); 0 for a memory-bound pass
    waves: Ints  # of tiles over the bundles; 0 for a memory-bound pass
    busy: Floats  # share of active bundles, over all waves
    energy_ratio: Floats  # energy of an operation, over that with all bundles active
    padding: Floats  # operations of whole tiles, over those that count: of attention alone
    candidates: Ints  # how many tiles the search evaluated


def limiter_names(levels: int) -> list[str]:
    """Return the names of the columns of `Timing.times`."""
    return ["compute", *(f"l{level}" for level in range(levels)), "dram", "launch"]


def unique_hierarchies(
    device: Device, options: TilingOptions, thinned: bool
) -> tuple[Hierarchies, TileSets, Words, Ints]:
    """Return the unique memory hierarchies, their tile sets, two hashes of their inputs, and the inverse."""
    levels, memories, boost = device.levels, device.memories, device.boost
    columns = (
        options.element_bytes, options.weight_bytes, device.matrix_flops, *device.units, memories.private,
        device.instances, options.samples, options.seed, *memories.bandwidth.T, *memories.capacity.T,
        *memories.driven.T, boost.threshold, boost.headroom,
    )  # fmt: skip
    first, inverse = unique_rows(columns, options.samples.size)
    level = np.tile(np.arange(levels), first.size)

    def per_level(column: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(column[first], levels)

    capacity = memories.capacity[first].reshape(-1)
    size, private = per_level(options.element_bytes), per_level(memories.private)
    samples, seed = per_level(options.samples), per_level(options.seed)
    set_rows, tiles = unique_rows([capacity, size, level, private, samples, seed], level.size)
    sets = make_tile_sets(
        capacity[set_rows],
        size[set_rows],
        level[set_rows],
        private[set_rows],
        samples[set_rows],
        seed[set_rows],
        thinned,
    )
    return (
        Hierarchies(
            element_bytes=options.element_bytes[first],
            weight_bytes=options.weight_bytes[first],
            compute_flops=device.matrix_flops[first],
            units=take(device.units, first),
            private_level=memories.private[first],
            instances=device.instances[first],
            threshold=boost.threshold[first],
            headroom=boost.headroom[first],
            bandwidth=memories.bandwidth[first].reshape(-1),
            driven=memories.driven[first].reshape(-1),
            tiles=tiles,
        ),
        sets,
        hashes([column[first] for column in columns]),
        inverse,
    )


def _search(device: Device, work: KernelWork, rows: Ints, brute: bool) -> tuple[Tilings, Ints]:
    """Return the best tilings of the unique GEMMs among `rows`, and the inverse.

    Brute force keeps random sets whole; of all powers of two it leaves out tiles that another contains.
    """
    levels = device.levels
    thinned = not brute or bool((work.options.samples == 0).all())
    hierarchies, sets, key, hierarchy = unique_hierarchies(device, work.options, thinned)
    gemms = Gemms(hierarchy[work.point[rows]], *take((work.m, work.k, work.n, work.batch), rows))
    first, inverse = unique_rows(gemms, rows.size)
    distinct = take(gemms, first)
    if brute:
        return search_all(distinct, hierarchies, sets, levels), inverse
    return search_cached(distinct, hierarchies, sets, key, levels), inverse


@kernel
def _write_passes(work: KernelWork, vector_flops: Floats, idle: Floats, out: Timing) -> None:
    """Write the operations and bytes of memory-bound passes: every level serves all bytes."""
    for row in range(work.m.size):
        if work.m[row] > 0:
            continue
        out.times[row, 0] = work.pass_flop[row] / vector_flops[work.point[row]]
        out.flop[row], idle[row] = work.pass_flop[row], 1.0
        out.parts[row], out.waves[row], out.candidates[row], out.tiling[row] = 0, 0, 0, 0
        for level in range(out.bytes.shape[1]):
            out.bytes[row, level] = work.pass_bytes[row]


@kernel
def _write_gemms(
    work: KernelWork, rows: Ints, tilings: Tilings, inverse: Ints, before: int, idle: Floats, out: Timing
) -> None:
    """Write the operations and bytes of the GEMMs in `rows` under their tilings.

    inverse: index of each GEMM's tiling; before: number of tilings listed before these.
    """
    levels = out.bytes.shape[1] - 1
    for i in range(rows.size):
        row, g = rows[i], inverse[i]
        out.times[row, 0], idle[row] = tilings.compute_time[g], tilings.idle[g]
        out.flop[row] = 2.0 * work.m[row] * work.k[row] * work.n[row] * work.batch[row]
        out.parts[row], out.waves[row] = tilings.parts[g], tilings.waves[g]
        out.candidates[row], out.tiling[row] = tilings.candidates[g], before + g
        for level in range(levels + 1):
            out.bytes[row, level] = tilings.bytes[g * (levels + 1) + level]


@kernel
def _limit(
    point: Ints, timed: Bools, memories: Memories, launch: Floats, boost: Boost, idle: Floats, out: Timing
) -> None:
    """Write every level's time, a kernel's limiter and its time; skips kernels with a time.

    launch: (points,). Private levels of idle bundles are unused, active bundles use their power; shared
    levels serve the active bundles. The supply of cores is raised only as far as the kernel gains by it.
    """
    bandwidth, driven = memories.bandwidth, memories.driven
    threshold, headroom = boost.threshold, boost.headroom
    last = out.times.shape[1] - 1
    for row in range(point.size):
        if timed[row]:
            continue
        p = point[row]
        longest, limiter = out.times[row, 0], 0
        for level in range(last - 1):
            serving = level_time(out.bytes[row, level], bandwidth[p, level], driven[p, level], idle[row])
            out.times[row, level + 1] = serving
            if longest < serving or np.isnan(serving) > np.isnan(longest):
                longest, limiter = serving, level + 1
        out.energy_ratio[row], out.times[row, last] = 1.0, launch[p]
        if headroom[p] > 1.0 and idle[row] > 1.0:
            pace, out.energy_ratio[row] = boost_of(idle[row], threshold[p], headroom[p])
            if longest > out.times[row, 0]:  # a lower supply suffices: V^2 / P = pace is quadratic in V
                pace = min(1.0, pace * longest / out.times[row, 0])
                half = pace * threshold[p] + 0.5 * (1.0 - threshold[p]) ** 2
                root = np.sqrt(half * half - (pace * threshold[p]) ** 2)
                out.energy_ratio[row] = ((half + root) / pace) ** 2
        out.limiter[row] = last if longest < launch[p] else limiter
        out.time[row], out.busy[row] = longest + launch[p], 1.0 / idle[row]


def _run_blocks(device: Device, work: KernelWork, rows: Ints) -> tuple[Launched, Ints]:
    """Return the launches of the unique GEMMs among `rows` by libraries, and the inverse."""
    options = work.options
    catalogue, tile_rows = read_catalogue(np.concatenate([device.blocks, device.batched_blocks]))
    single, batched = np.split(tile_rows, 2)
    operands = Operands(options.element_bytes, options.weight_bytes, options.conversion)
    machines = machines_of(device, operands, options.output_bytes, options.overlap, options.parts)
    machine_rows, machine = unique_rows((*columns_of(machines), single, batched), single.size)
    products = take(
        Products(
            point=machine[work.point],
            m=work.m,
            k=work.k,
            n=work.n,
            batch=work.batch,
            strided=work.strided,
            copies=work.copies,
        ),
        rows,
    )
    first, inverse = unique_rows(products, rows.size)
    launched = empty_launched(first.size, device.levels)
    run_blocks(
        take(products, first), take(machines, machine_rows), single[machine_rows], batched[machine_rows],
        catalogue, launched,
    )  # fmt: skip
    return launched, inverse


def _copy_launched(rows: Ints, launched: Launched, inverse: Ints, before: int, out: Timing) -> None:
    """Write the launches of the kernels in `rows`; inverse, before: as in `_write_gemms`."""
    out.times[rows] = launched.times[inverse]
    out.limiter[rows] = launched.times.argmax(axis=1)[inverse]
    out.bytes[rows] = launched.bytes[inverse]
    for name in ("time", "energy_ratio", "parts", "waves", "busy", "candidates"):
        getattr(out, name)[rows] = getattr(launched, name)[inverse]
    out.tiling[rows] = np.where(inverse < len(launched.tile), before + inverse, 0)


def _flags_of_kernels(flags: Bools, point: Ints) -> Bools:
    """Return the flag of every kernel's point, (kernels,); flags: (points,), mostly all equal."""
    is_uniform = flags.all() or not flags.any()
    return np.full(point.size, bool(flags.size and flags[0])) if is_uniform else flags[point]


class _TilingList:
    """A list of tilings of kernels; the first, of zeros, is for passes."""

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._tile = [np.zeros((1, levels, 3), dtype=np.int64)]
        self._stationary = [np.full((1, levels), -1, dtype=np.int64)]

    def add(self, tile: Ints, stationary: Ints | None = None) -> int:
        """Add tilings, by default with C stationary; returns the number of tilings before them."""
        before = sum(map(len, self._tile))
        self._tile.append(tile.reshape(-1, self._levels, 3))
        operands = np.full(tile.shape[:2], C_STATIONARY, dtype=np.int64) if stationary is None else stationary
        self._stationary.append(operands.reshape(-1, self._levels))
        return before

    @property
    def tile(self) -> Ints:
        """m, k, n of each level of every tiling."""
        return np.concatenate(self._tile)

    @property
    def stationary(self) -> Ints:
        """The stationary operand in each level of every tiling."""
        return np.concatenate(self._stationary)


def time_kernels(device: Device, work: KernelWork, fused: Sequence[Fused] = ()) -> Timing:
    """Time one launch of every kernel.

    The time of a GEMM is the largest of its compute and level times under its best tiling; that of a
    memory-bound pass the largest of its operations and its bytes over every level's bandwidth. Both include
    the launch. fused: kernels of types with a timing function.
    """
    levels, count = device.levels, work.point.size
    out = Timing(
        time=np.empty(count),
        flop=np.empty(count),
        limiter=np.empty(count, dtype=np.int64),
        times=np.empty((count, levels + 3)),
        bytes=np.empty((count, levels + 1)),
        tiling=np.empty(count, dtype=np.int64),
        tile=np.zeros((1, levels, 3), dtype=np.int64),  # of passes
        stationary=np.full((1, levels), -1, dtype=np.int64),
        parts=np.empty(count, dtype=np.int64),
        waves=np.empty(count, dtype=np.int64),
        busy=np.empty(count),
        energy_ratio=np.empty(count),
        padding=np.ones(count),
        candidates=np.empty(count, dtype=np.int64),
    )
    idle = np.empty(count)  # bundles over active bundles
    _write_passes(work, device.vector_flops, idle, out)
    tilings = _TilingList(levels)
    gemms = work.m > 0
    for group in fused:
        gemms[group.rows] = False
    by_blocks = _flags_of_kernels(work.options.blocks, work.point) & gemms
    for brute, selected in ((False, ~work.options.brute), (True, work.options.brute)):
        rows = np.flatnonzero(_flags_of_kernels(selected, work.point) & gemms & ~by_blocks)
        if rows.size:
            solved, inverse = _search(device, work, rows, brute)
            _write_gemms(work, rows, solved, inverse, tilings.add(solved.tile, solved.stationary), idle, out)
    rows = np.flatnonzero(by_blocks)
    if rows.size:
        launched, inverse = _run_blocks(device, work, rows)
        _copy_launched(rows, launched, inverse, tilings.add(launched.tile), out)
        out.flop[rows] = 2.0 * work.m[rows] * work.k[rows] * work.n[rows] * work.batch[rows]
    for group in fused:
        launched, flop = group.time(group.device, group.share)
        _copy_launched(group.rows, launched, np.arange(group.rows.size), tilings.add(launched.tile), out)
        out.flop[group.rows], by_blocks[group.rows] = flop, True
        is_padded = launched.executed > flop
        out.padding[group.rows[is_padded]] = launched.executed[is_padded] / flop[is_padded]
    _limit(work.point, by_blocks, device.memories, device.launch, device.boost, idle, out)
    return out._replace(tile=tilings.tile, stationary=tilings.stationary)
