"""Gradients of weights beside those that a device accumulates.

A product that adds its weight gradient to the accumulated one (`model.fused_gradients`) still gives autograd
a tensor of the weight's shape and type, which nothing reads; it stays for the next weight of this shape
(get_dummy_wgrad, NVIDIA/TransformerEngine, pytorch/module/base.py). Without the fusion the product writes a
gradient of its own, which is then added and freed.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.sharding.local_graph import LocalKernels
from fastflow.physics.workload.graph import HIDDEN, WEIGHT_GRADIENT, Graph
from fastflow.physics.workload.precision import Precision

FUSED = "model.fused_gradients"


def gradient_buffers(
    inputs: Inputs, graph: Graph, local: LocalKernels, pipeline: Pipeline, precision: Precision, zero: Ints
) -> Floats:
    """Return the bytes of gradients beside the accumulated ones, (points,); zero: stage of ZeRO.

    Of models whose products may fuse the sum. Where ZeRO shards gradients, those to be scattered stand for
    them; the first micro-batch's gradients are the accumulated ones, if they are of the same type.
    """
    if FUSED not in inputs:
        return np.zeros(zero.size)
    wider = precision.gradient > precision.output
    fuses = inputs[FUSED] & wider
    needs = inputs["model.training"] & (fuses | ((zero < 2) & (wider | (pipeline.microbatches > 1))))
    if not needs.any():
        return np.zeros(zero.size)
    return np.where(needs, separate_gradients(graph.numbers, local, fuses) * precision.output, 0.0)


@kernel
def separate_gradients(graph: Graph, local: LocalKernels, fuses: Bools) -> Floats:
    """Return the elements of gradients of one device beside the accumulated ones, (points,).

    fuses: whether products add to the accumulated gradients; then it is a tensor for each shape of a weight
    in hidden layers, else the largest gradient.
    """
    result = np.zeros(fuses.size)
    for p in range(fuses.size):
        first, last = graph.offset[p], graph.offset[p + 1]
        for row in range(first, last):
            if graph.kind[row] != WEIGHT_GRADIENT:
                continue
            weight = 1.0 * local.inner[row] * local.cols[row]
            if not fuses[p]:
                result[p] = max(result[p], local.batch[row] * weight)
                continue
            if graph.layer.kind[row] != HIDDEN:
                continue
            is_new = True
            for other in range(first, row):
                if (
                    graph.kind[other] == WEIGHT_GRADIENT
                    and local.inner[other] == local.inner[row]
                    and local.cols[other] == local.cols[row]
                ):
                    is_new = False
                    break
            if is_new:
                result[p] += weight
    return result
