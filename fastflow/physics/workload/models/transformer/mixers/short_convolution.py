"""Short convolutions with two gates as mixers (Liquid AI's LFM2, arXiv:2511.23404).

One product makes two gates and the values, each of as many columns as the token has; the first gate
multiplies the values before a causal convolution of each channel, the second its output, and a product
follows (Lfm2ShortConv of huggingface/transformers, models/lfm2/modeling_lfm2.py). A request keeps the last
tokens of the convolution.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Inputs, Ints
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, TOKENS, gemm
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION, LayerCache, Mixer
from fastflow.physics.workload.models.transformer.mixers.linear import CONVOLUTION
from fastflow.physics.workload.network import INPUT, Node, PassCost
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.ops.recurrence import convolution, convolution_step
from fastflow.physics.workload.precision import Precision

_PRODUCTS = 3  # two gates, and the values
_DIMS = Dims(TOKENS, (), HEADS)
# a product of two tensors: both are read, one is written; backward three are read, and two written
_MOVES, _BACKWARD_MOVES = 3.0, 5.0


def _gate(size: Sizes, name: str, reads: tuple[str, ...]) -> Node:
    """Return the pass that multiplies a gate and a tensor."""
    operator = pointwise.OPERATORS["mul"]
    return Node(
        name=name, type=operator.base, rows=size.tokens, cols=size.hidden, reads=reads,
        cost=PassCost(_MOVES, operator.flop, _BACKWARD_MOVES), dims=_DIMS,
    )  # fmt: skip


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    return [
        gemm("mixer in", size, size.hidden, _PRODUCTS * size.hidden, read, (HIDDEN, HEADS)),
        _gate(size, "gate of input", ("mixer in",)),
        convolution(
            CONVOLUTION, size.sequences, size.sequence, size.hidden, 1.0 * np.asarray(size.conv_width),
            reads=("gate of input",), dims=_DIMS, vectors=size.hidden * size.conv_width,
        ),
        _gate(size, "gate of output", (CONVOLUTION, "mixer in")),
        gemm(PROJECTION, size, size.hidden, size.hidden, "gate of output", (HEADS, HIDDEN)),
    ]  # fmt: skip


def _core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    width = 1.0 * np.asarray(size.conv_width)
    if decodes:
        tokens = size.sequences * size.sequence
        return [
            convolution_step(CONVOLUTION, tokens, size.hidden, width, reads=(INPUT,), dims=_DIMS, keeps=0)
        ]
    return [
        convolution(
            CONVOLUTION,
            size.sequences,
            size.sequence,
            size.hidden,
            width,
            reads=(INPUT,),
            dims=_DIMS,
            keeps=0,
        )
    ]


def _cache(inputs: Inputs, size: Sizes, kind: LayerKind, numbers: Precision, tensor: Ints) -> LayerCache:
    """Return what a layer keeps of a request: the last tokens before the convolution."""
    channels = -(-np.asarray(size.hidden) // tensor)
    state = np.maximum(np.asarray(size.conv_width) - 1, 0) * channels * numbers.activation
    none = np.zeros(state.shape)
    return LayerCache(none, none, state)


SHORT_CONVOLUTION = Mixer(
    name="short_convolution",
    meaning="short convolution with gates",
    nodes=_nodes,
    core=_core,
    core_nodes=(CONVOLUTION,),
    cache=_cache,
    needs=(("model.conv_width", "short_convolution"),),
)
