"""Compressed attention (DeepSeek-V4, section 2.3): keys of `model.compression` tokens become one.

One head of keys that are values too serves all heads of queries. A query attends to the keys of the last
`model.window` tokens and to compressed keys: to those with the highest scores where an indexer is
(`model.index_topk`), whose windows of tokens overlap, else to all. A compression of 1 is the window alone.
The output is made in two steps, the first of which has `model.output_groups` groups of heads. The products
and norms are those of DeepseekV4Attention of huggingface/transformers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints, single
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.sparse_layers import (
    KEY,
    PER_HEAD,
    Indexer,
    index_choice,
    served_latent,
    short,
    trained,
)
from fastflow.physics.workload.models.transformer.building_blocks import (
    HEADS,
    HIDDEN,
    TOKENS,
    gemm,
    mask,
    norm,
)
from fastflow.physics.workload.models.transformer.dimensions import BEFORE, RMS, Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION, LayerCache, Mixer
from fastflow.physics.workload.models.transformer.mixers.queries import (
    Source,
    query_product,
    source_of_queries,
)
from fastflow.physics.workload.models.transformer.mixers.sparse import (
    INDEX_NODES,
    SUMS,
    index_queries_and_key,
    indexer_sizes,
    served_index,
)
from fastflow.physics.workload.network import INPUT, Node, PassCost, Size
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.ops.attention import AttentionSizes
from fastflow.physics.workload.ops.indexer import index_cache_bytes
from fastflow.physics.workload.ops.per_head import per_head
from fastflow.physics.workload.ops.sparse_attention import Selection
from fastflow.physics.workload.precision import Precision

CORE_NODES = (*INDEX_NODES, "attention")
OVERLAP = 2
"""Windows of tokens that a key of an indexed layer is made from."""
STATE_BYTES = 4
"""Of an element of the tokens that are not compressed yet, in fp32."""
_GATED = 2  # the product that compresses makes a column and its gate


class Compressor(NamedTuple):
    """What makes a compressed key of `ratio` tokens."""

    ratio: Size
    windows: int  # of `ratio` tokens each, of which a key is made
    indexed: bool  # whether an indexer selects keys


def compressor_of(size: Sizes) -> Compressor | None:
    """Return the compressor of a layer, None where it has the window alone."""
    if not np.any(np.asarray(size.compression) > 1):
        return None
    indexed = bool(np.any(np.asarray(size.index_topk) > 0))
    return Compressor(size.compression, OVERLAP if indexed else 1, indexed)


def compression(
    name: str, size: Sizes, dim: Size, compressor: Compressor, read: str, product: bool = True
) -> list[Node]:
    """Return the product, the weighted sum and the norm that make compressed keys of `dim` columns.

    product: whether the first is a node of its own, which `read` makes otherwise.
    """
    cols: Size = _GATED * compressor.windows * dim
    weights = f"{name} columns"
    nodes = []
    if product:
        nodes = [gemm(weights, size, size.hidden, cols, read, (HIDDEN, ()), wide=True)]
        read = weights
    softmax = pointwise.OPERATORS["softmax"].flop
    moved = 1.0 + 2.0 / (np.asarray(compressor.ratio) * _GATED * compressor.windows)
    pool = Node(
        name=f"{name} sums", type=pointwise.OPERATORS["mul"].base, rows=size.tokens, cols=cols, reads=(read,),
        cost=PassCost(moved, softmax + 2.0, 2.0 * moved), dims=Dims(TOKENS),
        vectors=compressor.ratio * compressor.windows * dim + dim,
    )  # fmt: skip
    return [*nodes, pool]


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    source, cols = source_of_queries(points, size, read), size.heads * size.head_dim
    nodes = [
        *source.nodes,
        query_product(size, source, cols),
        _rotated_queries("query norm and rotary", size, "query up"),
        gemm("key", size, size.hidden, size.head_dim, read, (HIDDEN, ())),
        norm("key norm", size, RMS, "key", size.head_dim, (), keeps=False),
    ]
    compressor = compressor_of(size)
    selection = selection_of(size, compressor)
    if compressor is not None:
        nodes += compression("compressed key", size, size.head_dim, compressor, read)
        if compressor.indexed:
            nodes += _indexed(size, compressor, source, read)
    nodes += [
        trained(
            _sizes(size, size.sequence), selection, ("query norm and rotary", "key norm", "key norm"),
            latent=True, keeps=mask(size, SUMS),
        )._replace(vectors=size.heads),  # sinks
        _rotated_queries("output rotary", size, "attention", normed=False),
    ]  # fmt: skip
    return [*nodes, *grouped_output(points, size, nodes[-1].name)]


def _indexed(size: Sizes, compressor: Compressor, source: Source, read: str) -> list[Node]:
    """Return an indexer over compressed keys, which have a compressor of their own."""
    sizes = indexer_sizes(size, size.sequence, compressor.ratio)
    index = Indexer(sizes, size.hidden, source.columns)
    keys: Size = _GATED * compressor.windows * size.index_dim
    return [
        *index_queries_and_key(size, index, source.name, read, keys),
        *compression("index key", size, size.index_dim, compressor, KEY, product=False),
        *index_choice(sizes, ("index rotary", "index key sums"), decodes=False),
    ]


def _rotated_queries(name: str, size: Sizes, read: str, normed: bool = True) -> Node:
    """Return the pass that rotates columns of all heads, and norms each head before where `normed`."""
    cols = size.heads * size.head_dim
    rotated = 2.0 * size.rotary / size.head_dim
    flop = pointwise.OPERATORS["rotary"].flop + (pointwise.OPERATORS["rmsnorm"].flop if normed else 0.0)
    moved = 2.0 if normed else rotated
    return Node(
        name=name, type=pointwise.OPERATORS["mul"].base, rows=size.tokens, cols=cols, reads=(read,),
        cost=PassCost(moved, flop, 1.5 * moved), dims=Dims(TOKENS, (), HEADS),
    )  # fmt: skip


def grouped_output(points: Inputs, size: Sizes, read: str) -> list[Node]:
    """Return the projection of attention's output, in two steps where it is latent."""
    columns = size.heads * size.head_dim  # keys are values
    if not points["model.output_latent"][0]:
        return [gemm(PROJECTION, size, columns, size.hidden, read, (HEADS, HIDDEN))]
    groups = size.output_groups
    latent = per_head(
        "latent output", size.tokens, groups, columns // groups, size.output_latent, read, PER_HEAD
    )
    made = groups * size.output_latent
    return [latent, gemm(PROJECTION, size, made, size.hidden, latent.name, (HEADS, HIDDEN))]


