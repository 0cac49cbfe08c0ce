"""Native sparse attention (Yuan et al., arXiv:2502.11089): three branches, added up with a gate of each head.

Keys and values of every branch have products of their own (section 3.3.3). Compression: a key of
`model.compression` tokens (the stride of its blocks), to all of which a query attends. Selection: the blocks
of `model.index_block` tokens, `model.index_topk` tokens together, that have the highest scores among
compressed keys, summed over the heads that share keys. Window: the last `model.window` tokens.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Inputs, Ints, single
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.attention import CACHED
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, TOKENS, gemm, mask
from fastflow.physics.workload.models.transformer.dimensions import BEFORE, Sizes
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION, LayerCache, Mixer
from fastflow.physics.workload.models.transformer.mixers import heads
from fastflow.physics.workload.models.transformer.mixers.attention import token_bytes
from fastflow.physics.workload.models.transformer.mixers.sparse import SUMS
from fastflow.physics.workload.network import Node, PassCost, Size
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.ops.attention import attention
from fastflow.physics.workload.ops.indexer import IndexerSizes, index_selection
from fastflow.physics.workload.ops.sparse_attention import Selection, sparse_attention
from fastflow.physics.workload.precision import Precision

BRANCHES = 3
COMPRESSED, SELECTION, SELECTED, WINDOW = (
    "compressed attention", "selection", "selected attention", "window attention",
)  # fmt: skip
CORE_NODES = ("rotary", COMPRESSED, SELECTION, SELECTED, WINDOW)
OVERLAP = 2
"""Strides that a compressed block has (32 tokens, every 16; section 4.1)."""
_ADDED = 2.0  # operations of an element and branch: multiply, add


def _nodes(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
    values: Size = size.kv_heads * size.value_dim
    cols: Size = queries + BRANCHES * (keys + values)
    rotated = 2 * (size.heads + BRANCHES * size.kv_heads) * heads.rotary_columns(size)
    nodes = [
        gemm("qkv", size, size.hidden, cols, read, (HIDDEN, HEADS), keeps=0),
        gemm("gates", size, size.hidden, BRANCHES * size.heads, read, (HIDDEN, HEADS)),
        heads.rotary(size, cols, ("qkv",), rotated),
        _compression(size, keys + values),
    ]
    core = _attentions(
        size, size.sequence, ("rotary", "compression", "compression"), ("rotary",), trains=True
    )
    nodes += [node._replace(keeps=mask(size, SUMS)) if node.name != SELECTION else node for node in core]
    columns = size.heads * size.value_dim
    return [
        *nodes,
        _sum(size),
        gemm(PROJECTION, size, columns, size.hidden, "gated sum", (HEADS, HIDDEN)),
    ]


def _compression(size: Sizes, cols: Size) -> Node:
    """Return the pass that makes compressed keys and values from blocks, by weights of each position."""
    stride = np.asarray(size.compression)
    return Node(
        name="compression", type=pointwise.OPERATORS["mul"].base, rows=size.tokens, cols=cols,
        reads=("rotary",), cost=PassCost(1.0 + 1.0 / stride, 2.0 * OVERLAP, 2.0 + 1.0 / stride),
        dims=Dims(TOKENS, (), HEADS),
        vectors=OVERLAP * size.compression * (size.head_dim + size.value_dim), keeps=0,
    )  # fmt: skip


def _sum(size: Sizes) -> Node:
    """Return the pass that adds the branches' outputs, each times its gate."""
    return Node(
        name="gated sum", type=pointwise.OPERATORS["mul"].base, rows=size.tokens,
        cols=size.heads * size.value_dim, reads=(COMPRESSED, SELECTED, WINDOW, "gates"),
        cost=PassCost(BRANCHES + 1.0, BRANCHES * _ADDED, 2.0 * BRANCHES + 1.0), dims=Dims(TOKENS, (), HEADS),
    )  # fmt: skip


def _attentions(
    size: Sizes, kv_len: Size, compressed: tuple[str, ...], reads: tuple[str, ...], *, decodes: bool = False,
    trains: bool = False,
) -> list[Node]:  # fmt: skip
    """Return the branches, and the selection from the compressed one's scores.

    compressed, reads: what the compressed branch reads, and the others.
    """
    sizes = heads.sizes_of_attention(size, kv_len)

    def gathered(name: str, selection: Selection, reads: tuple[str, ...]) -> Node:
        return sparse_attention(
            name, reads, sizes, selection, latent=False, decodes=decodes, trains=trains, dims=heads.CORE_DIMS
        )

    blocks = IndexerSizes(
        size.sequences, size.sequence, kv_len, size.kv_heads, size.head_dim,
        -(-size.index_topk // size.index_block), size.index_block,
    )  # fmt: skip
    window = attention(
        WINDOW, reads, sizes._replace(window=size.window), True, decodes=decodes, expanded=trains,
        dims=heads.CORE_DIMS,
    )  # fmt: skip
    return [
        gathered(COMPRESSED, Selection(0, size.compression), compressed),
        index_selection(SELECTION, (COMPRESSED,), blocks),
        gathered(SELECTED, Selection(size.index_topk), reads),
        window,
    ]


def _core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    kv_len = single(points[BEFORE.name]) + size.sequence
    kept = BRANCHES * size.kv_heads * (size.head_dim + size.value_dim)
    branches = _attentions(size, kv_len, (CACHED,), (CACHED,), decodes=decodes)
    return heads.behind_cache(size, branches, kept, decodes)


def _cache(inputs: Inputs, size: Sizes, kind: LayerKind, numbers: Precision, tensor: Ints) -> LayerCache:
    """Return what a layer keeps: selected keys of every token, compressed ones, and those of the window.

    The tokens of blocks that are not complete yet are among the window's.
    """
    key = token_bytes(size, numbers, tensor)
    return LayerCache(key * (1.0 + 1.0 / np.asarray(size.compression)), 2.0 * key, np.zeros_like(key))


NATIVE_SPARSE = Mixer(
    name="native_sparse",
    meaning="native sparse attention: compressed keys, selected blocks and a window",
    nodes=_nodes,
    core=_core,
    core_nodes=CORE_NODES,
    cache=_cache,
    needs=tuple((f"model.{name}", "native_sparse") for name in ("window", "index_topk", "compression")),
    further=("model.index_block",),
)
