"""Dimensions of an encoder: a transformer's, and those of what goes into it and comes out of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.field import Column, count, text
from fastflow.core.tables import Inputs, single
from fastflow.physics.workload.models.transformer import dimensions as transformer
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    DOCUMENTS,
    LAYER,
    LEARNED,
    POST,
    PREFERENCE,
    TEACHER,
)
from fastflow.physics.workload.models.transformer.lora import RANK
from fastflow.physics.workload.models.transformer.valid_sizes import (
    MAX_ELEMENTS,
    InvalidSizes,
    invalid_pass_sizes,
)
from fastflow.physics.workload.network import Size

TOKENS, PATCHES = "tokens", "patches"
LOGITS, MASKED, POOLER, MEAN = "logits", "masked", "pooler", "mean"
PROBE, CLASSIFIER, PROJECTOR, NO_OUTPUT = "probe", "classifier", "projector", "none"
OUTPUTS = (LOGITS, MASKED, POOLER, MEAN, PROBE, CLASSIFIER, PROJECTOR, NO_OUTPUT)
NAME = "encoder"
PROJECTORS = ("model.projector", "model.vision.projector")
"""Keys of lists of columns."""
SEQUENCE, IMAGE_SIZE = "model.sequence", "model.image_size"
"""A key that is no input: `model.sequence` follows from it."""
_IMAGE_SIZE = re.compile(r"\s*(?P<height>[1-9]\d{0,5})\s*(?:x\s*(?P<width>[1-9]\d{0,5})\s*)?", re.ASCII)
NO_ENCODERS = ("model.mtp", "model.density", "model.streams", "model.layer_embedding")
"""Sizes of decoders that encoders do not have."""
_MAX_PRODUCTS = 8
_MAX_COLUMNS = 10**9

STRUCTURE = (
    *transformer.STRUCTURE,
    Column("model.causal", "bool", "", "true: no query sees a key after its own"),
    text("model.input", "what goes into the first layer: tokens of a text, or patches of an image",
         (TOKENS, PATCHES)),
    Column("model.embedding_norm", "bool", "", "true: a norm comes before the first layer"),
    Column(
        "model.learned_positions", "bool", "",
        "true: a learned vector of each position is added too, where model.position is rotary",
    ),
    text(
        "model.output",
        "what follows the last layer: logits of every token, after BERT's further layer (masked);"
        " one vector of a sequence, from its first token (pooler), the mean of its tokens, or a learned"
        " query (probe); logits of model.classes (classifier); tokens of a language model (projector)",
        OUTPUTS,
    ),
    text(
        "model.projector",
        "columns of each product of the projector in order, such as 4608, 4096; model.output=projector",
    ),
    Column(
        "model.pooled", "bool", "",
        "true: patches that become one token are averaged; false: their columns are put side by side",
    ),
)  # fmt: skip
OWN_SIZES = (
    count("model.segments", "segments of a sequence, with a learned vector each (BERT); 0: none", low=0),
    count("model.patch", "pixels along a side of a patch; 0: no patches", low=0, high=4096),
    count("model.channels", "values of a pixel of an image; 0: no image", low=0),
    count(
        "model.temporal_patch",
        "frames of a video that a patch spans, in which a still image is repeated; 0: no patches",
        low=0, high=4096,
    ),
    count(
        "model.class_tokens", "learned tokens before the patches: class token and registers; 0: none", low=0
    ),
    count("model.classes", "classes of the classifier; 0: none", low=0),
    count(
        "model.merge", "patches along a side of those that become one token of a language model; 0: 1",
        low=0, high=256,
    ),
    count(
        "model.mergers", "further projectors, of the outputs of earlier layers (DeepStack); 0: none",
        low=0, high=256,
    ),
)  # fmt: skip
SIZES = (*transformer.SIZES, *OWN_SIZES)
DEFAULTS: Mapping[str, Any] = {
    **transformer.DEFAULTS, "model.batch": 256, "model.sequence": 512, "model.layers": 12,
    "model.hidden": 768, "model.heads": 12, "model.ffn": 3072, "model.vocabulary": 30522,
    "model.positions": 512, "model.norm": LAYER, "model.block": POST, "model.biases": ALL,
    "model.position": LEARNED, "model.activation": "gelu", "model.gated": False, "model.tied": True,
    "model.causal": False, "model.input": TOKENS, "model.embedding_norm": True,
    "model.learned_positions": False, "model.output": MASKED, "model.projector": "none",
    "model.pooled": False, "model.segments": 2, "model.patch": 0, "model.channels": 3,
    "model.temporal_patch": 1,
    "model.class_tokens": 0, "model.classes": 0, "model.merge": 0, "model.mergers": 0,
}  # fmt: skip
"""The values of keys that are null without a config.json: BERT base's (Devlin et al., arXiv:1810.04805)."""
OF_IMAGES: Mapping[str, Any] = {
    "model.input": PATCHES, "model.segments": 0, "model.positions": 0, "model.embedding_norm": False,
    "model.vocabulary": 1, "model.tied": False,
}  # fmt: skip
"""What differs from `DEFAULTS` in every encoder of images."""


class EncoderSizes(NamedTuple):
    """Sizes of what goes in and comes out: numbers of a single model, or columns of shape (points,)."""

    segments: Size
    patch_columns: Size  # values of a patch
    class_tokens: Size
    patches: Size  # of an image
    classes: Size
    merged: Size  # patches that become one token of a language model
    projectors: Size  # the last layer's, and those of earlier layers


