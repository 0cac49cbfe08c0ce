"""Mamba-2 (Dao and Gu, arXiv:2405.21060), with the products and norms of its authors' module.

One product makes the output's gate, values, keys and queries (B and C, of groups of heads) and a step size a
head; a short convolution runs over all but the first and the last (Mamba2 of state-spaces/mamba). Nemotron-H,
Granite 4, Bamba, Zamba2 and Falcon-H1 have the same module. The backward pass recomputes the convolution
(mamba_ssm/ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn).
"""

from __future__ import annotations

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION
from fastflow.physics.workload.models.transformer.mixers.linear import (
    MIXER_IN,
    core_of_training,
    gated_norm,
    mixer_of_rule,
    queries_keys_and_values,
    values_of,
)
from fastflow.physics.workload.network import Node, Size
from fastflow.physics.workload.ops.recurrence import SCAN

_OWN = 3  # weights of a head: the decay's scale, the step's bias, the skip connection


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    values, channels = values_of(size), queries_keys_and_values(size)
    cols: Size = channels + values + size.linear_heads
    nodes = [gemm(MIXER_IN, size, size.hidden, cols, read, (HIDDEN, HEADS))]
    nodes += core_of_training(
        size, SCAN, (MIXER_IN,), channels, vectors=_OWN * size.linear_heads, biased=True,
        keeps_convolution=False,
    )  # fmt: skip
    nodes.append(gated_norm(size, nodes[-1].name, MIXER_IN)._replace(vectors=values))
    return [*nodes, gemm(PROJECTION, size, values, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


MAMBA2 = mixer_of_rule(
    "mamba2",
    "Mamba-2",
    SCAN,
    _nodes,
    further=("linear_key_heads", "linear_value_dim", "conv_width"),
)
