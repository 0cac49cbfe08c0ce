"""Lightning attention (MiniMax-01, arXiv:2501.08313): a constant decay for each head, and a norm of them all.

One product makes queries, keys, values and the output's gate; a pass applies SiLU to the first three
(MiniMaxLightningAttention of huggingface/transformers@008e574, models/minimax). Ling and Ring 2.5 normalise
and rotate queries and keys in its place (vllm-project/vllm@055e47c, models/bailing_moe_linear.py).
"""

from __future__ import annotations

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.building_blocks import GATE_FLOP, HEADS, HIDDEN, gemm, norm
from fastflow.physics.workload.models.transformer.dimensions import RMS, Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION
from fastflow.physics.workload.models.transformer.mixers.linear import (
    MIXER_IN,
    OF_HEADS,
    RECURRENCE,
    core_of_training,
    gated,
    mixer_of_rule,
    queries_keys_and_values,
    values_of,
)
from fastflow.physics.workload.network import Node, PassCost
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.ops.recurrence.rules import LIGHTNING as RULE

_ACTIVATION = "mixer activation"


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    values, channels = values_of(size), queries_keys_and_values(size)
    silu = pointwise.OPERATORS["silu"]
    activation = Node(
        name=_ACTIVATION, type=pointwise.TYPES["silu"], rows=size.tokens, cols=channels, reads=(MIXER_IN,),
        cost=PassCost(2.0, silu.flop, float(silu.backward)), dims=OF_HEADS,
        vectors=2 * size.linear_key_dim * int(bool(points["model.qk_norm"][0])),
    )  # fmt: skip
    return [
        gemm(MIXER_IN, size, size.hidden, channels + values, read, (HIDDEN, HEADS)),
        activation,
        *core_of_training(size, RULE, (_ACTIVATION,)),
        norm("output norm", size, RMS, RECURRENCE, values, HEADS),
        gated(size, "output norm", MIXER_IN, values, GATE_FLOP),
        gemm(PROJECTION, size, values, size.hidden, "output gate", (HEADS, HIDDEN)),
    ]


LIGHTNING = mixer_of_rule(
    "lightning",
    "lightning attention",
    RULE,
    _nodes,
    channels=None,
    further=("linear_key_heads", "linear_value_dim"),
)
