"""When the blocks of stages run that do not share one sequence of steps (`stage_order.is_program`).

As `stage_steps`: a stage runs blocks until the message that its next block waits for is not there; then the
next stage takes its turn. Two blocks that run together wait for both their messages, and send both at their
end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.schedule.stage_order import virtual_stage
from fastflow.physics.schedule.stage_programs import CHUNK, KIND, MARK, MICROBATCH, WEIGHT, block_sequence
from fastflow.physics.schedule.stage_steps import RECEIVE, SEND, WIRE, WORK, forward_end
from fastflow.physics.workload.graph import BACKWARD, FORWARD


class ProgramWorkspace(NamedTuple):
    """Arrays of a point; `run_programs` writes the last four."""

    order: int
    blocks: Ints  # of every stage in their order, as `block_sequence` gives them, (stages, 4, blocks)
    length: Ints  # blocks of each stage, (stages,)
    weight_s: Floats  # of a block of weight gradients, (virtual stages,)
    gathered: Floats  # when the weights of a virtual stage are there, (virtual stages,)
    times: Floats  # of blocks, as in `stage_steps`, (2 phases, 4, virtual stages)
    arrival: Floats  # when the message of a block is there, (2 phases, virtual stages, micro-batches)
    start: Floats  # of each block in its stage's order, (stages, blocks)
    end: Floats  # likewise
    done: Floats  # when each stage is done, (stages,)


@kernel
def new_program_workspace(
    order: int, stages: int, chunks: int, microbatches: int, weight_s: Floats
) -> ProgramWorkspace:
    """Return a workspace with the programs of all stages; raises ValueError as `check_order` does."""
    blocks = np.empty((stages, 4, 3 * chunks * microbatches), dtype=np.int64)
    length = np.empty(stages, dtype=np.int64)
    for stage in range(stages):
        sequence = block_sequence(order, stages, stage, chunks, microbatches)
        length[stage] = sequence.shape[1]
        blocks[stage, :, : length[stage]] = sequence
    return ProgramWorkspace(
        order=order,
        blocks=blocks,
        length=length,
        weight_s=weight_s,
        gathered=np.empty(stages * chunks),
        times=np.empty((2, 4, stages * chunks)),
        arrival=np.empty((2, stages * chunks, microbatches)),
        start=np.empty((stages, blocks.shape[2])),
        end=np.empty((stages, blocks.shape[2])),
        done=np.empty(stages),
    )


@lean_kernel
def _virtual(workspace: ProgramWorkspace, stage: int, i: int) -> int:
    """Return the virtual stage of a stage's block."""
    return virtual_stage(workspace.order, workspace.length.size, stage, workspace.blocks[stage, CHUNK, i])


@lean_kernel
def _arrival(workspace: ProgramWorkspace, stage: int, i: int) -> float:
    """Return when the message that a stage's block waits for is there; minus infinity: not yet."""
    blocks = workspace.blocks
    return float(
        workspace.arrival[blocks[stage, KIND, i], _virtual(workspace, stage, i), blocks[stage, MICROBATCH, i]]
    )


@lean_kernel
def _send(workspace: ProgramWorkspace, stage: int, i: int, wire: float) -> None:
    """Write when the message of a stage's block is there."""
    kind, virtual = workspace.blocks[stage, KIND, i], _virtual(workspace, stage, i)
    to = virtual + (1 if kind == FORWARD else -1)
    if 0 <= to < workspace.gathered.size:
        workspace.arrival[kind, to, workspace.blocks[stage, MICROBATCH, i]] = wire


@lean_kernel
def _backward_s(workspace: ProgramWorkspace, stage: int, i: int) -> float:
    """Return how long a stage's backward block takes [s]."""
    virtual, whole = _virtual(workspace, stage, i), workspace.blocks[stage, MARK, i]
    return float(workspace.times[BACKWARD, WORK, virtual] + whole * workspace.weight_s[virtual])


class _Clock(NamedTuple):
    """State of one stage [s]."""

    block: int  # the next one
    free: float  # when its last block is done
    sent: float  # when its last block has been sent
    down_wire: float  # when its wire for activations is free
    up_wire: float  # when its wire for gradients is free


