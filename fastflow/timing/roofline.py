"""The hierarchical roofline: one launch of every kernel on its device (6.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.columns import Floats, Ints, take
from fastflow.timing.device import Device
from fastflow.timing.tiling import Gemms, Tilings, search


class Work(NamedTuple):
    """Kernels to time, m = 0 for a memory-bound pass; (kernels,), but `samples` and `seed` (points,)."""

    point: Ints
    m: Ints
    k: Ints
    n: Ints
    batch: Ints
    element_bytes: Floats
    pass_bytes: Floats
    pass_flop: Floats
    samples: Ints  # tiles that the search tries at each level
    seed: Ints


class Timing(NamedTuple):
    """One launch of every kernel. All of shape (kernels,) but `bytes`, `times` and `tile`, `stays`."""

    time: Floats  # launch included [s]
    flop: Floats
    limiter: Ints  # column of `times` that is largest
    times: Floats  # as `limiter_names` lists them: (kernels, levels + 3)
    bytes: Floats  # served by each level from the registers outwards, main memory: (kernels, levels + 1)
    tile: Ints  # m, k, n of each level; 0 for a memory-bound pass: (kernels, levels, 3)
    stays: Ints  # operand that stays put in each level, -1 for none: (kernels, levels)


def limiter_names(levels: int) -> list[str]:
    """Return what the columns of `Timing.times` are, in order."""
    return ["compute", *(f"l{level}" for level in range(levels)), "dram", "launch"]


def _distinct_gemms(device: Device, work: Work, rows: Ints) -> tuple[Gemms, Ints]:
    """Return the distinct pairs of GEMM and hierarchy among `rows`, and each row's place in them."""
    point = work.point[rows]
    gemms = Gemms(
        m=work.m[rows],
        k=work.k[rows],
        n=work.n[rows],
        batch=work.batch[rows],
        element_bytes=work.element_bytes[rows],
        compute_flops=device.matrix_flops[point],
        dram_bandwidth=device.dram_bandwidth[point],
        unit_m=device.unit_m[point],
        unit_k=device.unit_k[point],
        unit_n=device.unit_n[point],
        dataflow=device.dataflow[point],
        samples=work.samples[point],
        seed=work.seed[point],
        capacity=np.stack([level[point] for level in device.capacity], axis=1),
        bandwidth=np.stack([level[point] for level in device.bandwidth], axis=1),
    )
    # every integer here is far below 2^53, so a float64 key holds it exactly; capacities first, so that
    # GEMMs which try the same tiles follow each other
    key = np.column_stack(gemms[::-1]).astype(np.float64)
    _, first, place = np.unique(key, axis=0, return_index=True, return_inverse=True)
    distinct = take(gemms, first)
    flat = distinct._replace(capacity=distinct.capacity.reshape(-1), bandwidth=distinct.bandwidth.reshape(-1))
    return flat, place.reshape(-1)


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
    rows = np.flatnonzero(work.m > 0)
    if rows.size:
        gemms, place = _distinct_gemms(device, work, rows)
        found: Tilings = search(gemms, levels)
        compute[rows] = found.compute_time[place]
        flop[rows] = 2.0 * work.m[rows] * work.k[rows] * work.n[rows] * work.batch[rows]
        moved[rows] = found.bytes.reshape(-1, levels + 1)[place]
        tile[rows] = found.tile.reshape(-1, levels, 3)[place]
        stays[rows] = found.stays.reshape(-1, levels)[place]
    bandwidth = np.stack(
        [*(level[point] for level in device.bandwidth), device.dram_bandwidth[point]], axis=1
    )
    times = np.concatenate([compute[:, None], moved / bandwidth, device.launch[point][:, None]], axis=1)
    time = times[:, :-1].max(axis=1) + times[:, -1]
    return Timing(time, flop, times.argmax(axis=1), times, moved, tile, stays)
