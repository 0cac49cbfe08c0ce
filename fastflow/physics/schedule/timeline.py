"""End-to-end time of one iteration: kernels on their devices, overlapped with the network (6.5).

A device runs its kernels in the graph's order. A collective occupies its network level for itself, and
the row that needs its result waits for it. Sums of weight gradients wait in a queue, and move while
no collective does on their level: frameworks send gradients in small buckets, so that a collective that
a kernel needs never waits for a whole layer's gradient. Clipping needs every gradient, so the update waits
for the sums that are queued after the backward pass.

For one device that runs a kernel at a time this is a walk through its rows; a pipeline, micro-batches
and several kernels at once are simulated event by event (`pipeline`, `event_simulator`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.schedule.pipeline import PipelinePlan, TimedKernels, run_pipelines
from fastflow.physics.workload.graph import BACKWARD, FORWARD, UPDATE

ROUNDING = 1e-12
"""Share of an iteration that a sum of its kernels may be off."""


class Timeline(NamedTuple):
    """When a point's phases are done; shape (points,), all [s]."""

    forward: Floats  # until the first backward kernel starts
    backward: Floats  # until the update could start: all before it is done, gradients are summed
    update: Floats
    exposed: Floats  # communication that overlaps with no kernel: the iteration without it is shorter by this
    bubble: Floats  # without communication, how long the busiest stage waits for others

    @property
    def total(self) -> Floats:
        """One iteration [s]."""
        return self.forward + self.backward + self.update

    def without_rounding(self) -> Timeline:
        """Return it with 0 where a difference of sums is within their rounding."""
        least = ROUNDING * self.total
        exposed, bubble = (np.where(part < least, 0.0, part) for part in (self.exposed, self.bubble))
        return self._replace(exposed=exposed, bubble=bubble)


def schedule(kernels: TimedKernels, plan: PipelinePlan) -> Timeline:
    """Return the time of each phase of every point, as `pipeline` runs a plan."""
    out = np.zeros((5, plan.stages.size))
    alone = (plan.stages == 1) & (plan.microbatches == 1) & (plan.slots == 1)
    _walk(kernels, np.flatnonzero(alone), out)
    if not alone.all():
        run_pipelines(kernels, plan, np.flatnonzero(~alone), out)
    return Timeline(
        forward=out[FORWARD], backward=out[BACKWARD], update=out[UPDATE], exposed=out[3], bubble=out[4]
    )


@kernel
def _walk(kernels: TimedKernels, points: Ints, out: Floats) -> None:
    """Walk through the rows of some points, each on one device, and write their phases; out: (5, points).

    A level is free of collectives from `free` on, and `queue` of gradient sums are left then: both are
    brought forward to the end of each kernel. A row starts when the row before it is done, and its
    collectives are: at `due`.
    """
    offset, phase, kernel_s, wait = kernels.offset, kernels.phase, kernels.kernel_s, kernels.wait
    sync_s, sync_level = kernels.sync_s, kernels.sync_level
    gradient_s, gradient_level = kernels.gradient_s, kernels.gradient_level
    free, queue = np.empty(2), np.empty(2)
    max_rows = 0
    for p in points:
        max_rows = max(max_rows, offset[p + 1] - offset[p])
    due = np.zeros(max_rows)
    for p in points:
        begin, end = offset[p], offset[p + 1]
        now, busy, forward, update = 0.0, 0.0, -1.0, -1.0
        free[:], queue[:] = 0.0, 0.0
        for row in range(begin, end):
            now, due[row - begin] = max(now, due[row - begin]), 0.0
            if phase[row] == BACKWARD and forward < 0.0:
                forward = now
            if phase[row] == UPDATE and update < 0.0:
                now = update = max(now, free[0] + queue[0], free[1] + queue[1])
                queue[:] = 0.0
            now += kernel_s[row]
            busy += kernel_s[row]
            for level in range(2):
                if now > free[level]:
                    queue[level] = max(queue[level] - (now - free[level]), 0.0)
                    free[level] = now
            if sync_s[row] > 0.0:
                free[sync_level[row]] += sync_s[row]
                if row + wait[row] < end:
                    reader = row + wait[row] - begin
                    due[reader] = max(due[reader], free[sync_level[row]])
            queue[gradient_level[row]] += gradient_s[row]
        total = max(now, free[0] + queue[0], free[1] + queue[1])
        update = update if update >= 0.0 else total
        forward = forward if forward >= 0.0 else update
        out[FORWARD, p], out[BACKWARD, p], out[UPDATE, p] = forward, update - forward, total - update
        out[3, p], out[4, p] = total - busy, 0.0
