"""One iteration of a pipeline as a task graph (3.3, 5.1, 6.5).

All replicas of a stage do the same at the same time, so a stage counts as one device: a resource for
its kernels, and a port to the network of each level, which its collectives and its sends share. A
device works through its blocks, the forward or the backward pass of one micro-batch, in an order of
`pipeline_order`.

With one slot, kernels run in the order of blocks and rows. With more, a row waits for its inputs: for
the row before it in its block (after several rows whose result the update alone reads, for the row
before these), for collectives, and for messages to its block; and blocks start in order: the first row of a
block after the first row of the block before.
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
"""Kinds of tasks. The barrier takes no time: it is where the update could start."""
RESOURCES = 3
"""Of a stage: its kernels, its port within the package, its port between packages."""

# The functions below pass plain tables to each other: a tuple of arrays costs at every call.
_PHASE, _STAGE, _SIDE, _WAIT, _SYNC, _SUM, _OFFSET = 0, 1, 2, 3, 4, 5, 6
"""Of a row, (7, rows): columns of `TimedKernels`; whether it has a collective, and a sum of gradients; its
kernel's offset in its block, or the task of an update row. A block lists each kernel, its collective, its
send."""
_FIRST, _LAST, _TAIL, _SENDER, _PREVIOUS = 0, 1, 2, 3, 4
"""Of a phase on a stage, (5, 2, stages): rows first to last; the last row that other rows read; the row that
is sent to the next stage, -1 for none; the previous stage of the phase, -1 for none."""


class TimedKernels(NamedTuple):
    """Kernels as an undivided device launches them, rows offset[p] to offset[p + 1] of point p.

    Forward rows of all layers, backward rows from the last layer to the first, update rows. A stage's rows
    of a phase are contiguous. Every array but `offset` has shape (kernels,).
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
    """Pipeline of a point's iteration; shape (points,)."""

    stages: Ints
    microbatches: Ints
    order: Ints  # GPIPE or ONE_F_ONE_B
    slots: Ints  # kernels that a device runs at once


class Labels(NamedTuple):
    """Kind, row and micro-batch of the tasks of a point; shape (tasks,)."""

    kind: Ints
    row: Ints  # of the point's rows, from 0; -1 for the barrier
    microbatch: Ints  # 0 for tasks that run once an iteration


@kernel
def _row_table(kernels: TimedKernels, point: int) -> Ints:
    """Return the rows of a point as its task graph needs them, (7, rows)."""
    begin, count = kernels.offset[point], kernels.offset[point + 1] - kernels.offset[point]
    rows = np.empty((7, count), dtype=np.int64)
    for row in range(count):
        rows[_PHASE, row], rows[_STAGE, row] = kernels.phase[begin + row], kernels.stage[begin + row]
        rows[_SIDE, row], rows[_WAIT, row] = kernels.side[begin + row], kernels.wait[begin + row]
        rows[_SYNC, row] = kernels.sync_s[begin + row] > 0.0
        rows[_SUM, row] = kernels.gradient_s[begin + row] > 0.0 and kernels.phase[begin + row] != UPDATE
    return rows


@kernel
def _block_table(rows: Ints, send_s: Floats, stages: int) -> tuple[Ints, int]:
    """Return the rows of every phase on every stage, and the last stage of the forward pass, -1 for none.

    send_s: of the point's rows.
    """
    blocks, last_stage = np.empty((5, 2, stages), dtype=np.int64), np.empty(2, dtype=np.int64)
    for phase in range(2):
        last_stage[phase] = -1
        for stage in range(stages):
            blocks[_FIRST, phase, stage] = blocks[_LAST, phase, stage] = 0
            blocks[_TAIL, phase, stage] = blocks[_SENDER, phase, stage] = blocks[_PREVIOUS, phase, stage] = -1
    for row in range(send_s.size):
        phase, stage = rows[_PHASE, row], rows[_STAGE, row]
        if phase == UPDATE:
            continue
        if stage != last_stage[phase]:
            blocks[_FIRST, phase, stage], blocks[_PREVIOUS, phase, stage] = row, last_stage[phase]
            last_stage[phase] = stage
        blocks[_LAST, phase, stage] = row + 1
        if rows[_SIDE, row] == 0 or blocks[_TAIL, phase, stage] < 0:
            blocks[_TAIL, phase, stage] = row
        if send_s[row] > 0.0:
            blocks[_SENDER, phase, stage] = row
    for phase in range(2):
        if last_stage[phase] >= 0:  # the last stage of a phase sends to no other
            blocks[_SENDER, phase, last_stage[phase]] = -1
    return blocks, last_stage[FORWARD]


