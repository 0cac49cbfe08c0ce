"""One iteration of a pipeline as a task graph (3.3, 5.1, 6.5).

All replicas of a stage do the same at the same time, so a stage counts as one device: a resource for
its kernels, and a port to the network of each level, which its collectives and its sends share. A
device works through its blocks, the forward or the backward pass of one micro-batch, in an order of
`pipeline_order`.

With one slot, kernels run in the order of blocks and rows. With more, a row waits for what it reads: for
the row before it in its block (of several rows whose result the update alone reads, for the one before
those), for collectives, and for what its block receives; and blocks start in order: the first row of one
after the first row of the one before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.schedule.event_simulator import Tasks, simulate
from fastflow.physics.schedule.pipeline_order import GPIPE, block_at
from fastflow.physics.workload.graph import BACKWARD, FORWARD, UPDATE

KERNEL, SYNC, SEND, GRADIENT, BARRIER = 0, 1, 2, 3, 4
"""What a task is. The barrier takes no time: it is where the update could start."""
RESOURCES = 3
"""Of a stage: its kernels, its port within the package, its port between packages."""

# What the parts of this file pass on is kept in plain tables: a tuple of arrays costs at every call.
_PHASE, _STAGE, _SIDE, _WAIT, _SYNC, _SUM, _LOCAL = 0, 1, 2, 3, 4, 5, 6
"""Of a row, (7, rows): columns of `TimedKernels`; whether it has a collective, and a sum of gradients; its
kernel's place in its block, or the task of an update row. A block lists each kernel, its collective, its
send."""
_FIRST, _LAST, _TAIL, _LEAVES, _BEFORE = 0, 1, 2, 3, 4
"""Of a phase on a stage, (5, 2, stages): rows first to last; the last row that other rows read; the row that
is sent to the next stage, -1 for none; the stage that the phase comes from, -1 for none."""


class TimedKernels(NamedTuple):
    """Kernels as an undivided device launches them, rows offset[p] to offset[p + 1] of point p.

    Forward rows of all layers, backward rows from the last layer to the first, update rows. A stage's rows
    of a phase are next to each other. Every array but `offset` has shape (kernels,).
    """

    offset: Ints
    phase: Ints  # FORWARD, BACKWARD or UPDATE
    stage: Ints  # of the pipeline, from 0
    side: Bools  # only the update reads the result (a weight gradient)
    kernel_s: Floats  # all launches of one micro-batch; update rows: of the iteration
    sync_s: Floats  # the collective after the kernel, all launches of one micro-batch
    sync_level: Ints  # network it moves on: 0 within the package, 1 between packages
    wait: Ints  # the collective is needed by the row this many rows later, at least 1
    gradient_s: Floats  # sum of weight gradients after the last micro-batch; 0 on update rows
    gradient_level: Ints
    send_s: Floats  # if the row's result leaves its layer: to the neighbouring stage, one micro-batch
    send_level: Ints


class PipelinePlan(NamedTuple):
    """How a point's iteration is run; shape (points,)."""

    stages: Ints
    microbatches: Ints
    order: Ints  # GPIPE or ONE_F_ONE_B
    slots: Ints  # kernels that a device runs at once


class Labels(NamedTuple):
    """What the tasks of a point are; shape (tasks,)."""

    kind: Ints
    row: Ints  # of the point's rows, from 0; -1 for the barrier
    microbatch: Ints  # 0 for what runs once an iteration


@kernel
def _rows_of(kernels: TimedKernels, point: int) -> Ints:
    """Return what the task graph of a point depends on, (7, rows)."""
    begin, count = kernels.offset[point], kernels.offset[point + 1] - kernels.offset[point]
    rows = np.empty((7, count), dtype=np.int64)
    for row in range(count):
        rows[_PHASE, row], rows[_STAGE, row] = kernels.phase[begin + row], kernels.stage[begin + row]
        rows[_SIDE, row], rows[_WAIT, row] = kernels.side[begin + row], kernels.wait[begin + row]
        rows[_SYNC, row] = kernels.sync_s[begin + row] > 0.0
        rows[_SUM, row] = kernels.gradient_s[begin + row] > 0.0 and kernels.phase[begin + row] != UPDATE
    return rows


