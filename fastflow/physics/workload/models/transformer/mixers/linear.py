"""What linear-time mixers share: a short convolution, a recurrence with a state of fixed size, and a norm.

Training and prompts run the recurrence in chunks of tokens; a request that decodes reads and writes its
states once a token (of a pass that verifies draft tokens, once for each).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastflow.core.tables import Inputs, Ints
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, TOKENS
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import LayerCache
from fastflow.physics.workload.network import INPUT, Node, PassCost, Size
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.ops.recurrence import (
    RecurrenceSizes,
    convolution,
    convolution_step,
    recurrence,
    recurrence_step,
)
from fastflow.physics.workload.precision import Precision

CONVOLUTION, RECURRENCE = "convolution", "recurrence"
CORE_NODES = (CONVOLUTION, RECURRENCE)
_DIMS = Dims(TOKENS, (), HEADS)
_GATE_FLOP = 4.0  # SiLU of the gate


def core_of_training(
    size: Sizes, rule: str, read: str, channels: Size, vectors: Size = 0, biased: bool = False
) -> list[Node]:
    """Return the convolution, where there is one, and the recurrence over whole sequences.

    rule: of ops.recurrence.RULES; read: the product that makes their input; channels: of the convolution;
    vectors: weights of the recurrence; biased: whether the convolution has a bias a channel.
    """
    nodes = []
    if np.any(np.asarray(size.conv_width) > 0):
        weights = channels * (size.conv_width + int(biased))
        nodes.append(
            convolution(
                CONVOLUTION, size.sequences, size.sequence, channels, 1.0 * np.asarray(size.conv_width),
                reads=(read,), dims=_DIMS, vectors=weights,
            )
        )  # fmt: skip
        read = CONVOLUTION
    sizes = _recurrence_sizes(size, size.sequences, size.sequence)
    return [*nodes, recurrence(RECURRENCE, rule, sizes, reads=(read,), dims=_DIMS, vectors=vectors)]


def core_of_serving(size: Sizes, rule: str, channels: Size, decodes: bool) -> list[Node]:
    """Return the convolution and the recurrence of prompts, or of a token a request."""
    tokens = size.sequences * size.sequence
    width = 1.0 * np.asarray(size.conv_width)
    nodes: list[Node] = []
    read = INPUT
    if np.any(width > 0):
        shared: dict[str, Any] = {"reads": (INPUT,), "dims": _DIMS, "keeps": 0}
        nodes.append(
            convolution_step(CONVOLUTION, tokens, channels, width, **shared)
            if decodes
            else convolution(CONVOLUTION, size.sequences, size.sequence, channels, width, **shared)
        )
        read = CONVOLUTION
    if decodes:
        step = _recurrence_sizes(size, tokens, 1)
        return [*nodes, recurrence_step(RECURRENCE, rule, step, reads=(read,), dims=_DIMS, keeps=0)]
    chunks = _recurrence_sizes(size, size.sequences, size.sequence)
    return [*nodes, recurrence(RECURRENCE, rule, chunks, reads=(read,), dims=_DIMS, keeps=0)]


def _recurrence_sizes(size: Sizes, sequences: Size, tokens: Size) -> RecurrenceSizes:
    return RecurrenceSizes(
        sequences, tokens, size.linear_key_heads, size.linear_key_dim, size.linear_heads,
        size.linear_value_dim, size.state_bytes,
    )  # fmt: skip


def gated_norm(size: Sizes, read: str, gate: str, name: str = "gated norm") -> Node:
    """Return the norm of each head's output, times the SiLU of a gate; gate: the product that makes it."""
    operator = pointwise.OPERATORS["rmsnorm"]
    return Node(
        name=name, type=pointwise.OPERATORS["mul"].base, rows=size.tokens,
        cols=size.linear_heads * size.linear_value_dim, reads=(read, gate),
        cost=PassCost(3.0, operator.flop + _GATE_FLOP, 5.0), dims=_DIMS, vectors=size.linear_value_dim,
    )  # fmt: skip


def state_cache(
    channels: Callable[[Sizes], Size],
) -> Callable[[Inputs, Sizes, LayerKind, Precision, Ints], LayerCache]:
    """Return what a mixer keeps of a request: a state a head, and the last tokens of the convolution.

    channels: of the convolution, of some sizes.
    """

    def cache(inputs: Inputs, size: Sizes, kind: LayerKind, numbers: Precision, tensor: Ints) -> LayerCache:
        states = -(-np.asarray(size.linear_heads) // tensor) * size.linear_key_dim * size.linear_value_dim
        last = np.maximum(np.asarray(size.conv_width) - 1, 0) * -(-np.asarray(channels(size)) // tensor)
        state = states * size.state_bytes + last * numbers.activation
        none = np.zeros(state.shape)
        return LayerCache(none, none, state)

    return cache
