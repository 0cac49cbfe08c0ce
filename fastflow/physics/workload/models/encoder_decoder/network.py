"""The network of an encoder-decoder: both stacks, each a run of equal layers, and the head.

The first layer of the decoder is a layer of its own, with what is between the stacks: the last norm of the
encoder, whose output every decoder layer reads, and the embedding of the decoder's tokens. Embeddings of
both stacks share a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Inputs, Ints, single
from fastflow.physics.workload.family import Order
from fastflow.physics.workload.graph import EMBEDDING, HEAD, HIDDEN, SOFTMAX, Dims
from fastflow.physics.workload.models.encoder_decoder.dimensions import (
    BUCKETS,
    DECODE,
    ENCODE,
    KERNEL_WIDTH,
    RELATIVE,
    STRIDE,
    Sides,
    as_transformer,
    decoder_layers,
    sides_of,
)
from fastflow.physics.workload.models.encoder_decoder.layers import (
    CROSS_KEYS,
    cross_keys,
    decode_layer,
    decoder_layer,
    encoder_layer,
    is_biased,
    last_node,
    without_sequence,
)
from fastflow.physics.workload.models.transformer.building_blocks import (
    HIDDEN as HIDDEN_COLUMNS,
)
from fastflow.physics.workload.models.transformer.building_blocks import (
    TOKENS,
    VOCABULARY,
    activation,
    gemm,
    residual,
)
from fastflow.physics.workload.models.transformer.dimensions import PRE, Sizes
from fastflow.physics.workload.models.transformer.network import (
    LOGIT_BYTES,
    TIED_LOOKUP,
    embedding,
    finished,
    layer_norm,
    logits_and_loss,
)
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, PassCost
from fastflow.physics.workload.ops import pointwise, rowwise

SECOND_LOOKUP = replace(TIED_LOOKUP, title="lookup, second of its table", trains=True)
"""Of the decoder's tokens, in the table that the lookup of the encoder's owns."""
_FILTERS = ("filters",)
ENCODER, FIRST, DECODER, ENCODER_NORM = "encoder", "first decoder", "decoder", "encoder norm"


def network(points: Inputs) -> Network:
    """Return the network of models with the same structure."""
    points = as_transformer(points)
    sides, step = sides_of(points), str(points["model.step"][0])
    if step == DECODE:
        return finished(points, sides.target, _decode_layers(points, sides))
    layers = [
        Layer("embedding", EMBEDDING, _source_embedding(points, sides)),
        Layer(ENCODER, HIDDEN, encoder_layer(points, sides), times=single(points["model.encoder_layers"])),
    ]
    layers += _caches(points, sides) if step == ENCODE else _decoder(points, sides)
    return finished(points, sides.target, layers)


def layer_counts(inputs: Inputs) -> list[Ints]:
    """Return how many layers each layer of the network stands for, of points of one structure; (points,)."""
    single_layer, encoders = (
        np.ones_like(inputs["model.layers"]),
        np.maximum(inputs["model.encoder_layers"], 1),
    )
    decoders, step = decoder_layers(inputs), str(inputs["model.step"][0])
    if step == DECODE:
        return [single_layer, decoders, single_layer]
    if step == ENCODE:
        return [single_layer, encoders, *([single_layer] if _has_last_norm(inputs) else []), decoders]
    return [
        single_layer,
        encoders,
        single_layer,
        *([decoders - 1] if (decoders > 1).all() else []),
        single_layer,
    ]


def order(inputs: Inputs) -> Order:
    """Return, for every layer of each point's model in order, its layer in the network."""
    keys = ("model.step", "model.block", "model.layers", "model.encoder_layers")
    first, inverse = unique_rows([inputs[key] for key in keys], inputs["model.layers"].size)
    layers = []
    for i in first:
        counts = [int(count[0]) for count in layer_counts({key: inputs[key][i : i + 1] for key in keys})]
        layers.append(np.repeat(np.arange(len(counts)), counts))
    offset = np.concatenate([[0], np.cumsum([layers[i].size for i in inverse.tolist()])])
    layer = np.concatenate([layers[i] for i in inverse.tolist()]) if inverse.size else np.zeros(0, np.int64)
    return Order(offset.astype(np.int64), layer)


def _has_last_norm(points: Inputs) -> bool:
    """Say whether a norm follows each stack of layers."""
    return bool(points["model.block"][0] == PRE)


# --- encoder


def _source_embedding(points: Inputs, sides: Sides) -> tuple[Node, ...]:
    """Return the embedding of the source: of its tokens, or of frames of sound by convolutions."""
    has_sound = bool(points["model.mel"][0])
    nodes = _sound(points, sides) if has_sound else embedding(points, sides.source)
    return _completed(points, sides.source, nodes)