@kernel
def _find_blocks(rows: Ints, send_s: Floats, stages: int) -> tuple[Ints, int]:
    """Find the rows of every phase on every stage, and the stage where the forward pass ends, -1 for none.

    send_s: of the point's rows.
    """
    blocks, last_stage = np.empty((5, 2, stages), dtype=np.int64), np.empty(2, dtype=np.int64)
    for phase in range(2):
        last_stage[phase] = -1
        for stage in range(stages):
            blocks[_FIRST, phase, stage] = blocks[_LAST, phase, stage] = 0
            blocks[_TAIL, phase, stage] = blocks[_LEAVES, phase, stage] = blocks[_BEFORE, phase, stage] = -1
    for row in range(send_s.size):
        phase, stage = rows[_PHASE, row], rows[_STAGE, row]
        if phase == UPDATE:
            continue
        if stage != last_stage[phase]:
            blocks[_FIRST, phase, stage], blocks[_BEFORE, phase, stage] = row, last_stage[phase]
            last_stage[phase] = stage
        blocks[_LAST, phase, stage] = row + 1
        if rows[_SIDE, row] == 0 or blocks[_TAIL, phase, stage] < 0:
            blocks[_TAIL, phase, stage] = row
        if send_s[row] > 0.0:
            blocks[_LEAVES, phase, stage] = row
    for phase in range(2):
        if last_stage[phase] >= 0:  # where a phase ends there is nobody to send to
            blocks[_LEAVES, phase, last_stage[phase]] = -1
    return blocks, last_stage[FORWARD]


@kernel
def _number(rows: Ints, blocks: Ints, order: int, base: Ints) -> tuple[int, int]:
    """Number a point's tasks; returns the barrier's number and how many tasks there are.

    The number is a task's rank in the queue for its resource: a stage's blocks in their order, then the
    gradient sums in the order of rows. base: the first task of each block, (2, stages, micro-batches).
    """
    stages, microbatches = base.shape[1:]
    size, sums = np.zeros((2, stages), dtype=np.int64), 0
    for row in range(rows.shape[1]):
        phase, stage = rows[_PHASE, row], rows[_STAGE, row]
        if phase != UPDATE:
            rows[_LOCAL, row] = size[phase, stage]
            size[phase, stage] += 1 + rows[_SYNC, row] + (blocks[_LEAVES, phase, stage] == row)
            sums += rows[_SUM, row]
    tasks = 0
    for stage in range(stages):
        for place in range(2 * microbatches):
            phase, microbatch = block_at(order, stages, stage, microbatches, place)
            base[phase, stage, microbatch] = tasks
            tasks += size[phase, stage]
    barrier = tasks + sums
    tasks = barrier + 1
    for row in range(rows.shape[1]):
        if rows[_PHASE, row] == UPDATE:
            rows[_LOCAL, row] = tasks
            tasks += 1 + rows[_SYNC, row]
    return barrier, tasks


@kernel
def _label(rows: Ints, blocks: Ints, base: Ints, barrier: int, labels: Ints) -> None:
    """Say what every task is: its kind, row and micro-batch, as in `Labels`; (3, tasks)."""
    labels[0, barrier], labels[1, barrier], labels[2, barrier] = BARRIER, -1, 0
    gradient = barrier
    for row in range(rows.shape[1] - 1, -1, -1):
        phase, stage, sync = rows[_PHASE, row], rows[_STAGE, row], rows[_SYNC, row]
        sends = phase != UPDATE and blocks[_LEAVES, phase, stage] == row
        for microbatch in range(1 if phase == UPDATE else base.shape[2]):
            task = rows[_LOCAL, row] + (0 if phase == UPDATE else base[phase, stage, microbatch])
            for i in range(task, task + 1 + sync + sends):
                kind = KERNEL if i == task else SYNC if sync == 1 and i == task + 1 else SEND
                labels[0, i], labels[1, i], labels[2, i] = kind, row, microbatch
        if rows[_SUM, row] == 1:
            gradient -= 1
            labels[0, gradient], labels[1, gradient], labels[2, gradient] = GRADIENT, row, 0


@kernel
def _join(edges: Ints, joined: int, task: int, needed_by: int) -> int:
    """Let a task wait for another one, unless that is none (-1); returns how many edges there are."""
    if task < 0:
        return joined
    edges[0, joined], edges[1, joined] = task, needed_by
    return joined + 1


@kernel
def _received(
    rows: Ints, blocks: Ints, base: Ints, turn: int, phase: int, stage: int, microbatch: int
) -> int:
    """Return the task that a block waits for on another stage, or in the other phase; -1 for none.

    turn: the stage where the forward pass ends.
    """
    task, before = -1, blocks[_BEFORE, phase, stage]
    if before >= 0:
        sent = blocks[_LEAVES, phase, before] >= 0
        row = blocks[_LEAVES, phase, before] if sent else blocks[_TAIL, phase, before]
        task = base[phase, before, microbatch] + rows[_LOCAL, row] + rows[_SYNC, row] + sent
    elif phase == BACKWARD and turn >= 0:
        task = base[FORWARD, turn, microbatch] + rows[_LOCAL, blocks[_TAIL, FORWARD, turn]]
    return task


