"""Dimensions of an encoder-decoder: its inputs, defaults, and checks of invalid sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.field import Column, count, text
from fastflow.core.tables import Bools, Inputs, Ints, single
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    BEFORE,
    KERNELS,
    LEARNED,
    NO_BIAS,
    NO_POSITIONS,
    POST,
    PRE,
    RMS,
    Sizes,
    sizes_of,
    with_default,
)
from fastflow.physics.workload.models.transformer.dimensions import DEFAULTS as OF_TRANSFORMER
from fastflow.physics.workload.models.transformer.dimensions import SIZES as SIZES_OF_TRANSFORMER
from fastflow.physics.workload.models.transformer.dimensions import STRUCTURE as STRUCTURE_OF_TRANSFORMER
from fastflow.physics.workload.models.transformer.layer_pattern import MAX_LAYERS
from fastflow.physics.workload.models.transformer.valid_sizes import (
    MAX_ELEMENTS,
    InvalidSizes,
    invalid_heads,
)
from fastflow.physics.workload.network import Size
from fastflow.physics.workload.ops.attention import MAX_QUERIES

NAME = "encoder_decoder"
RELATIVE, RELATIVE_IN_LAYERS, SINUSOIDAL = "relative", "relative_layers", "sinusoidal"
POSITIONS = (RELATIVE, RELATIVE_IN_LAYERS, LEARNED, SINUSOIDAL, NO_POSITIONS)
FORWARD, ENCODE, DECODE = "forward", "encode", "decode"
STEPS = (FORWARD, ENCODE, DECODE)
BUCKETS = 32
"""Buckets of distances between tokens (relative_attention_num_buckets of all published T5)."""
KERNEL_WIDTH, STRIDE = 3, 2
"""Frames of sound that a convolution reads, and frames of a source token: the second convolution's stride
(Radford et al., arXiv:2212.04356, section 2.2)."""

_COLUMN = {column.name: column for column in (*SIZES_OF_TRANSFORMER, *STRUCTURE_OF_TRANSFORMER)}
SIZES = (
    _COLUMN["model.batch"],
    _COLUMN["model.sequence"],
    count(
        "model.source_sequence",
        "encoder-decoder: tokens of a sequence that the encoder reads, or frames of sound after its"
        " convolutions; model.sequence is of the decoder's",
    ),
    Column(
        "model.layers", "int", "", "layers of a transformer; of an encoder-decoder those of both", 1.0,
        float(MAX_LAYERS),
    ),
    _COLUMN["model.hidden"],
    _COLUMN["model.heads"],
    _COLUMN["model.kv_heads"],
    count("model.head_dim", "columns of a head", low=0),
    _COLUMN["model.ffn"],
    _COLUMN["model.vocabulary"],
    _COLUMN["model.positions"],
    count(
        "model.mel",
        "columns of a frame of sound (Mel bands) that two convolutions turn into source tokens, two frames a"
        " token; 0: the source is text", low=0,
    ),
    BEFORE,
    _COLUMN["model.train_tokens"],
    _COLUMN["model.train_tokens_per_parameter"],
)  # fmt: skip
STRUCTURE = (
    # with model.layers, which others have here too, it says how many layers there are
    count("model.encoder_layers", "those of model.layers that are the encoder's", high=MAX_LAYERS),
    text(
        "model.step",
        "what an encoder-decoder computes: encoder and decoder over all tokens (forward), as in training; the"
        " encoder, with keys and values of all cross attention (encode); or model.sequence new tokens of each"
        " sequence after model.before, by the decoder alone (decode)",
        STEPS,
    ),
    _COLUMN["model.norm"],
    text(
        "model.block",
        "encoder-decoder: norms before every branch and at the end of both stacks (pre), or after every"
        " residual sum (post)",
        (PRE, POST),
    ),
    text("model.biases", "which GEMMs have biases", (NO_BIAS, ALL)),
    text(
        "model.position",
        "encoding of positions; relative: a table of biases for each stack of layers, or for each layer"
        " (relative_layers)",
        POSITIONS,
    ),
    _COLUMN["model.activation"],
    Column("model.gated", "bool", "", "true: the feed-forward layer is gated"),
    _COLUMN["model.tied"],
    Column("model.embedding_norm", "bool", "", "true: a norm comes before the first layer"),
    _COLUMN["model.dropout"],
    text("model.attention_kernel", "kernel of fused attention", KERNELS),
    Column("model.fused_gradients", "bool", "", "true: GEMMs add weight gradients to the wider sums"),
)
DEFAULTS: Mapping[str, Any] = {
    "model.batch": 128, "model.sequence": 128, "model.source_sequence": 512, "model.layers": 24,
    "model.encoder_layers": 12, "model.hidden": 768, "model.heads": 12, "model.kv_heads": 0,
    "model.head_dim": 0, "model.ffn": 0, "model.vocabulary": 32128, "model.positions": 0, "model.mel": 0,
    "model.before": 0, "model.step": FORWARD, "model.norm": RMS, "model.block": PRE,
    "model.biases": NO_BIAS, "model.position": RELATIVE, "model.activation": "relu", "model.gated": False,
    "model.tied": True, "model.embedding_norm": False, "model.dropout": False,
    "model.attention_kernel": KERNELS[0], "model.fused_gradients": True, "model.train_tokens": 1e12,
    "model.train_tokens_per_parameter": 0.0,
}  # fmt: skip
"""Defaults of null without a config.json: T5-base (Raffel et al., arXiv:1910.10683, section 3.1.1)."""


class Sides(NamedTuple):
    """Sizes of the two stacks, which differ in their tokens alone."""

    source: Sizes  # of the encoder's tokens
    target: Sizes  # of the decoder's
    mel: Size


def as_transformer(points: Inputs) -> Inputs:
    """Return the inputs, with a transformer's own beside them, such as those of experts: their defaults."""
    number = points["model.batch"].size
    return {**{key: np.full(number, value) for key, value in OF_TRANSFORMER.items()}, **points}


