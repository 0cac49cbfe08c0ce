"""The steps of a pipeline's stages: when each forward and backward block starts, given the blocks' times.

A stage runs steps until the predecessor of its next step has not run; then the next stage takes its turn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.schedule.overlap import slowed_time
from fastflow.physics.workload.graph import BACKWARD, FORWARD

WORK, RECEIVE, SEND, WIRE = 0, 1, 2, 3
"""Times of a block [s]: its work, how long the device receives before it and sends after it, and how long the
wire is busy with its message."""


class Workspace(NamedTuple):
    """Arrays of a point; `run_stages` describes the last four."""

    chunk: Ints  # of a forward step, counted from the first; of a backward step, from the last; (steps,)
    max_in_flight: Ints  # steps in flight at most, (stages,)
    weight_s: Floats  # a block of weight gradients, 0 where there is none, (stages,)
    delay: Ints  # input gradients between an input gradient and its weight gradient, (stages,)
    gathered: Floats  # when the weights of a virtual stage are there, (virtual stages,)
    times: Floats  # of blocks, (2 phases, 4, virtual stages)
    start: Floats  # (2 phases, stages, steps)
    end: Floats  # (stages,)
    done: Ints  # (3, stages)
    now: Floats  # (4, stages)


@lean_kernel
def forward_end(start: float, work: float, gathered: float, taken: float) -> float:
    """Return when a forward block is done [s]; gathered: when the last weights of its stage are there."""
    return start + (slowed_time(work, gathered - start, taken) if start < gathered else work)


class _Clock(NamedTuple):
    """State of one stage [s]."""

    free: float  # when its last block is done
    sent: float  # when its last block has been sent
    down_wire: float  # when its wire for activations is free
    up_wire: float  # when its wire for gradients is free


@lean_kernel
def _run_forward(
    workspace: Workspace, clock: _Clock, stage: int, step: int, begin: float, group: int, taken: float
) -> _Clock:
    """Run a forward step of a stage, which may start at `begin`, and write when its successor may start."""
    start, times, gathered = workspace.start, workspace.times, workspace.gathered
    stages, virtual = start.shape[1], gathered.size
    block = workspace.chunk[step] * stages + stage
    begin = max(clock.sent, max(clock.free, begin) + times[FORWARD, RECEIVE, block])
    start[FORWARD, stage, step] = begin
    free = forward_end(begin, times[FORWARD, WORK, block], gathered[virtual - stages + stage], taken)
    wire = max(clock.down_wire, free) + times[FORWARD, WIRE, block]
    if stage + 1 < stages:
        start[FORWARD, stage + 1, step] = wire
    elif block + 1 < virtual:
        start[FORWARD, 0, step + group] = wire
    return _Clock(free, free + times[FORWARD, SEND, block], wire, clock.up_wire)


@lean_kernel
def _run_backward(
    workspace: Workspace, clock: _Clock, stage: int, step: int, begin: float, group: int
) -> _Clock:
    """Run a backward step of a stage as `_run_forward` does, and the weight block that follows it."""
    start, times, weight_s = workspace.start, workspace.times, workspace.weight_s[stage]
    stages = start.shape[1]
    block = workspace.gathered.size - (workspace.chunk[step] + 1) * stages + stage
    begin = max(clock.sent, max(clock.free, begin) + times[BACKWARD, RECEIVE, block])
    start[BACKWARD, stage, step] = begin
    free = begin + times[BACKWARD, WORK, block]
    sent, wire = free + times[BACKWARD, SEND, block], max(clock.up_wire, free) + times[BACKWARD, WIRE, block]
    if stage > 0:
        start[BACKWARD, stage - 1, step] = wire
    elif block > 0:
        start[BACKWARD, stages - 1, step + group] = wire
    if weight_s > 0.0 and step >= workspace.delay[stage]:
        free = sent = sent + weight_s
    return _Clock(free, sent, clock.down_wire, wire)


@lean_kernel
def _open_steps(workspace: Workspace) -> None:
    """Write that no step has run, and that the first chunk's steps may start at 0."""
    workspace.start[:], workspace.done[:], workspace.now[:] = -np.inf, 0, 0.0
    _, stages, steps = workspace.start.shape
    for step in range(steps):
        if workspace.chunk[step] == 0:
            workspace.start[FORWARD, 0, step] = workspace.start[BACKWARD, stages - 1, step] = 0.0


@lean_kernel
def run_stages(workspace: Workspace, group: int, taken: float) -> None:
    """Write when each step starts, (2 phases, stages, steps), and when each stage is done, (stages,).

    A step's start is minus infinity until its predecessor has run; then the time when its message is there,
    until the step itself runs. done: forward steps, backward steps, chunks begun, (3, stages). now:
    the fields of `_Clock`, (4, stages).
    """
    weight_s, gathered, start = workspace.weight_s, workspace.gathered, workspace.start
    done, now, chunk = workspace.done, workspace.now, workspace.chunk
    _, stages, steps = start.shape
    unfinished = stages
    _open_steps(workspace)
    while unfinished > 0:
        for stage in range(stages):
            forward, backward, begun = done[0, stage], done[1, stage], done[2, stage]
            if backward == steps:
                continue
            clock = _Clock(now[0, stage], now[1, stage], now[2, stage], now[3, stage])
            while backward < steps:
                if forward < steps and forward - backward < workspace.max_in_flight[stage]:
                    begin = start[FORWARD, stage, forward]
                    if begin == -np.inf:
                        break
                    if chunk[forward] == begun:
                        begin = max(begin, gathered[begun * stages + stage])
                        begun += 1
                    clock = _run_forward(workspace, clock, stage, forward, begin, group, taken)
                    forward += 1
                else:
                    begin = start[BACKWARD, stage, backward]
                    if begin == -np.inf:
                        break
                    clock = _run_backward(workspace, clock, stage, backward, begin, group)
                    backward += 1
            done[0, stage], done[1, stage], done[2, stage] = forward, backward, begun
            now[0, stage], now[1, stage] = clock.free, clock.sent
            now[2, stage], now[3, stage] = clock.down_wire, clock.up_wire
            unfinished -= backward == steps
    for stage in range(stages):
        delayed_s = min(workspace.delay[stage], steps) * weight_s[stage]
        workspace.end[stage] = max(now[0, stage], now[1, stage]) + delayed_s
