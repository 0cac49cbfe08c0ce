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

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.schedule.event_simulator import Tasks, simulate
from fastflow.physics.schedule.pipeline_order import GPIPE, block_at
from fastflow.physics.schedule.task_numbers import (
    BARRIER,
    GRADIENT,
    KERNEL,
    SEND,
    SYNC,
    Labels,
    Rows,
    TaskNumbers,
    label_tasks,
    number_tasks,
    stage_rows_of,
)
from fastflow.physics.workload.graph import BACKWARD, FORWARD, UPDATE

RESOURCES = 3
"""Of a stage: its kernels, its port within the package, its port between packages."""


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


class _Block(NamedTuple):
    """A phase of a micro-batch on a stage."""

    phase: int
    stage: int
    microbatch: int


@kernel
def _rows_of(kernels: TimedKernels, point: int) -> Rows:
    """Return the rows of a point; `number_tasks` writes their offsets."""
    rows = slice(kernels.offset[point], kernels.offset[point + 1])
    phase, stage = kernels.phase[rows], kernels.stage[rows]
    return Rows(
        phase=phase,
        stage=stage,
        side=kernels.side[rows],
        wait=kernels.wait[rows],
        sync=(kernels.sync_s[rows] > 0.0).astype(np.int64),
        has_sum=(kernels.gradient_s[rows] > 0.0) & (phase != UPDATE),
        offset=np.empty_like(phase),
    )


@lean_kernel
def _add_edge(edges: Ints, num_edges: int, task: int, needed_by: int) -> int:
    """Add an edge from a task to its successor, unless there is no task (-1); returns the number of edges."""
    if task < 0:
        return num_edges
    edges[0, num_edges], edges[1, num_edges] = task, needed_by
    return num_edges + 1


@lean_kernel
def _received_task(numbers: TaskNumbers, last_stage: int, block: _Block) -> int:
    """Return the task that a block waits for on another stage, or in the other phase; -1 for none.

    last_stage: of the forward pass, -1 for none.
    """
    rows, stage_rows, base, _, _ = numbers
    phase, stage, microbatch = block
    task, previous = -1, stage_rows.previous[phase, stage]
    if previous >= 0:
        sent = stage_rows.sender[phase, previous] >= 0
        row = stage_rows.sender[phase, previous] if sent else stage_rows.tail[phase, previous]
        task = base[phase, previous, microbatch] + rows.offset[row] + rows.sync[row] + sent
    elif phase == BACKWARD and last_stage >= 0:
        task = base[FORWARD, last_stage, microbatch] + rows.offset[stage_rows.tail[FORWARD, last_stage]]
    return task


@lean_kernel
def _add_block_edges(
    numbers: TaskNumbers, slots: int, block: _Block, chain: int, received: int, edges: Ints, num_edges: int
) -> tuple[int, int]:
    """Add the edges of a block.

    chain: the task that its stage did before; received: the task that it waits for on another stage; -1 for
    none. Returns the number of edges, and the task that the stage's next block is chained to.
    """
    rows, stage_rows, base, _, _ = numbers
    phase, stage, microbatch = block
    first, last, read = stage_rows.first[phase, stage], stage_rows.last[phase, stage], -1
    for row in range(first, last):
        task = base[phase, stage, microbatch] + rows.offset[row]
        if read < 0:
            num_edges = _add_edge(edges, num_edges, chain, task)
            num_edges = _add_edge(edges, num_edges, received, task)
        num_edges = _add_edge(edges, num_edges, read, task)
        if slots == 1 or not rows.side[row]:
            read = task
        if rows.sync[row] == 1:
            num_edges = _add_edge(edges, num_edges, task, task + 1)
            reader = row + rows.wait[row]
            if reader < rows.phase.size and rows.phase[reader] != UPDATE:
                reader_base = base[rows.phase[reader], rows.stage[reader], microbatch]
                num_edges = _add_edge(edges, num_edges, task + 1, reader_base + rows.offset[reader])
        if stage_rows.sender[phase, stage] == row:
            num_edges = _add_edge(edges, num_edges, task + rows.sync[row], task + rows.sync[row] + 1)
    if last > first:
        chain = read if slots == 1 else base[phase, stage, microbatch]
    return num_edges, chain


