"""What goes into an encoder: embeddings of tokens, positions and segments (BERT, arXiv:1810.04805), or the
patches of an image, each a product with the same weights (ViT, arXiv:2010.11929, section 3.1).
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Inputs
from fastflow.physics.workload.graph import HEAD, Dims
from fastflow.physics.workload.models.transformer.building_blocks import (
    HIDDEN,
    TOKENS,
    VOCABULARY,
    gemm,
    residual,
)
from fastflow.physics.workload.models.transformer.dimensions import ALL, LEARNED, Sizes
from fastflow.physics.workload.models.transformer.encoder.dimensions import PATCHES, EncoderSizes
from fastflow.physics.workload.models.transformer.network import SHARED_LOOKUP, layer_norm, table
from fastflow.physics.workload.network import Node, PassCost
from fastflow.physics.workload.ops import elementwise
from fastflow.physics.workload.ops import embedding as lookup

PATCH = ("patch",)


def first_layer(points: Inputs, size: Sizes, ends: EncoderSizes) -> tuple[Node, ...]:
    """Return the nodes before the first layer: embeddings, their sum, and its norm."""
    images = points["model.input"][0] == PATCHES
    nodes = _patches(points, size, ends) if images else [_tokens(points, size)]
    if points["model.position"][0] == LEARNED or points["model.learned_positions"][0]:
        nodes.append(table("positions", size, size.positions, (), lookup.TYPE))
    if np.any(np.asarray(ends.segments) > 0):
        nodes.append(table("segments", size, ends.segments, (), lookup.TYPE))
    reads = tuple(node.name for node in nodes[int(images) :])
    last = residual("embedding add", size, reads, bool(points["model.dropout"][0]))
    nodes.append(last._replace(vectors=ends.class_tokens * size.hidden))
    if points["model.embedding_norm"][0]:
        nodes.append(layer_norm(points, size, "embedding norm", last.name))
    return tuple(node._replace(part=HEAD) for node in nodes)


def _tokens(points: Inputs, size: Sizes) -> Node:
    kind = SHARED_LOOKUP if points["model.tied"][0] else lookup.TYPE
    return table("embedding", size, size.vocabulary, VOCABULARY, kind)


def _patches(points: Inputs, size: Sizes, ends: EncoderSizes) -> list[Node]:
    """Return the pass that lays out patches, and their product with weights that all of them share."""
    biased = str(points["model.biases"][0]) == ALL
    rows = size.sequences * ends.patches
    pixels = Node(
        name="patches", type=elementwise.TYPE, rows=rows, cols=ends.patch_columns, reads=(),
        cost=PassCost(moves=2.0), dims=Dims(TOKENS, (), PATCH),
    )  # fmt: skip
    product = gemm(
        "patch embedding", size, ends.patch_columns, size.hidden, pixels.name, (PATCH, HIDDEN), biased
    )
    return [pixels, product._replace(rows=rows)]
