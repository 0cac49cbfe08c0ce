"""The schedule of a pipeline in blocks: one micro-batch through one chunk of a stage, forward or backward.

The orders are those of `stage_order`: which block a stage does next does not depend on times. So no event
queue is needed: stages take turns, and each runs blocks until the predecessor of its next block has not run.
Where all stages run the same steps, once a round of micro-batches takes as long as the round before, in every
block, so do all later rounds: those are counted, not simulated.

- *Sends.* Where they overlap, a stage has a wire for activations and one for gradients; each carries one
  message at a time, in the order of blocks, and the stage goes on. Where they do not, both stages are busy:
  the sender after its block, the receiver before its block. The messages that a stage sends and receives
  between two blocks move at the same time (Megatron-LM's batched sends and receives). No sender waits for a
  busy receiver.
- *Sums of weight gradients.* Where they overlap, a virtual stage's sum starts in equal buckets, which become
  ready one after the other, evenly over the last block that makes its weight gradients; a stage's buckets
  move one at a time. Where they do not, all sums of a stage follow its last block.
- *Gathers of weights* follow the update before; the iteration starts with them. Where they overlap, the
  gathers of a stage move from the start on, chunk after chunk, and the first forward block of a chunk waits
  for the gather of the chunk; else the stage's first block waits for all.
- *Bundles.* Blocks are slower while sums or gathers overlap with them (`overlap`). All stages launch these at
  the same time, so that the losses of stages do not add up (grad_sync_func and
  param_sync_func in megatron/core/pipeline_parallel/schedules.py): a stage's sums delay only its blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.schedule.pipeline_order import GPIPE
from fastflow.physics.schedule.program_runs import (
    ProgramWorkspace,
    last_gradients,
    new_program_workspace,
    run_programs,
)
from fastflow.physics.schedule.stage_order import (
    check_order,
    folds,
    group_of,
    in_flight,
    is_program,
    splits_backward,
    updates_alone,
    virtual_stage,
    weight_delay,
)
from fastflow.physics.schedule.stage_programs import KIND
from fastflow.physics.schedule.stage_steps import RECEIVE, SEND, WIRE, WORK, Workspace, run_stages
from fastflow.physics.workload.graph import BACKWARD, FORWARD

_ROUNDS = 5  # micro-batches over stages, of a first try: filling, settling, two rounds to compare, emptying
_CLOSE = 1e-13  # of the time so far: rounding adds up to a thousandth of that; thousands of rounds add 1e-10


class Blocks(NamedTuple):
    """Times of the blocks of each virtual stage; offset[p] to offset[p + 1] are those of point p.

    Every array but `offset` has shape (virtual stages,). A point's virtual stages are in the model's order.
    """

    offset: Ints
    forward_s: Floats  # one forward block
    input_s: Floats  # one backward block: gradients of the inputs, recomputation, waits inside
    weight_s: Floats  # and gradients of the weights; 0 where `input_s` has them
    send_s: Floats  # the activation to the next virtual stage, or its gradient back
    reduce_s: Floats  # the sum of all weight gradients, once an iteration
    layers: Ints  # buckets of that sum, at least 1
    gather_s: Floats  # the gather of updated weights, once an iteration
    tail_s: Floats  # a further sum, ready with the end of the last block alone: the gradient of an embedding


class BlockPlan(NamedTuple):
    """Pipeline of a point; shape (points,)."""

    order: Ints  # of `pipeline_order`
    stages: Ints
    chunks: Ints  # of a stage
    microbatches: Ints
    overlaps_sends: Bools
    overlaps_gradients: Bools
    overlaps_gathers: Bools
    taken: Floats  # share of the bundles that sums and gathers take from the blocks that they overlap with


class BlockTimes(NamedTuple):
    """The iteration of every point up to the update; shape (points,), all [s].

    Exposed time: how much shorter the iteration would be without it. The parts need not add up: they may
    overlap.
    """

    total: Floats  # until every stage has its gradients summed: when the update could start (see stage_order)
    backward_start: Floats  # when the first backward block starts
    busiest: Floats  # blocks of the stage that has the most work
    bubble: Floats  # without sends, sums and gathers: idle time of the busiest stage
    sends: Floats  # exposed
    reduces: Floats  # exposed
    gathers: Floats  # exposed


def schedule_blocks(blocks: Blocks, plan: BlockPlan) -> BlockTimes:
    """Return the times of every point's pipeline.

    Raises ValueError for a pipeline that its order is not defined for, or whose blocks are not all there.
    """
    out = np.empty((len(BlockTimes._fields), plan.stages.size))
    _schedule(blocks, plan, out)
    return BlockTimes(*out)


@kernel
def check_blocks(blocks: Blocks, plan: BlockPlan, point: int, microbatches: int) -> None:
    """Raise ValueError as `schedule_blocks` does."""
    stages, chunks = plan.stages[point], plan.chunks[point]
    check_order(plan.order[point], stages, chunks, microbatches)
    if blocks.offset[point + 1] - blocks.offset[point] != stages * chunks:
        raise ValueError("every chunk of every stage is a virtual stage")


@kernel
def new_workspace(blocks: Blocks, plan: BlockPlan, point: int, microbatches: int) -> Workspace:
    """Return a workspace for micro-batches of a point, with all that sends and gathers do not change."""
    order, stages, chunks = plan.order[point], plan.stages[point], plan.chunks[point]
    begin = blocks.offset[point]
    steps, group = chunks * microbatches, group_of(order, stages, chunks, microbatches)
    chunk = np.empty(steps, dtype=np.int64)
    for group_index in range(steps // group):
        chunk[group_index * group : (group_index + 1) * group] = group_index % chunks
    max_in_flight, delay = np.empty((2, stages), dtype=np.int64)
    weight_s = np.zeros(stages)
    for stage in range(stages):
        max_in_flight[stage] = in_flight(order, stages, stage, chunks, microbatches)
        delay[stage] = weight_delay(order, stage)
        if splits_backward(order):
            weight_s[stage] = blocks.weight_s[begin + stage]
    return Workspace(
        chunk=chunk,
        max_in_flight=max_in_flight,
        weight_s=weight_s,
        delay=delay,
        gathered=np.empty(stages * chunks),
        times=np.empty((2, 4, stages * chunks)),
        start=np.empty((2, stages, steps)),
        end=np.empty(stages),
        done=np.empty((3, stages), dtype=np.int64),
        now=np.empty((4, stages)),
    )


@kernel
def _write_block_times(blocks: Blocks, plan: BlockPlan, point: int, is_sent: bool, times: Floats) -> None:
    """Write the times of a point's blocks; is_sent: whether sends take time."""
    begin, last = blocks.offset[point], times.shape[2] - 1
    order, stages = plan.order[point], plan.stages[point]
    overlaps, is_split = plan.overlaps_sends[point], splits_backward(order)
    back = 0.0
    for block in range(last + 1):
        row = begin + block
        times[FORWARD, WORK, block] = blocks.forward_s[row]
        times[BACKWARD, WORK, block] = blocks.input_s[row] + (0.0 if is_split else blocks.weight_s[row])
        onward = blocks.send_s[row] if is_sent and block < last else 0.0
        if folds(order) and block + 1 == stages:
            onward = 0.0  # the next virtual stage is on the same stage
        for phase, received, sent in ((FORWARD, back, onward), (BACKWARD, onward, back)):
            times[phase, RECEIVE, block] = 0.0 if overlaps else received
            times[phase, SEND, block] = 0.0 if overlaps else sent
            times[phase, WIRE, block] = sent if overlaps else 0.0
        back = onward


