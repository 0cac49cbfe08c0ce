"""The hierarchical roofline: one launch of every kernel on its device (6.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.columns import Bools, Floats, Ints
from fastflow.timing.brute import search_all
from fastflow.timing.candidates import Gemms, Hierarchies, Tilings
from fastflow.timing.device import Device
from fastflow.timing.distinct import distinct_rows
from fastflow.timing.tiles import TileSets, make_tile_sets
from fastflow.timing.tiling import search


class Work(NamedTuple):
    """Kernels to time, m = 0 for a memory-bound pass; (kernels,), but from `element_bytes` on (points,)."""

    point: Ints
    m: Ints
    k: Ints
    n: Ints
    batch: Ints
    pass_bytes: Floats
    pass_flop: Floats
    element_bytes: Floats
    samples: Ints  # tiles that the search tries at each level, 0 for all powers of two
    seed: Ints
    brute: Bools  # by brute force


class Timing(NamedTuple):
    """One launch of every kernel. All of shape (kernels,) but where said otherwise."""

    time: Floats  # launch included [s]
    flop: Floats
    limiter: Ints  # column of `times` that is largest
    times: Floats  # as `limiter_names` lists them: (kernels, levels + 3)
    bytes: Floats  # served by each level from the registers outwards, main memory: (kernels, levels + 1)
    tile: Ints  # m, k, n of each level; 0 for a memory-bound pass: (kernels, levels, 3)
    stays: Ints  # operand that stays put in each level, -1 for none: (kernels, levels)
    parts: Ints  # of the inner dimension, that different bundles work on; 0 for a memory-bound pass
    waves: Ints  # of tiles over the bundles; 0 for a memory-bound pass
    busy: Floats  # share of the bundles that work, over all waves
    candidates: Ints  # how many tiles the search looked at


def limiter_names(levels: int) -> list[str]:
    """Return what the columns of `Timing.times` are, in order."""
    return ["compute", *(f"l{level}" for level in range(levels)), "dram", "launch"]


def hierarchies_of(device: Device, work: Work, thinned: bool) -> tuple[Hierarchies, TileSets, Ints]:
    """Return the distinct memory hierarchies, their tile sets, and the place of each point's hierarchy."""
    levels, points = len(device.capacity), work.samples.size
    columns = (
        work.element_bytes, device.matrix_flops, device.unit_m, device.unit_k, device.unit_n,
        device.dataflow, device.dealt_level, device.instances, work.samples, work.seed,
        *device.bandwidth, device.dram_bandwidth, *device.capacity,
    )  # fmt: skip
    first, place = distinct_rows(np.column_stack(columns).astype(np.float64).reshape(points, -1))
    level = np.tile(np.arange(levels), first.size)

    def each(column: Floats | Ints) -> Floats:
        return np.repeat(column[first].astype(np.float64), levels)

    capacity = np.stack([column[first] for column in device.capacity], axis=1).reshape(-1)
    wanted = np.column_stack(
        [
            capacity,
            each(work.element_bytes),
            level,
            each(device.dealt_level),
            each(work.samples),
            each(work.seed),
        ]
    )
    kinds, tiles = distinct_rows(wanted)
    size, element_bytes = wanted[kinds, 0], wanted[kinds, 1]
    number, dealt, samples, seed = wanted[kinds, 2:].astype(np.int64).T.copy()
    sets = make_tile_sets(size, element_bytes, number, dealt, samples, seed, thinned)
    bandwidth = np.stack(
        [*(column[first] for column in device.bandwidth), device.dram_bandwidth[first]], axis=1
    )
    return (
        Hierarchies(
            work.element_bytes[first], device.matrix_flops[first],
            device.unit_m[first], device.unit_k[first], device.unit_n[first], device.dataflow[first],
            device.dealt_level[first], device.instances[first], bandwidth.reshape(-1), tiles,
        ),
        sets,
        place,
    )  # fmt: skip


def _search(device: Device, work: Work, rows: Ints, brute: bool) -> tuple[Tilings, Ints]:
    """Return the best tilings of the distinct GEMMs among `rows`, and each row's place in them.

    Brute force leaves nothing out of random sets; of all powers of two, what another tile contains.
    """
    levels = len(device.capacity)
    hierarchies, sets, hierarchy = hierarchies_of(device, work, not brute or bool((work.samples == 0).all()))
    columns = (hierarchy[work.point], work.m, work.k, work.n, work.batch)
    table = np.column_stack([column[rows] for column in columns])
    # every integer here is far below 2^53, so a float64 holds it exactly
    first, place = distinct_rows(table.astype(np.float64))
    gemms = Gemms(*(column.copy() for column in table[first].astype(np.int64).T))
    found: Tilings = (search_all if brute else search)(gemms, hierarchies, sets, levels)
    return found, place


def time_kernels(device: Device, work: Work) -> Timing:
    """Time one launch of every kernel.

    A GEMM takes the largest of its compute and level times under its best tiling; a memory-bound
    pass the largest of its operations and its bytes over every level's bandwidth. Both pay the
    launch.
    """
    levels, count, point = len(device.capacity), work.point.size, work.point
    moved = np.repeat(work.pass_bytes[:, None], levels + 1, axis=1)
    compute = work.pass_flop / device.vector_flops[point]
    flop = work.pass_flop.copy()
    tile = np.zeros((count, levels, 3), dtype=np.int64)
    stays = np.full((count, levels), -1, dtype=np.int64)
    parts, waves, candidates = (np.zeros(count, dtype=np.int64) for _ in range(3))
    idle = np.ones(count)
    for brute in (False, True):
        rows = np.flatnonzero((work.m > 0) & (work.brute[point] == brute))
        if rows.size:
            found, place = _search(device, work, rows, brute)
            compute[rows] = found.compute_time[place]
            flop[rows] = 2.0 * work.m[rows] * work.k[rows] * work.n[rows] * work.batch[rows]
            moved[rows] = found.bytes.reshape(-1, levels + 1)[place]
            tile[rows] = found.tile.reshape(-1, levels, 3)[place]
            stays[rows] = found.stays.reshape(-1, levels)[place]
            parts[rows], waves[rows] = found.parts[place], found.waves[place]
            idle[rows], candidates[rows] = found.idle[place], found.candidates[place]
    bandwidth = np.stack(
        [*(level[point] for level in device.bandwidth), device.dram_bandwidth[point]], axis=1
    )
    # idle bundles leave their own levels unused; what is shared by the chip serves the others
    own = np.arange(levels + 1) <= device.dealt_level[point][:, None]
    serving = moved / bandwidth * np.where(own, idle[:, None], 1.0)
    times = np.concatenate([compute[:, None], serving, device.launch[point][:, None]], axis=1)
    time = times[:, :-1].max(axis=1) + times[:, -1]
    limiter = times.argmax(axis=1)
    return Timing(time, flop, limiter, times, moved, tile, stays, parts, waves, 1.0 / idle, candidates)