def encoder_sizes(points: Inputs) -> EncoderSizes:
    """Return the sizes of models with the same structure, besides those of a transformer."""
    value = {column.name: single(points[column.name]) for column in OWN_SIZES}
    side, merge = value["model.patch"], value["model.merge"]
    class_tokens, sequence = value["model.class_tokens"], single(points["model.sequence"])
    return EncoderSizes(
        segments=value["model.segments"],
        patch_columns=side * side * value["model.channels"] * value["model.temporal_patch"],
        class_tokens=class_tokens,
        patches=sequence - class_tokens,
        classes=value["model.classes"],
        merged=_at_least_one(merge * merge),
        projectors=1 + value["model.mergers"],
    )


def _at_least_one(size: Size) -> Size:
    return max(size, 1) if isinstance(size, int) else np.maximum(size, 1)


def projector_columns(written: str) -> tuple[int, ...]:
    """Return the columns of each product of a projector; raises ValueError."""
    if written.strip() == "none":
        return ()
    columns = tuple(int(part) for part in written.replace(",", " ").split())
    if not 0 < len(columns) <= _MAX_PRODUCTS or not all(0 < size <= _MAX_COLUMNS for size in columns):
        raise ValueError
    return columns


def check_projector(key: str, written: str) -> None:
    """Check a list of columns; raises InputError."""
    try:
        projector_columns(written)
    except ValueError:
        allowed = f"columns of each product in order, such as '4608, 4096', at most {_MAX_PRODUCTS}; or none"
        raise InputError(key, written, allowed) from None


def invalid_sizes(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with invalid sizes, as `Family.invalid_sizes`."""
    yield from invalid_pass_sizes(inputs)
    images, output = inputs["model.input"] == PATCHES, inputs["model.output"]
    for key in ("model.patch", "model.channels", "model.temporal_patch"):
        yield images & (inputs[key] < 1), key, key, "at least 1, where model.input is patches"
    # vectors of an image's positions are interpolated to other sizes
    most = inputs["model.positions"]
    long = ~images & (most > 0) & (inputs["model.sequence"] > most)
    yield long, "model.sequence", "model.positions", "at most the {} tokens of model.positions"
    few = images & (inputs["model.sequence"] <= inputs["model.class_tokens"])
    yield few, "model.sequence", "model.class_tokens", "more than the {} of model.class_tokens"
    yield (
        ~images & (inputs["model.class_tokens"] > 0),
        "model.class_tokens",
        "model.class_tokens",
        ("0, unless model.input is patches"),
    )
    classifies = output == CLASSIFIER
    yield (
        classifies & (inputs["model.classes"] < 1),
        "model.classes",
        "model.classes",
        ("at least 1, where model.output is classifier"),
    )
    positions = 1.0 * inputs["model.sequence"] * inputs["model.batch"]
    wide = positions * (1.0 + inputs["model.mergers"]) * _widest_projector(inputs)
    allowed = f"so small that no tensor has more than {MAX_ELEMENTS:.0e} elements"
    yield wide > MAX_ELEMENTS, "model.batch", "model.batch", allowed
    columns = 1.0 * inputs["model.patch"] ** 2 * inputs["model.channels"] * inputs["model.temporal_patch"]
    yield positions * columns > MAX_ELEMENTS, "model.patch", "model.patch", allowed
    for key in NO_ENCODERS:
        yield inputs[key] > 0, key, key, "0: an encoder has none"
    for key in (RANK, DOCUMENTS, f"{TEACHER}layers"):
        if key in inputs:
            yield inputs[key] > 0, key, key, "0 where model.name=encoder"
    if PREFERENCE in inputs:
        yield inputs[PREFERENCE] != "none", PREFERENCE, PREFERENCE, "none where model.name=encoder"


def _widest_projector(inputs: Inputs) -> Any:
    merged = np.maximum(1.0 * inputs["model.merge"] ** 2, 1.0) * inputs["model.hidden"]
    return merged + np.array([
        max(projector_columns(str(written)), default=0) for written in inputs["model.projector"]
    ])  # fmt: skip


def with_image_size(model: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return an encoder's leaves with the sequence that its image size makes; raises InputError.

    model: all leaves of an encoder; stated: those of the configuration, null where a file decides. The image
    size itself is no input.
    """
    size = model.get(IMAGE_SIZE)
    others = {key: value for key, value in model.items() if key != IMAGE_SIZE}
    if size is None:
        return others
    if stated.get(SEQUENCE) is not None:
        if stated.get(IMAGE_SIZE) is None:
            return others
        allowed = f"null beside {SEQUENCE}={stated[SEQUENCE]}: each patch is one of its tokens"
        raise InputError(IMAGE_SIZE, size, allowed)
    side, before = others["model.patch"], others["model.class_tokens"]
    if not (isinstance(side, int) and isinstance(before, int)):
        return others  # which is rejected where it is read
    sides = image_sides(size)
    if side < 1 or not sides or min(sides) < side:
        allowed = (
            f"pixels of a side, such as 224, or height x width, such as 224x336, at least {max(side, 1)}"
        )
        raise InputError(IMAGE_SIZE, size, f"{allowed}, the pixels of model.patch")
    return others | {SEQUENCE: before + (sides[0] // side) * (sides[1] // side)}


def decides_sequence(leaves: Mapping[str, Any], key: str) -> bool:
    """Say whether the sequence of an encoder follows from a leaf."""
    return leaves.get(IMAGE_SIZE) is not None and key in ("model.patch", "model.class_tokens")


def image_sides(size: Any) -> tuple[int, ...]:
    """Return height and width of an image, such as 448 or 1080x1920 [pixels]; () where it has none."""
    written = _IMAGE_SIZE.fullmatch(str(size))
    if isinstance(size, bool) or not written:
        return ()
    height = int(written["height"])
    return height, int(written["width"] or height)