@kernel
def _number_tasks(rows: Ints, blocks: Ints, order: int, base: Ints) -> tuple[int, int]:
    """Number a point's tasks; returns the barrier's number and how many tasks there are.

    The number is a task's rank in the queue for its resource: a stage's blocks in their order, then the
    gradient sums in the order of rows. base: the first task of each block, (2, stages, micro-batches).
    """
    stages, microbatches = base.shape[1:]
    size, sums = np.zeros((2, stages), dtype=np.int64), 0
    for row in range(rows.shape[1]):
        phase, stage = rows[_PHASE, row], rows[_STAGE, row]
        if phase != UPDATE:
            rows[_OFFSET, row] = size[phase, stage]
            size[phase, stage] += 1 + rows[_SYNC, row] + (blocks[_SENDER, phase, stage] == row)
            sums += rows[_SUM, row]
    tasks = 0
    for stage in range(stages):
        for index in range(2 * microbatches):
            phase, microbatch = block_at(order, stages, stage, microbatches, index)
            base[phase, stage, microbatch] = tasks
            tasks += size[phase, stage]
    barrier = tasks + sums
    tasks = barrier + 1
    for row in range(rows.shape[1]):
        if rows[_PHASE, row] == UPDATE:
            rows[_OFFSET, row] = tasks
            tasks += 1 + rows[_SYNC, row]
    return barrier, tasks


@kernel
def _label_tasks(rows: Ints, blocks: Ints, base: Ints, barrier: int, labels: Ints) -> None:
    """Write the kind, row and micro-batch of every task, as in `Labels`; (3, tasks)."""
    labels[0, barrier], labels[1, barrier], labels[2, barrier] = BARRIER, -1, 0
    gradient = barrier
    for row in range(rows.shape[1] - 1, -1, -1):
        phase, stage, sync = rows[_PHASE, row], rows[_STAGE, row], rows[_SYNC, row]
        sends = phase != UPDATE and blocks[_SENDER, phase, stage] == row
        for microbatch in range(1 if phase == UPDATE else base.shape[2]):
            task = rows[_OFFSET, row] + (0 if phase == UPDATE else base[phase, stage, microbatch])
            for i in range(task, task + 1 + sync + sends):
                kind = KERNEL if i == task else SYNC if sync == 1 and i == task + 1 else SEND
                labels[0, i], labels[1, i], labels[2, i] = kind, row, microbatch
        if rows[_SUM, row] == 1:
            gradient -= 1
            labels[0, gradient], labels[1, gradient], labels[2, gradient] = GRADIENT, row, 0


@kernel
def _add_edge(edges: Ints, num_edges: int, task: int, needed_by: int) -> int:
    """Add an edge from a task to its successor, unless there is no task (-1); returns the number of edges."""
    if task < 0:
        return num_edges
    edges[0, num_edges], edges[1, num_edges] = task, needed_by
    return num_edges + 1


@kernel
def _received_task(
    rows: Ints, blocks: Ints, base: Ints, last_stage: int, phase: int, stage: int, microbatch: int
) -> int:
    """Return the task that a block waits for on another stage, or in the other phase; -1 for none.

    last_stage: of the forward pass, -1 for none.
    """
    task, previous = -1, blocks[_PREVIOUS, phase, stage]
    if previous >= 0:
        sent = blocks[_SENDER, phase, previous] >= 0
        row = blocks[_SENDER, phase, previous] if sent else blocks[_TAIL, phase, previous]
        task = base[phase, previous, microbatch] + rows[_OFFSET, row] + rows[_SYNC, row] + sent
    elif phase == BACKWARD and last_stage >= 0:
        task = base[FORWARD, last_stage, microbatch] + rows[_OFFSET, blocks[_TAIL, FORWARD, last_stage]]
    return task


