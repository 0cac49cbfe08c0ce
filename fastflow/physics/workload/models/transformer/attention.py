"""The attention of a transformer's layer: its products, rotary embedding, and scores, fused or not.

Keys and values are of heads that several queries share (Ainslie et al., arXiv:2305.13245), or latent
(DeepSeek-V2, arXiv:2405.04434, section 2.1), which training expands into keys and values of every head.
"""

from __future__ import annotations

from typing import Any

from fastflow.core.tables import Inputs
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.transformer.building_blocks import (
    DROPOUT_FLOP,
    HEADS,
    HIDDEN,
    TOKENS,
    gemm,
    mask,
    norm,
)
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    KERNELS,
    OF_ATTENTION,
    OF_QKV,
    RMS,
    ROTARY,
    Sizes,
    is_causal,
)
from fastflow.physics.workload.network import Node, PassCost, Size
from fastflow.physics.workload.ops import batched_gemm, pointwise
from fastflow.physics.workload.ops.attention import AttentionSizes, attention

PROJECTION = "projection"
"""The last node."""
SELECTIVE = ("scores", "attention softmax", "attention dropout", "context")
"""Nodes of unfused attention, which selective recomputation recomputes."""
# Of the scores that no query may see the softmax writes zeros and reads none: Megatron-LM's
# scaled_upper_triang_masked_softmax; backward both that it reads are halves.
SOFTMAX_MOVES, SOFTMAX_BACKWARD_MOVES = 1.5, 2.0
ALL_SOFTMAX_MOVES, ALL_SOFTMAX_BACKWARD_MOVES = 2.0, 3.0
"""Where every query sees all keys: scores in and out; backward two tensors in, one out."""
_CORE_DIMS = Dims(("sequence",), (), HEADS, ("batch",))


def attention_of(points: Inputs, size: Sizes, has_window: bool, read: str) -> list[Node]:
    """Return the nodes of attention on a norm's output, from its products to its projection."""
    is_latent = bool(points["model.latent"][0])
    nodes = _latent(points, size, read) if is_latent else _queries_and_keys(points, size, read)
    heads = size.heads if is_latent else size.kv_heads
    head_dim = size.head_dim + size.rotary if is_latent else size.head_dim
    window = size.window if has_window else 0
    if points["model.fused_attention"][0]:
        sizes = AttentionSizes(
            size.sequences, size.sequence, size.sequence, size.heads, heads, head_dim, size.value_dim, window
        )
        nodes += [
            attention(
                "attention", (nodes[-1].name,), sizes, is_causal(points), expanded=True, dims=_CORE_DIMS,
                keeps=mask(size, 4),  # the sum of each query's exponentials, in fp32
                flash=KERNELS.index(str(points["model.attention_kernel"][0])),
            )
        ]  # fmt: skip
    else:
        nodes += _unfused(points, size, head_dim, nodes[-1].name)
    columns = size.heads * size.value_dim
    projection = gemm(PROJECTION, size, columns, size.hidden, nodes[-1].name, (HEADS, HIDDEN))
    return [*nodes, projection]


def _queries_and_keys(points: Inputs, size: Sizes, read: str) -> list[Node]:
    """Return the product of queries, keys and values, and the passes that turn the first two."""
    rotated_cols = size.heads * size.head_dim + size.kv_heads * size.head_dim
    cols = rotated_cols + size.kv_heads * size.value_dim
    normed, rotated = bool(points["model.qk_norm"][0]), points["model.position"][0] == ROTARY
    nodes = [
        gemm(
            "qkv", size, size.hidden, cols, read, (HIDDEN, HEADS),
            biased=str(points["model.biases"][0]) in (OF_QKV, OF_ATTENTION, ALL),
            keeps=rotated_cols if normed else 0 if rotated else None, keeps_whole=0,
        )
    ]  # fmt: skip
    if normed:
        operator = pointwise.OPERATORS["rmsnorm"]
        nodes += [
            Node(
                name="query and key norm", type=pointwise.OPERATORS["mul"].base, rows=size.tokens, cols=cols,
                reads=("qkv",),
                cost=PassCost(
                    2.0 * rotated_cols / cols, operator.flop, operator.backward * rotated_cols / cols
                ),
                keeps=0 if rotated else cols, keeps_whole=0,
                dims=Dims(TOKENS, (), HEADS), vectors=2 * size.head_dim,
            )
        ]  # fmt: skip
    if rotated:
        nodes += [_rotary(size, cols, (nodes[-1].name,), 2 * rotated_cols)]
    return nodes


