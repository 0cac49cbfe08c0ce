"""When each block of one point's pipeline runs, for a trace."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.schedule.pipeline_order import GPIPE, ZERO_BUBBLE
from fastflow.physics.schedule.stage_blocks import WEIGHT, BlockPlan, Blocks, new_workspace, run_point
from fastflow.physics.schedule.stage_order import check_order, group_of, in_flight
from fastflow.physics.schedule.stage_steps import SEND, WORK, forward_end
from fastflow.physics.workload.graph import BACKWARD, FORWARD


class Spans(NamedTuple):
    """When each block of a point runs, stage by stage; shape (blocks,)."""

    start: Floats  # [s]
    end: Floats  # [s]
    kind: Ints  # FORWARD, BACKWARD or WEIGHT
    virtual: Ints  # virtual stage, which runs on stage `virtual % stages`
    microbatch: Ints


def block_spans(blocks: Blocks, plan: BlockPlan, point: int) -> Spans:
    """Return when the blocks of one point run: of each stage forward, backward, then weight blocks.

    Raises ValueError as `schedule_blocks` does.
    """
    return Spans(*_spans(blocks, plan, point))


@kernel
def _spans(blocks: Blocks, plan: BlockPlan, point: int) -> tuple[Floats, Floats, Ints, Ints, Ints]:
    """Return the fields of `Spans`."""
    order, microbatches = plan.order[point], plan.microbatches[point]
    workspace = new_workspace(blocks, plan, point, microbatches)
    run_point(blocks, plan, point, True, True, workspace)
    _, stages, steps = workspace.start.shape
    chunks = plan.chunks[point]
    group = group_of(order, stages, chunks, microbatches)
    times, numbers, count = np.empty((2, 3 * stages * steps)), np.empty((3, 3 * stages * steps), np.int64), 0
    for stage in range(stages):
        weight_s = workspace.weight_s[stage]
        for kind in (FORWARD, BACKWARD, WEIGHT):
            for step in range(steps if kind != WEIGHT or weight_s > 0.0 else 0):
                chunk, microbatch = workspace.chunk[step], step // (chunks * group) * group + step % group
                if kind != FORWARD:
                    chunk = chunks - 1 - chunk
                    microbatch = microbatches - 1 - microbatch if order == GPIPE else microbatch
                block = chunk * stages + stage
                if kind != WEIGHT:
                    start, duration = workspace.start[kind, stage, step], workspace.times[kind, WORK, block]
                    if kind == FORWARD:
                        last = workspace.gathered[(chunks - 1) * stages + stage]
                        duration = forward_end(start, duration, last, plan.taken[point]) - start
                elif step + stage < steps:
                    start = workspace.start[BACKWARD, stage, step + stage]
                    start += workspace.times[BACKWARD, WORK, block]
                    start, duration = start + workspace.times[BACKWARD, SEND, block], weight_s
                else:
                    start, duration = workspace.end[stage] - (steps - step) * weight_s, weight_s
                times[0, count], times[1, count] = start, start + duration
                numbers[0, count], numbers[1, count], numbers[2, count] = kind, block, microbatch
                count += 1
    return times[0, :count], times[1, :count], numbers[0, :count], numbers[1, :count], numbers[2, :count]


@kernel
def block_sequence(order: int, stages: int, stage: int, chunks: int, microbatches: int) -> Ints:
    """Return the blocks of a stage in the order in which it runs them, (3, blocks).

    Rows: kind (FORWARD, BACKWARD, WEIGHT), chunk, micro-batch. WEIGHT blocks are those of ZERO_BUBBLE alone.
    Raises ValueError as `check_order` does.
    """
    check_order(order, stages, chunks, microbatches)
    steps, group = chunks * microbatches, group_of(order, stages, chunks, microbatches)
    is_split, most = order == ZERO_BUBBLE, in_flight(order, stages, stage, chunks, microbatches)
    sequence = np.empty((3, (3 if is_split else 2) * steps), dtype=np.int64)
    forward, backward, weight = 0, 0, 0
    for i in range(sequence.shape[1]):
        if forward < steps and forward - backward < most and not (is_split and weight + stage < backward):
            kind, k, forward = FORWARD, forward, forward + 1
        elif is_split and (weight + stage < backward or backward == steps):
            kind, k, weight = WEIGHT, weight, weight + 1
        else:
            kind, k, backward = BACKWARD, backward, backward + 1
        chunk, microbatch = (k // group) % chunks, k // (chunks * group) * group + k % group
        if kind != FORWARD:
            chunk = chunks - 1 - chunk
            microbatch = microbatches - 1 - microbatch if order == GPIPE else microbatch
        sequence[0, i], sequence[1, i], sequence[2, i] = kind, chunk, microbatch
    return sequence
