"""The network of a transformer: embedding, a layer of each kind with its count, and the head.

MTP modules (multi-token prediction) take the output of the layers and the embedding of the next token,
through a separate layer (DeepSeek-V3, arXiv:2412.19437, section 2.2); they share embedding and head with the
model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.tables import Inputs, single
from fastflow.physics.workload.graph import (
    ATTENTION,
    DENSE,
    EMBEDDING,
    FEED_FORWARD,
    HEAD,
    HIDDEN,
    NO_GRADIENT,
    PRODUCT,
    SOFTMAX,
    Dims,
)
from fastflow.physics.workload.graph import EXPERTS as MIXTURE
from fastflow.physics.workload.models.lstm_lm import LOSS_BACKWARD_FLOP, LOSS_FLOP
from fastflow.physics.workload.models.transformer.building_blocks import HIDDEN as HIDDEN_COLUMNS
from fastflow.physics.workload.models.transformer.building_blocks import (
    TOKENS,
    VOCABULARY,
    gemm,
    mask,
    norm,
    residual,
)
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    LEARNED,
    OF_ATTENTION,
    PARALLEL,
    PARALLEL_NORMS,
    POST,
    SANDWICH,
    Sizes,
    sizes_of,
)
from fastflow.physics.workload.models.transformer.feed_forward import dense, mixture
from fastflow.physics.workload.models.transformer.hyper_connections import (
    expanded,
    mixed_streams,
    reduced,
    stream_sum,
)
from fastflow.physics.workload.models.transformer.layer_embedding import (
    BEFORE_TABLE,
    layer_input,
    layer_tables,
)
from fastflow.physics.workload.models.transformer.layer_kind import NO_FEED_FORWARD, LayerKind
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, parse, times
from fastflow.physics.workload.models.transformer.lora import adapted_layers, adapts
from fastflow.physics.workload.models.transformer.losses import DEFAULT as WHOLE
from fastflow.physics.workload.models.transformer.losses import KEY as LOSS
from fastflow.physics.workload.models.transformer.losses import LOSSES, Loss, chunks_of
from fastflow.physics.workload.models.transformer.mixers.layer import mixer_nodes, untied_names
from fastflow.physics.workload.models.transformer.preference import has_reference, with_reference
from fastflow.physics.workload.models.transformer.quantized import quantised
from fastflow.physics.workload.network import INPUT, KernelType, Layer, Network, Node, PassCost, Size, connect
from fastflow.physics.workload.ops import embedding as lookup
from fastflow.physics.workload.ops import gemm as product
from fastflow.physics.workload.ops import pointwise, rowwise
from fastflow.physics.workload.precision import QUANTIZED_BYTES
from fastflow.physics.workload.recompute_modules import LAYERNORM

TIED_PRODUCT = replace(product.TYPE, title="product, tied", gradient=NO_GRADIENT)
TIED_LOOKUP = replace(lookup.TYPE, title="lookup, tied", gradient=NO_GRADIENT)
"""Kernels whose weights are owned by another kernel: the embedding or the head."""
SHARED_LOOKUP = replace(lookup.TYPE, title="lookup, shared", gradient=DENSE)
"""Owns the weights of a tied head, whose gradient is dense."""
LOGIT_BYTES = 4  # of a logit that a server samples from, in fp32
LAST_NODE = "add"  # name of a layer's last node
KEPT_SHARDED = tuple(pointwise.TYPES[name] for name in ("layernorm", "rmsnorm", "add"))
"""Types whose output every device saves sharded: under sequence parallelism, the device's tokens."""


AfterEmbedding = Callable[[Inputs, Sizes, str], list[Layer]]
"""Makes layers, from models, their sizes, and the node that the embedding ends with."""