@kernel
def _write_gather_times(
    blocks: Blocks, plan: BlockPlan, point: int, is_gathered: bool, gathered: Floats
) -> None:
    """Write when the weights of each virtual stage are there; is_gathered: whether gathers take any time."""
    order, stages, chunks = plan.order[point], plan.stages[point], plan.chunks[point]
    gathered[:] = 0.0
    if is_gathered:
        for stage in range(stages):
            gather_end = 0.0
            for chunk in range(chunks):
                virtual = virtual_stage(order, stages, stage, chunk)
                gather_end += blocks.gather_s[blocks.offset[point] + virtual]
                gathered[virtual] = gather_end
            if not plan.overlaps_gathers[point]:
                for chunk in range(chunks):
                    gathered[virtual_stage(order, stages, stage, chunk)] = gather_end


class _Ends(NamedTuple):
    """When the blocks of a point are done [s]."""

    stage: Floats  # all blocks of a stage, (stages,)
    begin: Floats  # from when on a stage's time counts, (stages,)
    gradient: Floats  # the last block that makes weight gradients of a virtual stage, (virtual stages,)
    gradient_s: Floats  # the time of that block, (virtual stages,)


@kernel
def _reduce_end(blocks: Blocks, plan: BlockPlan, point: int, ends: _Ends) -> float:
    """Return when the gradients of all stages are summed [s]."""
    order, stages, chunks = plan.order[point], plan.stages[point], plan.chunks[point]
    reduce_end, taken = 0.0, plan.taken[point]
    for stage in range(stages):
        # when the stage's sums so far are done, and how long they move; from the chunk that is done first
        sums_end, moved = 0.0, 0.0
        is_reverse = folds(order) and (
            ends.gradient[virtual_stage(order, stages, stage, 0)]
            < ends.gradient[virtual_stage(order, stages, stage, 1)]
        )
        for turn in range(chunks):
            block = virtual_stage(order, stages, stage, turn if is_reverse else chunks - 1 - turn)
            row = blocks.offset[point] + block
            if not plan.overlaps_gradients[point]:
                sums_end = max(sums_end, ends.stage[stage]) + blocks.reduce_s[row] + blocks.tail_s[row]
                continue
            duration, done = ends.gradient_s[block], ends.gradient[block]
            # the buckets move back to back from the first on, or the last bucket is the last that is
            # ready; buckets that move before another is ready delay it
            first = done - duration + duration / blocks.layers[row] + taken * moved
            bucket_s = blocks.reduce_s[row] / blocks.layers[row]
            done += taken * (moved + blocks.reduce_s[row] - bucket_s)
            sums_end = max(max(sums_end, first) + blocks.reduce_s[row], done + bucket_s) + blocks.tail_s[row]
            moved += blocks.reduce_s[row] + blocks.tail_s[row]
        stage_end = max(ends.stage[stage] + taken * moved, sums_end)
        reduce_end = max(reduce_end, stage_end - ends.begin[stage])
    return reduce_end


