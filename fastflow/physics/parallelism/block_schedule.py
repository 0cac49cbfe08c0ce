"""When each block and each sum of weight gradients of one point runs, delays by overlapping sums included."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.physics.parallelism.stage_times import PipelineBlocks
from fastflow.physics.schedule.stage_order import stage_of
from fastflow.physics.schedule.stage_spans import block_spans
from fastflow.physics.workload.graph import FORWARD

Span = tuple[float, float]
"""Start and end [s]."""


class ScheduledBlock(NamedTuple):
    """A micro-batch in a virtual stage."""

    start: float  # [s]
    end: float
    kind: int  # FORWARD, BACKWARD or WEIGHT
    virtual: int  # virtual stage
    stage: int  # that runs it
    microbatch: int


class GradientSum(NamedTuple):
    """Time span of the gradient sum of a virtual stage, and the delay of blocks of its stage [s]."""

    stage: int
    start: float
    end: float
    end_delay: float  # of the end of the last backward block
    next_delay: float  # of the blocks after it


class BlockSchedule(NamedTuple):
    """The blocks of all stages of a point, by their starts, and the sums of virtual stages."""

    blocks: list[ScheduledBlock]
    sums: dict[int, GradientSum]


def block_schedule(stacks: PipelineBlocks, point: int) -> BlockSchedule:
    """Return when the blocks and sums of a point run; raises ValueError as `schedule_blocks` does."""
    stages, order, all_blocks = int(stacks.plan.stages[point]), int(stacks.plan.order[point]), []
    spans = block_spans(stacks.blocks, stacks.plan, point)
    ordered = sorted(zip(*map(np.ndarray.tolist, spans), strict=True))
    last_block: dict[int, Span] = {}  # last backward block of a virtual stage
    for start, end, kind, virtual, _ in ordered:
        if kind != FORWARD and end > last_block.get(virtual, (0.0, 0.0))[1]:
            last_block[virtual] = start, end
    sums, delay = _gradient_sums(stacks, point, last_block), [0.0] * stages
    for start, end, kind, virtual, microbatch in ordered:
        stage = stage_of(order, stages, virtual)
        start_delay = end_delay = delay[stage]
        if kind != FORWARD and last_block[virtual] == (start, end):
            end_delay, delay[stage] = sums[virtual].end_delay, sums[virtual].next_delay
        block = ScheduledBlock(start + start_delay, end + end_delay, kind, virtual, stage, microbatch)
        all_blocks.append(block)
    return BlockSchedule(all_blocks, sums)


def _gradient_sums(stacks: PipelineBlocks, point: int, last_block: dict[int, Span]) -> dict[int, GradientSum]:
    """Return the sums of all virtual stages of a point, in the order of their last blocks."""
    blocks, plan, sums = stacks.blocks, stacks.plan, {}
    stages, overlaps = int(plan.stages[point]), bool(plan.overlaps_gradients[point])
    slowdown = float(plan.taken[point]) if overlaps else 0.0
    network_free, delay = [0.0] * stages, [0.0] * stages
    for virtual, (start, end) in sorted(last_block.items(), key=lambda item: item[1][::-1]):
        row, stage = int(blocks.offset[point]) + virtual, stage_of(int(plan.order[point]), stages, virtual)
        reduce_s, tail = float(blocks.reduce_s[row]), float(blocks.tail_s[row])
        buckets = int(blocks.layers[row]) if overlaps else 1
        end_delay = delay[stage] + slowdown * (reduce_s - reduce_s / buckets)
        begin = max(network_free[stage], start + delay[stage] + (end - start) / buckets)
        done = max(begin + reduce_s, end + end_delay + reduce_s / buckets) + tail
        if reduce_s + tail > 0.0:
            network_free[stage] = done
        delay[stage] += slowdown * (reduce_s + tail)
        sums[virtual] = GradientSum(
            stage, begin, done if reduce_s + tail > 0.0 else begin, end_delay, delay[stage]
        )
    return sums
