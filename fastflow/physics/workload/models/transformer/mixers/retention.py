"""Retention (Sun et al., RetNet, arXiv:2307.08621): a constant decay for each head.

One product makes queries, keys, values and the output's gate; queries and keys have rotary embedding
(MultiScaleRetention of fla-org/flash-linear-attention@17423c9, fla/layers/multiscale_retention.py, whose norm
of a head has weights; that of microsoft/torchscale has none).
"""

from __future__ import annotations

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm
from fastflow.physics.workload.models.transformer.dimensions import ROTARY, Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION
from fastflow.physics.workload.models.transformer.mixers.heads import rotary
from fastflow.physics.workload.models.transformer.mixers.linear import (
    MIXER_IN,
    RECURRENCE,
    core_of_training,
    gated_norm,
    keys_of,
    mixer_of_rule,
    queries_keys_and_values,
    values_of,
)
from fastflow.physics.workload.network import Node
from fastflow.physics.workload.ops.recurrence.rules import RETENTION as RULE


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    values, channels = values_of(size), queries_keys_and_values(size)
    nodes = [gemm(MIXER_IN, size, size.hidden, channels + values, read, (HIDDEN, HEADS))]
    if points["model.position"][0] == ROTARY:
        nodes.append(rotary(size, channels, (MIXER_IN,), 4 * keys_of(size)))
    nodes += core_of_training(size, RULE, (nodes[-1].name,))
    nodes.append(gated_norm(size, RECURRENCE, MIXER_IN))
    return [*nodes, gemm(PROJECTION, size, values, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


RETENTION = mixer_of_rule(
    "retention",
    "retention",
    RULE,
    _nodes,
    channels=None,
    further=("linear_key_heads", "linear_value_dim"),
)
