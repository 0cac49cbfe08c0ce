"""The blocks of a stage in the order in which it runs them: of every order of `stage_order`.

A column of a sequence is a block; rows: kind (FORWARD, BACKWARD, WEIGHT), chunk, micro-batch, and a mark:

- of a forward block: that it runs together with the backward block after it (DUALPIPE_V);
- of a backward block: that it makes the gradients of the weights too;
- of a block of weight gradients: always.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Ints
from fastflow.physics.schedule.pipeline_order import DUALPIPE_V, GPIPE, ZERO_BUBBLE_V
from fastflow.physics.schedule.stage_order import (
    check_order,
    folds,
    group_of,
    in_flight,
    splits_backward,
    waiting,
    weight_delay,
)
from fastflow.physics.workload.graph import BACKWARD, FORWARD

WEIGHT = 3
"""A third kind of block after FORWARD and BACKWARD: gradients of weights, where these are separate blocks."""
KIND, CHUNK, MICROBATCH, MARK = 0, 1, 2, 3


@kernel
def block_sequence(order: int, stages: int, stage: int, chunks: int, microbatches: int) -> Ints:
    """Return the blocks of a stage in the order in which it runs them, (4, blocks).

    Raises ValueError as `check_order` does.
    """
    check_order(order, stages, chunks, microbatches)
    if order == ZERO_BUBBLE_V:
        return _zero_bubble_v(stages, stage, microbatches)
    if order == DUALPIPE_V:
        return _dualpipe_v(stages, stage, microbatches)
    is_split = splits_backward(order)
    steps, delay = chunks * microbatches, weight_delay(order, stage)
    most = in_flight(order, stages, stage, chunks, microbatches)
    group = group_of(order, stages, chunks, microbatches)
    sequence = np.empty((4, (3 if is_split else 2) * steps), dtype=np.int64)
    forward, backward, weight = 0, 0, 0
    for i in range(sequence.shape[1]):
        if forward < steps and forward - backward < most and not (is_split and weight + delay < backward):
            kind, k, forward = FORWARD, forward, forward + 1
        elif is_split and (weight + delay < backward or backward == steps):
            kind, k, weight = WEIGHT, weight, weight + 1
        else:
            kind, k, backward = BACKWARD, backward, backward + 1
        chunk, microbatch = _turn(k, group, chunks, microbatches)
        if kind != FORWARD:
            chunk = chunks - 1 - chunk
            microbatch = microbatches - 1 - microbatch if order == GPIPE else microbatch
        sequence[KIND, i], sequence[CHUNK, i], sequence[MICROBATCH, i] = kind, chunk, microbatch
        sequence[MARK, i] = kind == WEIGHT or (kind == BACKWARD and not is_split)
    return sequence


@lean_kernel
def _turn(k: int, group: int, chunks: int, microbatches: int) -> tuple[int, int]:
    """Return chunk and micro-batch of a forward step; the last group may have fewer micro-batches."""
    first = k // (chunks * group) * group
    size = min(group, microbatches - first)
    within = k - first * chunks
    return within // size, first + within % size


@kernel
def most_kept(order: int, stages: int, stage: int, chunks: int, microbatches: int) -> int:
    """Return the most micro-batches in a chunk whose activations a stage keeps at a time.

    All of a block's activations stay until its weight gradients are made.
    """
    if not folds(order):
        kept = in_flight(order, stages, stage, chunks, microbatches)
        return kept + waiting(order, stages, stage, microbatches)
    sequence, kept, most = block_sequence(order, stages, stage, chunks, microbatches), 0, 0
    for i in range(sequence.shape[1]):
        if sequence[KIND, i] == FORWARD:
            kept += 1
            most = max(most, kept)
        else:
            kept -= sequence[MARK, i]
    return most


class _Queue(NamedTuple):
    """The blocks of a stage with two chunks so far; each kind takes the micro-batches of a chunk in turn."""

    sequence: Ints  # (4, blocks)
    length: Ints  # blocks so far, (1,)
    next: Ints  # micro-batch, (4 kinds, 2 chunks)
    microbatches: int


@kernel
def _queue(microbatches: int) -> _Queue:
    """Return an empty queue."""
    sequence = np.empty((4, 6 * microbatches), dtype=np.int64)
    return _Queue(sequence, np.zeros(1, np.int64), np.zeros((4, 2), np.int64), microbatches)


@lean_kernel
def _add(queue: _Queue, kind: int, chunk: int, mark: bool) -> None:
    """Add a block of the next micro-batch, unless the batch has no more."""
    microbatch = queue.next[kind, chunk]
    queue.next[kind, chunk] += 1
    if kind == BACKWARD and mark:
        queue.next[WEIGHT, chunk] += 1
    if microbatch < queue.microbatches:
        i = queue.length[0]
        queue.sequence[KIND, i], queue.sequence[CHUNK, i] = kind, chunk
        queue.sequence[MICROBATCH, i], queue.sequence[MARK, i] = microbatch, mark
        queue.length[0] += 1


@lean_kernel
def _add_split(queue: _Queue, chunk: int) -> None:
    """Add a backward block, and its weight gradients after it."""
    _add(queue, BACKWARD, chunk, False)
    _add(queue, WEIGHT, chunk, True)


@kernel
def _zero_bubble_v(stages: int, stage: int, microbatches: int) -> Ints:
    """Return the blocks of a stage under ZB-V.

    The order is that of many micro-batches; where there are few, those that are not there are left out, as in
    ScheduleZBVZeroBubble of pytorch/pytorch (torch/distributed/pipelining/schedules.py).
    """
    queue, many = _queue(microbatches), max(2 * stages - 1, microbatches)
    for _ in range(2 * (stages - stage) - 1):
        _add(queue, FORWARD, 0, False)
    for _ in range(stage):
        _add(queue, FORWARD, 1, False)
        _add(queue, FORWARD, 0, False)
    for _ in range(stages - stage):
        _add(queue, FORWARD, 1, False)
        _add_split(queue, 1)
    while queue.next[FORWARD, 1] < many:
        if queue.next[FORWARD, 0] < many:
            _add(queue, FORWARD, 0, False)
        _add_split(queue, 0)
        _add(queue, FORWARD, 1, False)
        _add_split(queue, 1)
    for _ in range(stage):
        _add(queue, BACKWARD, 0, False)
        _add(queue, BACKWARD, 1, False)
    for _ in range(stages - stage):
        _add_split(queue, 0)
    for chunk in (1, 0):
        while queue.next[WEIGHT, chunk] < many:
            _add(queue, WEIGHT, chunk, True)
    return queue.sequence[:, : queue.length[0]]


@kernel
def _dualpipe_v(stages: int, stage: int, microbatches: int) -> Ints:
    """Return the blocks of a stage under DualPipeV, by the eight steps of deepseek-ai/DualPipe."""
    queue, before_last = _queue(microbatches), stages - 1 - stage
    delayed, made = np.empty(2 * microbatches, np.int64), 0  # chunks of delayed weight gradients, those made
    count = 0
    for _ in range(2 * before_last):
        _add(queue, FORWARD, 0, False)
    for _ in range(stage + 1):
        _add(queue, FORWARD, 0, False)
        _add(queue, FORWARD, 1, False)
    for _ in range(before_last):
        _add_split(queue, 1)
        _add(queue, FORWARD, 1, False)
    for i in range(microbatches - 2 * stages + stage + 1):
        _add(queue, FORWARD, 0, i > 0 or before_last > 0)
        _add(queue, BACKWARD, 1, True)
        _add(queue, FORWARD, 1, True)
        _add(queue, BACKWARD, 0, True)
    for _ in range(before_last):
        _add(queue, BACKWARD, 1, True)
        _add(queue, FORWARD, 1, True)
        _add(queue, BACKWARD, 0, True)
    for i in range(2 * (stage + 1)):
        _add(queue, BACKWARD, 1 - i % 2, i <= stage)
        if i > stage:
            delayed[count], count = 1 - i % 2, count + 1
    for _ in range(before_last):
        _add(queue, WEIGHT, delayed[made], True)
        made += 1
        _add(queue, BACKWARD, 0, False)
        delayed[count], count = 0, count + 1
    while made < count:
        _add(queue, WEIGHT, delayed[made], True)
        made += 1
    return queue.sequence[:, : queue.length[0]]