@kernel
def _add_block_edges(
    rows: Ints, blocks: Ints, base: Ints, slots: int, phase: int, stage: int, microbatch: int,
    chain: int, received: int, edges: Ints, num_edges: int,
) -> tuple[int, int]:  # fmt: skip
    """Add the edges of a block.

    chain: the task that its stage did before; received: the task that it waits for on another stage; -1 for
    none. Returns the number of edges, and the task that the stage's next block is chained to.
    """
    first, last, read = blocks[_FIRST, phase, stage], blocks[_LAST, phase, stage], -1
    for row in range(first, last):
        task = base[phase, stage, microbatch] + rows[_OFFSET, row]
        if read < 0:
            num_edges = _add_edge(edges, num_edges, chain, task)
            num_edges = _add_edge(edges, num_edges, received, task)
        num_edges = _add_edge(edges, num_edges, read, task)
        if slots == 1 or rows[_SIDE, row] == 0:
            read = task
        if rows[_SYNC, row] == 1:
            num_edges = _add_edge(edges, num_edges, task, task + 1)
            reader = row + rows[_WAIT, row]
            if reader < rows.shape[1] and rows[_PHASE, reader] != UPDATE:
                other = base[rows[_PHASE, reader], rows[_STAGE, reader], microbatch]
                num_edges = _add_edge(edges, num_edges, task + 1, other + rows[_OFFSET, reader])
        if blocks[_SENDER, phase, stage] == row:
            num_edges = _add_edge(edges, num_edges, task + rows[_SYNC, row], task + rows[_SYNC, row] + 1)
    if last > first:
        chain = read if slots == 1 else base[phase, stage, microbatch]
    return num_edges, chain


@kernel
def _add_update_edges(rows: Ints, barrier: int, stages: int, edges: Ints, num_edges: int) -> int:
    """Add the edges of update rows: those of a stage in their order, after the barrier."""
    count = rows.shape[1]
    chain = np.empty(stages, dtype=np.int64)
    for stage in range(stages):
        chain[stage] = barrier
    for row in range(count):
        if rows[_PHASE, row] != UPDATE:
            continue
        task, stage = rows[_OFFSET, row], rows[_STAGE, row]
        num_edges = _add_edge(edges, num_edges, chain[stage], task)
        chain[stage] = task
        if rows[_SYNC, row] == 0:
            continue
        num_edges = _add_edge(edges, num_edges, task, task + 1)
        reader = row + rows[_WAIT, row]
        if reader < count:
            num_edges = _add_edge(edges, num_edges, task + 1, rows[_OFFSET, reader])
            # a norm is of all stages: the rows after it on this stage need it too
            later_reader = reader
            while later_reader < count and rows[_STAGE, later_reader] != stage:
                later_reader += 1
            if reader < later_reader < count:
                num_edges = _add_edge(edges, num_edges, task + 1, rows[_OFFSET, later_reader])
    return num_edges


@kernel
def _add_all_edges(
    rows: Ints, blocks: Ints, base: Ints, last_stage: int, order: int, slots: int, barrier: int, edges: Ints
) -> int:
    """Add the edges of all tasks of a point; returns the number of edges."""
    _, stages, microbatches = base.shape
    none = 0 * barrier  # for a literal Numba would compile the functions that take it twice
    num_edges, gradient = none, barrier
    for stage in range(stages):
        chain = none - 1
        for index in range(2 * microbatches):
            phase, microbatch = block_at(order, stages, stage, microbatches, index)
            received = _received_task(rows, blocks, base, last_stage, phase, stage, microbatch)
            num_edges, chain = _add_block_edges(
                rows, blocks, base, slots, phase, stage, microbatch, chain, received, edges, num_edges
            )
    for row in range(rows.shape[1] - 1, -1, -1):
        if rows[_SUM, row] == 1:
            phase, gradient = rows[_PHASE, row], gradient - 1
            final = 0 if order == GPIPE and phase == BACKWARD else microbatches - 1
            last_task = base[phase, rows[_STAGE, row], final] + rows[_OFFSET, row]
            num_edges = _add_edge(edges, num_edges, last_task, gradient)
    return _add_update_edges(rows, barrier, stages, edges, num_edges)