def _latent(points: Inputs, size: Sizes, read: str) -> list[Node]:
    """Return the products of latent queries and keys, and the pass that lays out those of every head."""
    queries = size.heads * (size.head_dim + size.rotary)
    nodes, source, inner = [], read, HIDDEN
    if points["model.query_latent"][0]:
        source, inner = "query norm", ("query_latent",)
        nodes = [
            gemm("query down", size, size.hidden, size.query_latent, read, (HIDDEN, inner)),
            norm(source, size, RMS, "query down", size.query_latent, inner),
        ]
    rows_of_queries = size.query_latent if nodes else size.hidden
    of_values = size.heads * (size.head_dim + size.value_dim)
    latent = ("latent",)
    nodes += [
        gemm("query up", size, rows_of_queries, queries, source, (inner, HEADS), keeps=0),
        gemm("key down", size, size.hidden, size.latent + size.rotary, read, (HIDDEN, latent)),
        _key_norm(size, latent),
        gemm("key up", size, size.latent, of_values, "key norm", (latent, HEADS), keeps=0),
    ]
    # rotates columns of queries in place, and copies keys and values to separate tensors
    moved = 2 * size.heads * size.rotary + 2 * of_values + size.heads * size.rotary
    cols = 2 * queries + size.heads * size.value_dim
    return [*nodes, _rotary(size, cols, ("query up", "key up"), moved)]


def _key_norm(size: Sizes, names: tuple[str, ...]) -> Node:
    """Return the norm of latent keys, with which their rotated columns go on to all heads."""
    node = norm("key norm", size, RMS, "key down", size.latent + size.rotary, names)
    return node._replace(vectors=size.latent)


def _rotary(size: Sizes, cols: Size, reads: tuple[str, ...], moved: Size) -> Node:
    """Return the pass that turns queries and keys by their positions; moved: elements of a token."""
    operator = pointwise.OPERATORS["rotary"]
    return Node(
        name="rotary", type=pointwise.TYPES["rotary"], rows=size.tokens, cols=cols, reads=reads,
        cost=PassCost(moved / cols, operator.flop, moved / cols), dims=Dims(TOKENS, (), HEADS),
    )  # fmt: skip


def _unfused(points: Inputs, size: Sizes, head_dim: Size, read: str) -> list[Node]:
    """Return scores, softmax, dropout and context as separate kernels."""
    cols, batch = size.heads * size.sequence, size.sequences * size.heads
    operator = pointwise.OPERATORS["softmax"]
    scores, softmax, dropped, context = SELECTIVE
    moves, backward_moves = SOFTMAX_MOVES, SOFTMAX_BACKWARD_MOVES
    if not is_causal(points):
        moves, backward_moves = ALL_SOFTMAX_MOVES, ALL_SOFTMAX_BACKWARD_MOVES

    def product(name: str, inner: Size, cols: Size, reads: tuple[str, ...], **fields: Any) -> Node:
        return Node(
            name=name, type=batched_gemm.TYPE, batch=batch, rows=size.sequence, inner=inner, cols=cols,
            width=size.heads * cols, reads=reads, dims=_CORE_DIMS, wide=True, **fields,
        )  # fmt: skip

    def a_pass(name: str, read: str, **fields: Any) -> Node:
        return Node(
            name=name, type=pointwise.OPERATORS["exp"].base, rows=size.tokens, cols=cols, reads=(read,),
            keeps_whole=0, dims=Dims(TOKENS, (), HEADS), **fields,
        )  # fmt: skip

    nodes = [
        product(scores, head_dim, size.sequence, (read,), keeps=0),
        a_pass(
            softmax, scores, cost=PassCost(moves, operator.flop, backward_moves), keeps=cols,
        ),
    ]  # fmt: skip
    if points["model.dropout"][0]:
        mask_cols = 1.0 / size.activation_bytes
        nodes += [
            a_pass(
                dropped, softmax, cost=PassCost(2.0 + mask_cols, DROPOUT_FLOP, 2.0 + mask_cols),
                keeps=cols + mask(size, cols),
            )
        ]  # fmt: skip
    nodes.append(product(context, size.sequence, size.value_dim, (nodes[-1].name, read)))
    return [node._replace(selective=1) for node in nodes]
