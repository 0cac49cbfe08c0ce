"""Attention of several heads of queries, keys and values: products, rotary embedding, and scores.

Keys and values are of heads that several queries share (Ainslie et al., arXiv:2305.13245).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs, Ints, single
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.attention import CACHED, prefill_cache, setup_kernels
from fastflow.physics.workload.models.transformer.building_blocks import (
    DROPOUT_FLOP,
    GATE_FLOP,
    HEADS,
    HIDDEN,
    TOKENS,
    gemm,
    mask,
)
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    BEFORE,
    DOCUMENTS,
    FULL,
    KERNELS,
    OF_ATTENTION,
    OF_QKV,
    PER_HEAD,
    ROTARY,
    Sizes,
    is_causal,
)
from fastflow.physics.workload.models.transformer.layer_kind import EQUAL_KV, SHARED_KV, LayerKind
from fastflow.physics.workload.models.transformer.mixers.queries import query_product, source_of_queries
from fastflow.physics.workload.network import Amount, Node, PassCost, Size
from fastflow.physics.workload.ops import batched_gemm, pointwise
from fastflow.physics.workload.ops.attention import AttentionSizes, attention
from fastflow.physics.workload.ops.kv_cache import kv_cache_in_decode
from fastflow.physics.workload.recompute_modules import CORE_ATTN, KEEPS_OUTPUT

SELECTIVE = ("scores", "attention softmax", "attention dropout", "context")
"""Nodes of unfused attention, which selective recomputation recomputes."""
# Of the scores that no query may see the softmax writes zeros and reads none: Megatron-LM's
# scaled_upper_triang_masked_softmax; backward both that it reads are halves.
SOFTMAX_MOVES, SOFTMAX_BACKWARD_MOVES = 1.5, 2.0
ALL_SOFTMAX_MOVES, ALL_SOFTMAX_BACKWARD_MOVES = 2.0, 3.0
"""Where every query sees all keys: scores in and out; backward two tensors in, one out."""
MASK_BYTES = 1.0
"""Of a score, which the softmax reads of a mask that is not causal alone (Megatron-LM's ScaledMaskedSoftmax,
scaled_masked_softmax.h)."""
CORE_DIMS = Dims(("sequence",), (), HEADS, ("batch",))
ALL_HEADS = Dims(TOKENS, (), HEADS)


class Reach(NamedTuple):
    """Which keys a query of a mixer sees, besides those before it alone."""

    window: Size = 0  # keys of the last tokens; 0: all
    chunk: Size = 0  # tokens of a chunk, whose keys alone its queries see; 0: no chunks
    density: Any = 0.0  # share of the visible keys that a mask keeps; 0: all


def projections(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    """Return the products of queries, keys and values, and the passes that rotate the first two.

    The first node makes keys and values, and queries where these are not latent.
    """
    key_heads = 0 if SHARED_KV in kind.modifiers else size.kv_heads
    rotated_cols = (size.heads + key_heads) * size.head_dim
    cols = rotated_cols + key_heads * size.value_dim
    normed, rotated = bool(points["model.qk_norm"][0]), points["model.position"][0] == ROTARY
    queries = size.heads * size.head_dim
    made: Any = cols - (key_heads * size.value_dim if EQUAL_KV in kind.modifiers else 0)

    def kept(columns: Size) -> Size | None:
        """Return the columns saved of a product; columns: its queries and keys."""
        return columns if normed else 0 if rotated else None

    nodes, saved = _latent_queries(points, size, read, kept(queries)), kept(rotated_cols)
    if nodes:
        made, saved = made - queries, kept(rotated_cols - queries)
    gate = gate_columns(points, size)
    nodes = [
        gemm(
            "qkv", size, size.hidden, made + gate, read, (HIDDEN, HEADS),
            biased=str(points["model.biases"][0]) in (OF_QKV, OF_ATTENTION, ALL),
            keeps=None if saved is None else saved + gate, keeps_whole=0,
        ),
        *nodes,
    ]  # fmt: skip
    reads = ("qkv",) if len(nodes) == 1 else ("qkv", nodes[-1].name)
    if normed:
        operator = pointwise.OPERATORS["rmsnorm"]
        across = bool(points["model.qk_norm_across_heads"][0])
        nodes += [
            Node(
                name="query and key norm", type=(operator if across else pointwise.OPERATORS["mul"]).base,
                rows=size.tokens, cols=cols, reads=reads,
                cost=PassCost(
                    2.0 * rotated_cols / cols, operator.flop, operator.backward * rotated_cols / cols
                ),
                keeps=0 if rotated else cols, keeps_whole=0,
                dims=Dims(TOKENS, (), HEADS), vectors=rotated_cols if across else 2 * size.head_dim,
            )
        ]  # fmt: skip
        reads = (nodes[-1].name,)
    if rotated:
        rotated_elements = (size.heads + key_heads) * rotary_columns(size)
        nodes += [rotary(size, cols, reads, 2 * rotated_elements)]
    return nodes


def _latent_queries(points: Inputs, size: Sizes, read: str, kept: Size | None) -> list[Node]:
    """Return the products that make queries of latent ones, [] where they are not latent."""
    source = source_of_queries(points, size, read)
    if not source.nodes:
        return []
    columns = size.heads * size.head_dim
    return [*source.nodes, query_product(size, source, columns, keeps=kept, keeps_whole=0)]


def rotary_columns(size: Sizes) -> Size:
    """Return the columns of a head with rotary embedding, where keys are not latent."""
    if isinstance(size.rotary, int) and isinstance(size.head_dim, int):
        return size.rotary or size.head_dim
    return np.where(np.asarray(size.rotary) > 0, size.rotary, size.head_dim)


def gate_columns(points: Inputs, size: Sizes) -> Size:
    """Return the columns of the gate of attention's output."""
    gate = str(points["model.output_gate"][0])
    return size.heads * size.value_dim if gate == FULL else size.heads if gate == PER_HEAD else 0


