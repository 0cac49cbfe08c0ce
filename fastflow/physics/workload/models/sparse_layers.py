"""Nodes of sparse attention that several models share: an indexer, and latent attention to selected keys.

The kernels are those of vLLM (vllm-project/vllm, models/deepseek_v2.py, layers/sparse_attn_indexer.py,
v1/attention/backends/mla): a product makes the indexer's key and its weights of heads together, a kernel turns and
rounds its queries, another its key as it writes the cache. Prefill gathers the keys of all sequences first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastflow.core.field import count
from fastflow.physics.timing.attention.decode_tiles import ROWS
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.network import Node, PassCost, Size
from fastflow.physics.workload.ops import batched_gemm, gemm, pointwise, short_pass
from fastflow.physics.workload.ops.attention import AttentionSizes
from fastflow.physics.workload.ops.indexer import (
    DETACHED,
    TOKENS,
    IndexerSizes,
    index_scores,
    index_selection,
)
from fastflow.physics.workload.ops.sparse_attention import converted_keys, sparse_attention

HEADS = ("heads",)
CORE_DIMS = Dims(("sequence",), (), HEADS, ("batch",))
INDEXED = (
    count("model.index_heads", "heads of an indexer, which selects keys for sparse attention"),
    count("model.index_dim", "columns of a head of the indexer, and of its key"),
    count("model.index_topk", "keys that the indexer selects for a query"),
)
WORDS = 2
"""Activations of 2 bytes that an index of 4 bytes takes."""


class Indexer(NamedTuple):
    """An indexer and what it reads."""

    sizes: IndexerSizes
    hidden: Size  # columns of a token, from which keys and weights are made
    source: Size  # columns from which queries are made


def a_pass(
    name: str, rows: Size, cols: Size, read: str, moved: Any, *, flop: float = 1.0, names: tuple[str, ...] = (),
    copies: bool = False,
) -> Node:  # fmt: skip
    """Return a pass of a framework's kernel, which moves `moved` elements of activations a row.

    copies: it copies long rows, which takes no more instructions than loads and stores.
    """
    share = 1.0 * moved / cols
    return Node(
        name=name, type=short_pass.TYPE, rows=rows, cols=cols, reads=(read,), cost=PassCost(share, flop, share),
        keeps=0, keeps_whole=0, dims=Dims(TOKENS, (), names), 
        attributes={"moves": share, "flop": flop, "instructions": 0.0 if copies else short_pass.INSTRUCTIONS},
    )  # fmt: skip


def indexer(index: Indexer, *, hidden: str, queries: str, trains: bool, decodes: bool) -> list[Node]:
    """Return the indexer's nodes, which end in "index selection".

    hidden, queries: nodes that make the columns of a token, and those from which its queries are made.
    """
    size = index.sizes
    rows, cols = size.sequences * size.q_len, size.heads * size.dim
    kind = DETACHED if trains else gemm.TYPE

    def product(name: str, inner: Size, cols: Size, read: str, wide: bool) -> Node:
        return Node(
            name=name,
            type=kind,
            rows=rows,
            cols=cols,
            inner=inner,
            reads=(read,),
            dims=Dims(TOKENS),
            wide=wide,
        )

    scores = index_scores("index scores", ("index queries rounded", "index key copy"), size)
    selection = index_selection("index selection", ("index scores",), size)
    norm = pointwise.OPERATORS["layernorm"].flop
    nodes = [
        product("index queries", index.source, cols, queries, False),
        product("index key and weights", index.hidden, size.dim + size.heads, hidden, True),
        a_pass("index key in fp32", rows, size.dim, "index key and weights", 3 * size.dim),
        a_pass("index key norm", rows, size.dim, "index key in fp32", 4 * size.dim, flop=norm),
        a_pass("index key in 16 bits", rows, size.dim, "index key norm", 3 * size.dim),
        a_pass("index rotary", rows, cols, "index queries", cols + size.dim),
        a_pass("index queries copy", rows, cols, "index rotary", 2 * cols),
        a_pass("index key copy", rows, size.dim, "index key in 16 bits", 2 * size.dim),
        a_pass("index queries rounded", rows, cols, "index queries copy", 1.5 * cols),
        *(a_pass(f"index weights times {other}", rows, size.heads, "index key and weights", 4 * size.heads)
          for other in ("scales", "width", "heads")),
    ]  # fmt: skip
    if trains:
        return [*nodes, scores, selection]
    return [
        *nodes,
        a_pass("index cache", rows, size.dim, "index key copy", 1.5 * size.dim),
        a_pass("clear selection", rows, size.topk, "index cache", WORDS * size.topk),
        scores._replace(reads=("index queries rounded", "index cache")),
        selection._replace(attributes={**selection.attributes, "decodes": float(decodes)}),
        a_pass("clear counts", rows, size.topk, "index selection", WORDS),
        a_pass("cache slots", rows, size.topk, "index selection", 2 * WORDS * size.topk),
    ]


def absorbed(name: str, sizes: AttentionSizes, read: str, inner: Size, cols: Size) -> Node:
    """Return the product of every head's rows with the head's part of the absorbed weights."""
    return Node(
        name=name, type=batched_gemm.TYPE, batch=sizes.heads, rows=sizes.sequences * sizes.q_len, inner=inner,
        cols=cols, width=sizes.heads * cols, reads=(read,), dims=Dims(TOKENS, (), HEADS), wide=True,
    )  # fmt: skip


def served_core(sizes: AttentionSizes, topk: Size, queries: str, decodes: bool) -> list[Node]:
    """Return attention of a serving library's pass, with the passes that lay out queries and cache."""
    rows, cols = sizes.sequences * sizes.q_len, sizes.heads * sizes.head_dim
    padded = 2 * cols * (np.asarray(sizes.heads) % int(ROWS) > 0)
    core = sparse_attention("attention", ("joined queries",), sizes, topk, decodes=decodes, dims=CORE_DIMS)
    return [
        a_pass("joined queries", rows, cols, queries, 2 * cols, names=HEADS, copies=True),
        a_pass("padded queries", rows, cols, "joined queries", padded, names=HEADS, copies=True),
        a_pass("cache", rows, sizes.head_dim, "joined queries", 2 * sizes.head_dim),
        converted_keys("converted keys", core, ("cache",)),
        core._replace(reads=("padded queries",)),
    ]


def trained_core(sizes: AttentionSizes, topk: Size, queries: str, keys: str) -> list[Node]:
    """Return attention of training, whose keys and values are the latent vectors of the sequence."""
    return [
        sparse_attention(
            "attention",
            (queries, keys, keys),
            sizes,
            topk,
            trains=True,
            dims=CORE_DIMS,
            keeps=sizes.heads * 2,
        )
    ]
