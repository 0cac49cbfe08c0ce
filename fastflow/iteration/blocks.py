"""The schedule of a pipeline in blocks: one micro-batch through one chunk of a stage, forward or backward.

The orders are those of `block_order`: which block a stage does next does not depend on times. So no event
queue is needed: stages take turns, and each goes on until what its next block waits for is not known yet.

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
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel, lean_kernel
from fastflow.iteration.block_order import check_order, group_of, in_flight
from fastflow.iteration.pipeline_order import GPIPE, ZERO_BUBBLE
from fastflow.tables import Bools, Floats, Ints
from fastflow.workload.graph import BACKWARD, FORWARD

WEIGHT = 3
"""A kind of block, beside FORWARD and BACKWARD: gradients of weights, where they have blocks of their own."""

_WORK, _RECEIVE, _SEND, _WIRE = 0, 1, 2, 3
"""Times of a block [s]: of its work, and how long the device receives before and sends after it, and the wire
is busy with what it sends."""


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


class Spans(NamedTuple):
    """When each block of a point runs, stage by stage; shape (blocks,)."""

    start: Floats  # [s]
    end: Floats  # [s]
    kind: Ints  # FORWARD, BACKWARD or WEIGHT
    virtual: Ints  # virtual stage; it lies on stage `virtual % stages`
    microbatch: Ints


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
def _room_of(blocks: Blocks, plan: BlockPlan, point: int) -> _Room:
    """Make room for a point, and write what does not depend on what is sent or gathered.

    Raises ValueError as `schedule_blocks` does.
    """
    order, stages, chunks = plan.order[point], plan.stages[point], plan.chunks[point]
    microbatches, begin = plan.microbatches[point], blocks.offset[point]
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
        times[FORWARD, _WORK, block] = blocks.forward_s[row]
        times[BACKWARD, _WORK, block] = blocks.input_s[row] + (0.0 if is_split else blocks.weight_s[row])
        onward = blocks.send_s[row] if is_sent and block < last else 0.0
        back = blocks.send_s[row - 1] if is_sent and block > 0 else 0.0
        for phase, received, sent in ((FORWARD, back, onward), (BACKWARD, onward, back)):
            times[phase, _RECEIVE, block] = 0.0 if overlaps else received
            times[phase, _SEND, block] = 0.0 if overlaps else sent
            times[phase, _WIRE, block] = sent if overlaps else 0.0


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
def _walk(
    times: Floats, weight_s: Floats, gathered: Floats, chunk: Ints, ahead: Ints, group: int, start: Floats,
    end: Floats, done: Ints, now: Floats,
) -> None:  # fmt: skip
    """Write when each step starts, (2 phases, stages, steps), and when each stage is done, (stages,).

    A step's start is minus infinity until the block that it waits for has run, and then when its message is
    there, until the step itself runs. done: forward steps, backward steps, chunks begun, (3, stages). now:
    when a stage's last block is done, has been sent, and its wires are free, (4, stages).
    """
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
                    at = max(sent, max(free, at) + times[FORWARD, _RECEIVE, block])
                    start[FORWARD, stage, forward] = at
                    free = at + times[FORWARD, _WORK, block]
                    sent = free + times[FORWARD, _SEND, block]
                    onward = max(onward, free) + times[FORWARD, _WIRE, block]
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
                    at = max(sent, max(free, at) + times[BACKWARD, _RECEIVE, block])
                    start[BACKWARD, stage, backward] = at
                    free = at + times[BACKWARD, _WORK, block]
                    sent = free + times[BACKWARD, _SEND, block]
                    back = max(back, free) + times[BACKWARD, _WIRE, block]
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
    until = 0.0
    for stage in range(stages):
        link = 0.0  # of the stage's sums so far; the last chunk has its gradients first
        for chunk in range(plan.chunks[point] - 1, -1, -1):
            block = chunk * stages + stage
            row = blocks.offset[point] + block
            if not plan.overlaps_gradients[point]:
                link = max(link, room.end[stage]) + blocks.reduce_s[row] + blocks.tail_s[row]
                continue
            if room.weight_s[stage] > 0.0:
                lasts, done = room.weight_s[stage], room.end[stage]
            else:
                lasts = room.times[BACKWARD, _WORK, block]
                done = room.start[BACKWARD, stage, steps - 1 - chunk * group] + lasts
            # the buckets move back to back from the first one on, or the last one is the last that is ready
            first = done - lasts + lasts / blocks.layers[row]
            bucket_s = blocks.reduce_s[row] / blocks.layers[row]
            link = max(max(link, first) + blocks.reduce_s[row], done + bucket_s) + blocks.tail_s[row]
        until = max(until, room.end[stage], link)
    return until


@kernel
def _run(
    blocks: Blocks, plan: BlockPlan, point: int, is_sent: bool, is_gathered: bool, room: _Room
) -> tuple[float, float, float]:
    """Return when the first backward block starts, the last stage is done, and has its gradients summed [s].

    is_sent, is_gathered: whether sends and gathers take any time.
    """
    group = group_of(plan.order[point], plan.stages[point], plan.chunks[point], plan.microbatches[point])
    _time(blocks, plan, point, is_sent, room.times)
    _gather(blocks, plan, point, is_gathered, room.gathered)
    _walk(
        room.times, room.weight_s, room.gathered, room.chunk, room.ahead, group,
        room.start, room.end, room.done, room.now,
    )  # fmt: skip
    turn, bare = room.start[BACKWARD, :, 0].min(), room.end.max()
    return turn, bare, _summed(blocks, plan, point, group, room)


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
        room, rows = _room_of(blocks, plan, point), slice(blocks.offset[point], blocks.offset[point + 1])
        is_sent, is_gathered = bool(blocks.send_s[rows].any()), bool(blocks.gather_s[rows].any())
        turn, bare, total = _run(blocks, plan, point, is_sent, is_gathered, room)
        sends, reduces, gathers = 0.0, total - bare, 0.0
        if is_sent:
            _, bare, without = _run(blocks, plan, point, not is_sent, is_gathered, room)
            sends = total - without
        if is_gathered:
            _, bare, without = _run(blocks, plan, point, is_sent, not is_gathered, room)
            gathers = total - without
        if is_sent and is_gathered:
            _, bare, _ = _run(blocks, plan, point, not is_sent, not is_gathered, room)
        busiest = _busiest(blocks, plan, point)
        bubble = max(bare - busiest, 0.0)  # which rounding may make a hair less than nothing
        for field, value in enumerate((total, turn, busiest, bubble, sends, reduces, gathers)):
            out[field, point] = value


def block_spans(blocks: Blocks, plan: BlockPlan, point: int) -> Spans:
    """Return when the blocks of one point run: of each stage the forward and backward blocks, then others.

    Raises ValueError as `schedule_blocks` does.
    """
    return Spans(*_spans(blocks, plan, point))


@kernel
def _spans(blocks: Blocks, plan: BlockPlan, point: int) -> tuple[Floats, Floats, Ints, Ints, Ints]:
    """Return the fields of `Spans`."""
    room, order, microbatches = _room_of(blocks, plan, point), plan.order[point], plan.microbatches[point]
    _run(blocks, plan, point, True, True, room)
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
                    start, lasts = room.start[kind, stage, step], room.times[kind, _WORK, block]
                elif step + stage < steps:
                    start = room.start[BACKWARD, stage, step + stage] + room.times[BACKWARD, _WORK, block]
                    start, lasts = start + room.times[BACKWARD, _SEND, block], weight_s
                else:
                    start, lasts = room.end[stage] - (steps - step) * weight_s, weight_s
                times[0, count], times[1, count] = start, start + lasts
                numbers[0, count], numbers[1, count], numbers[2, count] = kind, block, microbatch
                count += 1
    return times[0, :count], times[1, :count], numbers[0, :count], numbers[1, :count], numbers[2, :count]
