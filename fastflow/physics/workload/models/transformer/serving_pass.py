"""A pass of a serving library through a transformer, in four parts that depend on different sizes.

`tokens`: all kernels over every token of a pass, except core attention. `head`: the logits of the rows that
get a next token. `decode` and `prefill`: core attention, of few queries over long caches, and of the chunks
of prompts. A pass holds `model.batch` sequences of `model.sequence` tokens, of each of which the cache
holds `model.before` tokens already.

Unlike in training, a sum and the norm after it are a fused kernel (TensorRT-LLM's fused Add + RMSNorm, vLLM's
fused_add_rms_norm); so are rotary embedding and the cache's write, which belong to attention. Where products
compute in fp8 with a scale a tensor, the producer of an operand rounds it; block scales take a separate pass
before each product (DeepSeek-V3, arXiv:2412.19437, section 3.3). Latent attention expands its cache
in prefill, and is absorbed into queries and outputs in decode (arXiv:2405.04434, section 2.1.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastflow.core.field import count, text
from fastflow.core.tables import Inputs, single
from fastflow.physics.workload.family import Order
from fastflow.physics.workload.graph import ATTENTION, EMBEDDING, HEAD, HIDDEN, PRODUCT, SOFTMAX, Dims
from fastflow.physics.workload.models import transformer
from fastflow.physics.workload.models.attention import CACHED, prefill_cache, setup_kernels
from fastflow.physics.workload.models.latent_attention import latent_prefill_cache
from fastflow.physics.workload.models.transformer import layer_pattern
from fastflow.physics.workload.models.transformer.attention import PROJECTION
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, TOKENS, VOCABULARY, gemm
from fastflow.physics.workload.models.transformer.building_blocks import HIDDEN as HIDDEN_COLUMNS
from fastflow.physics.workload.models.transformer.dimensions import (
    POST,
    SIZES,
    STRUCTURE,
    Sizes,
    invalid_pass_sizes,
    sizes_of,
)
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, WINDOW, times
from fastflow.physics.workload.models.transformer.network import LOGIT_BYTES, TIED_PRODUCT, block, embedding
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, PassCost, Size, connect
from fastflow.physics.workload.ops import batched_gemm, grouped_gemm, pointwise, rowwise
from fastflow.physics.workload.ops.attention import AttentionSizes, attention
from fastflow.physics.workload.ops.kv_cache import kv_cache_in_decode
from fastflow.physics.workload.precision import ATTENTION_WEIGHTS, OPERAND, QUANTIZED_BYTES

TOKENS_PART, HEAD_PART, DECODE, PREFILL = "tokens", "head", "decode", "prefill"
PART = text(
    "model.pass",
    "timed part of a pass: tokens is all but the core of attention; head, decode, prefill",
    (TOKENS_PART, HEAD_PART, DECODE, PREFILL),
)
BEFORE = count("model.before", "tokens of each sequence that are in the KV cache before a pass", low=0)
EXPERT_ROWS = count("model.expert_rows", "minimum rows of each expert's GEMM (padding)", low=0)
NORMS = (pointwise.TYPES["rmsnorm"], pointwise.TYPES["layernorm"])
ADD = pointwise.TYPES["add"]
_CORE_DIMS = Dims(("sequence",), (), HEADS, ("batch",))
_ALL_HEADS = Dims(TOKENS, (), HEADS)
ATTENTION_NODES = ("rotary", "attention", "key up")
"""Nodes of a layer that belong to the attention parts."""
# Sampling, in fp32 as logits are: maximum, and exponentials with their sum, each reads them once
SAMPLING_READS, SAMPLING_FLOP = 2.0, 3.0


def network(points: Inputs) -> Network:
    """Return the network of a part of models with the same structure."""
    size, part = sizes_of(points), str(points[PART.name][0])
    if part == TOKENS_PART:
        return connect(_tokens(points, size))
    if part == HEAD_PART:
        return connect([Layer("head", SOFTMAX, _head(points, size))])
    counts = times(str(points[KEY][0]), single(points["model.layers"]))
    return connect(
        Layer(kind, HIDDEN, tuple(_core(points, size, kind, part == DECODE)), times=layer_count)
        for kind, layer_count in counts.items()
    )


# --- kernels over every token


def _tokens(points: Inputs, size: Sizes) -> list[Layer]:
    counts = times(str(points[KEY][0]), single(points["model.layers"]))
    starts_with_norm = points["model.block"][0] != POST  # whether layers begin with a norm
    layers = [Layer("embedding", EMBEDDING, _fuse_norms(embedding(points, size), starts_with_norm))]
    for kind, layer_count in counts.items():
        nodes = [node for node in block(points, size, kind, INPUT) if node.name not in ATTENTION_NODES]
        padded = _padded(
            points, _quantised(points, _connect_projection(_fuse_norms(nodes, starts_with_norm)))
        )
        layers.append(Layer(kind, HIDDEN, padded, times=layer_count))
    return layers


def _padded(points: Inputs, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Pad the rows of experts' products, as a library does."""
    least = single(points[EXPERT_ROWS.name])
    return tuple(
        node._replace(attributes={**node.attributes, "least": least})
        if node.type is grouped_gemm.TYPE
        else node
        for node in nodes
    )