def selection_of(size: Sizes, compressor: Compressor | None) -> Selection:
    """Return the keys that a query attends to."""
    if compressor is None:
        return Selection(size.window)
    return Selection(size.index_topk if compressor.indexed else 0, compressor.ratio, size.window)


def _sizes(size: Sizes, kv_len: Size) -> AttentionSizes:
    return AttentionSizes(
        size.sequences, size.sequence, kv_len, size.heads, 1, size.head_dim, size.head_dim, 0
    )


def _core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    kv_len = single(points[BEFORE.name]) + size.sequence
    compressor = compressor_of(size)
    nodes: list[Node] = []
    if compressor is not None:
        stored = size.head_dim / np.asarray(compressor.ratio)
        nodes.append(short("compressed cache", size.tokens, size.head_dim, INPUT, 2.0 * stored))
        if compressor.indexed:
            nodes += served_index(size, kv_len, decodes, compressor.ratio)
    core = served_latent(_sizes(size, kv_len), selection_of(size, compressor), INPUT, decodes=decodes)
    return [*nodes, *core]


def _cache(inputs: Inputs, size: Sizes, kind: LayerKind, numbers: Precision, tensor: Ints) -> LayerCache:
    """Return what a layer keeps: keys in the window, compressed ones, and tokens that are not compressed yet.

    The latter, of which there are no more than the window has, are kept as keys of it (vLLM). Every device
    has all of them: they have one head.
    """
    key: Floats = np.asarray(size.head_dim) * numbers.cache
    ratio = np.asarray(size.compression)
    compresses = ratio > 1
    indexed = compresses & (np.asarray(size.index_topk) > 0)
    kept = _GATED * np.where(indexed, OVERLAP, 1) ** 2 * ratio * STATE_BYTES
    index_key = np.where(indexed, index_cache_bytes(1.0 * np.asarray(size.index_dim)), 0.0)
    of_token = np.where(compresses, (key + index_key) / ratio, 0.0)
    open_tokens = np.where(compresses, kept * (size.head_dim + np.where(indexed, size.index_dim, 0)), 0.0)
    return LayerCache(of_token, key + open_tokens / np.maximum(size.window, 1), np.zeros_like(key))


COMPRESSED = Mixer(
    name="compressed",
    meaning="attention to a window, and to keys that model.compression tokens share (DeepSeek-V4)",
    nodes=_nodes,
    core=_core,
    core_nodes=CORE_NODES,
    cache=_cache,
    needs=(("model.window", "compressed"),),
    further=(
        "model.query_latent",
        "model.compression",
        "model.index_topk",
        "model.index_heads",
        "model.index_dim",
        "model.output_latent",
        "model.output_groups",
    ),
    of_heads=("heads", "head_dim"),
)