def _completed(points: Inputs, size: Sizes, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes of an embedding with the table of relative positions of a stack, and with its norm."""
    *before, last = nodes
    if points["model.position"][0] == RELATIVE:
        last = last._replace(vectors=last.vectors + BUCKETS * size.heads)
    norms = (
        [layer_norm(points, size, "embedding norm", last.name)] if points["model.embedding_norm"][0] else []
    )
    return tuple(node._replace(part=HEAD) for node in (*before, last, *norms))


def _sound(points: Inputs, sides: Sides) -> tuple[Node, ...]:
    """Return the convolutions over frames of sound, as products (Whisper, arXiv:2212.04356, section 2.2).

    Each is followed by GELU; the second has a stride of two frames. A sum adds sinusoidal positions.
    """
    size, frames = sides.source, STRIDE * sides.source.tokens
    second = gemm(
        "convolution 2", size, KERNEL_WIDTH * size.hidden, size.hidden, "gelu 1", (HIDDEN_COLUMNS, _FILTERS),
        is_biased(points),
    )  # fmt: skip
    first = gemm(
        "convolution 1", size, KERNEL_WIDTH * sides.mel, size.hidden, INPUT, (("mel",), HIDDEN_COLUMNS),
        is_biased(points),
    )  # fmt: skip
    of_sums = Dims(TOKENS, (), HIDDEN_COLUMNS)
    return (
        first._replace(rows=frames),
        activation("gelu 1", size, "gelu", False, first.name, size.hidden, rows=frames, dims=of_sums),
        second,
        activation("gelu 2", size, "gelu", False, second.name, size.hidden, dims=of_sums),
        residual("embedding add", size, ("gelu 2",), bool(points["model.dropout"][0])),
    )


def _caches(points: Inputs, sides: Sides) -> list[Layer]:
    """Return the keys and values of cross attention of all decoder layers, after the encoder's last norm."""
    read, layers = f"{ENCODER}.{last_node(points)}", []
    if _has_last_norm(points):
        layers = [Layer(ENCODER_NORM, SOFTMAX, (layer_norm(points, sides.source, ENCODER_NORM, INPUT),))]
        read = f"{ENCODER_NORM}.{ENCODER_NORM}"
    node = cross_keys(points, sides, read)
    return [*layers, Layer(CROSS_KEYS, SOFTMAX, (node,), times=single(decoder_layers(points)))]


# --- decoder


def _decoder(points: Inputs, sides: Sides) -> list[Layer]:
    """Return the decoder's layers, and the head."""
    tokens = _target_embedding(points, sides, owns_table=bool(points["model.mel"][0]))
    if _has_last_norm(points):
        tokens = (layer_norm(points, sides.source, ENCODER_NORM, INPUT), *tokens)
        here, above = ENCODER_NORM, f"{FIRST}.{ENCODER_NORM}"
    else:
        here, above = INPUT, f"{ENCODER}.{last_node(points)}"
    first = (*tokens, *decoder_layer(points, sides, tokens[-1].name, here, is_first=True))
    layers = [Layer(FIRST, HIDDEN, first)]
    if (decoder_layers(points) > 1).all():
        others = tuple(decoder_layer(points, sides, INPUT, above))
        layers.append(Layer(DECODER, HIDDEN, others, times=single(decoder_layers(points) - 1)))
    return [*layers, Layer("head", SOFTMAX, _head(points, sides.target))]


def _target_embedding(points: Inputs, sides: Sides, owns_table: bool) -> tuple[Node, ...]:
    """Return the embedding of the decoder's tokens; owns_table: no other lookup has the table."""
    lookup, *others = embedding(points, sides.target)
    kind = lookup.type if owns_table else SECOND_LOOKUP
    return _completed(points, sides.target, (lookup._replace(type=kind), *others))


def _head(points: Inputs, size: Sizes) -> tuple[Node, ...]:
    """Return the last norm, where layers do not end with one, the logits of the vocabulary and their loss."""
    norms = [layer_norm(points, size, "head norm", INPUT)] if _has_last_norm(points) else []
    nodes = [
        *norms,
        *logits_and_loss(size, norms[-1].name if norms else INPUT, bool(points["model.tied"][0])),
    ]
    return tuple(node._replace(part=HEAD) for node in nodes)


def _decode_layers(points: Inputs, sides: Sides) -> list[Layer]:
    """Return the layers of a step of decoding: of the decoder alone, and of sampling."""
    *nodes, loss = _head(points, sides.target)
    sampling = pointwise.OPERATORS["sampling"]
    chosen = Node(
        name="sampling", type=rowwise.TYPE, rows=loss.rows, cols=loss.cols, reads=loss.reads,
        cost=PassCost(sampling.reads * LOGIT_BYTES / sides.target.activation_bytes, sampling.flop),
        dims=Dims(TOKENS, (), VOCABULARY), part=HEAD,
    )  # fmt: skip
    layers = [
        Layer("embedding", EMBEDDING, _target_embedding(points, sides, owns_table=True)),
        Layer(DECODER, HIDDEN, tuple(decode_layer(points, sides)), times=single(decoder_layers(points))),
        Layer("head", SOFTMAX, (*nodes, chosen)),
    ]
    return [layer._replace(nodes=without_sequence(layer.nodes)) for layer in layers]
