"""The schedule of a pipeline in blocks: one micro-batch through one chunk of a stage, forward or backward.

The orders are those of `block_order`: which block a stage does next does not depend on times. So no event
queue is needed: stages take turns, and each goes on until what its next block waits for is not known yet.
Once a round of micro-batches takes as long as the round before, in every block, so do all rounds that follow:
those are counted, not run.

- *Sends.* Where they overlap, a stage has a wire for activations and one for gradients; each carries one
  message at a time, in the order of blocks, and the stage goes on. Where they do not, both stages are busy:
  the sender after its block, the receiver before its own. What a stage sends and receives between two blocks
  moves at the same time (Megatron-LM's batched sends and receives). No sender waits for a busy receiver.
- *Sums of weight gradients.* Where they overlap, a virtual stage's sum starts in equal buckets, which become
  ready one after the other, evenly over the last block that makes its weight gradients; a stage's buckets
  move one at a time. Where they do not, all sums of a stage follow its last block.
- *Gathers of weights* are those of the update before; the iteration starts with it. Where they overlap, those
  of a stage move from the start on, chunk after chunk, and the first forward block of a chunk waits for its
  own; else the stage's first block waits for all.
- *Bundles.* Blocks are slower while sums or gathers move beside them (`overlap`). All stages launch these at
  the same time, so that what one stage loses does not add up with what the next one loses (grad_sync_func and
  param_sync_func in megatron/core/pipeline_parallel/schedules.py): a stage's sums delay its own blocks alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.schedule.overlap import slowed
from fastflow.physics.schedule.pipeline_order import GPIPE, ZERO_BUBBLE
from fastflow.physics.schedule.stage_order import check_order, group_of, in_flight
from fastflow.physics.workload.graph import BACKWARD, FORWARD

WEIGHT = 3
"""A kind of block, beside FORWARD and BACKWARD: gradients of weights, where they have blocks of their own."""

WORK, RECEIVE, SEND, WIRE = 0, 1, 2, 3
"""Times of a block [s]: of its work, and how long the device receives before and sends after it, and the wire
is busy with what it sends."""

_ROUNDS = 5  # micro-batches of a first try over stages: filling, settling, two turns to compare and emptying
_CLOSE = 1e-13  # of the time so far: rounding adds up to a thousandth of that; thousands of rounds add 1e-10


class Blocks(NamedTuple):
    """What the blocks of each virtual stage take; offset[p] to offset[p + 1] are those of point p.

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
    """How a point's pipeline is run; shape (points,)."""

    order: Ints  # GPIPE, ONE_F_ONE_B, INTERLEAVED or ZERO_BUBBLE
    stages: Ints
    chunks: Ints  # of a stage
    microbatches: Ints
    overlaps_sends: Bools
    overlaps_gradients: Bools
    overlaps_gathers: Bools
    taken: Floats  # share of the bundles that sums and gathers take from the blocks that they overlap with


class BlockTimes(NamedTuple):
    """The iteration of every point up to the update; shape (points,), all [s].

    What is exposed is what the iteration would be shorter if it took no time. The parts need not add up: one
    may hide another.
    """

    total: Floats  # until every stage has its gradients summed: when the update could start
    turn: Floats  # when the first backward block starts
    busiest: Floats  # blocks of the stage that has the most work
    bubble: Floats  # without sends, sums and gathers: how long the busiest stage waits for others
    sends: Floats  # exposed
    reduces: Floats  # exposed
    gathers: Floats  # exposed


class _Room(NamedTuple):
    """Arrays of one point; `_walk` says what it writes into the last four."""

    chunk: Ints  # of a forward step, counted from the first; of a backward step, from the last; (steps,)
    ahead: Ints  # steps in flight at most, (stages,)
    weight_s: Floats  # a block of weight gradients, 0 where there is none, (stages,)
    gathered: Floats  # when the weights of a virtual stage are there, (virtual stages,)
    times: Floats  # of blocks, (2 phases, 4, virtual stages)
    start: Floats  # (2 phases, stages, steps)
    end: Floats  # (stages,)
    done: Ints  # (3, stages)
    now: Floats  # (4, stages)


def schedule_blocks(blocks: Blocks, plan: BlockPlan) -> BlockTimes:
    """Return the times of every point's pipeline.

    Raises ValueError for a pipeline that its order is not defined for, or whose blocks are not all there.
    """
    out = np.empty((len(BlockTimes._fields), plan.stages.size))
    _schedule(blocks, plan, out)
    return BlockTimes(*out)


