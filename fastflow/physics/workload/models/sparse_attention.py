"""`model=sparse_attention`: DeepSeek's sparse attention as a layer of a serving library (DeepSeek-V3.2).

The whole module: projections, indexer, selection, latent attention to the selected keys, output projection. It is
absorbed in prefill too. Sizes of heads are those of a device; the indexer is not divided.
"""

from __future__ import annotations

from typing import Any

from fastflow.core.field import count
from fastflow.core.tables import Inputs
from fastflow.physics.workload.family import Family, independent_rows, single_operation
from fastflow.physics.workload.graph import HIDDEN, PRODUCT, Dims
from fastflow.physics.workload.models.attention import PHASE, SIZES, decodes, kv_len_of
from fastflow.physics.workload.models.sparse_layers import (
    INDEXED,
    Indexer,
    a_pass,
    absorbed,
    indexer,
    served_core,
    trained_core,
)
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, Size, connect
from fastflow.physics.workload.ops import gemm, pointwise
from fastflow.physics.workload.ops.attention import AttentionSizes
from fastflow.physics.workload.ops.indexer import TOKENS, IndexerSizes
from fastflow.physics.workload.precision import QUANTIZED_BYTES

HEADS = ("heads",)
PROJECTION = "projection"


def network(points: Inputs) -> Network:
    """Return the network of each point's module."""
    nodes = [*_queries_and_keys(points), *_core(points)]
    rows, value_cols = (
        points["model.batch"] * points["model.q_len"],
        points["model.heads"] * points["model.value_dim"],
    )
    nodes.append(
        product(PROJECTION, rows, value_cols, points["model.hidden"], nodes[-1].name, (HEADS, ("hidden",)))
    )
    return connect([Layer("attention", HIDDEN, tuple(_quantised(points, nodes)))], needs_input_gradient=True)


def product(name: str, rows: Size, inner: Size, cols: Size, read: str, names: Any) -> Node:
    """Return a product of every token; names: of the dimensions of its inner side and of its columns."""
    return Node(
        name=name, type=gemm.TYPE, rows=rows, cols=cols, inner=inner, reads=(read,), dims=Dims(TOKENS, *names)
    )


def _norm(name: str, rows: Size, cols: Size, read: str) -> Node:
    operator = pointwise.OPERATORS["rmsnorm"]
    return a_pass(name, rows, cols, read, 2 * cols, flop=operator.flop)


def _queries_and_keys(points: Inputs) -> list[Node]:
    """Return latent queries and keys, and the queries of all heads with rotary embedding."""
    rows = points["model.batch"] * points["model.q_len"]
    query, latent, rotary = (points[f"model.{name}"] for name in ("query_latent", "latent", "rotary"))
    heads, head_dim = points["model.heads"], points["model.head_dim"] + rotary
    rotated = (heads + 1) * rotary
    return [
        product("query and key down", rows, points["model.hidden"], query + latent + rotary, INPUT, (("hidden",), ("latent",))),
        _norm("query norm", rows, query, "query and key down"),
        product("query up", rows, query, heads * head_dim, "query norm", (("query_latent",), HEADS)),
        _norm("key norm", rows, latent, "query and key down"),
        # turned in place, by a kernel, and copied back to the queries by another
        a_pass("rotary", rows, heads * head_dim, "query up", 2 * rotated, flop=pointwise.OPERATORS["rotary"].flop, names=HEADS),
        a_pass("rotary copy", rows, heads * head_dim, "rotary", 2 * heads * rotary, names=HEADS),
    ]  # fmt: skip


def _core(points: Inputs) -> list[Node]:
    sequences, q_len, kv_len = points["model.batch"], points["model.q_len"], kv_len_of(points)
    latent, rotary, heads = (points[f"model.{name}"] for name in ("latent", "rotary", "heads"))
    index = Indexer(
        IndexerSizes(
            sequences, q_len, kv_len, points["model.index_heads"], points["model.index_dim"],
            points["model.index_topk"],
        ),
        points["model.hidden"], points["model.query_latent"],
    )  # fmt: skip
    sizes = AttentionSizes(sequences, q_len, kv_len, heads, 1, latent + rotary, latent, 0)
    trains = bool(points["model.training"][0])
    nodes = indexer(index, hidden=INPUT, queries="query norm", trains=trains, decodes=decodes(points))
    queries = absorbed("absorbed queries", sizes, "rotary copy", points["model.head_dim"], latent)
    if trains:
        core = trained_core(sizes, index.sizes.topk, "absorbed queries", "key norm")
    else:
        core = served_core(sizes, index.sizes.topk, "absorbed queries", decodes(points))
    values = absorbed("absorbed values", sizes, core[-1].name, latent, points["model.value_dim"])
    return [*nodes, queries, *core, values]


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
        *INDEXED,
    ),
    network=network,
    kernels=single_operation,
    rows=independent_rows("model.batch"),
    multiplied=("model.batch", "model.kv_len"),
)
