"""Passes that types of kernel time themselves: memory-bound, with launches and trips through the memories."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched


def run_passes(
    device: Device, point: Ints, *, moved: Floats, launches: Floats, operations: Floats, trips: Floats
) -> Launched:
    """Return how passes run, one or several of each kernel: columns are (kernels,) or (kernels, passes).

    point: of the device. A pass takes the longer of its bytes from main memory [B] and its operations on
    vector lanes, and trips through all memories, one after the other; a launch its overhead. Where nothing is
    launched nothing is done.
    """
    count, levels = point.size, len(device.capacity)
    parts = [column.reshape(count, -1) for column in (moved, launches, operations, trips)]
    at_main, of_lanes = (
        parts[0] / device.dram_bandwidth[point, None],
        parts[2] / device.vector_flops[point, None],
    )
    served, times = np.zeros((count, levels + 1)), np.zeros((count, levels + 3))
    served[:] = parts[0].sum(axis=1, keepdims=True)
    times[:, 0], times[:, levels + 1] = of_lanes.sum(axis=1), at_main.sum(axis=1)
    launch, latency = device.library.launch[point], device.library.latency[point]
    times[:, levels + 2] = parts[1].sum(axis=1) * launch + parts[3].sum(axis=1) * latency
    none = np.zeros(count, dtype=np.int64)
    return Launched(
        time=np.maximum(at_main, of_lanes).sum(axis=1) + times[:, levels + 2],
        times=times,
        bytes=served,
        tile=np.zeros((0, levels, 3), dtype=np.int64),
        parts=none,
        waves=none,
        busy=np.ones(count),
        lift=np.ones(count),
        candidates=none,
    )