@kernel
def room_of(blocks: Blocks, plan: BlockPlan, point: int, microbatches: int) -> _Room:
    """Make room for a point's micro-batches, and write what does not depend on what is sent or gathered.

    Raises ValueError as `schedule_blocks` does.
    """
    order, stages, chunks = plan.order[point], plan.stages[point], plan.chunks[point]
    begin = blocks.offset[point]
    check_order(order, stages, chunks, microbatches)
    if blocks.offset[point + 1] - begin != stages * chunks:
        raise ValueError("every chunk of every stage is a virtual stage")
    steps, group = chunks * microbatches, group_of(order, stages, chunks, microbatches)
    chunk = np.empty(steps, dtype=np.int64)
    for turn in range(steps // group):
        chunk[turn * group : (turn + 1) * group] = turn % chunks
    ahead, weight_s = np.empty(stages, dtype=np.int64), np.zeros(stages)
    for stage in range(stages):
        ahead[stage] = in_flight(order, stages, stage, chunks, microbatches)
        if order == ZERO_BUBBLE:
            weight_s[stage] = blocks.weight_s[begin + stage]
    return _Room(
        chunk=chunk,
        ahead=ahead,
        weight_s=weight_s,
        gathered=np.empty(stages * chunks),
        times=np.empty((2, 4, stages * chunks)),
        start=np.empty((2, stages, steps)),
        end=np.empty(stages),
        done=np.empty((3, stages), dtype=np.int64),
        now=np.empty((4, stages)),
    )


@kernel
def _time(blocks: Blocks, plan: BlockPlan, point: int, is_sent: bool, times: Floats) -> None:
    """Write the times of a point's blocks; is_sent: whether sends take any."""
    begin, last = blocks.offset[point], times.shape[2] - 1
    overlaps, is_split = plan.overlaps_sends[point], plan.order[point] == ZERO_BUBBLE
    for block in range(last + 1):
        row = begin + block
        times[FORWARD, WORK, block] = blocks.forward_s[row]
        times[BACKWARD, WORK, block] = blocks.input_s[row] + (0.0 if is_split else blocks.weight_s[row])
        onward = blocks.send_s[row] if is_sent and block < last else 0.0
        back = blocks.send_s[row - 1] if is_sent and block > 0 else 0.0
        for phase, received, sent in ((FORWARD, back, onward), (BACKWARD, onward, back)):
            times[phase, RECEIVE, block] = 0.0 if overlaps else received
            times[phase, SEND, block] = 0.0 if overlaps else sent
            times[phase, WIRE, block] = sent if overlaps else 0.0


@kernel
def _gather(blocks: Blocks, plan: BlockPlan, point: int, is_gathered: bool, gathered: Floats) -> None:
    """Write when the weights of each virtual stage are there; is_gathered: whether gathers take any time."""
    stages, begin = plan.stages[point], blocks.offset[point]
    gathered[:] = 0.0
    if is_gathered:
        for stage in range(stages):
            own, until = gathered[stage::stages], 0.0
            for chunk in range(own.size):
                until += blocks.gather_s[begin + chunk * stages + stage]
                own[chunk] = until
            if not plan.overlaps_gathers[point]:
                own[:] = until


@lean_kernel
def end_of(start: float, work: float, gathered: float, taken: float) -> float:
    """Return when a forward block is done [s]; gathered: when the last weights of its stage are there."""
    return start + (slowed(work, gathered - start, taken) if start < gathered else work)


@lean_kernel
def _walk(room: _Room, group: int, taken: float) -> None:
    """Write when each step starts, (2 phases, stages, steps), and when each stage is done, (stages,).

    A step's start is minus infinity until the block that it waits for has run, and then when its message is
    there, until the step itself runs. done: forward steps, backward steps, chunks begun, (3, stages). now:
    when a stage's last block is done, has been sent, and its wires are free, (4, stages).
    """
    times, weight_s, gathered, chunk, ahead = room.times, room.weight_s, room.gathered, room.chunk, room.ahead
    start, end, done, now = room.start, room.end, room.done, room.now
    _, stages, steps = start.shape
    last, final, left = stages - 1, gathered.size // stages - 1, stages
    start[:], done[:], now[:] = -np.inf, 0, 0.0
    for step in range(steps):
        if chunk[step] == 0:
            start[FORWARD, 0, step] = start[BACKWARD, last, step] = 0.0
    while left > 0:
        for stage in range(stages):
            forward, backward, begun = done[0, stage], done[1, stage], done[2, stage]
            if backward == steps:
                continue
            free, sent, onward, back = now[0, stage], now[1, stage], now[2, stage], now[3, stage]
            while backward < steps:
                if forward < steps and forward - backward < ahead[stage]:
                    at, part = start[FORWARD, stage, forward], chunk[forward]
                    if at == -np.inf:
                        break
                    block = part * stages + stage
                    if part == begun:
                        at = max(at, gathered[block])
                        begun += 1
                    at = max(sent, max(free, at) + times[FORWARD, RECEIVE, block])
                    start[FORWARD, stage, forward] = at
                    free = end_of(at, times[FORWARD, WORK, block], gathered[final * stages + stage], taken)
                    sent = free + times[FORWARD, SEND, block]
                    onward = max(onward, free) + times[FORWARD, WIRE, block]
                    if stage < last:
                        start[FORWARD, stage + 1, forward] = onward
                    elif part < final:
                        start[FORWARD, 0, forward + group] = onward
                    forward += 1
                else:
                    at, part = start[BACKWARD, stage, backward], chunk[backward]
                    if at == -np.inf:
                        break
                    block = (final - part) * stages + stage
                    at = max(sent, max(free, at) + times[BACKWARD, RECEIVE, block])
                    start[BACKWARD, stage, backward] = at
                    free = at + times[BACKWARD, WORK, block]
                    sent = free + times[BACKWARD, SEND, block]
                    back = max(back, free) + times[BACKWARD, WIRE, block]
                    if stage > 0:
                        start[BACKWARD, stage - 1, backward] = back
                    elif part < final:
                        start[BACKWARD, last, backward + group] = back
                    if weight_s[stage] > 0.0 and backward >= stage:
                        free = sent = sent + weight_s[stage]
                    backward += 1
            done[0, stage], done[1, stage], done[2, stage] = forward, backward, begun
            now[0, stage], now[1, stage], now[2, stage], now[3, stage] = free, sent, onward, back
            left -= backward == steps
    for stage in range(stages):
        end[stage] = max(now[0, stage], now[1, stage]) + min(stage, steps) * weight_s[stage]


@kernel
def _summed(blocks: Blocks, plan: BlockPlan, point: int, group: int, room: _Room) -> float:
    """Return when the last stage has its gradients summed."""
    stages, steps = room.start.shape[1:]
    until, taken = 0.0, plan.taken[point]
    for stage in range(stages):
        # when the stage's sums so far are done, and how long they move; the last chunk's come first
        link, moved = 0.0, 0.0
        for chunk in range(plan.chunks[point] - 1, -1, -1):
            block = chunk * stages + stage
            row = blocks.offset[point] + block
            if not plan.overlaps_gradients[point]:
                link = max(link, room.end[stage]) + blocks.reduce_s[row] + blocks.tail_s[row]
                continue
            if room.weight_s[stage] > 0.0:
                lasts, done = room.weight_s[stage], room.end[stage]
            else:
                lasts = room.times[BACKWARD, WORK, block]
                done = room.start[BACKWARD, stage, steps - 1 - chunk * group] + lasts
            # the buckets move back to back from the first one on, or the last one is the last that is ready;
            # what moves before a bucket is ready puts it off
            first = done - lasts + lasts / blocks.layers[row] + taken * moved
            bucket_s = blocks.reduce_s[row] / blocks.layers[row]
            done += taken * (moved + blocks.reduce_s[row] - bucket_s)
            link = max(max(link, first) + blocks.reduce_s[row], done + bucket_s) + blocks.tail_s[row]
            moved += blocks.reduce_s[row] + blocks.tail_s[row]
        until = max(until, room.end[stage] + taken * moved, link)
    return until


@kernel
def run_point(
    blocks: Blocks, plan: BlockPlan, point: int, is_sent: bool, is_gathered: bool, room: _Room
) -> tuple[float, float, float]:
    """Return when the first backward block starts, the last stage is done, and has its gradients summed [s].

    Of the micro-batches that there is room for. is_sent, is_gathered: whether sends and gathers take time.
    """
    chunks = plan.chunks[point]
    group = group_of(plan.order[point], plan.stages[point], chunks, room.chunk.size // chunks)
    _time(blocks, plan, point, is_sent, room.times)
    _gather(blocks, plan, point, is_gathered, room.gathered)
    _walk(room, group, plan.taken[point])
    turn, bare = room.start[BACKWARD, :, 0].min(), room.end.max()
    return turn, bare, _summed(blocks, plan, point, group, room)


@kernel
def _round_s(start: Floats, ahead: Ints, steps: int) -> float:
    """Return how much later than `steps` before every step is once stages take turns [s]; NaN: not steadily.

    What a step waits for is at most as many steps back as are in flight, and a turn of the chunks. Where all
    of these steps are as much later, so are all that come after them. Messages that pile up at a wire show:
    of a wire that has more to carry in a round than a round takes, a step that waits for a message is more
    than a round later than the one a round before. Where none waits, a stage is at most two steps ahead of
    its neighbour, less the message back, which takes as long as the message there. Over a round: two
    messages for every step take at most two rounds, so no wire has more to carry than one.
    """
    count, back = start.shape[2], ahead.max() + steps
    if count <= ahead.max() + back + steps:
        return np.nan
    later: float = start[FORWARD, 0, count - 1] - start[FORWARD, 0, count - 1 - steps]
    close = _CLOSE * start[FORWARD, 0, count - 1]
    for stage in range(start.shape[1]):
        for phase, last in ((FORWARD, count), (BACKWARD, count - ahead[stage])):
            for step in range(last - back, last):
                if not abs(start[phase, stage, step] - start[phase, stage, step - steps] - later) <= close:
                    return np.nan
    return later


@kernel
def _run_all(
    blocks: Blocks, plan: BlockPlan, point: int, is_sent: bool, is_gathered: bool
) -> tuple[float, float, float]:
    """Return what `_run` does of all micro-batches, of which it runs as few as say what the others take."""
    every, stages, chunks = plan.microbatches[point], plan.stages[point], plan.chunks[point]
    count = _ROUNDS * stages + every % stages
    while count < every and plan.order[point] != GPIPE:  # where stages do not wait for those after them
        room = room_of(blocks, plan, point, count)
        turn, bare, total = run_point(blocks, plan, point, is_sent, is_gathered, room)
        later = _round_s(room.start, room.ahead, stages * chunks)
        if not np.isnan(later):
            rest = (every - count) // stages * later
            return turn, bare + rest, total + rest
        count += 3 * _ROUNDS * stages
    room = room_of(blocks, plan, point, every)
    return run_point(blocks, plan, point, is_sent, is_gathered, room)


@kernel
def _busiest(blocks: Blocks, plan: BlockPlan, point: int) -> float:
    """Return how long the blocks of the stage that has the most work take [s]."""
    most, stages = 0.0, plan.stages[point]
    for stage in range(stages):
        busy = 0.0
        for row in range(blocks.offset[point] + stage, blocks.offset[point + 1], stages):
            busy += blocks.forward_s[row] + blocks.input_s[row] + blocks.weight_s[row]
        most = max(most, busy * plan.microbatches[point])
    return most


@kernel
def _schedule(blocks: Blocks, plan: BlockPlan, out: Floats) -> None:
    """Write the fields of `BlockTimes`, (7, points)."""
    for point in range(plan.stages.size):
        rows = slice(blocks.offset[point], blocks.offset[point + 1])
        is_sent, is_gathered = bool(blocks.send_s[rows].any()), bool(blocks.gather_s[rows].any())
        turn, bare, total = _run_all(blocks, plan, point, is_sent, is_gathered)
        sends, reduces, gathers = 0.0, total - bare, 0.0
        if is_sent:
            _, bare, without = _run_all(blocks, plan, point, not is_sent, is_gathered)
            sends = total - without
        if is_gathered:
            _, bare, without = _run_all(blocks, plan, point, is_sent, not is_gathered)
            gathers = total - without
        if is_sent and is_gathered:
            _, bare, _ = _run_all(blocks, plan, point, not is_sent, not is_gathered)
        busiest = _busiest(blocks, plan, point)
        bubble = max(bare - busiest, 0.0)  # which rounding may make a hair less than nothing
        for field, value in enumerate((total, turn, busiest, bubble, sends, reduces, gathers)):
            out[field, point] = value