@kernel
def _join_block(
    rows: Ints, blocks: Ints, base: Ints, slots: int, phase: int, stage: int, microbatch: int,
    chain: int, received: int, edges: Ints, joined: int,
) -> tuple[int, int]:  # fmt: skip
    """Join the tasks of a block; chain: what its stage did before, received: from another one, -1 for none.

    Returns how many edges there are, and what the stage's next block is chained to.
    """
    first, last, read = blocks[_FIRST, phase, stage], blocks[_LAST, phase, stage], -1
    for row in range(first, last):
        task = base[phase, stage, microbatch] + rows[_LOCAL, row]
        if read < 0:
            joined = _join(edges, joined, chain, task)
            joined = _join(edges, joined, received, task)
        joined = _join(edges, joined, read, task)
        if slots == 1 or rows[_SIDE, row] == 0:
            read = task
        if rows[_SYNC, row] == 1:
            joined = _join(edges, joined, task, task + 1)
            reader = row + rows[_WAIT, row]
            if reader < rows.shape[1] and rows[_PHASE, reader] != UPDATE:
                other = base[rows[_PHASE, reader], rows[_STAGE, reader], microbatch]
                joined = _join(edges, joined, task + 1, other + rows[_LOCAL, reader])
        if blocks[_LEAVES, phase, stage] == row:
            joined = _join(edges, joined, task + rows[_SYNC, row], task + rows[_SYNC, row] + 1)
    if last > first:
        chain = read if slots == 1 else base[phase, stage, microbatch]
    return joined, chain


@kernel
def _join_update(rows: Ints, barrier: int, stages: int, edges: Ints, joined: int) -> int:
    """Join the update rows: those of a stage in their order, after the barrier."""
    count = rows.shape[1]
    chain = np.empty(stages, dtype=np.int64)
    for stage in range(stages):
        chain[stage] = barrier
    for row in range(count):
        if rows[_PHASE, row] != UPDATE:
            continue
        task, stage = rows[_LOCAL, row], rows[_STAGE, row]
        joined = _join(edges, joined, chain[stage], task)
        chain[stage] = task
        if rows[_SYNC, row] == 0:
            continue
        joined = _join(edges, joined, task, task + 1)
        reader = row + rows[_WAIT, row]
        if reader < count:
            joined = _join(edges, joined, task + 1, rows[_LOCAL, reader])
            # a norm is that of all stages: what follows it on this one needs it too
            beside = reader
            while beside < count and rows[_STAGE, beside] != stage:
                beside += 1
            if reader < beside < count:
                joined = _join(edges, joined, task + 1, rows[_LOCAL, beside])
    return joined


@kernel
def _join_all(
    rows: Ints, blocks: Ints, base: Ints, turn: int, order: int, slots: int, barrier: int, edges: Ints
) -> int:
    """Join the tasks of a point; returns how many edges there are."""
    _, stages, microbatches = base.shape
    none = 0 * barrier  # for a literal Numba would compile what it is passed to twice
    joined, gradient = none, barrier
    for stage in range(stages):
        chain = none - 1
        for place in range(2 * microbatches):
            phase, microbatch = block_at(order, stages, stage, microbatches, place)
            received = _received(rows, blocks, base, turn, phase, stage, microbatch)
            joined, chain = _join_block(
                rows, blocks, base, slots, phase, stage, microbatch, chain, received, edges, joined
            )
    for row in range(rows.shape[1] - 1, -1, -1):
        if rows[_SUM, row] == 1:
            phase, gradient = rows[_PHASE, row], gradient - 1
            final = 0 if order == GPIPE and phase == BACKWARD else microbatches - 1
            joined = _join(edges, joined, base[phase, rows[_STAGE, row], final] + rows[_LOCAL, row], gradient)
    return _join_update(rows, barrier, stages, edges, joined)


@kernel
def _pack(edges: Ints, joined: int, barrier: int, tasks: int) -> tuple[Ints, Ints, Ints]:
    """Sort edges into rows; returns needs, offset and successors. What nobody waits for, the barrier does."""
    offset, needs = np.zeros(tasks + 1, dtype=np.int64), np.zeros(tasks, dtype=np.int64)
    for edge in range(joined):
        offset[edges[0, edge] + 1] += 1
    for task in range(barrier):
        if offset[task + 1] == 0:
            offset[task + 1] = 1
            joined = _join(edges, joined, task, barrier)
    for task in range(tasks):
        offset[task + 1] += offset[task]
    successors, place = np.empty(joined, dtype=np.int64), offset.copy()
    for edge in range(joined):
        task, needed_by = edges[0, edge], edges[1, edge]
        successors[place[task]] = needed_by
        place[task] += 1
        needs[needed_by] += 1
    return needs, offset, successors


