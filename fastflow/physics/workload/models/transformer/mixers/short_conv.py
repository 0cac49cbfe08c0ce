"""Gated short convolutions (LFM2): a product makes three copies of the columns, of which two are gates.

The first gate multiplies what the convolution reads, the second what it makes; neither has an activation
(Lfm2ShortConv of huggingface/transformers@0096ba4, models/lfm2). A request keeps the last tokens alone.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION, Mixer
from fastflow.physics.workload.models.transformer.mixers.linear import (
    CONVOLUTION,
    MIXER_IN,
    OF_HEADS,
    convolution_of_serving,
    gated,
    needs,
    state_cache,
)
from fastflow.physics.workload.network import Node, PassCost, Size
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.ops.recurrence import convolution


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    columns = size.hidden
    return [
        gemm(MIXER_IN, size, size.hidden, 3 * columns, read, (HIDDEN, HEADS)),
        Node(
            name="input gate", type=PASS, rows=size.tokens, cols=columns, reads=(MIXER_IN,), dims=OF_HEADS,
            cost=PassCost(3.0, 1.0, 5.0),
        ),
        convolution(
            CONVOLUTION, size.sequences, size.sequence, columns, 1.0 * np.asarray(size.conv_width),
            reads=("input gate",), dims=OF_HEADS, vectors=columns * size.conv_width,
        ),
        gated(size, CONVOLUTION, MIXER_IN, columns, 1.0),
        gemm(PROJECTION, size, columns, size.hidden, "output gate", (HEADS, HIDDEN)),
    ]  # fmt: skip


def _core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    return convolution_of_serving(size, size.hidden, decodes)


def _channels(size: Sizes) -> Size:
    return size.hidden


SHORT_CONV = Mixer(
    name="short_conv",
    meaning="gated short convolution",
    nodes=_nodes,
    core=_core,
    core_nodes=(CONVOLUTION,),
    cache=state_cache(_channels, lambda size: 0),
    needs=needs("short_conv", "conv_width"),
    of_heads=(),
)
