"""Gated delta nets (Yang et al., arXiv:2412.06464), with the products and norms of Qwen3-Next.

One product makes queries, keys, values, the output's gate and two numbers a head; a short convolution runs
over the first three (Qwen3NextGatedDeltaNet of huggingface/transformers). Servers have a product of its own
for the two numbers, which stay in 16 bits, and a pass that orders what both make (in_proj_ba and
fused_qkvzba_split_reshape_cat of sgl-project/sglang, python/sglang/srt/models/qwen3_next.py; vLLM's too).
Keys and queries are normalised in the recurrence's own kernels. For the backward pass the recurrence keeps
the inverses of its chunks (fla-org/flash-linear-attention@ffc1fb9, fla/ops/gated_delta_rule/chunk.py).
"""

from __future__ import annotations

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm
from fastflow.physics.workload.models.transformer.dimensions import BEFORE, Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION
from fastflow.physics.workload.models.transformer.mixers.linear import (
    MIXER_IN,
    OF_HEADS,
    core_of_training,
    gated_norm,
    mixer_of_rule,
    queries_keys_and_values,
    values_of,
)
from fastflow.physics.workload.network import Node, PassCost, Size
from fastflow.physics.workload.ops import elementwise
from fastflow.physics.workload.ops.recurrence import DELTA

_PRODUCT, _STEERS = "mixer product", "decay and strength"
_NUMBERS = 2  # of a head and token: decay, and strength of the update
_OWN = 2  # of a head: the decay's scale and bias


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    values, channels = values_of(size), queries_keys_and_values(size)
    cols: Size = channels + values + _NUMBERS * size.linear_heads
    if BEFORE.name in points:
        nodes = _served_products(size, channels + values, read)
    else:
        nodes = [gemm(MIXER_IN, size, size.hidden, cols, read, (HIDDEN, HEADS))]
    nodes += core_of_training(size, DELTA, (MIXER_IN,), channels, vectors=_OWN * size.linear_heads)
    nodes.append(gated_norm(size, nodes[-1].name, MIXER_IN))
    return [*nodes, gemm(PROJECTION, size, values, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


def _served_products(size: Sizes, cols: Size, read: str) -> list[Node]:
    """Return the products of servers, and the pass that orders what they make; cols: of the first one."""
    return [
        gemm(_PRODUCT, size, size.hidden, cols, read, (HIDDEN, HEADS)),
        gemm(_STEERS, size, size.hidden, _NUMBERS * size.linear_heads, read, (HIDDEN, HEADS), wide=True),
        Node(
            name=MIXER_IN, type=elementwise.TYPE, rows=size.tokens, cols=cols, reads=(_PRODUCT, _STEERS),
            cost=PassCost(2.0), dims=OF_HEADS,
        ),
    ]  # fmt: skip


GATED_DELTA = mixer_of_rule(
    "gated_delta",
    "gated delta net",
    DELTA,
    _nodes,
    further=("linear_key_heads", "linear_value_dim", "conv_width"),
)
