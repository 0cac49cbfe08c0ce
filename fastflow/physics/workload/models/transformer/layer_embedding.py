"""Embeddings of a token for each layer (Gemma 3n): tables beside the first, and a gated input of every layer.

A look-up makes the columns of all layers at once, and a product of the token's first embedding as many, which
are normalised and added (Gemma3nTextModel of huggingface/transformers). Every layer multiplies its own by the
activation of a gate, and adds their projection to the residual (Gemma3nTextDecoderLayer).
"""

from __future__ import annotations

from fastflow.core.tables import Inputs, single
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.transformer.building_blocks import (
    HIDDEN,
    TOKENS,
    VOCABULARY,
    activation,
    gemm,
    norm,
    residual,
)
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.network import Node, PassCost
from fastflow.physics.workload.ops import embedding as lookup
from fastflow.physics.workload.ops import pointwise

BEFORE_TABLE = "add before embedding"
_COLUMNS = ("layer_embedding",)


def layer_tables(points: Inputs, size: Sizes) -> list[Node]:
    """Return the look-up of all layers' embeddings, and the product of the first embedding with their sum."""
    cols = single(points["model.layers"]) * size.layer_embedding
    table = Node(
        name="layer embeddings", type=lookup.TYPE, rows=size.tokens, cols=cols, inner=size.vocabulary,
        reads=(), keeps=0, keeps_whole=0, dims=Dims(TOKENS, VOCABULARY, _COLUMNS),
    )  # fmt: skip
    joined = gemm("layer projection", size, size.hidden, cols, "embedding", (HIDDEN, _COLUMNS))
    operator = pointwise.OPERATORS["rmsnorm"]
    added = Node(
        name="layer inputs", type=pointwise.OPERATORS["mul"].base, rows=size.tokens, cols=cols,
        reads=(table.name, joined.name), cost=PassCost(3.0, operator.flop + 2.0, 4.0), keeps=cols,
        vectors=size.layer_embedding, dims=Dims(TOKENS, (), _COLUMNS),
    )  # fmt: skip
    return [table, joined, added]


def layer_input(points: Inputs, size: Sizes, read: str, last: str) -> list[Node]:
    """Return the nodes that add a layer's own embedding; read: its residual; last: the name of the sum."""
    cols = size.layer_embedding
    gate = gemm("layer gate", size, size.hidden, cols, read, (HIDDEN, _COLUMNS))
    product = activation(
        "layer product", size, str(points["model.activation"][0]), True, gate.name, cols,
        dims=Dims(TOKENS, (), _COLUMNS),
    )  # fmt: skip
    back = gemm("layer output", size, cols, size.hidden, product.name, (_COLUMNS, HIDDEN))
    post = norm("layer norm", size, str(points["model.norm"][0]), back.name, size.hidden, keeps=False)
    return [gate, product, back, post, residual(last, size, (post.name, read), False)]
