"""Times of updates that iterate on whole matrices: Newton-Schulz iterations (Muon).

An iteration on a matrix of sides a <= b has three products: X X^T, the square of the result, and the sum of
both times X (Keller Jordan, kellerjordan.github.io/posts/muon): 4 a^2 b + 2 a^3 operations. They take the
time of their operations at the rate that products reach on a chip, or that of their operands from main
memory. None was measured.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.memory_bound import run_passes

PRODUCTS = 3.0  # of an iteration


def time_iterations(
    device: Device, point: Ints, *, sides: tuple[Ints, Ints], matrices: Floats, iterations: Floats,
    element: Floats, moved: Floats, passed: Floats,
) -> tuple[Launched, Floats]:  # fmt: skip
    """Return the launches of updates, and their operations [flop]; all columns are (kernels,).

    sides: of a matrix, the shorter first; matrices: of a device, or a share of one; element: of an operand
    [B]; moved: bytes of the passes beside the iterations; passed: their operations.
    """
    short, long = 1.0 * sides[0], 1.0 * sides[1]
    flop = matrices * iterations * (4.0 * short**2 * long + 2.0 * short**3)
    read = matrices * iterations * element * (3.0 * short * long + 4.0 * short**2)
    launches = PRODUCTS * iterations * np.ceil(matrices)
    passes = run_passes(
        device, point, moved=moved, launches=np.ones(point.size), operations=passed,
        trips=np.ones(point.size),
    )  # fmt: skip
    compute, memory = flop / device.matrix_flops[point], read / device.memories.bandwidth[point, -1]
    times, served = passes.times.copy(), passes.bytes + read[:, None]
    times[:, 0] += compute
    times[:, -2] += memory
    starting = launches * device.launch[point]
    times[:, -1] += starting
    time = passes.time + np.maximum(compute, memory) + starting
    return passes._replace(time=time, times=times, bytes=served), flop + passed
