"""Nodes of sparse attention that several models share: an indexer, its selection, and attention to the keys.

The kernels are those of vLLM (vllm-project/vllm, models/deepseek_v2.py, layers/sparse_attn_indexer.py,
v1/attention/backends/mla). One product makes the indexer's key and its weights of heads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastflow.physics.timing.attention.decode_tiles import ROWS
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.attention import DIMS
from fastflow.physics.workload.network import Node, PassCost, Size
from fastflow.physics.workload.ops import batched_gemm, gemm, short_pass
from fastflow.physics.workload.ops.attention import AttentionSizes
from fastflow.physics.workload.ops.indexer import (
    DETACHED,
    TOKENS,
    IndexerSizes,
    index_scores,
    index_selection,
)
from fastflow.physics.workload.ops.sparse_attention import Selection, converted_keys, sparse_attention

HEADS = ("heads",)
PER_HEAD = Dims(TOKENS, (), (), HEADS)
"""Of `per_head`: products with weights of each head."""
QUERIES, KEY, SCORES, SELECTION = (
    "index queries", "index key and weights", "index scores", "index selection",
)  # fmt: skip
"""Names of an indexer's nodes."""
WORDS = 2
"""Activations of 2 bytes that an index of 4 bytes takes."""


class Indexer(NamedTuple):
    """An indexer, and the columns that it reads."""

    sizes: IndexerSizes
    hidden: Size  # of a token, from which keys and weights are made
    source: Size  # from which queries are made


def index_products(
    index: Indexer, *, hidden: str, queries: str, trains: bool, keys: Size | None = None
) -> list[Node]:
    """Return the products that make an indexer's queries, and its key with the weights of heads.

    hidden, queries: nodes that make the columns of a token, and those from which its queries are made; keys:
    columns of a key's product, where they are more than an index head's.
    """
    size = index.sizes
    rows = size.sequences * size.q_len
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

    columns = size.dim if keys is None else keys
    return [
        product(QUERIES, index.source, size.heads * size.dim, queries, False),
        product(KEY, index.hidden, columns + size.heads, hidden, True),
    ]


def index_choice(size: IndexerSizes, reads: tuple[str, ...], *, decodes: bool) -> list[Node]:
    """Return the scores of all visible keys, and the selection of the highest ones."""
    scores, selection = index_scores(SCORES, reads, size), index_selection(SELECTION, (SCORES,), size)
    return [scores, selection._replace(attributes={**selection.attributes, "decodes": float(decodes)})]


def short(
    name: str, rows: Size, cols: Size, read: str, moved: Any, *, flop: float = 1.0,
    names: tuple[str, ...] = (), copies: bool = False,
) -> Node:  # fmt: skip
    """Return a pass of a framework's kernel, which moves `moved` elements of activations a row.

    copies: it copies long rows, which takes no more instructions than loads and stores.
    """
    share = 1.0 * moved / cols
    instructions = 0.0 if copies else short_pass.INSTRUCTIONS
    return Node(
        name=name, type=short_pass.TYPE, rows=rows, cols=cols, reads=(read,),
        cost=PassCost(share, flop, share), keeps=0, keeps_whole=0, dims=Dims(TOKENS, (), names),
        attributes={"moves": share, "flop": flop, "instructions": instructions},
    )  # fmt: skip


def absorbed(name: str, sizes: AttentionSizes, read: str, inner: Size, cols: Size) -> Node:
    """Return the product of every head's rows with the head's part of the absorbed weights, in serving."""
    return Node(
        name=name, type=batched_gemm.TYPE, batch=sizes.heads, rows=sizes.sequences * sizes.q_len, inner=inner,
        cols=cols, width=sizes.heads * cols, reads=(read,), dims=Dims(TOKENS, (), HEADS), wide=True,
    )  # fmt: skip


def served_latent(
    sizes: AttentionSizes, selection: Selection, queries: str, *, decodes: bool, stored: Size = 1
) -> list[Node]:
    """Return attention of a pass over latent keys, and the passes that lay out queries and write the cache.

    stored: tokens whose keys become one in the cache.
    """
    rows, cols = sizes.sequences * sizes.q_len, sizes.heads * sizes.head_dim
    core = sparse_attention("attention", ("padded queries",), sizes, selection, decodes=decodes, dims=DIMS)
    padded = 2 * cols * (np.asarray(sizes.heads) % int(ROWS) > 0)
    return [
        short("joined queries", rows, cols, queries, 2 * cols, names=HEADS, copies=True),
        short("padded queries", rows, cols, "joined queries", padded, names=HEADS, copies=True),
        short("cache", rows, sizes.head_dim, "joined queries", 2 * sizes.head_dim / stored),
        converted_keys("converted keys", core, ("cache",)),
        core,
    ]


def trained(
    sizes: AttentionSizes, selection: Selection, reads: tuple[str, str, str], *, latent: bool, keeps: Size
) -> Node:
    """Return attention of training to selected keys; keeps: columns saved for the backward pass."""
    return sparse_attention(
        "attention", reads, sizes, selection, latent=latent, trains=True, dims=DIMS, keeps=keeps
    )