def core_of_training(points: Inputs, size: Sizes, reach: Reach, head_dim: Size, read: str) -> list[Node]:
    """Return the nodes of attention over whole sequences; head_dim: columns of a query."""
    latent = bool(points["model.latent"][0])
    if not points["model.fused_attention"][0]:
        return _unfused(points, size, reach, head_dim, read)
    sizes = AttentionSizes(
        size.sequences, size.sequence, size.sequence, size.heads,
        size.heads if latent else size.kv_heads, head_dim, size.value_dim,
        _within_documents(points, size, window_of(reach, size.sequence, size.sequence)),
    )  # fmt: skip
    return [
        attention(
            "attention", (read,), sizes, is_causal(points), expanded=True, dims=CORE_DIMS,
            keeps=mask(size, 4),  # the sum of each query's exponentials, in fp32
            flash=KERNELS.index(str(points["model.attention_kernel"][0])),
        )
    ]  # fmt: skip


def gated(points: Inputs, size: Sizes, read: str, source: str) -> list[Node]:
    """Return the pass that multiplies attention's output by its gate; source: the product that made it."""
    gate = gate_columns(points, size)
    if isinstance(gate, int) and not gate:
        return []
    cols = size.heads * size.value_dim
    share = gate / cols
    return [
        Node(
            name="output gate", type=pointwise.OPERATORS["mul"].base, rows=size.tokens, cols=cols,
            reads=(read, source), cost=PassCost(2.0 + share, GATE_FLOP, 3.0 + 2.0 * share),
            dims=Dims(TOKENS, (), HEADS),
        )
    ]  # fmt: skip


def sizes_of_attention(size: Sizes, kv_len: Size, window: Size = 0) -> AttentionSizes:
    """Return the sizes of attention to kv_len keys of each head that has keys."""
    return AttentionSizes(
        size.sequences, size.sequence, kv_len, size.heads, size.kv_heads, size.head_dim, size.value_dim,
        window,
    )  # fmt: skip


def serve(points: Inputs, size: Sizes, kind: LayerKind, reach: Reach, decodes: bool) -> list[Node]:
    """Return attention over a cache, and the pass that writes the cache."""
    kv_len = single(points[BEFORE.name]) + size.sequence
    sizes = sizes_of_attention(size, kv_len, window_of(reach, size.sequence, kv_len))
    core = attention("attention", (CACHED,), sizes, True, decodes=decodes, dims=CORE_DIMS)
    return behind_cache(size, [core], columns_kept(size, kind), decodes)


def columns_kept(size: Sizes, kind: LayerKind) -> Size:
    """Return the columns of keys and values that a layer writes to its cache."""
    key_heads = 0 if SHARED_KV in kind.modifiers else size.kv_heads
    columns: Size = key_heads * (size.head_dim + size.value_dim)
    return columns


def behind_cache(size: Sizes, core: list[Node], kept: Size, decodes: bool) -> list[Node]:
    """Return attention with the pass before it that writes the cache; core: attention is the last node.

    kept: columns of keys and values that are written.
    """
    queries = size.heads * size.head_dim
    if decodes:
        in_decode = kv_cache_in_decode(CACHED, size.tokens, core[-1], read=queries, made=queries, kept=kept)
        return [in_decode._replace(dims=ALL_HEADS), *core]
    in_prefill = prefill_cache(size.tokens, queries, kept)
    return [*setup_kernels(), in_prefill._replace(dims=ALL_HEADS), *core]


