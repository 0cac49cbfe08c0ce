"""Energy of one iteration: operations, bits moved at every level, bits sent, and standing power."""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.timing.roofline import Timing
from fastflow.physics.workload.graph import Graph


def energy(
    chip: Chip,
    rate: Floats,
    graph: Graph,
    launches: Ints,
    timing: Timing,
    sent: tuple[Floats, Floats],
    stages: Ints,
    time: Floats,
) -> Floats:
    """Return the energy of one iteration of one device, on average over the stages [J], shape (points,).

    rate: peak of the units that a kernel computes on [flop/s], launches of it in an iteration, and timing:
    a row a kernel of the graph; sent: bytes on the network within the package and between packages, of
    all stages [B], time of the iteration [s]: (points,). An operation costs the cores' power at the
    operating point over that rate, more where busy cores have the power of idle ones (`tiling/boost.py`);
    cores draw nothing between kernels, while the memories' leakage, controllers and standby power last as
    long as the iteration.
    """
    dynamic = [level.dynamic_energy for level in chip.levels] + [chip.dram.energy]
    static = sum((level.design.static_power for level in chip.levels), chip.dram.static_power)
    busy, moved = _sum_kernels(graph.offset, launches, rate, timing.flop * timing.energy_ratio, timing.bytes)
    total = chip.core_power * busy
    for level, per_bit in enumerate(dynamic):
        total = total + 8.0 * per_bit * moved[level]
    for link, bytes_sent in zip((chip.intra, chip.inter), sent, strict=True):
        total = total + 8.0 * link.energy * bytes_sent
    return total / stages + static * time


@kernel
def _sum_kernels(
    offset: Ints, launches: Ints, rate: Floats, flop: Floats, level_bytes: Floats
) -> tuple[Floats, Floats]:
    """Return the time of a point's operations at the full rate [s], (points,), and the bytes moved.

    flop: of one launch, raised by the energy of boosted cores; level_bytes: of one launch, (kernels, levels +
    1). The bytes moved are of all launches, (levels + 1, points).
    """
    points, levels = offset.size - 1, level_bytes.shape[1]
    busy, moved = np.zeros(points), np.zeros((levels, points))
    for p in range(points):
        for row in range(offset[p], offset[p + 1]):
            busy[p] += launches[row] * flop[row] / rate[row]
            for level in range(levels):
                moved[level, p] += launches[row] * level_bytes[row, level]
    return busy, moved
