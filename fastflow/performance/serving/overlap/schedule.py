"""The schedule of a device whose nano-batches run at the same time (NanoFlow, arXiv:2408.12757, section 4.1).

Each nano-batch goes through the operations of a layer in order: products before attention, attention of
decoding requests, products after it, an all-reduce, the feed-forward products, another all-reduce. Kinds have
a stream each (`stream_gemm`, `stream_gemv`, `stream_net` of efeslab/Nanoflow, pipeline/src/pipeline.cu). It
runs one operation at a time: the next one of the nano-batch that it ran last, if that is ready, else the one
that has waited longest. TokenWeave (arXiv:2505.11329, section 4) has this order too: the all-reduce of one
half runs during the block of products of the other half. Operations that run together slow each other down
(`overlap.shares`).
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats
from fastflow.performance.serving.overlap.shares import COMPUTE, MEMORY, NETWORK, NUM_KINDS

KINDS = (COMPUTE, MEMORY, COMPUTE, NETWORK, COMPUTE, NETWORK)
"""Operations of a nano-batch in a layer."""
WARM_UP, LAYERS = 4, 8
"""Layers of two schedules: one in the steady state takes its part of the difference of their times."""
_TOGETHER = 1.0 + 1e-9  # ends that are so close are one event


@kernel
def layer_time(seconds: Floats, batches: int, speeds: Floats) -> float:
    """Return the time of a layer of all nano-batches in the steady state [s].

    seconds: of each operation of a nano-batch alone on the device, (operations,) [s]; speeds: of kinds in
    each set of kinds, (sets, kinds). Not less than the work of any kind, nor more than that of all kinds.
    """
    total, work = 0.0, np.zeros(NUM_KINDS)
    for i in range(len(KINDS)):
        total += seconds[i] * batches
        work[KINDS[i]] += seconds[i] * batches
    if not (0.0 < total < np.inf) or batches == 1:
        return total
    steady = makespan(seconds, batches, speeds, LAYERS) - makespan(seconds, batches, speeds, WARM_UP)
    return float(min(max(steady / (LAYERS - WARM_UP), work.max()), total))


@kernel
def makespan(seconds: Floats, batches: int, speeds: Floats, layers: int) -> float:
    """Return the time of some layers of all nano-batches, from the first operation to the last [s]."""
    last, running = np.full(NUM_KINDS, -1), np.full(NUM_KINDS, -1)
    operation, ready, left = np.full(batches, -1), np.zeros(batches), np.zeros(batches)
    for batch in range(batches):
        operation[batch] = _next_operation(seconds, -1)
        left[batch] = seconds[operation[batch]]
    now, end = 0.0, len(KINDS) * layers
    while True:
        kinds = 0
        for kind in range(NUM_KINDS):
            if running[kind] < 0:
                running[kind] = _first_waiting(operation, ready, end, kind, last[kind])
            if running[kind] >= 0:
                last[kind] = running[kind]
                kinds += 1 << kind
        if kinds == 0:
            return now
        step = np.inf
        for kind in range(NUM_KINDS):
            if running[kind] >= 0:
                step = min(step, left[running[kind]] / speeds[kinds, kind])
        if step == np.inf:
            return np.inf  # a kind without a share
        now += step
        for kind in range(NUM_KINDS):
            batch = running[kind]
            if batch < 0:
                continue
            if left[batch] / speeds[kinds, kind] <= step * _TOGETHER:
                operation[batch] = _next_operation(seconds, operation[batch])
                left[batch], ready[batch] = seconds[operation[batch] % len(KINDS)], now
                running[kind] = -1
            else:
                left[batch] -= step * speeds[kinds, kind]


@kernel
def _next_operation(seconds: Floats, operation: int) -> int:
    """Return the number of a nano-batch's next operation that takes time, over all layers."""
    operation += 1
    while seconds[operation % len(KINDS)] <= 0.0:
        operation += 1
    return operation


@kernel
def _first_waiting(operation: Floats, ready: Floats, end: int, kind: int, last: int) -> int:
    """Return the nano-batch whose operation of a kind is next, -1 if none waits."""
    first = -1
    for batch in range(operation.size):
        if operation[batch] >= end or KINDS[operation[batch] % len(KINDS)] != kind:
            continue
        if batch == last:
            return batch
        if first < 0 or ready[batch] < ready[first]:
            first = batch
    return first
