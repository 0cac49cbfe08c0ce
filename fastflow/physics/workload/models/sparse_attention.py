"""`model=sparse_attention`: DeepSeek's sparse attention as a module of a serving library (DeepSeek-V3.2).

The whole module: projections, indexer, selection, latent attention to the selected keys, output projection.
Attention is absorbed in prefill too. Sizes of heads are those of a device; the indexer is not divided. Passes
between the kernels are those of vLLM without a compiler, one kernel each.
"""

from __future__ import annotations

from typing import Any

from fastflow.core.field import count
from fastflow.core.tables import Inputs
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.graph import HIDDEN, PRODUCT, Dims
from fastflow.physics.workload.models.attention import PHASE, SIZES, decodes, kv_len_of
from fastflow.physics.workload.models.sparse_layers import (
    HEADS,
    KEY,
    PER_HEAD,
    QUERIES,
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
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, Size, connect
from fastflow.physics.workload.ops import gemm, pointwise
from fastflow.physics.workload.ops.attention import AttentionSizes
from fastflow.physics.workload.ops.indexer import TOKENS, IndexerSizes
from fastflow.physics.workload.ops.per_head import per_head
from fastflow.physics.workload.ops.sparse_attention import Selection
from fastflow.physics.workload.precision import QUANTIZED_BYTES

PROJECTION = "projection"
_HIDDEN, _LATENT, _QUERY = ("hidden",), ("latent",), ("query_latent",)


def network(points: Inputs) -> Network:
    """Return the network of each point's module."""
    rows = points["model.batch"] * points["model.q_len"]
    nodes = [*_queries_and_keys(points), *_indexer(points), *_core(points)]
    value_cols = points["model.heads"] * points["model.value_dim"]
    nodes.append(
        _product(PROJECTION, rows, value_cols, points["model.hidden"], nodes[-1].name, (HEADS, _HIDDEN))
    )
    layer = Layer("attention", HIDDEN, tuple(_quantised(points, nodes)))
    return connect([layer], needs_input_gradient=True)


def _product(name: str, rows: Size, inner: Size, cols: Size, read: str, names: Any) -> Node:
    """Return a product of every token; names: of the dimensions of its inner side and of its columns."""
    return Node(
        name=name, type=gemm.TYPE, rows=rows, cols=cols, inner=inner, reads=(read,), dims=Dims(TOKENS, *names)
    )


def _queries_and_keys(points: Inputs) -> list[Node]:
    """Return latent queries and keys, and the queries of all heads with rotary embedding."""
    rows = points["model.batch"] * points["model.q_len"]
    query, latent, rotary = (points[f"model.{name}"] for name in ("query_latent", "latent", "rotary"))
    heads, norm = points["model.heads"], pointwise.OPERATORS["rmsnorm"].flop
    cols, rotate = heads * (points["model.head_dim"] + rotary), pointwise.OPERATORS["rotary"].flop
    down = "query and key down"
    return [
        _product(down, rows, points["model.hidden"], query + latent + rotary, INPUT, (_HIDDEN, _LATENT)),
        short("query norm", rows, query, down, 2 * query, flop=norm),
        _product("query up", rows, query, cols, "query norm", (_QUERY, HEADS)),
        short("key norm", rows, latent, down, 2 * latent, flop=norm),
        # rotated, and copied back to the queries by another kernel
        short("rotary", rows, cols, "query up", 2 * (heads + 1) * rotary, flop=rotate, names=HEADS),
        short("rotary copy", rows, cols, "rotary", 2 * heads * rotary, names=HEADS),
    ]


def _index_sizes(points: Inputs) -> IndexerSizes:
    sizes = (points[f"model.index_{name}"] for name in ("heads", "dim", "topk"))
    return IndexerSizes(points["model.batch"], points["model.q_len"], kv_len_of(points), *sizes)


def _indexer(points: Inputs) -> list[Node]:
    """Return the indexer, whose key is normed in fp32 and whose weights are scaled three times."""
    size, trains = _index_sizes(points), bool(points["model.training"][0])
    index = Indexer(size, points["model.hidden"], points["model.query_latent"])
    rows, cols, dim = size.sequences * size.q_len, size.heads * size.dim, size.dim
    norm = pointwise.OPERATORS["layernorm"].flop
    nodes = [
        *index_products(index, hidden=INPUT, queries="query norm", trains=trains),
        short("index key in fp32", rows, dim, KEY, 3 * dim),
        short("index key norm", rows, dim, "index key in fp32", 4 * dim, flop=norm),
        short("index key in 16 bits", rows, dim, "index key norm", 3 * dim),
        short("index rotary", rows, cols, QUERIES, cols + dim),
        short("index queries copy", rows, cols, "index rotary", 2 * cols),
        short("index key copy", rows, dim, "index key in 16 bits", 2 * dim),
        short("index queries rounded", rows, cols, "index queries copy", 1.5 * cols),
    ]
    for factor in ("scales", "width", "heads"):
        nodes.append(short(f"index weights times {factor}", rows, size.heads, KEY, 4 * size.heads))
    reads = ("index queries rounded", "index key copy")
    if trains:
        return [*nodes, *index_choice(size, reads, decodes=False)]
    return [
        *nodes,
        short("index cache", rows, dim, "index key copy", 1.5 * dim),
        short("clear selection", rows, size.topk, "index cache", WORDS * size.topk),
        *index_choice(size, (reads[0], "index cache"), decodes=decodes(points)),
        short("clear counts", rows, size.topk, SELECTION, WORDS),
        short("cache slots", rows, size.topk, SELECTION, 2 * WORDS * size.topk),
    ]


def _core(points: Inputs) -> list[Node]:
    """Return absorbed attention."""
    latent, rotary, heads = (points[f"model.{name}"] for name in ("latent", "rotary", "heads"))
    index, selection = _index_sizes(points), Selection(points["model.index_topk"])
    sizes = AttentionSizes(index.sequences, index.q_len, index.kv_len, heads, 1, latent + rotary, latent, 0)
    columns = points["model.head_dim"], points["model.value_dim"]
    if points["model.training"][0]:
        rows, queries = sizes.sequences * sizes.q_len, "absorbed queries"
        core = trained(sizes, selection, (queries, "key norm", "key norm"), latent=True, keeps=2 * heads)
        return [
            per_head(queries, rows, heads, columns[0], latent, "rotary copy", PER_HEAD),
            core,
            per_head("absorbed values", rows, heads, latent, columns[1], core.name, PER_HEAD),
        ]
    queries_node = absorbed("absorbed queries", sizes, "rotary copy", columns[0], latent)
    core_nodes = served_latent(sizes, selection, queries_node.name, decodes=decodes(points))
    return [
        queries_node, *core_nodes, absorbed("absorbed values", sizes, "attention", latent, columns[1])
    ]  # fmt: skip


def _quantised(points: Inputs, nodes: list[Node]) -> list[Node]:
    """Let a pass quantise the input of each product that computes in a narrower type, as vLLM does."""
    if QUANTIZED_BYTES[str(points["model.dtype"][0])] == 0.0:
        return nodes
    return [
        node._replace(passes=node.passes._replace(quantises_input=True))
        if node.type.kind == PRODUCT and not node.wide
        else node
        for node in nodes
    ]


FAMILY = Family(
    name="sparse_attention",
    work="attention",
    structure=(PHASE,),
    quantizes=True,
    sizes=(
        *SIZES,
        count("model.hidden", "columns of a token between layers (hidden size)"),
        count("model.query_latent", "columns of a token's latent queries"),
        count("model.latent", "columns of a token's latent keys and values in the cache (DeepSeek)"),
        count("model.rotary", "latent attention: columns of a head's query and key that positions rotate"),
        count("model.head_dim", "columns of a head; of latent attention those that positions do not rotate"),
        count("model.value_dim", "columns of a head's value"),
        count("model.index_heads", "heads of the indexer of sparse attention"),
        count("model.index_dim", "columns of a head of the indexer"),
        count("model.index_topk", "keys that the indexer selects for a query"),
    ),
    network=network,
    kernels=single_operation,
    rows=independent_rows("model.batch"),
    multiplied=("model.batch", "model.kv_len"),
)
