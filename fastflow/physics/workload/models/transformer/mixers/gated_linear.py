"""Gated linear attention (Yang et al., arXiv:2312.06635): a decay for each column of a key, of a low rank.

One product makes queries, keys, values and the output's gate; two more the decays, of rank 16 by default
(GatedLinearAttention of fla-org/flash-linear-attention@0c4ada1, fla/layers/gla.py).
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
from fastflow.physics.workload.ops.recurrence.rules import GATED

_RANK = 16


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    keys, values, channels = keys_of(size), values_of(size), queries_keys_and_values(size)
    rank = rank_of(size, _RANK)
    nodes = [
        gemm(MIXER_IN, size, size.hidden, channels + values, read, (HIDDEN, HEADS)),
        gemm("decay down", size, size.hidden, rank, read, (HIDDEN, RANK)),
        gemm("decay up", size, rank, keys, "decay down", (RANK, HEADS), biased=True),
    ]
    nodes += core_of_training(size, GATED, (MIXER_IN, "decay up"), channels, further_cols=keys)
    nodes.append(gated_norm(size, nodes[-1].name, MIXER_IN))
    return [*nodes, gemm(PROJECTION, size, values, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


GATED_LINEAR = mixer_of_rule(
    "gated_linear",
    "gated linear attention",
    GATED,
    _nodes,
    further=("linear_key_heads", "linear_value_dim", "linear_rank", "conv_width"),
)
