"""Total and active parameters of a transformer."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Inputs
from fastflow.physics.workload.models.transformer.network import network
from fastflow.physics.workload.network import Network, Node
from fastflow.physics.workload.ops import grouped_gemm


def parameters(points: Inputs) -> tuple[Floats, Floats]:
    """Return total and active parameters of models with the same structure; each (points,)."""
    return count_parameters(network(points), points["model.layers"].size)


def count_parameters(model: Network, size: int) -> tuple[Floats, Floats]:
    """Return total and active parameters of networks; size: number of points. Each (points,).

    Weights, gains and biases; shared weights count once. topk experts of a mixture are active. MTP modules
    do not count, since the next token does not need them; authors count so too (DeepSeek-V3 of 671 billion,
    arXiv:2412.19437, and 14 billion of its module in the weights of its card; GLM-5 of 744 billion).
    """
    total, active = np.zeros(size), np.zeros(size)
    for layer in model.layers:
        if layer.name.startswith("mtp"):
            continue
        for node in layer.nodes:
            weights = 1.0 * node.inner * node.cols * node.groups if node.weights else 0.0
            count = layer.times * (weights + node.vectors)
            total += count
            active += count * _active_share(node)
    return total, active


def _active_share(node: Node) -> Floats | float:
    """Return the share of a node's weights that is active for a token."""
    return node.attributes["topk"] / node.attributes["experts"] if node.type is grouped_gemm.TYPE else 1.0
