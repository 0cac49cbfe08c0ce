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

from collections.abc import Mapping, Sequence

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.field import count, text
from fastflow.core.tables import Inputs, Ints, Texts, single, take
from fastflow.physics.workload.family import Order
from fastflow.physics.workload.graph import ATTENTION, EMBEDDING, HEAD, HIDDEN, PRODUCT, SOFTMAX, Dims
from fastflow.physics.workload.models import transformer
from fastflow.physics.workload.models.transformer import layer_pattern
from fastflow.physics.workload.models.transformer.building_blocks import HIDDEN as HIDDEN_COLUMNS
from fastflow.physics.workload.models.transformer.building_blocks import TOKENS, VOCABULARY, gemm
from fastflow.physics.workload.models.transformer.dimensions import (
    BEFORE,
    POST,
    SIZES,
    STRUCTURE,
    Sizes,
    sizes_of,
)
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, parse, times
from fastflow.physics.workload.models.transformer.mixers.layer import core_names, core_nodes
from fastflow.physics.workload.models.transformer.network import (
    LOGIT_BYTES,
    TIED_PRODUCT,
    block,
    embedding,
    has_streams,
)
from fastflow.physics.workload.models.transformer.served_experts import (
    EXPERT_KERNELS,
    with_expert_kernels,
    with_fused_downs,
    with_one_sum,
)
from fastflow.physics.workload.models.transformer.valid_sizes import invalid_pass_sizes
from fastflow.physics.workload.network import INPUT, Amount, Layer, Network, Node, PassCost, connect
from fastflow.physics.workload.ops import grouped_gemm, pointwise, rowwise, top_p
from fastflow.physics.workload.ops.top_p import FILTER_NAMES, NO_FILTER
from fastflow.physics.workload.precision import ATTENTION_WEIGHTS, OPERAND, QUANTIZED_BYTES

TOKENS_PART, HEAD_PART, DECODE, PREFILL = "tokens", "head", "decode", "prefill"
PART = text(
    "model.pass",
    "timed part of a pass: tokens is all but the core of attention; head, decode, prefill",
    (TOKENS_PART, HEAD_PART, DECODE, PREFILL),
)
EXPERT_ROWS = count("model.expert_rows", "minimum rows of each expert's GEMM (padding)", low=0)
SAMPLER = text("model.sampler", "how logits are filtered before a token is drawn", FILTER_NAMES)
NORMS = (pointwise.TYPES["rmsnorm"], pointwise.TYPES["layernorm"])
ADD = pointwise.TYPES["add"]
_OF_HEAD = 1.0  # norms that the head begins with
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
    cores = (
        Layer(kind.text, HIDDEN, tuple(_core(points, size, kind, part == DECODE)), times=layer_count)
        for kind, layer_count in counts.items()
    )
    return connect(cores, are_stacked=False)


# --- kernels over every token


def _tokens(points: Inputs, size: Sizes) -> list[Layer]:
    pattern = str(points[KEY][0])
    counts = times(pattern, single(points["model.layers"]))
    kernels = str(points[EXPERT_KERNELS.name][0])
    nodes = {
        kind: with_expert_kernels(
            with_fused_downs(_without(core_names(kind), block(points, size, kind, INPUT))), kernels
        )
        for kind in counts
    }
    first = {kind: float(len(_norms_of(INPUT, of_kind))) for kind, of_kind in nodes.items()}
    # whether sums make the norms that the next layer begins with
    starts_with_norms = bool(points["model.block"][0] != POST) and not has_streams(points)
    after = _norms_after(points, first) if starts_with_norms else dict.fromkeys(counts, 0.0)
    after_embedding = first[parse(pattern)[0]] if starts_with_norms else 0.0
    layers = [Layer("embedding", EMBEDDING, _fuse_norms(embedding(points, size), after_embedding))]
    for kind, layer_count in counts.items():
        padded = _padded(points, _quantised(points, _fuse_norms(nodes[kind], after[kind])))
        layers.append(Layer(kind.text, HIDDEN, with_one_sum(padded), times=layer_count))
    return layers


def _norms_of(name: str, nodes: Sequence[Node]) -> list[str]:
    """Return the norms of the output of a node, or of a layer's input."""
    return [node.name for node in nodes if node.type in NORMS and node.reads[0] == name]