def window_of(reach: Reach, q_len: Size, kv_len: Size) -> Size:
    """Return the window in which all queries together see as many keys as they do.

    A window of w of n causal keys has w (2 n + 1 - w) / 2 pairs of a query and a key. A mask keeps a share of
    all n (n + 1) / 2. Of chunks, the pairs of whole sequences are those of each chunk; queries behind earlier
    tokens begin anywhere in a chunk, and see half of it in the mean.
    """
    window = reach.window
    if np.any(np.asarray(reach.chunk) > 0):
        chunk, keys = np.maximum(reach.chunk, 1), np.asarray(kv_len)
        rest = keys % chunk
        pairs = 0.5 * (keys // chunk * chunk * (chunk + 1.0) + rest * (rest + 1.0))
        whole = np.where(np.asarray(q_len) >= keys, _window_of_pairs(pairs, keys), (chunk + 1) // 2)
        window = np.where(keys > chunk, whole, 0).astype(np.int64)
    if np.any(np.asarray(reach.density) > 0.0):
        kept = np.asarray(reach.density, dtype=np.float64)
        share = 1.0 - np.sqrt(1.0 - np.minimum(kept, 1.0))
        causal = np.maximum(np.ceil(share * np.asarray(kv_len)), 1.0)
        # of few queries behind many keys every query sees nearly all of them
        few = np.maximum(np.ceil(kept * np.asarray(kv_len)), 1.0)
        mostly = np.asarray(q_len) / np.asarray(kv_len)
        masked = np.rint(mostly * causal + (1.0 - mostly) * few).astype(np.int64)
        window = np.where((kept > 0.0) & (kept < 1.0), masked, window)
    return window


def _within_documents(points: Inputs, size: Sizes, window: Size) -> Size:
    """Return the window in which all queries together see as many keys as within their documents.

    window: of keys that a query may see, 0 for all. A document of n tokens has w (2 n + 1 - w) / 2 pairs in a
    window of w keys.
    """
    if DOCUMENTS not in points:
        return window
    keys, length = np.asarray(size.sequence), np.asarray(single(points[DOCUMENTS]))
    document = np.where(length > 0, np.minimum(length, keys), keys)

    def pairs(tokens: Ints) -> Floats:
        reached = np.where(np.asarray(window) > 0, np.minimum(window, tokens), tokens)
        return 0.5 * reached * (2.0 * tokens + 1.0 - reached)

    total = keys // document * pairs(document) + pairs(keys % document)
    packed = np.maximum(_window_of_pairs(total, keys), 1.0).astype(np.int64)
    return np.where(document < keys, packed, window)


def _masked(reach: Reach, sequence: Size) -> Bools:
    """Say whether some queries see fewer keys than those before them."""
    window, chunk, density = (np.asarray(part) for part in reach)
    masked: Bools = ((window > 0) & (window < sequence)) | ((chunk > 0) & (chunk < sequence))
    return masked | ((density > 0.0) & (density < 1.0))


def _window_of_pairs(pairs: Floats, keys: Ints) -> Floats:
    """Return the window of some causal keys that has so many pairs of a query and a key."""
    twice = 2.0 * keys + 1.0
    window: Floats = np.rint((twice - np.sqrt(np.maximum(twice * twice - 8.0 * pairs, 0.0))) / 2.0)
    return window


def rotary(size: Sizes, cols: Size, reads: tuple[str, ...], moved: Size) -> Node:
    """Return the pass that rotates queries and keys by their positions; moved: elements of a token."""
    operator = pointwise.OPERATORS["rotary"]
    return Node(
        name="rotary", type=pointwise.TYPES["rotary"], rows=size.tokens, cols=cols, reads=reads,
        cost=PassCost(moved / cols, operator.flop, moved / cols), dims=Dims(TOKENS, (), HEADS),
    )  # fmt: skip


def _unfused(points: Inputs, size: Sizes, reach: Reach, head_dim: Size, read: str) -> list[Node]:
    """Return scores, softmax, dropout and context as separate kernels, over all keys whatever the reach.

    A window, chunks or a mask's density save nothing, as in Megatron-LM: products of all queries and keys,
    and a softmax of all scores behind a mask (DotProductAttention of megatron/core/transformer/
    dot_product_attention.py, and fusions/fused_softmax.py, at 00caa53).
    """
    cols, batch = size.heads * size.sequence, size.sequences * size.heads
    operator = pointwise.OPERATORS["softmax"]
    scores, softmax, dropped, context = SELECTIVE
    moves: Amount = SOFTMAX_MOVES
    backward_moves: Amount = SOFTMAX_BACKWARD_MOVES
    if not is_causal(points):
        moves, backward_moves = ALL_SOFTMAX_MOVES, ALL_SOFTMAX_BACKWARD_MOVES
    masked = _masked(reach, size.sequence)
    if np.any(masked):
        moves = np.where(masked, ALL_SOFTMAX_MOVES + MASK_BYTES / size.activation_bytes, moves)
        backward_moves = np.where(masked, ALL_SOFTMAX_BACKWARD_MOVES, backward_moves)

    def product(name: str, inner: Size, cols: Size, reads: tuple[str, ...], **fields: Any) -> Node:
        return Node(
            name=name, type=batched_gemm.TYPE, batch=batch, rows=size.sequence, inner=inner, cols=cols,
            width=size.heads * cols, reads=reads, dims=CORE_DIMS, wide=True, **fields,
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
    nodes[-1] = nodes[-1]._replace(modules=KEEPS_OUTPUT)
    return [node._replace(modules=node.modules | CORE_ATTN) for node in nodes]
