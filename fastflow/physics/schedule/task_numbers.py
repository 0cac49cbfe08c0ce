"""Numbers of the tasks of a point's pipeline: of kernels, collectives, sends, sums of gradients.

A task's number is its rank in the queue for its resource, so that the lowest ready task is the next one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.schedule.pipeline_order import block_at
from fastflow.physics.workload.graph import FORWARD, UPDATE

KERNEL, SYNC, SEND, GRADIENT, BARRIER = 0, 1, 2, 3, 4
"""Kinds of tasks. The barrier takes no time: it is where the update could start."""


class Labels(NamedTuple):
    """Kind, row and micro-batch of the tasks of a point; shape (tasks,)."""

    kind: Ints
    row: Ints  # of the point's rows, from 0; -1 for the barrier
    microbatch: Ints  # 0 for tasks that run once an iteration


class Rows(NamedTuple):
    """The rows of a point as its task graph needs them; (rows,)."""

    phase: Ints
    stage: Ints
    side: Bools
    wait: Ints
    sync: Ints  # 1 where it has a collective, else 0
    has_sum: Bools  # whether it has a sum of gradients
    offset: Ints  # of its kernel's task in its block; of an update row the task


class StageRows(NamedTuple):
    """The rows of every phase on every stage; (2 phases, stages)."""

    first: Ints
    last: Ints  # end of the rows
    tail: Ints  # the last row that other rows read
    sender: Ints  # the row that is sent to the next stage, -1 for none
    previous: Ints  # the stage before it in the phase, -1 for none


class TaskNumbers(NamedTuple):
    """Numbers of a point's tasks. A block lists each kernel, its collective, its send."""

    rows: Rows
    stage_rows: StageRows
    base: Ints  # the first task of each block, (2 phases, stages, micro-batches)
    barrier: int
    tasks: int  # how many


@kernel
def stage_rows_of(rows: Rows, send_s: Floats, stages: int) -> tuple[StageRows, int]:
    """Return the rows of every phase on every stage, and the last stage of the forward pass, -1 for none.

    send_s: of the point's rows.
    """
    shape = (2, stages)
    none = np.full(shape, -1)
    stage_rows = StageRows(
        first=np.zeros(shape, dtype=np.int64),
        last=np.zeros(shape, dtype=np.int64),
        tail=none,
        sender=none.copy(),
        previous=none.copy(),
    )
    last_stage = np.full(2, -1)
    for row in range(send_s.size):
        phase, stage = rows.phase[row], rows.stage[row]
        if phase == UPDATE:
            continue
        if stage != last_stage[phase]:
            stage_rows.first[phase, stage], stage_rows.previous[phase, stage] = row, last_stage[phase]
            last_stage[phase] = stage
        stage_rows.last[phase, stage] = row + 1
        if not rows.side[row] or stage_rows.tail[phase, stage] < 0:
            stage_rows.tail[phase, stage] = row
        if send_s[row] > 0.0:
            stage_rows.sender[phase, stage] = row
    for phase in range(2):
        if last_stage[phase] >= 0:  # the last stage of a phase sends to no other
            stage_rows.sender[phase, last_stage[phase]] = -1
    return stage_rows, last_stage[FORWARD]


@kernel
def number_tasks(rows: Rows, stage_rows: StageRows, order: int, microbatches: int) -> TaskNumbers:
    """Number a point's tasks.

    The number is a task's rank in the queue for its resource: a stage's blocks in their order, then the
    gradient sums in the order of rows, the barrier, and the update rows.
    """
    count, stages = rows.phase.size, stage_rows.first.shape[1]
    size, sums = np.zeros((2, stages), dtype=np.int64), 0
    base = np.empty((2, stages, microbatches), dtype=np.int64)
    for row in range(count):
        phase, stage = rows.phase[row], rows.stage[row]
        if phase != UPDATE:
            rows.offset[row] = size[phase, stage]
            size[phase, stage] += 1 + rows.sync[row] + (stage_rows.sender[phase, stage] == row)
            sums += rows.has_sum[row]
    tasks = 0
    for stage in range(stages):
        for index in range(2 * microbatches):
            phase, microbatch = block_at(order, stages, stage, microbatches, index)
            base[phase, stage, microbatch] = tasks
            tasks += size[phase, stage]
    barrier = tasks + sums
    tasks = barrier + 1
    for row in range(count):
        if rows.phase[row] == UPDATE:
            rows.offset[row] = tasks
            tasks += 1 + rows.sync[row]
    return TaskNumbers(rows, stage_rows, base, barrier, tasks)


@lean_kernel
def label_tasks(numbers: TaskNumbers, labels: Labels) -> None:
    """Write the kind, row and micro-batch of every task."""
    rows, stage_rows, base, barrier, _ = numbers
    labels.kind[barrier], labels.row[barrier], labels.microbatch[barrier] = BARRIER, -1, 0
    gradient = barrier
    for row in range(rows.phase.size - 1, -1, -1):
        phase, stage, sync = rows.phase[row], rows.stage[row], rows.sync[row]
        sends = phase != UPDATE and stage_rows.sender[phase, stage] == row
        for microbatch in range(1 if phase == UPDATE else base.shape[2]):
            task = rows.offset[row] + (0 if phase == UPDATE else base[phase, stage, microbatch])
            for i in range(task, task + 1 + sync + sends):
                kind = KERNEL if i == task else SYNC if sync == 1 and i == task + 1 else SEND
                labels.kind[i], labels.row[i], labels.microbatch[i] = kind, row, microbatch
        if rows.has_sum[row]:
            gradient -= 1
            labels.kind[gradient], labels.row[gradient], labels.microbatch[gradient] = GRADIENT, row, 0