def _norms_after(points: Inputs, first: Mapping[LayerKind, float]) -> dict[LayerKind, Amount]:
    """Return the mean number of norms that read the output of a layer of each kind: the next layer's.

    first: norms that a layer of each kind begins with; the head begins with one. `parallel_norms` has two in
    a layer with both branches.
    """
    if {*first.values()} == {_OF_HEAD}:
        return dict(first)
    kinds, pattern = list(first), parse(str(points[KEY][0]))
    numbers, inverse = np.unique(points["model.layers"], return_inverse=True)
    means = np.zeros((numbers.size, len(kinds)))
    for mean, num_layers in zip(means, numbers.tolist(), strict=True):
        layers = np.resize([kinds.index(kind) for kind in pattern], num_layers)
        norms = np.array([*(first[kinds[kind]] for kind in layers[1:].tolist()), _OF_HEAD])
        sums, counts = (np.bincount(layers, weights, len(kinds)) for weights in (norms, None))
        mean[:] = sums / np.maximum(counts, 1)
    return {kind: single(column) for kind, column in zip(kinds, means[inverse].T, strict=True)}


def _padded(points: Inputs, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Pad the rows of experts' products, as a library does."""
    least = single(points[EXPERT_ROWS.name])
    return tuple(
        node._replace(attributes={**node.attributes, "least": least})
        if node.type is grouped_gemm.TYPE
        else node
        for node in nodes
    )


def _fuse_norms(nodes: Sequence[Node], after: Amount) -> tuple[Node, ...]:
    """Fuse norms into the sums before them: within a layer, and the first norms of the next layer.

    after: norms that read the output of the layer.
    """
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
        norms = float(len(_norms_of(node.name, nodes))) + (after if node.name == last else 0.0)
        cost = node.cost
        if node.type is ADD and np.any(norms):  # sums have explicit moves
            cost = cost._replace(moves=(0.0 if cost.moves is None else cost.moves) + norms)
        fused.append(node._replace(reads=reads, cost=cost))
    return tuple(fused)


def _without(names: set[str], nodes: Sequence[Node]) -> list[Node]:
    """Return a layer without some of its nodes; their readers read the first node that these read."""
    source = {node.name: node.reads[0] for node in nodes if node.name in names}

    def present(name: str) -> str:
        while name in source:
            name = source[name]
        return name

    return [
        node._replace(reads=tuple(dict.fromkeys(map(present, node.reads))))
        for node in nodes
        if node.name not in names
    ]


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
    sampler, filters = str(points[SAMPLER.name][0]), []
    if sampler != NO_FILTER:  # of whole rows, on each device
        filters = [sampling._replace(
            name="filter", type=top_p.TYPES[sampler], cost=PassCost(), dims=Dims(TOKENS, (), ()),
        )]  # fmt: skip
    return tuple(node._replace(part=HEAD) for node in (logits, *filters, sampling))


# --- core attention


def _core(points: Inputs, size: Sizes, kind: LayerKind, decodes: bool) -> list[Node]:
    """Return the nodes of a layer that keep something of earlier tokens."""
    size = sizes_of(points, kind) if kind.sizes else size
    return [node._replace(part=ATTENTION) for node in core_nodes(points, size, kind, decodes)]


def _order(inputs: Inputs) -> Order:
    """Return, for every layer of each model that the part has, its layer in the network."""
    columns = inputs[KEY], inputs["model.layers"], inputs[PART.name]
    first, inverse = unique_rows(columns, columns[0].size)
    distinct = _distinct_order(*take(columns, first))
    num_layers = np.diff(distinct.offset)[inverse]
    offset = np.concatenate([[0], np.cumsum(num_layers)]).astype(np.int64)
    rows = np.arange(offset[-1]) + np.repeat(distinct.offset[inverse] - offset[:-1], num_layers)
    return Order(offset, distinct.layer[rows])


def _distinct_order(patterns: Texts, layers: Ints, parts: Texts) -> Order:
    """Return the order of distinct models and parts; (points,) each."""
    whole = layer_pattern.order(patterns, layers, np.zeros_like(layers))
    point = np.repeat(np.arange(whole.offset.size - 1), np.diff(whole.offset))
    part = parts[point]
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
    structure=(*STRUCTURE, PART, SAMPLER, EXPERT_KERNELS),
    parameters=None,
    trained=(),
)