def network(
    points: Inputs,
    after_embedding: AfterEmbedding | None = None,
    frozen: bool = False,
    teacher: tuple[Callable[[Inputs], list[Layer]], Callable[[Inputs, Layer], Layer]] | None = None,
) -> Network:
    """Return the network of models with the same structure.

    after_embedding: makes further layers between embedding and the first layer; frozen: whether these alone
    are trained; teacher: makes layers below all others, and the head that reads them.
    """
    size, pattern = sizes_of(points), str(points[KEY][0])
    counts = times(pattern, single(points["model.layers"]))
    layers = [
        Layer("embedding", EMBEDDING, embedding(points, size)),
        *(
            Layer(kind.text, HIDDEN, tuple(block(points, size, kind, INPUT)), times=count)
            for kind, count in counts.items()
        ),
    ]
    head_input, tied = INPUT, bool(points["model.tied"][0])
    if modules := int(points["model.mtp"][0]):
        head_input = f"{layers[-1].name}.{LAST_NODE}"
        kind = parse(pattern)[-1]
        layers += [
            Layer("mtp", SOFTMAX, _mtp_module(points, size, kind), times=modules),  # on the stage of the head
            Layer("mtp head", SOFTMAX, _head(points, size, INPUT, tied=True), times=modules),
        ]
    layers.append(Layer("head", SOFTMAX, _head(points, size, head_input, tied)))
    base = adapted_layers(points, size, layers, counts, targeted=False) if has_reference(points) else []
    if frozen or adapts(points):
        layers = adapted_layers(points, size, layers, counts)
    if base:
        layers = with_reference(layers, base, shares=adapts(points))
    if after_embedding:
        layers[1:1] = after_embedding(points, size, f"embedding.{layers[0].nodes[-1].name}")
    if teacher:
        below, distils = teacher
        layers = [*below(points), *layers[:-1], distils(points, layers[-1])]
    return finished(points, size, layers)


def finished(points: Inputs, size: Sizes, layers: list[Layer]) -> Network:
    """Return the network of layers, with the passes of quantisation, gradient sums and regathered inputs."""
    if points["model.training"][0] and map_values(QUANTIZED_BYTES, points["model.dtype"][:1])[0] > 0.0:
        layers = [layer._replace(nodes=quantised(layer.nodes, size)) for layer in layers]
    if not points["model.fused_gradients"][0]:
        layers = [layer._replace(nodes=tuple(map(_add_gradient_separately, layer.nodes))) for layer in layers]
    return connect(layer._replace(nodes=_regather_inputs(layer.nodes)) for layer in layers)


def _add_gradient_separately(node: Node) -> Node:
    """Let a separate pass accumulate a product's weight gradient over micro-batches."""
    return (
        node._replace(passes=node.passes._replace(adds_gradient=True)) if node.type.kind == PRODUCT else node
    )