@lean_kernel
def _run_block(workspace: ProgramWorkspace, clock: _Clock, stage: int, taken: float) -> _Clock:
    """Run the next block of a stage, or two together; the same clock: its message is not there."""
    i, times, gathered, order = clock.block, workspace.times, workspace.gathered, workspace.order
    start, end, down_wire, up_wire = (
        workspace.start[stage],
        workspace.end[stage],
        clock.down_wire,
        clock.up_wire,
    )
    kind, virtual = workspace.blocks[stage, KIND, i], _virtual(workspace, stage, i)
    if kind == WEIGHT:
        start[i] = end[i] = max(clock.free, clock.sent)
        if workspace.weight_s[virtual] == 0.0:  # there is no such block
            return _Clock(i + 1, clock.free, clock.sent, down_wire, up_wire)
        end[i] += workspace.weight_s[virtual]
        return _Clock(i + 1, end[i], end[i], down_wire, up_wire)
    begin = _arrival(workspace, stage, i)
    receive, send = times[kind, RECEIVE, virtual], times[kind, SEND, virtual]
    is_pair = kind == FORWARD and workspace.blocks[stage, MARK, i] > 0
    second = _virtual(workspace, stage, i + 1) if is_pair else virtual
    if is_pair:
        other = _arrival(workspace, stage, i + 1)
        begin = -np.inf if min(begin, other) == -np.inf else max(begin, other)
        receive = max(receive, times[BACKWARD, RECEIVE, second])
        send = max(send, times[BACKWARD, SEND, second])
    if begin == -np.inf:
        return clock
    if kind == FORWARD:
        begin = max(begin, gathered[virtual])
    start[i] = max(clock.sent, max(clock.free, begin) + receive)
    if kind == FORWARD:
        stages = workspace.length.size
        chunks = gathered.size // stages
        last = gathered[virtual_stage(order, stages, stage, chunks - 1)]
        free = end[i] = forward_end(start[i], times[FORWARD, WORK, virtual], last, taken)
    else:
        free = end[i] = start[i] + _backward_s(workspace, stage, i)
    if is_pair:
        start[i + 1] = free
        free = end[i + 1] = free + _backward_s(workspace, stage, i + 1)
    if kind == FORWARD:
        down_wire = max(down_wire, free) + times[FORWARD, WIRE, virtual]
        _send(workspace, stage, i, down_wire)
    if kind == BACKWARD or is_pair:
        last_block = i + 1 if is_pair else i
        up_wire = max(up_wire, free) + times[BACKWARD, WIRE, second]
        _send(workspace, stage, last_block, up_wire)
    return _Clock(i + (2 if is_pair else 1), free, free + send, down_wire, up_wire)


@kernel
def run_programs(workspace: ProgramWorkspace, taken: float) -> None:
    """Write when each block starts and ends, and when each stage is done.

    taken: share of the bundles that gathers take from the blocks that they overlap with.
    """
    arrival, length = workspace.arrival, workspace.length
    stages, virtual = length.size, workspace.gathered.size
    arrival[:] = -np.inf
    arrival[FORWARD, 0], arrival[BACKWARD, virtual - 1] = 0.0, 0.0
    clocks = np.zeros((5, stages))
    unfinished = stages
    while unfinished > 0:
        for stage in range(stages):
            state = clocks[:, stage]
            block = int(state[0])
            if block == length[stage]:
                continue
            clock = _Clock(block, state[1], state[2], state[3], state[4])
            while clock.block < length[stage]:
                before = clock.block
                clock = _run_block(workspace, clock, stage, taken)
                if clock.block == before:
                    break
            state[0], state[1], state[2] = clock.block, clock.free, clock.sent
            state[3], state[4] = clock.down_wire, clock.up_wire
            unfinished -= clock.block == length[stage]
    for stage in range(stages):
        workspace.done[stage] = max(clocks[1, stage], clocks[2, stage])


@kernel
def last_gradients(workspace: ProgramWorkspace, end: Floats, duration: Floats) -> None:
    """Write the end of the last block that makes weight gradients of a virtual stage, and its time [s]."""
    end[:] = -1.0
    for stage in range(workspace.length.size):
        for i in range(workspace.length[stage]):
            kind, virtual = workspace.blocks[stage, KIND, i], _virtual(workspace, stage, i)
            weight_s, is_whole = workspace.weight_s[virtual], workspace.blocks[stage, MARK, i] > 0
            makes = weight_s > 0.0 if kind == WEIGHT else (is_whole or weight_s == 0.0)
            if kind != FORWARD and makes and workspace.end[stage, i] >= end[virtual]:
                end[virtual] = workspace.end[stage, i]
                duration[virtual] = weight_s if kind == WEIGHT else _backward_s(workspace, stage, i)