@lean_kernel
def _add_update_edges(numbers: TaskNumbers, chain: Ints, edges: Ints, num_edges: int) -> int:
    """Add the edges of update rows: those of a stage in their order, after the barrier; chain: (stages,)."""
    rows, count = numbers.rows, numbers.rows.phase.size
    chain[:] = numbers.barrier
    for row in range(count):
        if rows.phase[row] != UPDATE:
            continue
        task, stage = rows.offset[row], rows.stage[row]
        num_edges = _add_edge(edges, num_edges, chain[stage], task)
        chain[stage] = task
        if rows.sync[row] == 0:
            continue
        num_edges = _add_edge(edges, num_edges, task, task + 1)
        reader = row + rows.wait[row]
        if reader < count:
            num_edges = _add_edge(edges, num_edges, task + 1, rows.offset[reader])
            # a norm is of all stages: the rows after it on this stage need it too
            later_reader = reader
            while later_reader < count and rows.stage[later_reader] != stage:
                later_reader += 1
            if reader < later_reader < count:
                num_edges = _add_edge(edges, num_edges, task + 1, rows.offset[later_reader])
    return num_edges


@kernel
def _add_all_edges(numbers: TaskNumbers, last_stage: int, order: int, slots: int, edges: Ints) -> int:
    """Add the edges of all tasks of a point; returns the number of edges."""
    rows, _, base, barrier, _ = numbers
    _, stages, microbatches = base.shape
    none = 0 * barrier  # for a literal Numba would compile the functions that take it twice
    num_edges, gradient = none, barrier
    for stage in range(stages):
        chain = none - 1
        for index in range(2 * microbatches):
            phase, microbatch = block_at(order, stages, stage, microbatches, index)
            block = _Block(phase, stage, microbatch)
            received = _received_task(numbers, last_stage, block)
            num_edges, chain = _add_block_edges(numbers, slots, block, chain, received, edges, num_edges)
    for row in range(rows.phase.size - 1, -1, -1):
        if rows.has_sum[row]:
            phase, gradient = rows.phase[row], gradient - 1
            final = 0 if order == GPIPE and phase == BACKWARD else microbatches - 1
            last_task = base[phase, rows.stage[row], final] + rows.offset[row]
            num_edges = _add_edge(edges, num_edges, last_task, gradient)
    return _add_update_edges(numbers, np.empty(stages, dtype=np.int64), edges, num_edges)


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


@lean_kernel
def _assign_resources(
    kernels: TimedKernels, begin: int, labels: Labels, resource: Ints, background: Bools, durations: Floats
) -> None:
    """Write the resource of each task, whether it is a background task, and its durations."""
    for task in range(resource.size):
        kind, row = labels.kind[task], begin + labels.row[task]
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
    stages, order, slots = plan.stages[point], plan.order[point], plan.slots[point]
    begin, rows = kernels.offset[point], _rows_of(kernels, point)
    stage_rows, last_stage = stage_rows_of(rows, kernels.send_s[begin : kernels.offset[point + 1]], stages)
    numbers = number_tasks(rows, stage_rows, order, plan.microbatches[point])
    tasks, label_columns = numbers.tasks, np.empty((3, numbers.tasks), dtype=np.int64)
    labels = Labels(label_columns[0], label_columns[1], label_columns[2])
    label_tasks(numbers, labels)
    edges = np.empty((2, 4 * tasks), dtype=np.int64)
    num_edges = _add_all_edges(numbers, last_stage, order, slots, edges)
    needs, offset, successors = _to_csr(edges, num_edges, numbers.barrier, tasks)
    resource, background = np.empty(tasks, dtype=np.int64), np.empty(tasks, dtype=np.bool_)
    durations, capacity = np.empty((2, tasks)), np.ones(RESOURCES * stages, dtype=np.int64)
    _assign_resources(kernels, begin, labels, resource, background, durations)
    capacity[::RESOURCES] = slots
    graph = Tasks(
        resource=resource,
        background=background,
        needs=needs,
        offset=offset,
        successors=successors,
        capacity=capacity,
    )
    return graph, durations, labels


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