@kernel
def new_program(blocks: Blocks, plan: BlockPlan, point: int) -> ProgramWorkspace:
    """Return a workspace for the programs of a point, with all that sends and gathers do not change."""
    order, weight_s = plan.order[point], np.zeros(blocks.offset[point + 1] - blocks.offset[point])
    if splits_backward(order):
        weight_s[:] = blocks.weight_s[blocks.offset[point] : blocks.offset[point + 1]]
    stages, chunks, microbatches = plan.stages[point], plan.chunks[point], plan.microbatches[point]
    return new_program_workspace(order, stages, chunks, microbatches, weight_s)


@kernel
def run_program(
    blocks: Blocks, plan: BlockPlan, point: int, is_sent: bool, is_gathered: bool, workspace: ProgramWorkspace
) -> tuple[float, float, float]:
    """Return what `run_point` does, of a point whose stages have programs."""
    _write_block_times(blocks, plan, point, is_sent, workspace.times)
    _write_gather_times(blocks, plan, point, is_gathered, workspace.gathered)
    run_programs(workspace, plan.taken[point])
    stages, virtual = workspace.done.size, workspace.gathered.size
    ends = _Ends(workspace.done, np.zeros(stages), np.empty(virtual), np.empty(virtual))
    last_gradients(workspace, ends.gradient, ends.gradient_s)
    backward_start = np.inf
    for stage in range(stages):
        if updates_alone(workspace.order):
            first = virtual_stage(workspace.order, stages, stage, 0)
            ends.begin[stage] = max(workspace.start[stage, 0] - workspace.gathered[first], 0.0)
        for i in range(workspace.length[stage]):
            if workspace.blocks[stage, KIND, i] == BACKWARD:
                backward_start = min(backward_start, workspace.start[stage, i])
                break
    return backward_start, (ends.stage - ends.begin).max(), _reduce_end(blocks, plan, point, ends)


