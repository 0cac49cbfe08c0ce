"""The recurrent block of Griffin and RecurrentGemma (De et al., arXiv:2402.19427), with its RG-LRU.

A product makes `linear_heads` x `linear_value_dim` columns twice: one copy goes through a short convolution
and the recurrence, whose gates are products with a block for each head, and the other gates the output
(RecurrentGemmaRecurrentBlock of huggingface/transformers@0233e50, models/recurrent_gemma). Every column has a
state of one number, which a selective scan with a key of one column computes. All products have biases.
"""

from __future__ import annotations

from dataclasses import replace

from fastflow.core.tables import Inputs
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, TOKENS, gemm
from fastflow.physics.workload.models.transformer.dimensions import ACTIVATIONS, ALL, OF_ATTENTION, Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION
from fastflow.physics.workload.models.transformer.mixers.linear import (
    MIXER_IN,
    RECURRENCE,
    core_of_training,
    gated,
    mixer_of_rule,
    values_of,
)
from fastflow.physics.workload.network import Node
from fastflow.physics.workload.ops.per_head import TYPE, per_head
from fastflow.physics.workload.ops.recurrence.kernel_type import SEQUENCE
from fastflow.physics.workload.ops.recurrence.rules import SELECTIVE
from fastflow.physics.workload.sharding_rules import GROUPS

_GATES = 2  # of input and recurrence
_OF_BLOCKS = replace(TYPE, sides={**TYPE.sides, SEQUENCE: GROUPS})
"""The product of the gates: where a plan shards the tokens of a sequence, it has all tokens of some heads, as
the recurrence has."""


def _scan(size: Sizes) -> Sizes:
    """Return the sizes of the scan: every column is a channel with a state of one number."""
    return size._replace(
        linear_heads=values_of(size), linear_key_heads=1, linear_key_dim=1, linear_value_dim=1
    )


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    width, block = values_of(size), size.linear_value_dim
    *convolved, core = core_of_training(
        _scan(size), SELECTIVE, (MIXER_IN, "gates"), width, vectors=width, biased=True,
        further_cols=_GATES * width,
    )  # fmt: skip
    source = convolved[-1].name if convolved else MIXER_IN
    gates = per_head(
        "gates", size.tokens, size.linear_heads, block, _GATES * block, source, Dims(TOKENS, (), (), HEADS)
    )._replace(type=_OF_BLOCKS, vectors=_GATES * width, keeps=None, wide=False)
    # where products of attention have biases, the residual sum adds this one
    biased = str(points["model.biases"][0]) not in (OF_ATTENTION, ALL)
    out = gemm(PROJECTION, size, width, size.hidden, "output gate", (HEADS, HIDDEN), biased=biased)
    return [
        gemm(MIXER_IN, size, size.hidden, 2 * width, read, (HIDDEN, HEADS), biased=True),
        *convolved,
        gates,
        core,
        gated(size, RECURRENCE, MIXER_IN, width, ACTIVATIONS["gelu"] + 1.0),
        out,
    ]


RG_LRU = mixer_of_rule(
    "rg_lru",
    "recurrent block of Griffin",
    SELECTIVE,
    _nodes,
    channels=values_of,
    recurrent=_scan,
    needed=("linear_heads", "linear_value_dim", "conv_width"),
)
