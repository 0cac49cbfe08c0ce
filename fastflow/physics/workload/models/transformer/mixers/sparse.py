"""Sparse attention: an indexer scores all keys, and every query attends to those with the highest scores.

Of latent keys it is DeepSeek's (DeepSeek-V3.2, section 2.1): absorbed, in training and in prefill too, so
that all heads share the keys that they gather. Of heads of keys (MiniMax-M3) those of a group share them; the
indexer scores keys one by one; that it selects them by blocks changes no count of keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastflow.core.tables import Inputs, Ints, single
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.attention import CACHED
from fastflow.physics.workload.models.sparse_layers import (
    KEY,
    PER_HEAD,
    QUERIES,
    SCORES,
    SELECTION,
    WORDS,
    Indexer,
    absorbed,
    index_choice,
    index_products,
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
from fastflow.physics.workload.models.transformer.dimensions import BEFORE, LAYER, Sizes
from fastflow.physics.workload.models.transformer.layer_kind import SHARED_KV, LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION, LayerCache, Mixer
from fastflow.physics.workload.models.transformer.mixers import heads, latent
from fastflow.physics.workload.models.transformer.mixers.attention import token_bytes
from fastflow.physics.workload.models.transformer.mixers.queries import source_of_queries
from fastflow.physics.workload.network import INPUT, Node, PassCost, Size
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.ops.attention import AttentionSizes
from fastflow.physics.workload.ops.indexer import IndexerSizes, index_cache_bytes
from fastflow.physics.workload.ops.per_head import per_head
from fastflow.physics.workload.ops.sparse_attention import Selection, sparse_attention
from fastflow.physics.workload.precision import Precision

ABSORBED_QUERIES, ABSORBED_VALUES = "absorbed queries", "absorbed values"
INDEX_NODES = (SCORES, SELECTION)
CORE_NODES = ("rotary", ABSORBED_QUERIES, *INDEX_NODES, "attention", ABSORBED_VALUES)
SUMS = 4
"""Bytes of the sum of a query's exponentials, which training saves for each head."""
_ROUNDED = 1.5  # tensors of activations that a pass moves which rotates queries and rounds them to fp8


def indexer_sizes(size: Sizes, kv_len: Size, ratio: Size = 1) -> IndexerSizes:
    """Return the sizes of an indexer over kv_len tokens, `ratio` of which have a key."""
    return IndexerSizes(
        size.sequences, size.sequence, kv_len, size.index_heads, size.index_dim, size.index_topk, ratio
    )


def index_queries_and_key(
    size: Sizes, index: Indexer, queries: str, read: str, keys: Size | None = None
) -> list[Node]:
    """Return what every token adds to an indexer: products, and its queries' rotary embedding.

    queries, read: nodes that make what its queries, and its keys, are made from; keys: as `index_products`.
    """
    cols = size.index_heads * size.index_dim
    operator = pointwise.OPERATORS["rotary"]
    rotary = Node(
        name="index rotary", type=pointwise.TYPES["rotary"], rows=size.tokens, cols=cols, reads=(QUERIES,),
        cost=PassCost(_ROUNDED, operator.flop, _ROUNDED), dims=Dims(TOKENS),
    )  # fmt: skip
    return [*index_products(index, hidden=read, queries=queries, trains=True, keys=keys), rotary]


def _index_norm(size: Sizes) -> Node:
    """Return the norm of an indexer's key."""
    return norm("index key norm", size, LAYER, KEY, size.index_dim, (), keeps=False)