@kernel
def run_point(
    blocks: Blocks, plan: BlockPlan, point: int, is_sent: bool, is_gathered: bool, workspace: Workspace
) -> tuple[float, float, float]:
    """Return when the first backward block starts, the last stage is done, and has its gradients summed [s].

    Of as many micro-batches as the workspace has. is_sent, is_gathered: whether sends and gathers take time.
    """
    order, stages, chunks = plan.order[point], plan.stages[point], plan.chunks[point]
    steps, virtual = workspace.chunk.size, workspace.gathered.size
    group = group_of(order, stages, chunks, steps // chunks)
    _write_block_times(blocks, plan, point, is_sent, workspace.times)
    _write_gather_times(blocks, plan, point, is_gathered, workspace.gathered)
    run_stages(workspace, group, plan.taken[point])
    ends = _Ends(workspace.end, np.zeros(stages), np.empty(virtual), np.empty(virtual))
    for block in range(virtual):
        stage, chunk = block % stages, block // stages
        if workspace.weight_s[stage] > 0.0:
            ends.gradient[block], ends.gradient_s[block] = workspace.end[stage], workspace.weight_s[stage]
        else:
            ends.gradient_s[block] = workspace.times[BACKWARD, WORK, block]
            last = workspace.start[BACKWARD, stage, steps - 1 - chunk * group]
            ends.gradient[block] = last + ends.gradient_s[block]
        if updates_alone(order):
            ends.begin[stage] = max(workspace.start[FORWARD, stage, 0] - workspace.gathered[stage], 0.0)
    backward_start, stages_end = workspace.start[BACKWARD, :, 0].min(), (ends.stage - ends.begin).max()
    return backward_start, stages_end, _reduce_end(blocks, plan, point, ends)


@kernel
def _round_s(start: Floats, max_in_flight: Ints, steps: int) -> float:
    """Return how much later than `steps` before every step is in the steady state [s]; NaN: it is not steady.

    The predecessor of a step is at most as many steps back as are in flight, and a round of the chunks. Where
    all of these steps are equally later, so are all steps after them. A wire whose messages of a round take
    longer than a round shows: a step that waits for a message is then more than a round later than the step a
    round before. Where no step waits, a stage is at most two steps ahead of its neighbour, less the message
    back, which takes as long as the message forth. Over a round, two messages for every step take at most two
    rounds, so the messages of a wire take at most one.
    """
    count, back = start.shape[2], max_in_flight.max() + steps
    if count <= max_in_flight.max() + back + steps:
        return np.nan
    round_s: float = start[FORWARD, 0, count - 1] - start[FORWARD, 0, count - 1 - steps]
    close = _CLOSE * start[FORWARD, 0, count - 1]
    for stage in range(start.shape[1]):
        for phase, last in ((FORWARD, count), (BACKWARD, count - max_in_flight[stage])):
            for step in range(last - back, last):
                if not abs(start[phase, stage, step] - start[phase, stage, step - steps] - round_s) <= close:
                    return np.nan
    return round_s


@kernel
def _run_microbatches(
    blocks: Blocks, plan: BlockPlan, point: int, is_sent: bool, is_gathered: bool
) -> tuple[float, float, float]:
    """Return what `run_point` does of all micro-batches; it runs only until the steady state is reached."""
    microbatches, stages, chunks = plan.microbatches[point], plan.stages[point], plan.chunks[point]
    if is_program(plan.order[point], stages, chunks, microbatches):
        program = new_program(blocks, plan, point)
        return run_program(blocks, plan, point, is_sent, is_gathered, program)
    count = _ROUNDS * stages + microbatches % stages
    while count < microbatches and plan.order[point] != GPIPE:  # which has no steady state
        workspace = new_workspace(blocks, plan, point, count)
        backward_start, stages_end, total = run_point(blocks, plan, point, is_sent, is_gathered, workspace)
        round_s = _round_s(workspace.start, workspace.max_in_flight, stages * chunks)
        if not np.isnan(round_s):
            remaining_s = (microbatches - count) // stages * round_s
            return backward_start, stages_end + remaining_s, total + remaining_s
        count += 3 * _ROUNDS * stages
    workspace = new_workspace(blocks, plan, point, microbatches)
    return run_point(blocks, plan, point, is_sent, is_gathered, workspace)


@kernel
def _busiest(blocks: Blocks, plan: BlockPlan, point: int) -> float:
    """Return the time of the blocks of the stage that has the most work [s]."""
    busiest, stages = 0.0, plan.stages[point]
    for stage in range(stages):
        busy = 0.0
        for chunk in range(plan.chunks[point]):
            row = blocks.offset[point] + virtual_stage(plan.order[point], stages, stage, chunk)
            busy += blocks.forward_s[row] + blocks.input_s[row] + blocks.weight_s[row]
        busiest = max(busiest, busy * plan.microbatches[point])
    return busiest


@kernel
def _schedule(blocks: Blocks, plan: BlockPlan, out: Floats) -> None:
    """Write the fields of `BlockTimes`, (7, points)."""
    for point in range(plan.stages.size):
        check_blocks(blocks, plan, point, plan.microbatches[point])
        rows = slice(blocks.offset[point], blocks.offset[point + 1])
        is_sent, is_gathered = bool(blocks.send_s[rows].any()), bool(blocks.gather_s[rows].any())
        backward_start, stages_end, total = _run_microbatches(blocks, plan, point, is_sent, is_gathered)
        sends, reduces, gathers = 0.0, total - stages_end, 0.0
        if is_sent:
            _, stages_end, without = _run_microbatches(blocks, plan, point, not is_sent, is_gathered)
            sends = max(total - without, 0.0)  # rounding may make a difference slightly negative
        if is_gathered:
            _, stages_end, without = _run_microbatches(blocks, plan, point, is_sent, not is_gathered)
            gathers = max(total - without, 0.0)
        if is_sent and is_gathered:
            _, stages_end, _ = _run_microbatches(blocks, plan, point, not is_sent, not is_gathered)
        busiest = _busiest(blocks, plan, point)
        bubble = max(stages_end - busiest, 0.0)
        for field, value in enumerate((total, backward_start, busiest, bubble, sends, reduces, gathers)):
            out[field, point] = value