@kernel
def _to_csr(edges: Ints, num_edges: int, barrier: int, tasks: int) -> tuple[Ints, Ints, Ints]:
    """Sort edges by task; returns needs, offset, successors. Tasks without successors precede the barrier."""
    offset, needs = np.zeros(tasks + 1, dtype=np.int64), np.zeros(tasks, dtype=np.int64)
    for edge in range(num_edges):
        offset[edges[0, edge] + 1] += 1
    for task in range(barrier):
        if offset[task + 1] == 0:
            offset[task + 1] = 1
            num_edges = _add_edge(edges, num_edges, task, barrier)
    for task in range(tasks):
        offset[task + 1] += offset[task]
    successors, next_edge = np.empty(num_edges, dtype=np.int64), offset.copy()
    for edge in range(num_edges):
        task, needed_by = edges[0, edge], edges[1, edge]
        successors[next_edge[task]] = needed_by
        next_edge[task] += 1
        needs[needed_by] += 1
    return needs, offset, successors


@kernel
def _assign_resources(
    kernels: TimedKernels, begin: int, labels: Ints, resource: Ints, background: Bools, durations: Floats
) -> None:
    """Write the resource of each task, whether it is a background task, and its durations."""
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
def build_task_graph(kernels: TimedKernels, plan: PipelinePlan, point: int) -> tuple[Tasks, Floats, Labels]:
    """Return the task graph of one point, its durations [s], and the labels of its tasks.

    Durations: (2, tasks), the second row without communication. Resource 3 s is the kernels of stage s,
    3 s + 1 and 3 s + 2 its ports within the package and between packages.
    """
    stages, microbatches, begin = plan.stages[point], plan.microbatches[point], kernels.offset[point]
    order, slots, rows = plan.order[point], plan.slots[point], _row_table(kernels, point)
    blocks, last_stage = _block_table(rows, kernels.send_s[begin : kernels.offset[point + 1]], stages)
    base = np.empty((2, stages, microbatches), dtype=np.int64)
    barrier, tasks = _number_tasks(rows, blocks, order, base)
    labels, edges = np.empty((3, tasks), dtype=np.int64), np.empty((2, 4 * tasks), dtype=np.int64)
    _label_tasks(rows, blocks, base, barrier, labels)
    num_edges = _add_all_edges(rows, blocks, base, last_stage, order, slots, barrier, edges)
    needs, offset, successors = _to_csr(edges, num_edges, barrier, tasks)
    resource, background = np.empty(tasks, dtype=np.int64), np.empty(tasks, dtype=np.bool_)
    durations, capacity = np.empty((2, tasks)), np.empty(RESOURCES * stages, dtype=np.int64)
    _assign_resources(kernels, begin, labels, resource, background, durations)
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
    """Simulate some points and write their phases; out [s]: (5, all points).

    Rows: forward, backward and update, exposed communication, and bubble, as `timeline.Timeline` says.
    """
    for point in points:
        tasks, durations, labels = build_task_graph(kernels, plan, point)
        start, end = simulate(tasks, durations)
        begin, busy = kernels.offset[point], np.zeros(plan.stages[point])
        forward, update, total, without_comm, busiest = np.inf, 0.0, 0.0, 0.0, 0.0
        for task in range(labels.kind.size):
            total, without_comm = max(total, end[0, task]), max(without_comm, end[1, task])
            if labels.kind[task] == KERNEL:
                row = begin + labels.row[task]
                busy[kernels.stage[row]] += kernels.kernel_s[row]
                busiest = max(busiest, busy[kernels.stage[row]])
                if kernels.phase[row] == BACKWARD:
                    forward = min(forward, start[0, task])
            elif labels.kind[task] == BARRIER:
                update = start[0, task]
        forward = min(forward, update)
        out[0, point], out[1, point], out[2, point] = forward, update - forward, total - update
        # with several slots, fewer waits can make a list schedule longer (Graham, 1969)
        out[3, point], out[4, point] = max(total - without_comm, 0.0), max(without_comm - busiest, 0.0)
