"""The encoder of images beside a language model: its vision tower, the keys `model.vision.*`.

A tower is an encoder with a projector, whose output are tokens of the language model's prompt. How many an
image has follows from its size, and from what a model makes of it: patches of the whole image, its sides
rounded to whole tokens (Qwen2-VL, arXiv:2409.12191, section 2.1); an image of a fixed size (Gemma 3,
arXiv:2503.19786, section 2.2); tiles of a fixed size, and a small whole image where there are several
(InternVL 1.5, arXiv:2404.16821, section 3.2); or a fixed number of tokens (Gemma 4). Tokens that separate
images, tiles and rows are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.field import Column, count, text
from fastflow.core.tables import Bools, Columns, Inputs, Ints, Texts, repeat
from fastflow.physics.workload.models.transformer.dimensions import PRE
from fastflow.physics.workload.models.transformer.encoder.dimensions import (
    DEFAULTS,
    NAME,
    OF_IMAGES,
    PROJECTOR,
    SIZES,
    STRUCTURE,
    image_sides,
)

PREFIX = "model.vision."
LAYERS, IMAGES, FROZEN, FROZEN_PROJECTOR, FROZEN_LANGUAGE = (
    f"{PREFIX}{name}" for name in ("layers", "images", "frozen", "frozen_projector", "frozen_language")
)
IMAGE_PIXELS = f"{PREFIX}image_pixels"
_SHARED = (
    "layers", "pattern", "hidden", "heads", "kv_heads", "head_dim", "ffn", "window", "norm", "block",
    "qk_norm", "biases", "position", "positions", "activation", "gated", "patch", "channels",
    "temporal_patch",
    "class_tokens", "embedding_norm", "learned_positions", "merge", "pooled", "projector", "mergers",
)  # fmt: skip
"""Keys that a tower and an encoder alone both have."""
NO_TOWER = "the model has no vision tower"
_OF_ENCODER = {column.name.removeprefix("model."): column for column in (*STRUCTURE, *SIZES)}
VISION: tuple[Column, ...] = tuple(
    column._replace(absent=NO_TOWER)
    for column in (
        *(
            _OF_ENCODER[name]._replace(
                name=f"{PREFIX}{name}", meaning=f"of the vision tower: {_OF_ENCODER[name].meaning}"
            )
            for name in _SHARED
        ),
        count(
            f"{PREFIX}image_size",
            "pixels along a side to which images, or tiles of them, are scaled; 0: an image keeps its size",
            low=0, high=1e6,
        ),
        count(f"{PREFIX}tiles", "most tiles of an image, each of image_size; 0: an image is one", low=0,
              high=4096),
        count(f"{PREFIX}images", "images of a training sequence, whose tokens are among its tokens; 0: none",
              low=0, high=1e6),
        text(f"{PREFIX}image_pixels", "pixels of an image of a training sequence, as serve.image_size"),
        Column(FROZEN, "bool", "", "true: the tower is not trained: it has only a forward pass"),
        text(
            FROZEN_PROJECTOR, "whether the tower's projector is frozen; auto: as model.vision.frozen",
            ("auto", "true", "false"),
        ),
        Column(
            FROZEN_LANGUAGE, "bool", "",
            "true: the language model is not trained: it has the gradients that tower or projector need",
        ),
        count(f"{PREFIX}image_tokens", "tokens of every image; 0: as many as its size makes", low=0,
              high=1e6),
    )
)  # fmt: skip
"""Inputs of the vision tower."""
_DEFAULTS: Mapping[str, Any] = {
    **{f"{PREFIX}{name}": {**DEFAULTS, **OF_IMAGES, "model.block": PRE}[f"model.{name}"] for name in _SHARED},
    f"{PREFIX}image_size": 0, f"{PREFIX}tiles": 0, f"{PREFIX}image_tokens": 0, f"{PREFIX}images": 0,
    f"{PREFIX}image_pixels": "1024", FROZEN: False, FROZEN_PROJECTOR: "auto", FROZEN_LANGUAGE: False,
}  # fmt: skip
_ALL_KEYS = frozenset(column.name for column in VISION)


def with_tower(leaves: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return leaves with defaults for the null keys of a tower, and without its keys where there is none."""
    if leaves.get(LAYERS) is None:
        language = dict(leaves)
        for key in _ALL_KEYS:
            language.pop(key, None)
        return language
    stated = {key: value for key, value in leaves.items() if not key.startswith(PREFIX) or value is not None}
    return {**_DEFAULTS, **stated}


