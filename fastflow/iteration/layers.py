"""What a layer takes on its device, forward and backward, where a graph has one layer for several alike.

A layer is a walk through its rows: a kernel starts when the one before it is done, and what it waits for has
come. What one layer exchanges is done before the next one begins.

Exchanges of tensor and context parallelism hide behind a product where asked for: one that is summed behind
the product that makes the sum, one that is gathered behind the product that reads it, both in as many parts
as there are devices, of which the first has nothing to hide behind (Wang et al., ASPLOS 2023,
doi:10.1145/3567955.3567959). The exchanges of experts hide behind another micro-batch's kernels of the same
layer, and gathers of weights (ZeRO-3) behind the layer before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.tables import Bools, Floats, Ints
from fastflow.workload.graph import (
    ALL_GATHER,
    BACKWARD,
    FORWARD,
    PRODUCTS,
    REDUCE_SCATTER,
    UPDATE,
    Graph,
)

TENSOR, CONTEXT, EXPERT, WEIGHTS = 0, 1, 2, 3
WAITS = ("tensor", "context", "expert", "weights")
"""What a kernel waits for: exchanges by what they are for; the last are gathers of weights."""
_KINDS = len(WAITS)
_ALL, _NONE = _KINDS, _KINDS + 1


class Waits(NamedTuple):
    """What one launch of every kernel waits for."""

    time: Floats  # by WAITS [s], (waits, kernels)
    level: Ints  # of the network, (kernels,)
    ranks: Ints  # of the first exchange of activations, (kernels,)
    collective: Ints  # the same


class Overlap(NamedTuple):
    """What hides behind kernels, (points,)."""

    tensor: Bools
    context: Bools
    expert: Bools
    weights: Bools


class LayerTimes(NamedTuple):
    """What one of the layers that a layer of the graph stands for takes; (layers of all points,).

    Of one micro-batch, but for the update.
    """

    first: Ints  # point p has layers first[p] to first[p + 1]
    forward: Floats  # [s]
    backward: Floats  # without what only the update reads [s]
    weight: Floats  # kernels that only the update reads: weight gradients [s]
    update: Floats  # without gathers of what it makes [s]
    gather: Floats  # of the weights that are updated by parts [s]
    core: Floats  # of the forward pass, what selective recomputation runs again [s]
    waits: Floats  # how much longer it is for what it waits for, [s], (2 phases, waits, layers)


@kernel
def _hidden(
    graph: Graph, row: int, end: int, kind: int, kernel_s: Floats, waits: Waits, overlap: Overlap
) -> float:
    """Return what a kernel still waits for once a product hides what it can [s]."""
    p, time = graph.point[row], waits.time[kind, row]
    asked = overlap.tensor[p] if kind == TENSOR else overlap.context[p]
    if not asked or kind > CONTEXT or time == 0.0:
        return float(time)
    beside = row if waits.collective[row] == REDUCE_SCATTER else row + graph.wait[row]
    if waits.collective[row] not in (REDUCE_SCATTER, ALL_GATHER) or beside >= end:
        return float(time)
    if graph.kind[beside] not in PRODUCTS:
        return float(time)
    part = time / waits.ranks[row]
    return float(max(part, time - kernel_s[beside] * (1.0 - 1.0 / waits.ranks[row])))


@kernel
def _walk(
    graph: Graph, begin: int, end: int, kernel_s: Floats, waiting: Floats, level: Ints, without: int
) -> float:
    """Return how long the rows of one layer and phase take [s]; waiting: (waits, rows)."""
    now, tail = 0.0, 0.0
    free, due = np.zeros(2), np.zeros(end - begin)
    for row in range(begin, end):
        i = row - begin
        now = max(now, due[i]) + kernel_s[row]
        if without == _NONE:
            continue
        wait = 0.0
        for kind in range(_KINDS):
            if kind != without:
                wait += waiting[kind, i]
        if wait > 0.0:
            free[level[row]] = max(free[level[row]], now) + wait
            reader = i + graph.wait[row]
            if reader < due.size:
                due[reader] = max(due[reader], free[level[row]])
            else:
                tail = max(tail, free[level[row]])
    return max(now, tail)


@kernel
def walk_layers(graph: Graph, first: Ints, kernel_s: Floats, waits: Waits, overlap: Overlap) -> LayerTimes:
    """Return what every layer takes; first: where the layers of each point begin, (points + 1,).

    kernel_s: one launch of every kernel [s], (kernels,).
    """
    layers = first[-1]
    out = LayerTimes(
        first=first,
        forward=np.zeros(layers),
        backward=np.zeros(layers),
        weight=np.zeros(layers),
        update=np.zeros(layers),
        gather=np.zeros(layers),
        core=np.zeros(layers),
        waits=np.zeros((2, _KINDS, layers)),
    )
    launched = kernel_s * graph.repeat
    for p in range(first.size - 1):
        row, last = graph.offset[p], graph.offset[p + 1]
        while row < last:
            begin, layer, phase = row, graph.layer[row], graph.phase[row]
            while row < last and graph.layer[row] == layer and graph.phase[row] == phase:
                row += 1
            at = first[p] + layer
            waiting = np.zeros((_KINDS, row - begin))
            busy = 0.0
            for i in range(begin, row):
                busy += launched[i]
                for kind in range(_KINDS):
                    waiting[kind, i - begin] = graph.repeat[i] * _hidden(
                        graph, i, last, kind, kernel_s, waits, overlap
                    )
            if phase == UPDATE:
                out.update[at] += _walk(graph, begin, row, launched, waiting, waits.level, WEIGHTS)
                out.gather[at] += waiting[WEIGHTS].sum()
                continue
            for kind, hides in ((EXPERT, overlap.expert[p]), (WEIGHTS, overlap.weights[p])):
                total = waiting[kind].sum()
                if hides and total > 0.0:
                    waiting[kind] *= max(0.0, 1.0 - busy / total)
            total = _walk(graph, begin, row, launched, waiting, waits.level, _ALL)
            side = 0.0
            for i in range(begin, row):
                side += launched[i] * graph.side[i]
                out.core[at] += launched[i] * graph.selective[i]
            for kind in range(_KINDS):
                if waiting[kind].any():
                    out.waits[phase, kind, at] += total - _walk(
                        graph, begin, row, launched, waiting, waits.level, kind
                    )
            if phase == FORWARD:
                out.forward[at] += total
            elif phase == BACKWARD:
                out.backward[at] += total - side
                out.weight[at] += side
    return out
