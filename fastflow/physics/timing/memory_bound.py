"""Times of memory-bound passes, with launches and dependent trips through the memories."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched


def run_passes(
    device: Device, point: Ints, *, moved: Floats, launches: Floats, operations: Floats, trips: Floats,
    late: Floats | float = 0.0, hits: Floats | float = 0.0,
) -> Launched:  # fmt: skip
    """Return the launches of kernels of one or several passes; columns are (kernels,) or (kernels, passes).

    point: of the device. The time of a pass is the longer of its bytes from main memory and its operations on
    vector lanes, plus dependent trips through all memories, plus the overhead of its launches. A pass of 0
    launches has no work. late: launches that wait for the end of the kernel before them; hits: share of the
    bytes that the last cache holds, and serves; (kernels,).
    """
    count, levels = point.size, device.levels
    parts = [column.reshape(count, -1) for column in (moved, launches, operations, trips)]
    cold = parts[0] * (1.0 - np.broadcast_to(hits, count)[:, None])
    bandwidth = device.memories.bandwidth[point]
    memory_time = np.maximum(cold / bandwidth[:, -1:], (parts[0] - cold) / bandwidth[:, -2:-1])
    vector_time = parts[2] / device.vector_flops[point, None]
    served, times = np.zeros((count, levels + 1)), np.zeros((count, levels + 3))
    served[:] = parts[0].sum(axis=1, keepdims=True)
    served[:, levels] = cold.sum(axis=1)
    times[:, 0], times[:, levels + 1] = vector_time.sum(axis=1), memory_time.sum(axis=1)
    launch, latency = device.library.launch[point], device.library.latency[point]
    times[:, levels + 2] = parts[1].sum(axis=1) * launch + parts[3].sum(axis=1) * latency
    times[:, levels + 2] += late * device.library.late_launch[point]
    zeros = np.zeros(count, dtype=np.int64)
    return Launched(
        time=np.maximum(memory_time, vector_time).sum(axis=1) + times[:, levels + 2],
        times=times,
        bytes=served,
        tile=np.zeros((0, levels, 3), dtype=np.int64),
        parts=zeros,
        waves=zeros,
        busy=np.ones(count),
        energy_ratio=np.ones(count),
        executed=np.zeros(count),
        candidates=zeros,
    )