def sides_of(points: Inputs) -> Sides:
    """Return the sizes of models with the same structure; models with invalid sizes have some too.

    points: with a transformer's inputs (`as_transformer`).
    """
    target = sizes_of(points)
    source_tokens, positions = single(points["model.source_sequence"]), single(points["model.positions"])
    source = target._replace(
        sequence=source_tokens, tokens=target.sequences * source_tokens,
        positions=with_default(positions, source_tokens),
    )  # fmt: skip
    return Sides(source, target, single(points["model.mel"]))


def decoder_layers(inputs: Inputs) -> Ints:
    """Return the layers of each point's decoder, at least one where the sizes are invalid; (points,)."""
    layers: Ints = np.maximum(inputs["model.layers"] - inputs["model.encoder_layers"], 1)
    return layers


def extra_structure(inputs: Inputs) -> tuple[Bools, ...]:
    """Return columns, besides those of the structure, in which models with the same kernels agree."""
    return inputs["model.mel"] > 0, decoder_layers(inputs) > 1


def invalid_sizes(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with invalid sizes, as `Family.invalid_sizes`."""
    yield from invalid_heads(inputs)
    layers, step = inputs["model.layers"], inputs["model.step"]
    wrong = inputs["model.encoder_layers"] >= layers
    yield wrong, "model.encoder_layers", "model.layers", "below model.layers, {}, so that there is a decoder"
    decodes = step == DECODE
    wrong = inputs["model.training"] & (step != FORWARD)
    yield wrong, "model.step", "model.step", f"{FORWARD} where model.training=true"
    wrong = ~decodes & (inputs["model.before"] > 0)
    yield wrong, "model.before", "model.before", f"0, unless model.step={DECODE}"
    yield from _beyond_positions(inputs)
    size = {name: 1.0 * inputs[f"model.{name}"] for name in (
        "batch", "sequence", "source_sequence", "hidden", "heads", "head_dim", "ffn", "vocabulary", "mel",
        "before",
    )}  # fmt: skip
    for name in ("sequence", "source_sequence", "before"):
        key = f"model.{name}"
        yield size[name] > MAX_QUERIES, key, key, f"at most {MAX_QUERIES:g} tokens"
    columns = 4.0 * size["heads"] * size["head_dim"] + 64.0 * (size["hidden"] + size["ffn"])
    columns = columns + size["vocabulary"] + 8.0 * size["mel"]
    wrong = (
        size["batch"] * (size["sequence"] + size["source_sequence"] + size["before"]) * columns > MAX_ELEMENTS
    )
    allowed = f"so small that no tensor has more than {MAX_ELEMENTS:.0e} elements"
    yield wrong, "model.batch", "model.batch", allowed


def _beyond_positions(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with more tokens than positions; those of sound are not the target's."""
    most = inputs["model.positions"]
    allowed = "at most the {} tokens of model.positions"
    past = inputs["model.before"] + inputs["model.sequence"]
    yield (most > 0) & (inputs["model.sequence"] > most), "model.sequence", "model.positions", allowed
    yield (
        (most > 0) & (past > most),
        "model.before",
        "model.positions",
        f"so few that all tokens are {allowed}",
    )
    wrong = (most > 0) & (inputs["model.source_sequence"] > most) & (inputs["model.mel"] == 0)
    yield wrong, "model.source_sequence", "model.positions", allowed