@kernel
def _occupy(
    kernels: TimedKernels, begin: int, labels: Ints, resource: Ints, background: Bools, durations: Floats
) -> None:
    """Write which resource each task occupies, whether in the background, and for how long."""
    for task in range(resource.size):
        kind, row = labels[0, task], begin + labels[1, task]
        resource[task] = 0 if kind == BARRIER else RESOURCES * kernels.stage[row]
        background[task] = kind == GRADIENT
        durations[0, task] = durations[1, task] = 0.0
        if kind == KERNEL:
            durations[0, task] = durations[1, task] = kernels.kernel_s[row]
        elif kind == SYNC:
            resource[task] += 1 + kernels.sync_level[row]
            durations[0, task] = kernels.sync_s[row]
        elif kind == SEND:
            resource[task] += 1 + kernels.send_level[row]
            durations[0, task] = kernels.send_s[row]
        elif kind == GRADIENT:
            resource[task] += 1 + kernels.gradient_level[row]
            durations[0, task] = kernels.gradient_s[row]


@kernel
def tasks_of(kernels: TimedKernels, plan: PipelinePlan, point: int) -> tuple[Tasks, Floats, Labels]:
    """Return the task graph of one point, its durations [s], and what its tasks are.

    Durations: (2, tasks), the second row without communication. Resource 3 s is the kernels of stage s,
    3 s + 1 and 3 s + 2 its ports within the package and between packages.
    """
    stages, microbatches, begin = plan.stages[point], plan.microbatches[point], kernels.offset[point]
    order, slots, rows = plan.order[point], plan.slots[point], _rows_of(kernels, point)
    blocks, turn = _find_blocks(rows, kernels.send_s[begin : kernels.offset[point + 1]], stages)
    base = np.empty((2, stages, microbatches), dtype=np.int64)
    barrier, tasks = _number(rows, blocks, order, base)
    labels, edges = np.empty((3, tasks), dtype=np.int64), np.empty((2, 4 * tasks), dtype=np.int64)
    _label(rows, blocks, base, barrier, labels)
    joined = _join_all(rows, blocks, base, turn, order, slots, barrier, edges)
    needs, offset, successors = _pack(edges, joined, barrier, tasks)
    resource, background = np.empty(tasks, dtype=np.int64), np.empty(tasks, dtype=np.bool_)
    durations, capacity = np.empty((2, tasks)), np.empty(RESOURCES * stages, dtype=np.int64)
    _occupy(kernels, begin, labels, resource, background, durations)
    for i in range(capacity.size):
        capacity[i] = slots if i % RESOURCES == 0 else 1
    graph = Tasks(
        resource=resource,
        background=background,
        needs=needs,
        offset=offset,
        successors=successors,
        capacity=capacity,
    )
    return graph, durations, Labels(labels[0], labels[1], labels[2])


@kernel
def run_pipelines(kernels: TimedKernels, plan: PipelinePlan, points: Ints, out: Floats) -> None:
    """Simulate the given points and write their phases; out [s]: (5, all points).

    Rows: forward, backward and update, exposed communication, and bubble, as `timeline.Timeline` says.
    """
    for point in points:
        tasks, durations, labels = tasks_of(kernels, plan, point)
        start, end = simulate(tasks, durations)
        begin, busy = kernels.offset[point], np.zeros(plan.stages[point])
        turn, until, total, bare, busiest = np.inf, 0.0, 0.0, 0.0, 0.0
        for task in range(labels.kind.size):
            total, bare = max(total, end[0, task]), max(bare, end[1, task])
            if labels.kind[task] == KERNEL:
                row = begin + labels.row[task]
                busy[kernels.stage[row]] += kernels.kernel_s[row]
                busiest = max(busiest, busy[kernels.stage[row]])
                if kernels.phase[row] == BACKWARD:
                    turn = min(turn, start[0, task])
            elif labels.kind[task] == BARRIER:
                until = start[0, task]
        turn = min(turn, until)
        out[0, point], out[1, point], out[2, point] = turn, until - turn, total - until
        # with several slots, less to wait for can make a list schedule longer (Graham, 1969)
        out[3, point], out[4, point] = max(total - bare, 0.0), max(bare - busiest, 0.0)
