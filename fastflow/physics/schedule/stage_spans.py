"""When each block of one point's pipeline runs, for a trace."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.schedule.pipeline_order import GPIPE
from fastflow.physics.schedule.stage_blocks import (
    SEND,
    WEIGHT,
    WORK,
    BlockPlan,
    Blocks,
    end_of,
    room_of,
    run_point,
)
from fastflow.physics.schedule.stage_order import group_of
from fastflow.physics.workload.graph import BACKWARD, FORWARD


class Spans(NamedTuple):
    """When each block of a point runs, stage by stage; shape (blocks,)."""

    start: Floats  # [s]
    end: Floats  # [s]
    kind: Ints  # FORWARD, BACKWARD or WEIGHT
    virtual: Ints  # virtual stage; it lies on stage `virtual % stages`
    microbatch: Ints


def block_spans(blocks: Blocks, plan: BlockPlan, point: int) -> Spans:
    """Return when the blocks of one point run: of each stage the forward and backward blocks, then others.

    Raises ValueError as `schedule_blocks` does.
    """
    return Spans(*_spans(blocks, plan, point))


@kernel
def _spans(blocks: Blocks, plan: BlockPlan, point: int) -> tuple[Floats, Floats, Ints, Ints, Ints]:
    """Return the fields of `Spans`."""
    order, microbatches = plan.order[point], plan.microbatches[point]
    room = room_of(blocks, plan, point, microbatches)
    run_point(blocks, plan, point, True, True, room)
    _, stages, steps = room.start.shape
    chunks = plan.chunks[point]
    group = group_of(order, stages, chunks, microbatches)
    times, numbers, count = np.empty((2, 3 * stages * steps)), np.empty((3, 3 * stages * steps), np.int64), 0
    for stage in range(stages):
        weight_s = room.weight_s[stage]
        for kind in (FORWARD, BACKWARD, WEIGHT):
            for step in range(steps if kind != WEIGHT or weight_s > 0.0 else 0):
                chunk, microbatch = room.chunk[step], step // (chunks * group) * group + step % group
                if kind != FORWARD:
                    chunk = chunks - 1 - chunk
                    microbatch = microbatches - 1 - microbatch if order == GPIPE else microbatch
                block = chunk * stages + stage
                if kind != WEIGHT:
                    start, lasts = room.start[kind, stage, step], room.times[kind, WORK, block]
                    if kind == FORWARD:
                        last = room.gathered[(chunks - 1) * stages + stage]
                        lasts = end_of(start, lasts, last, plan.taken[point]) - start
                elif step + stage < steps:
                    start = room.start[BACKWARD, stage, step + stage] + room.times[BACKWARD, WORK, block]
                    start, lasts = start + room.times[BACKWARD, SEND, block], weight_s
                else:
                    start, lasts = room.end[stage] - (steps - step) * weight_s, weight_s
                times[0, count], times[1, count] = start, start + lasts
                numbers[0, count], numbers[1, count], numbers[2, count] = kind, block, microbatch
                count += 1
    return times[0, :count], times[1, :count], numbers[0, :count], numbers[1, :count], numbers[2, :count]