def _fuse_norms(nodes: Sequence[Node], starts_with_norm: bool) -> tuple[Node, ...]:
    """Fuse norms into the sums before them: within a layer, and the first norm of the next layer."""
    sums = {node.name for node in nodes if node.type is ADD}
    normed = {
        node.name: node.reads[0] for node in nodes if node.type in NORMS and node.reads[0] in {*sums, INPUT}
    }
    last = nodes[-1].name
    fused = []
    for node in nodes:
        if node.name in normed:
            continue
        reads = tuple(normed.get(read, read) for read in node.reads)
        makes_norm = node.name in normed.values() or (starts_with_norm and node.name == last)
        cost = node.cost
        if node.type is ADD and makes_norm:  # sums have explicit moves
            cost = cost._replace(moves=(0.0 if cost.moves is None else cost.moves) + 1.0)
        fused.append(node._replace(reads=reads, cost=cost))
    return tuple(fused)


def _connect_projection(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Let the projection read the producer of queries, since the attention nodes are removed."""
    present = {INPUT, *(node.name for node in nodes)}
    queries = next(name for name in ("query and key norm", "qkv", "query up") if name in present)
    return tuple(node._replace(reads=(queries,)) if node.name == PROJECTION else node for node in nodes)


def _quantised(points: Inputs, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Let a pass quantise each product's input, for block scales; experts quantise as they gather."""
    dtype, weights = str(points["model.dtype"][0]), str(points.get(ATTENTION_WEIGHTS, (OPERAND,))[0])
    of_attention = by_blocks(dtype if weights == OPERAND else weights)
    others = by_blocks(dtype)
    return tuple(
        node._replace(passes=node.passes._replace(quantises_input=True))
        if (of_attention if node.part == ATTENTION else others)
        and node.type.kind == PRODUCT and not node.wide and node.type.time is None
        else node
        for node in nodes
    )  # fmt: skip


def by_blocks(dtype: str) -> bool:
    """Say whether operands of a type have a scale for each block of a row."""
    return QUANTIZED_BYTES[dtype] > 1.0 or 0.0 < QUANTIZED_BYTES[dtype] < 1.0


# --- the rows that get a next token


def _head(points: Inputs, size: Sizes) -> tuple[Node, ...]:
    """Return the logits of each row, and the sampling of its next token."""
    logits = gemm(
        "logits", size, size.hidden, size.vocabulary, INPUT, (HIDDEN_COLUMNS, VOCABULARY), wide=True
    )
    if points["model.tied"][0]:
        logits = logits._replace(type=TIED_PRODUCT)
    sampling = Node(
        name="sampling", type=rowwise.TYPE, rows=size.tokens, cols=size.vocabulary, reads=("logits",),
        cost=PassCost(SAMPLING_READS * LOGIT_BYTES / size.activation_bytes, SAMPLING_FLOP),
        dims=Dims(TOKENS, (), VOCABULARY),
    )  # fmt: skip
    return tuple(node._replace(part=HEAD) for node in (logits, sampling))


# --- core attention


def _core(points: Inputs, size: Sizes, kind: str, decodes: bool) -> list[Node]:
    latent = bool(points["model.latent"][0])
    window = size.window if WINDOW in kind.split() else 0
    make = _latent if latent else _heads
    return [node._replace(part=ATTENTION) for node in make(points, size, window, decodes)]


def _heads(points: Inputs, size: Sizes, window: Size, decodes: bool) -> list[Node]:
    """Return multi-head or grouped-query attention."""
    before = single(points[BEFORE.name])
    queries, keys_and_values = size.heads * size.head_dim, size.kv_heads * (size.head_dim + size.value_dim)
    sizes = AttentionSizes(
        size.sequences, size.sequence, before + size.sequence, size.heads, size.kv_heads, size.head_dim,
        size.value_dim, window,
    )  # fmt: skip
    core = attention("attention", (CACHED,), sizes, True, decodes=decodes, dims=_CORE_DIMS)
    if decodes:
        in_decode = kv_cache_in_decode(
            CACHED, size.tokens, core, read=queries, made=queries, kept=keys_and_values
        )
        return [in_decode._replace(dims=_ALL_HEADS), core]
    in_prefill = prefill_cache(size.tokens, queries, keys_and_values)
    return [*setup_kernels(), in_prefill._replace(dims=_ALL_HEADS), core]


def _latent(points: Inputs, size: Sizes, window: Size, decodes: bool) -> list[Node]:
    """Return latent attention: absorbed in decode, expanded in prefill."""
    before, kept = single(points[BEFORE.name]), size.latent + size.rotary
    all_heads = 2 * size.heads * (size.head_dim + size.rotary) + size.heads * size.value_dim
    if decodes:
        absorbed = AttentionSizes(
            size.sequences, size.sequence, before + size.sequence, size.heads, 1, kept, size.latent, 0
        )
        core = attention("attention", (CACHED,), absorbed, True, decodes=True, latent=True, dims=_CORE_DIMS)
        rotated = size.heads * size.rotary
        in_decode = kv_cache_in_decode(CACHED, size.tokens, core, read=rotated, made=rotated, kept=kept)
        return [
            _absorbed(size, "absorbed queries", INPUT, size.head_dim, size.latent),
            in_decode._replace(dims=_ALL_HEADS, reads=("absorbed queries",)),
            core,
            _absorbed(size, "absorbed values", "attention", size.latent, size.value_dim),
        ]
    cols = size.heads * (size.head_dim + size.value_dim)
    rows = size.sequences * (before + size.sequence)
    up = gemm("key up", size, size.latent, cols, INPUT, (("latent",), HEADS))._replace(rows=rows)
    expanded = AttentionSizes(
        size.sequences, size.sequence, before + size.sequence, size.heads, size.heads,
        size.head_dim + size.rotary, size.value_dim, 0,
    )  # fmt: skip
    core = attention("attention", (CACHED,), expanded, True, expanded=True, dims=_CORE_DIMS)
    in_prefill = latent_prefill_cache(size.tokens, all_heads, size.heads * size.rotary, kept)
    return [*setup_kernels(), up, in_prefill._replace(dims=_ALL_HEADS, reads=("key up",)), core]


def _absorbed(size: Sizes, name: str, read: str, inner: Size, cols: Size) -> Node:
    """Return the product of every head's rows with the head's part of the absorbed weights."""
    return Node(
        name=name, type=batched_gemm.TYPE, batch=size.heads, rows=size.tokens, inner=inner, cols=cols,
        width=size.heads * cols, reads=(read,), dims=Dims(TOKENS, (), HEADS), wide=True,
    )  # fmt: skip


def _order(inputs: Inputs) -> Order:
    """Return, for every layer of each model that the part has, its layer in the network."""
    whole = layer_pattern.order(inputs[KEY], inputs["model.layers"], np.zeros_like(inputs["model.layers"]))
    point = np.repeat(np.arange(whole.offset.size - 1), np.diff(whole.offset))
    part = inputs[PART.name][point]
    first = np.isin(np.arange(point.size), whole.offset[:-1])
    last = np.isin(np.arange(point.size), whole.offset[1:] - 1)
    is_head = part == HEAD_PART
    selected = np.where(is_head, last, ~last & (first <= (part == TOKENS_PART)))
    layer = np.where(is_head, 0, whole.layer - (part != TOKENS_PART))[selected]
    num_layers = np.bincount(point[selected], minlength=whole.offset.size - 1)
    return Order(np.concatenate([[0], np.cumsum(num_layers)]).astype(np.int64), layer.astype(np.int64))


FAMILY = transformer.FAMILY._replace(
    name="served_pass",
    network=network,
    invalid_sizes=invalid_pass_sizes,
    order=_order,
    sizes=(*SIZES, BEFORE, EXPERT_ROWS),
    structure=(*STRUCTURE, PART),
    parameters=None,
    trained=(),
)
