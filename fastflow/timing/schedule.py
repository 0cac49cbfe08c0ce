"""End-to-end time: kernels in order on a device, and its network beside them (6.5).

A device runs one kernel at a time, in the graph's order. A collective that the next kernel waits
for has the network to itself. Gradient collectives wait in a queue, and move while kernels run:
frameworks send gradients in small buckets, so that a collective that is waited for never stands
behind a whole layer's gradient. Clipping needs every gradient, so what is left in the queue after
the backward pass is waited for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.columns import Floats, Ints
from fastflow.workload.graph import BACKWARD, UPDATE


class Tasks(NamedTuple):
    """Kernels in order, rows offset[p] to offset[p+1] of point p; the others have shape (kernels,)."""

    offset: Ints
    phase: Ints
    kernel_s: Floats  # all launches
    sync_s: Floats  # collectives that are waited for, all launches
    gradient_s: Floats  # collective that may overlap


class Timeline(NamedTuple):
    """When a point's phases are done; shape (points,), all [s]."""

    forward: Floats
    backward: Floats
    update: Floats
    exposed: Floats  # communication that no kernel hides

    @property
    def total(self) -> Floats:
        """One iteration [s]."""
        return self.forward + self.backward + self.update


@kernel
def schedule(tasks: Tasks) -> Timeline:
    """Walk every point's kernels and return the time of each phase."""
    points = tasks.offset.size - 1
    phases = np.zeros((3, points))
    exposed = np.zeros(points)
    for p in range(points):
        queue = 0.0
        for row in range(tasks.offset[p], tasks.offset[p + 1]):
            if tasks.phase[row] == UPDATE and queue > 0.0:
                phases[BACKWARD, p] += queue
                exposed[p] += queue
                queue = 0.0
            phases[tasks.phase[row], p] += tasks.kernel_s[row] + tasks.sync_s[row]
            exposed[p] += tasks.sync_s[row]
            queue = max(queue - tasks.kernel_s[row], 0.0) + tasks.gradient_s[row]
        phases[BACKWARD, p] += queue
        exposed[p] += queue
    return Timeline(phases[0], phases[1], phases[2], exposed)
