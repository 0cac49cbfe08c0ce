"""Energy of one iteration: operations, bits moved at every level, bits sent, and standing power."""

from __future__ import annotations

from fastflow.columns import Floats
from fastflow.hardware.chip import Chip
from fastflow.timing.roofline import Timing
from fastflow.workload.graph import Graph, sum_by_point


def energy(chip: Chip, rate: Floats, graph: Graph, timing: Timing, sent: Floats, time: Floats) -> Floats:
    """Return the energy of one iteration of one device [J], shape (points,).

    rate: peak of the units that a kernel computes on [flop/s], and timing: a row a kernel of the
    graph; sent: bytes on the network [B], time of the iteration [s]: (points,). An operation costs the
    cores' power at the operating point over that rate; cores are idle for free between kernels, while
    the memories' leakage, controllers and standby last as long as the iteration.
    """
    dynamic = [level.dynamic_energy for level in chip.levels] + [chip.dram.energy]
    static = sum((level.design.static_power for level in chip.levels), chip.dram.static_power)
    total = chip.core_power * sum_by_point(graph, graph.repeat * timing.flop / rate)
    for level, per_bit in enumerate(dynamic):
        total = total + 8.0 * per_bit * sum_by_point(graph, graph.repeat * timing.bytes[:, level])
    return total + 8.0 * chip.inter.energy * sent + static * time
