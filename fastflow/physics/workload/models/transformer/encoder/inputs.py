"""What goes into an encoder: embeddings of tokens, positions and segments (BERT, arXiv:1810.04805), or the
patches of an image, each a product with the same weights (ViT, arXiv:2010.11929, section 3.1).
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Inputs
from fastflow.physics.workload.graph import HEAD
from fastflow.physics.workload.models.transformer.building_blocks import HIDDEN, VOCABULARY, gemm, residual
from fastflow.physics.workload.models.transformer.dimensions import ALL, LEARNED, Sizes
from fastflow.physics.workload.models.transformer.encoder.dimensions import PATCHES, EncoderSizes
from fastflow.physics.workload.models.transformer.network import SHARED_LOOKUP, layer_norm, table
from fastflow.physics.workload.network import INPUT, Node
from fastflow.physics.workload.ops import embedding as lookup

PATCH = ("patch",)


def first_layer(points: Inputs, size: Sizes, ends: EncoderSizes) -> tuple[Node, ...]:
    """Return the nodes before the first layer: embeddings, their sum, and its norm."""
    nodes = [_patches(points, size, ends) if points["model.input"][0] == PATCHES else _tokens(points, size)]
    if points["model.position"][0] == LEARNED or points["model.learned_positions"][0]:
        nodes.append(table("positions", size, size.positions, (), lookup.TYPE))
    if np.any(np.asarray(ends.segments) > 0):
        nodes.append(table("segments", size, ends.segments, (), lookup.TYPE))
    reads = tuple(node.name for node in nodes)
    last = residual("embedding add", size, reads, bool(points["model.dropout"][0]))
    nodes.append(last._replace(vectors=ends.class_tokens * size.hidden))
    if points["model.embedding_norm"][0]:
        nodes.append(layer_norm(points, size, "embedding norm", last.name))
    return tuple(node._replace(part=HEAD) for node in nodes)


def _tokens(points: Inputs, size: Sizes) -> Node:
    kind = SHARED_LOOKUP if points["model.tied"][0] else lookup.TYPE
    return table("embedding", size, size.vocabulary, VOCABULARY, kind)


def _patches(points: Inputs, size: Sizes, ends: EncoderSizes) -> Node:
    """Return the product of every patch with the weights that all patches share."""
    biased = str(points["model.biases"][0]) == ALL
    node = gemm("patch embedding", size, ends.patch_columns, size.hidden, INPUT, (PATCH, HIDDEN), biased)
    return node._replace(rows=size.sequences * ends.patches)
