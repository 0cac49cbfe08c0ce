"""Kimi delta attention (Kimi Linear, arXiv:2510.26692): a gated delta rule with a decay for each column.

Queries, keys and values have a short convolution each; decays and the output's gate are low-rank, of a head's
columns by default (modeling_kimi.py of moonshotai/Kimi-Linear-48B-A3B-Instruct; vllm-project/vllm@01a7e5d,
vllm/model_executor/layers/kda.py). Every device computes the small products of the ranks.
"""

from __future__ import annotations

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION
from fastflow.physics.workload.models.transformer.mixers.linear import (
    MIXER_IN,
    RANK,
    core_of_training,
    gated_norm,
    keys_of,
    mixer_of_rule,
    queries_keys_and_values,
    rank_of,
    values_of,
)
from fastflow.physics.workload.network import Node
from fastflow.physics.workload.ops.recurrence.rules import KIMI


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    keys, values, channels = keys_of(size), values_of(size), queries_keys_and_values(size)
    rank = rank_of(size, size.linear_value_dim)
    decay, gate = "decay up", "gate up"
    nodes = [
        # with the strength of each head's update
        gemm(MIXER_IN, size, size.hidden, channels + size.linear_heads, read, (HIDDEN, HEADS)),
        gemm("gates down", size, size.hidden, 2 * rank, read, (HIDDEN, RANK)),
        gemm(decay, size, rank, keys, "gates down", (RANK, HEADS)),
        gemm(gate, size, rank, values, "gates down", (RANK, HEADS)),
    ]
    # scales of decays by head, and biases by column
    weights = size.linear_heads + keys
    nodes += core_of_training(
        size, KIMI, (MIXER_IN, decay), channels, vectors=weights, further_cols=keys
    )  # fmt: skip
    nodes.append(gated_norm(size, nodes[-1].name, gate))
    return [*nodes, gemm(PROJECTION, size, values, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


KIMI_DELTA = mixer_of_rule(
    "kimi_delta",
    "Kimi delta attention",
    KIMI,
    _nodes,
    further=("linear_key_heads", "linear_value_dim", "linear_rank", "conv_width"),
)