def tower_structure(inputs: Inputs) -> tuple[Any, ...]:
    """Return columns in which models whose towers have the same kernels agree."""
    if not has_tower(inputs):
        return ()
    kinds = (column.name.removeprefix("model.") for column in STRUCTURE)
    return (
        *(inputs[f"{PREFIX}{name}"] for name in kinds if name in _SHARED),
        inputs[IMAGES] > 0,
        inputs[FROZEN],
        inputs[FROZEN_PROJECTOR],
        inputs[FROZEN_LANGUAGE],
    )


def has_tower(inputs: Inputs) -> bool:
    """Say whether models have a vision tower; points of a call all have one, or none has."""
    return LAYERS in inputs


def frozen_projector(inputs: Inputs) -> Bools:
    """Say of which points the tower's projector is not trained, (points,)."""
    stated = inputs[FROZEN_PROJECTOR]
    frozen: Bools = np.where(stated == "auto", inputs[FROZEN], stated == "true")
    return frozen


def freezes_language(points: Inputs) -> bool:
    """Say whether the language model of models with the same structure is frozen, beside a tower."""
    return has_tower(points) and bool(points[FROZEN_LANGUAGE][0])


def as_tower_key(text: str) -> str:
    """Return a text with the keys of an encoder alone replaced by those of a tower."""
    return _KEY_OF_ENCODER.sub(lambda match: f"{PREFIX}{match[1]}", text)


_KEY_OF_ENCODER = re.compile(rf"\bmodel\.({'|'.join(sorted(_SHARED, key=len, reverse=True))})\b")


class ImageGrid(NamedTuple):
    """What models make of an image; (points,)."""

    pieces: Ints  # tiles, or 1: sequences of the tower
    patches: Ints  # of a piece
    tokens: Ints  # of the language model, of all pieces


def image_grid(inputs: Inputs, height: Ints, width: Ints) -> ImageGrid:
    """Return the patches and tokens of images; height, width: (points,) [pixels]."""
    patch, merge = (np.maximum(inputs[f"{PREFIX}{name}"], 1) for name in ("patch", "merge"))
    side, fixed = inputs[f"{PREFIX}image_size"], inputs[f"{PREFIX}image_tokens"]
    square = np.maximum(side, 1)
    tiles = np.minimum(-(-height // square) * -(-width // square), inputs[f"{PREFIX}tiles"])
    pieces = np.where((side > 0) & (tiles > 0), tiles + (tiles > 1), 1)
    rows, cols = (
        np.where(side > 0, side // patch, _whole_tokens(sides, patch * merge) * merge)
        for sides in (height, width)
    )
    merged = -(-rows // merge) * -(-cols // merge)
    tokens = np.where(fixed > 0, fixed, merged)
    patches = np.where(fixed > 0, fixed * merge * merge, rows * cols)
    return ImageGrid(pieces, patches, pieces * tokens)


def written_grid(inputs: Inputs, written: Texts) -> ImageGrid:
    """Return the patches and tokens of images whose sizes are written, as 1080x1920; (points,)."""
    names, index = factorize(written)
    sides = np.array([image_sides(name) or (1, 1) for name in names], dtype=np.int64)[index]
    return image_grid(inputs, sides[:, 0], sides[:, 1])


def _whole_tokens(sides: Ints, pixels: Ints) -> Ints:
    """Return the tokens along a side, rounded to the nearest number of at least 1."""
    rounded: Ints = np.maximum(np.rint(sides / pixels).astype(np.int64), 1)
    return rounded


def trains_images(inputs: Inputs) -> Bools:
    """Say of which points training sequences have images, (points,)."""
    points = inputs["model.layers"].size
    return inputs[IMAGES] > 0 if has_tower(inputs) else np.zeros(points, dtype=np.bool_)


def trained_grid(inputs: Inputs) -> ImageGrid:
    """Return what models make of an image of a training sequence; (points,)."""
    return written_grid(inputs, inputs[IMAGE_PIXELS])


def tower_inputs(inputs: Inputs, sequences: Ints, patches: Ints) -> Columns:
    """Return the inputs of the towers of points as those of encoders.

    sequences: images or tiles of a pass; patches: of each; (points,).
    """
    points = patches.size
    tower: Columns = {
        key: repeat(np.array([value]), points) for key, value in {**DEFAULTS, **OF_IMAGES}.items()
    }
    tower |= {f"model.{name}": inputs[f"{PREFIX}{name}"] for name in _SHARED}
    others = {key: column for key, column in inputs.items() if not key.startswith("model.")}
    kept = {f"model.{name}": inputs[f"model.{name}"] for name in ("dtype", "training", "optimizer")
            if f"model.{name}" in inputs}  # fmt: skip
    return others | kept | tower | {
        "model.name": np.full(points, NAME), "model.output": np.full(points, PROJECTOR),
        "model.batch": sequences, "model.sequence": patches + inputs[f"{PREFIX}class_tokens"],
        "model.fused_attention": np.ones(points, dtype=np.bool_),
    }  # fmt: skip
