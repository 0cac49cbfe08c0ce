"""Energy of one iteration: operations, bits moved at every level, running kernels, and rest."""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.hardware.power import Power, energy_per_byte, running_share
from fastflow.physics.timing.roofline import Timing
from fastflow.physics.workload.graph import Graph


def energy(
    chip: Chip,
    power: Power,
    operation: Floats,
    graph: Graph,
    launches: Ints,
    timing: Timing,
    slower: Bools | None,
    stages: Ints,
    time: Floats,
) -> Floats:
    """Return the energy of one iteration of one device, on average over the stages [J], shape (points,).

    operation: energy of an operation of a kernel [J], launches of it in an iteration, timing, and whether a
    power limit below the budget slows it down (None: none): a row a kernel of the graph; time of the
    iteration [s]: (points,). Operations cost more where busy cores have the power of idle ones
    (`tiling/boost.py`).

    A device regulates its mean power over milliseconds, while kernels take microseconds. So some may draw
    more than the limit as long as others draw less, and all of them together draw the limit at most. A
    kernel that is slowed down draws it. Between kernels, and while it waits, a device draws what it draws
    at rest, its links included.
    """
    if slower is None:
        slower = np.zeros(launches.size, dtype=np.bool_)
    total = _sum_kernels(
        graph.offset, launches, operation * timing.flop * timing.energy_ratio, timing.bytes,
        energy_per_byte(chip), timing.time, running_share(timing.busy), power.active,
        power.limit - power.idle, slower,
    )  # fmt: skip
    return total / stages + power.idle * time


@kernel
def _sum_kernels(
    offset: Ints, launches: Ints, joules: Floats, level_bytes: Floats, per_byte: Floats, times: Floats,
    running: Floats, active: Floats, most: Floats, slower: Bools,
) -> Floats:  # fmt: skip
    """Return the energy of the kernels of a point beyond that at rest [J], (points,).

    joules: of the operations of one launch; level_bytes: of one launch, (kernels, levels + 1); per_byte:
    (levels + 1, points); times: of one launch [s]; running: of a kernel, over active: power while a kernel
    runs on all bundles; most: of all kernels together, and of each that is slower.
    """
    points, levels = offset.size - 1, level_bytes.shape[1]
    total = np.zeros(points)
    for p in range(points):
        running_time = 0.0
        for row in range(offset[p], offset[p + 1]):
            launch = joules[row] + active[p] * running[row] * times[row]
            for level in range(levels):
                launch += per_byte[level, p] * level_bytes[row, level]
            if slower[row]:
                launch = min(launch, most[p] * times[row])
            total[p] += launches[row] * launch
            running_time += launches[row] * times[row]
        total[p] = min(total[p], most[p] * running_time)
    return total