def served_index(size: Sizes, kv_len: Size, decodes: bool, ratio: Size = 1) -> list[Node]:
    """Return the indexer over a cache: it writes keys, scores those of earlier tokens too, and selects."""
    index, topk = indexer_sizes(size, kv_len, ratio), size.index_topk
    return [
        short("index cache", size.tokens, size.index_dim, INPUT, 1.5 * size.index_dim / ratio),
        short("clear selection", size.tokens, topk, "index cache", WORDS * topk),
        *index_choice(index, ("index cache",), decodes=decodes),
        short("cache slots", size.tokens, topk, SELECTION, 2 * WORDS * topk),
    ]


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    make = _latent_nodes if points["model.latent"][0] else _head_nodes
    nodes = make(points, size, kind, read)
    columns = size.heads * size.value_dim
    return [*nodes, gemm(PROJECTION, size, columns, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


def _latent_nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    queries = source_of_queries(points, size, read)
    nodes = latent.queries_and_latent_keys(points, size, queries, read)
    source = nodes[0].name
    index = Indexer(indexer_sizes(size, size.sequence), size.hidden, queries.columns)
    cols = size.heads * (size.head_dim + size.rotary)
    nodes += [
        heads.rotary(size, cols, ("query up",), 2 * size.heads * size.rotary),
        *index_queries_and_key(size, index, queries.name, read),
        _index_norm(size),
        *index_choice(index.sizes, ("index rotary", "index key norm"), decodes=False),
        per_head(
            ABSORBED_QUERIES, size.tokens, size.heads, size.head_dim, size.latent, "rotary", PER_HEAD
        ),
        trained(
            _absorbed_sizes(size, size.sequence), Selection(size.index_topk),
            (ABSORBED_QUERIES, "key norm", "key norm"), latent=True, keeps=mask(size, SUMS),
        ),
        per_head(
            ABSORBED_VALUES, size.tokens, size.heads, size.latent, size.value_dim, "attention", PER_HEAD
        ),
    ]  # fmt: skip
    return [*nodes, *heads.gated(points, size, ABSORBED_VALUES, source)]


def _head_nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    nodes = heads.projections(points, size, kind, read)
    source, made = nodes[0].name, nodes[-1].name
    index = Indexer(indexer_sizes(size, size.sequence), size.hidden, size.hidden)
    nodes += [
        *index_queries_and_key(size, index, read, read),
        _index_norm(size),
        *index_choice(index.sizes, ("index rotary", "index key norm"), decodes=False),
        trained(
            heads.sizes_of_attention(size, size.sequence), Selection(size.index_topk), (made, made, made),
            latent=False, keeps=mask(size, SUMS),
        ),
    ]  # fmt: skip
    return [*nodes, *heads.gated(points, size, "attention", source)]


def _absorbed_sizes(size: Sizes, kv_len: Size) -> AttentionSizes:
    kept = size.latent + size.rotary
    return AttentionSizes(size.sequences, size.sequence, kv_len, size.heads, 1, kept, size.latent, 0)


def _core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    kv_len = single(points[BEFORE.name]) + size.sequence
    index = served_index(size, kv_len, decodes)
    if not points["model.latent"][0]:
        return [*index, *_served_heads(size, kind, kv_len, decodes)]
    sizes = _absorbed_sizes(size, kv_len)
    queries = absorbed(ABSORBED_QUERIES, sizes, INPUT, size.head_dim, size.latent)
    core = served_latent(sizes, Selection(size.index_topk), queries.name, decodes=decodes)
    values = absorbed(ABSORBED_VALUES, sizes, "attention", size.latent, size.value_dim)
    return [*index, queries, *core, values]


def _served_heads(size: Sizes, kind: LayerKind, kv_len: Size, decodes: bool) -> list[Node]:
    """Return attention of heads to a cache, with the pass that writes it."""
    core = sparse_attention(
        "attention", (CACHED,), heads.sizes_of_attention(size, kv_len), Selection(size.index_topk),
        latent=False, decodes=decodes, dims=heads.CORE_DIMS,
    )  # fmt: skip
    return heads.behind_cache(size, [core], heads.columns_kept(size, kind), decodes)


def _cache(inputs: Inputs, size: Sizes, kind: LayerKind, numbers: Precision, tensor: Ints) -> LayerCache:
    """Return what a layer keeps: keys and values, and the indexer's key, which every device has."""
    of_token = token_bytes(size, numbers, tensor) * (SHARED_KV not in kind.modifiers)
    with_index: Any = of_token + index_cache_bytes(1.0 * np.asarray(size.index_dim))
    none = np.zeros_like(of_token)
    return LayerCache(with_index, none, none)


SPARSE = Mixer(
    name="sparse",
    meaning="attention to the model.index_topk keys that an indexer selects",
    nodes=_nodes,
    core=_core,
    core_nodes=CORE_NODES,
    cache=_cache,
    attends=True,
    latent=True,
    needs=tuple((f"model.index_{name}", "sparse") for name in ("heads", "dim", "topk")),
    further=("model.query_latent",),
)
