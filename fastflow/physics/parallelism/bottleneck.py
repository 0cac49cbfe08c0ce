"""The pipeline stage that sets the pace of each point, and what it launches.

A pipelined iteration takes as many turns as there are micro-batches, each as long as the slowest stage's. So
its time is made of the kernels and waits of that stage alone; what the stage idles is the bubble.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.stage_times import Stacks
from fastflow.physics.parallelism.virtual_stages import Chunks
from fastflow.physics.workload.graph import FORWARD, UPDATE, Graph


class Bottleneck(NamedTuple):
    """The stage that sets the pace of every point."""

    stage: Ints  # counted from 0, (points,)
    launches: Ints  # of every kernel on that stage in an iteration, (kernels,)
    again: Ints | None  # those of them for what is computed again; None: of models that compute nothing again


def bottleneck(
    graph: Graph, pipe: Pipeline, stacks: Stacks | None, copies: Bools, kernel_s: Floats
) -> Bottleneck:
    """Return the stage of every point that sets the pace.

    Where layers stand for several, it is the one with most work for a micro-batch, with what its kernels wait
    for; else the one whose kernels take longest.

    copies: whether the last one of several stages has a copy of the first layer's weights, (points,);
    kernel_s: what a launch of every kernel takes [s], (kernels,).
    """
    launches = pipe.launches
    several = bool((pipe.stages > 1).any())
    if stacks is None or pipe.chunks is None:
        if not several:
            return Bottleneck(np.zeros_like(pipe.stages), launches, None)
        stage = _longest(graph, pipe, launches * kernel_s)
        return Bottleneck(stage, np.where(pipe.stage == stage[graph.point], launches, 0), None)
    if not several:
        return Bottleneck(stacks.stage, launches, pipe.again)
    found, again = _launched(graph.numbers, pipe.chunks, pipe.stages, pipe.microbatches, stacks.stage, copies)
    return Bottleneck(stacks.stage, found, again)


def _longest(graph: Graph, pipe: Pipeline, values: Floats) -> Ints:
    """Return the stage that has most of a quantity of kernels, the first of several, (points,)."""
    shape = pipe.stages.size, int(pipe.stages.max())
    totals = np.bincount(graph.point * shape[1] + pipe.stage, values, shape[0] * shape[1])
    slowest: Ints = totals.reshape(shape).argmax(axis=1)
    return slowest


@kernel
def _launched(
    graph: Graph, chunks: Chunks, stages: Ints, microbatches: Ints, stage: Ints, copies: Bools
) -> tuple[Ints, Ints]:
    """Return how often a stage of each point launches every kernel, and how often again, (kernels,)."""
    found, repeated = np.zeros((2, graph.point.size), dtype=np.int64)
    for p in range(stages.size):
        layers, virtual = chunks.layers[p], chunks.offset[p + 1] - chunks.offset[p]
        held, again = np.zeros((2, layers), dtype=np.int64)
        for j in range(stage[p], virtual, stages[p]):
            for layer in range(layers):
                held[layer] += chunks.held[chunks.at[p] + j * layers + layer]
                again[layer] += chunks.again[chunks.at[p] + j * layers + layer]
        copied = copies[p] and stages[p] > 1 and stage[p] == stages[p] - 1
        for row in range(graph.offset[p], graph.offset[p + 1]):
            layer, turns = graph.layer[row], graph.repeat[row] * microbatches[p]
            if graph.phase[row] == UPDATE:
                found[row] = graph.repeat[row] * (held[layer] + (copied and layer == 0))
                continue
            if graph.phase[row] == FORWARD:
                core = chunks.core[p] and graph.selective[row] > 0
                repeated[row] = turns * (held[layer] if core else again[layer])
            found[row] = turns * held[layer] + repeated[row]
    return found, repeated
