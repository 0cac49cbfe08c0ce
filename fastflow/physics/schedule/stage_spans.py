"""When each block of one point's pipeline runs, for a trace."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.schedule.pipeline_order import GPIPE
from fastflow.physics.schedule.stage_blocks import (
    BlockPlan,
    Blocks,
    check_blocks,
    new_program,
    new_workspace,
    run_point,
    run_program,
)
from fastflow.physics.schedule.stage_order import group_of, is_program, virtual_stage
from fastflow.physics.schedule.stage_programs import CHUNK, KIND, MICROBATCH, WEIGHT
from fastflow.physics.schedule.stage_steps import SEND, WORK, forward_end
from fastflow.physics.workload.graph import BACKWARD, FORWARD


class Spans(NamedTuple):
    """When each block of a point runs, stage by stage; shape (blocks,)."""

    start: Floats  # [s]
    end: Floats  # [s]
    kind: Ints  # FORWARD, BACKWARD or WEIGHT
    virtual: Ints  # virtual stage, which runs on `stage_of` it
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
    stages, chunks = plan.stages[point], plan.chunks[point]
    check_blocks(blocks, plan, point, microbatches)
    size = 3 * stages * chunks * microbatches
    times, numbers = np.empty((2, size)), np.empty((3, size), np.int64)
    if is_program(order, stages, chunks, microbatches):
        count = _program_spans(blocks, plan, point, times, numbers)
    else:
        count = _step_spans(blocks, plan, point, times, numbers)
    return times[0, :count], times[1, :count], numbers[0, :count], numbers[1, :count], numbers[2, :count]


@kernel
def _program_spans(blocks: Blocks, plan: BlockPlan, point: int, times: Floats, numbers: Ints) -> int:
    """Write the spans of a point whose stages have programs; return their number."""
    workspace, count = new_program(blocks, plan, point), 0
    run_program(blocks, plan, point, True, True, workspace)
    for stage in range(workspace.length.size):
        for sought in (FORWARD, BACKWARD, WEIGHT):
            for i in range(workspace.length[stage]):
                kind, chunk = workspace.blocks[stage, KIND, i], workspace.blocks[stage, CHUNK, i]
                virtual = virtual_stage(workspace.order, workspace.length.size, stage, chunk)
                if kind != sought or (kind == WEIGHT and workspace.weight_s[virtual] == 0.0):
                    continue
                times[0, count], times[1, count] = workspace.start[stage, i], workspace.end[stage, i]
                numbers[0, count], numbers[1, count] = kind, virtual
                numbers[2, count] = workspace.blocks[stage, MICROBATCH, i]
                count += 1
    return count


@kernel
def _step_spans(blocks: Blocks, plan: BlockPlan, point: int, times: Floats, numbers: Ints) -> int:
    """Write the spans of a point whose stages run the same steps; return their number."""
    order, microbatches = plan.order[point], plan.microbatches[point]
    workspace = new_workspace(blocks, plan, point, microbatches)
    run_point(blocks, plan, point, True, True, workspace)
    _, stages, steps = workspace.start.shape
    chunks, count = plan.chunks[point], 0
    group = group_of(order, stages, chunks, microbatches)
    for stage in range(stages):
        weight_s, delay = workspace.weight_s[stage], workspace.delay[stage]
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
                elif step + delay < steps:
                    start = workspace.start[BACKWARD, stage, step + delay]
                    start += workspace.times[BACKWARD, WORK, block]
                    start, duration = start + workspace.times[BACKWARD, SEND, block], weight_s
                else:
                    start, duration = workspace.end[stage] - (steps - step) * weight_s, weight_s
                times[0, count], times[1, count] = start, start + duration
                numbers[0, count], numbers[1, count], numbers[2, count] = kind, block, microbatch
                count += 1
    return count