def _regather_inputs(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Let products regather, for the backward pass, inputs that are saved sharded: outputs of norms and sums.

    As Megatron-LM (core/tensor_parallel/layers.py at 000c4ac): a product saves its input before the gather.
    """
    parts = {INPUT, *(node.name for node in nodes if node.type in KEPT_SHARDED)}
    return tuple(
        node._replace(passes=node.passes._replace(regathers_input=True))
        if node.type.kind == PRODUCT and node.reads[0] in parts and not node.frozen
        else node
        for node in nodes
    )


def _with_part(part: int, nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes assigned to a part of their layer."""
    return [node._replace(part=part) for node in nodes]


def block(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    """Return the nodes of a layer of a kind; the last node makes its output."""
    nodes = _block(points, size, kind, read)
    if not kind.is_tied:
        return nodes
    untied = untied_names(kind)
    return [
        node if node.name in untied else node._replace(type=_tied(node.type), vectors=0) for node in nodes
    ]


@lru_cache
def _tied(kernel: KernelType) -> KernelType:
    """Return a type of kernel whose weights another kernel has."""
    if kernel.gradient == NO_GRADIENT:
        return kernel
    return TIED_PRODUCT if kernel is product.TYPE else replace(kernel, gradient=NO_GRADIENT)


def _block(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    size = sizes_of(points, kind) if kind.sizes else size
    parallel = str(points["model.block"][0]) in (PARALLEL, PARALLEL_NORMS)
    if parallel and kind.mixers and kind.feed_forward != NO_FEED_FORWARD:
        return _parallel_block(points, size, kind, read)
    branches = [_MIXING] * bool(kind.mixers) + [_FEED_FORWARD] * (kind.feed_forward != NO_FEED_FORWARD)
    tables = bool(points["model.layer_embedding"][0])
    nodes: list[Node] = []
    for branch in branches:
        last = "attention add" if branch is not branches[-1] else BEFORE_TABLE if tables else LAST_NODE
        nodes += _branch(points, size, kind, branch, nodes[-1].name if nodes else read, last)
    return [*nodes, *layer_input(points, size, nodes[-1].name, LAST_NODE)] if tables else nodes


class _Branch(NamedTuple):
    """A branch of the residual: the names of its norms."""

    norm: str
    post_norm: str


_MIXING, _FEED_FORWARD = _Branch("attention norm", "attention post norm"), _Branch("norm", "post norm")


def _branch(
    points: Inputs, size: Sizes, kind: LayerKind, branch: _Branch, read: str, last: str
) -> list[Node]:
    """Return the nodes of a branch with its norms, and the residual sum, which gets the name `last`."""
    arrangement, dropout = str(points["model.block"][0]), bool(points["model.dropout"][0])
    streams = mixed_streams(size, branch.norm, read) if has_streams(points) else None
    source = streams.mixed if streams else read
    nodes = [] if arrangement == POST else [layer_norm(points, size, branch.norm, source)]
    branch_input = nodes[-1].name if nodes else source
    branch_nodes, outputs, biases = _branch_nodes(points, size, kind, branch, branch_input)
    norm_after = arrangement in (POST, SANDWICH)
    branch_nodes, outputs = _branch_output(
        points, size, branch_nodes, outputs, branch.post_norm if norm_after else ""
    )
    nodes += branch_nodes
    if streams:
        return [*streams.nodes, *nodes, stream_sum(size, last, outputs, read, streams.weights)]
    return [*nodes, residual(last, size, (*outputs, read), dropout, biases)]


def _branch_nodes(
    points: Inputs, size: Sizes, kind: LayerKind, branch: _Branch, read: str
) -> tuple[list[Node], tuple[str, ...], int]:
    """Return the nodes of a branch, those whose sum is its output, and the biases that the sum adds."""
    biases = str(points["model.biases"][0])
    if branch is _MIXING:
        nodes, outputs = mixer_nodes(points, size, kind, read)
        return _with_part(ATTENTION, nodes), outputs, int(biases in (OF_ATTENTION, ALL))
    make, part = (mixture, MIXTURE) if kind.has_experts else (dense, FEED_FORWARD)
    nodes, outputs = make(points, size, read)
    # experts add theirs
    return _with_part(part, nodes), outputs, int(biases == ALL and part == FEED_FORWARD)


def has_streams(points: Inputs) -> bool:
    """Say whether the residual of models with the same structure has several streams."""
    return bool(points["model.streams"][0] > 1)


def _parallel_block(points: Inputs, size: Sizes, kind: LayerKind, read: str) -> list[Node]:
    """Return the nodes of a layer whose branches read the same input, and whose sum adds both."""
    nodes = [layer_norm(points, size, _MIXING.norm, read)]
    mixing, outputs, biases = _branch_nodes(points, size, kind, _MIXING, nodes[-1].name)
    nodes += mixing
    branch_input = _MIXING.norm
    if points["model.block"][0] == PARALLEL_NORMS:
        branch_input = _FEED_FORWARD.norm
        nodes.append(layer_norm(points, size, branch_input, read))
    branch_nodes, further, further_biases = _branch_nodes(points, size, kind, _FEED_FORWARD, branch_input)
    branch = (*outputs, *further)
    last = residual(
        LAST_NODE, size, (*branch, read), bool(points["model.dropout"][0]), biases + further_biases
    )
    return [*_without_saved_outputs([*nodes, *branch_nodes], branch), last]


def _branch_output(
    points: Inputs, size: Sizes, nodes: list[Node], outputs: tuple[str, ...], norm_name: str
) -> tuple[list[Node], tuple[str, ...]]:
    """Return the nodes of a branch, and the names that the residual sum adds: its outputs, or their norm."""
    if not norm_name:
        return _without_saved_outputs(nodes, outputs), outputs
    if len(outputs) > 1:
        name = "add mixers" if norm_name == _MIXING.post_norm else "add shared"
        add = pointwise.OPERATORS["add"]
        shared_sum = Node(
            name=name, type=pointwise.TYPES["add"], rows=size.tokens, cols=size.hidden, reads=outputs,
            cost=PassCost(flop=add.flop, backward_moves=0.0), dims=Dims(TOKENS, (), HIDDEN_COLUMNS),
        )  # fmt: skip
        nodes, outputs = [*_without_saved_outputs(nodes, outputs), shared_sum], (shared_sum.name,)
    last = layer_norm(points, size, norm_name, outputs[0], keeps=False)
    return [*nodes, last], (last.name,)


def _without_saved_outputs(nodes: list[Node], names: tuple[str, ...]) -> list[Node]:
    """Return the nodes, `names` without saved outputs: only sums read these."""
    return [node._replace(keeps=0, keeps_whole=0) if node.name in names else node for node in nodes]


def layer_norm(points: Inputs, size: Sizes, name: str, read: str, keeps: bool = True) -> Node:
    """Return the model's norm over the hidden columns of every token."""
    node = norm(name, size, str(points["model.norm"][0]), read, size.hidden, keeps=keeps)
    return node._replace(modules=LAYERNORM) if name in (_MIXING.norm, _FEED_FORWARD.norm) else node


def table(name: str, size: Sizes, words: Size, names: tuple[str, ...], kind: KernelType) -> Node:
    """Return the look-up of a row for every token."""
    return Node(
        name=name, type=kind, rows=size.tokens, cols=size.hidden, inner=words, reads=(), keeps=0,
        keeps_whole=0, dims=Dims(TOKENS, names, HIDDEN_COLUMNS),
    )  # fmt: skip


def embedding(points: Inputs, size: Sizes) -> tuple[Node, ...]:
    """Return the look-ups of tokens and positions, and their sum with dropout, or a copy without positions.

    The copy is where Megatron-LM transposes batch and sequence. So every layer reads the output of a pass.
    """
    learned, dropout = points["model.position"][0] == LEARNED, bool(points["model.dropout"][0])
    table_type = SHARED_LOOKUP if points["model.tied"][0] else lookup.TYPE
    nodes = [table("embedding", size, size.vocabulary, VOCABULARY, table_type)]
    if learned:
        nodes.append(table("positions", size, size.positions, (), lookup.TYPE))
    reads = tuple(node.name for node in nodes)
    last = residual("embedding add" if learned else "embedding copy", size, reads, dropout)
    if points["model.layer_embedding"][0]:
        nodes += layer_tables(points, size)
        last = last._replace(reads=(*last.reads, nodes[-1].name))  # it passes them on
    nodes.append(last)
    if has_streams(points):
        nodes.append(expanded(size, "streams", last.name))
    return tuple(_with_part(HEAD, nodes))


def logits_of(points: Inputs, size: Sizes, read: str, tied: bool) -> tuple[Node, ...]:
    """Return the last norm and the logits of the vocabulary, all at once."""
    *nodes, _ = _head({**points, LOSS: np.full_like(points["model.name"], WHOLE)}, size, read, tied)
    return tuple(nodes)


def _head(points: Inputs, size: Sizes, read: str, tied: bool) -> tuple[Node, ...]:
    """Return the last norm, the logits of the vocabulary and their loss."""
    streams = [reduced(size, "sum of streams", read)] if has_streams(points) else []
    last = layer_norm(points, size, "head norm", streams[0].name if streams else read)
    loss = LOSSES[str(points[LOSS][0])] if LOSS in points else LOSSES[WHOLE]
    return tuple(_with_part(HEAD, (*streams, last, *logits_and_loss(size, last.name, tied, loss))))


def logits_and_loss(size: Sizes, read: str, tied: bool, loss: Loss = LOSSES[WHOLE]) -> list[Node]:
    """Return the logits of the vocabulary for every token, and their loss."""
    chunks = chunks_of(loss, size)
    logits = gemm(
        "logits", size, size.hidden, size.vocabulary, read, (HIDDEN_COLUMNS, VOCABULARY), keeps=0,
        keeps_whole=0, wide=True,
    )  # fmt: skip
    logits = logits._replace(type=_tied(loss.head) if tied else loss.head)
    nodes = [logits, loss_of(size, size.vocabulary, "logits", loss)]
    if not loss.in_chunks:
        return nodes
    return [node._replace(rows=-(-size.tokens // chunks), steps=chunks) for node in nodes]


def loss_of(size: Sizes, classes: Size, read: str, loss: Loss = LOSSES[WHOLE]) -> Node:
    """Return the loss of the logits of every token."""
    moved, moved_backward = (
        moves.of(size.activation_bytes) / size.activation_bytes for moves in (loss.forward, loss.backward)
    )
    return Node(
        name="loss", type=rowwise.TYPE, rows=size.tokens, cols=classes, reads=(read,),
        cost=PassCost(moved, LOSS_FLOP, moved_backward, LOSS_BACKWARD_FLOP),
        keeps=loss.kept.cols(size, classes) + mask(size, loss.kept_of_token),
        transient=loss.transient.cols(size, classes), keeps_whole=0, dims=Dims(TOKENS, (), VOCABULARY),
    )  # fmt: skip


def _mtp_module(points: Inputs, size: Sizes, kind: LayerKind) -> tuple[Node, ...]:
    """Return the layer of an MTP module."""
    words = table("embedding", size, size.vocabulary, VOCABULARY, TIED_LOOKUP)
    streams = [reduced(size, "sum of streams", INPUT)] if has_streams(points) else []
    norms = (
        layer_norm(points, size, "hidden norm", streams[0].name if streams else INPUT),
        layer_norm(points, size, "embedding norm", "embedding"),
    )
    joined = gemm(
        "joined", size, 2 * size.hidden, size.hidden, "", (HIDDEN_COLUMNS, HIDDEN_COLUMNS), keeps=size.hidden
    )._replace(reads=tuple(node.name for node in norms))
    copies = [expanded(size, "streams", joined.name)] if streams else []
    layer = block(points, size, kind, (joined, *copies)[-1].name)
    return (words._replace(keeps=size.hidden), *streams, *norms, joined, *copies, *layer)
