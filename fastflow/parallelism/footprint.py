"""Memory that one device needs: weights, gradients, optimizer state, activations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.columns import Bools, Floats
from fastflow.parallelism.supergraph import Supergraph
from fastflow.workload.graph import Graph, sum_by_point
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


def footprint(graph: Graph, shards: Supergraph, precision: Precision, training: Bools) -> Footprint:
    """Return what one device holds.

    Every weight has a gradient of the operands' type when training, also an embedding row that
    no token touched. Activations are those that the backward pass reads again, for all steps.
    """
    weights = sum_by_point(graph, 1.0 * graph.weights * graph.batch * shards.inner * shards.cols)
    # what was kept per column of the layer is cut as the layer's activations are
    kept = graph.kept_cols * (shards.activation_cols / graph.cols)
    kept = kept + graph.kept_whole_cols * (shards.operand_cols / graph.cols)
    activations = sum_by_point(graph, 1.0 * graph.repeat * graph.batch * shards.rows * kept)
    return Footprint(
        weights * (precision.operand + precision.master),
        np.where(training, weights * precision.operand, 0.0),
        weights * precision.state,
        activations * precision.operand,
    )
