"""Memory that one device needs: weights, gradients, optimizer state, activations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.columns import Bools, Floats
from fastflow.parallelism.supergraph import Supergraph
from fastflow.workload.graph import Graph
from fastflow.workload.precision import Precision


class Footprint(NamedTuple):
    """Bytes of one device by kind; shape (points,)."""

    weights: Floats  # master copies included
    gradients: Floats
    optimizer: Floats
    activations: Floats  # kept from the forward to the backward pass

    @property
    def total(self) -> Floats:
        """All of it [B]."""
        return self.weights + self.gradients + self.optimizer + self.activations


@kernel
def _elements(graph: Graph, shards: Supergraph) -> tuple[Floats, Floats]:
    """Return the weights of one device, and the activations that it keeps; shape (points,)."""
    points = graph.offset.size - 1
    weights, activations = np.zeros(points), np.zeros(points)
    for row in range(graph.point.size):
        p, cols = graph.point[row], graph.cols[row]
        owned = 1.0 * graph.weights[row] * graph.batch[row]
        weights[p] += owned * shards.inner[row] * shards.cols[row]
        # what was kept per column of the layer is cut as the layer's activations are
        kept = graph.kept_cols[row] * (shards.activation_cols[row] / cols)
        kept += graph.kept_whole_cols[row] * (shards.operand_cols[row] / cols)
        activations[p] += 1.0 * graph.repeat[row] * graph.batch[row] * shards.rows[row] * kept
    return weights, activations


def footprint(graph: Graph, shards: Supergraph, precision: Precision, training: Bools) -> Footprint:
    """Return what one device holds.

    Every weight has a gradient of the operands' type when training, also an embedding row that
    no token touched. Activations are those that the backward pass reads again, for all steps.
    """
    weights, activations = _elements(graph.numbers, shards)
    return Footprint(
        weights * (precision.operand + precision.master),
        np.where(training, weights * precision.operand, 0.0),
        weights * precision.state,
        activations * precision.operand,
    )
