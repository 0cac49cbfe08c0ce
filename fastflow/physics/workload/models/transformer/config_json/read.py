"""`model.config`: the unchanged config.json that is published with a language model's weights.

Its fields are those of Hugging Face's transformers library, by `model_type`. Properties that are in the code
of that library but not in the file (norms, gates, biases) are in `families`. The data types of the
weights (`quantization_config`, `torch_dtype`) decide `model.dtype=auto` (`published`). Dropout rates in
training are not read: see `model.dropout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from fastflow.core.yaml_file import read_current, wrong
from fastflow.physics.workload.models.transformer.config_json.encoders import TEXT_ENCODERS, text_encoder_of
from fastflow.physics.workload.models.transformer.config_json.families import TYPES
from fastflow.physics.workload.models.transformer.config_json.json_file import (
    read_neighbour,
    read_version,
    time_of_neighbour,
)
from fastflow.physics.workload.models.transformer.config_json.quantization_config import (
    QUANTISATION_FILE,
    with_quantisation,
)
from fastflow.physics.workload.models.transformer.config_json.unknown import nearest_type, unknown_type
from fastflow.physics.workload.models.transformer.config_json.values import values_of
from fastflow.physics.workload.models.transformer.config_json.vision_towers import (
    VISION_ENCODERS,
    WRAPPERS,
    image_encoder_of,
    tower_of,
)
from fastflow.physics.workload.models.transformer.config_json.weight_types import published_in
from fastflow.physics.workload.models.transformer.config_json.wrappers import language_model
from fastflow.physics.workload.models.transformer.dimensions import ALIBI, DEFAULTS, DOCUMENTS, PREFERENCE
from fastflow.physics.workload.models.transformer.distillation import DEFAULTS as OF_TEACHERS
from fastflow.physics.workload.models.transformer.encoder import dimensions as encoder
from fastflow.physics.workload.models.transformer.encoder.vision import VISION, with_tower
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_pattern import MAX_LAYERS
from fastflow.physics.workload.models.transformer.lora import DEFAULTS as OF_ADAPTERS

KEY, NAME = "model.config", "model.name"
TOWER_KEYS = frozenset(column.name for column in VISION)
ENCODERS: Mapping[str, Callable[[str, Fields], dict[str, Any]]] = {
    **dict.fromkeys(TEXT_ENCODERS, text_encoder_of), **dict.fromkeys(VISION_ENCODERS, image_encoder_of),
}  # fmt: skip
"""Readers of encoders alone, by `model_type`."""
_UNUSED_BY_ENCODERS = frozenset({KEY, encoder.IMAGE_SIZE, *OF_ADAPTERS, *OF_TEACHERS, DOCUMENTS, PREFERENCE})
_UNUSED = _UNUSED_BY_ENCODERS | (encoder.DEFAULTS.keys() - DEFAULTS.keys())
"""Leaves that an encoder, or a decoder, does not use unless they are stated."""


def with_config(leaves: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the leaves of a configuration, with the model of a config.json; raises InputError.

    Leaves that are null come from the file, or else from `dimensions.DEFAULTS`. No other leaf changes.
    """
    if KEY not in leaves:
        return leaves
    overrides = {key: value for key, value in leaves.items() if key != KEY and value is not None}
    path = leaves[KEY]
    read = {} if path is None else read_config(str(path))
    family = read.get(NAME, overrides.pop(NAME, None))
    defaults = encoder.DEFAULTS if family == encoder.NAME else DEFAULTS
    others = {**defaults, **read, **overrides, NAME: family}
    if family == encoder.NAME:
        others = encoder.with_image_size(others, leaves)
    unused = _UNUSED if defaults is DEFAULTS else _UNUSED_BY_ENCODERS
    stated = with_tower({key: None for key in leaves if key not in unused} | others)
    for keys in (OF_ADAPTERS, OF_TEACHERS):
        if any(key in stated for key in keys):  # where one is stated, all have a value
            stated = {**keys, **stated}
    return stated


def is_filled(leaves: Mapping[str, Any], key: str) -> bool:
    """Say whether a null leaf gets a value from the config.json; an explicit value changes no other leaf."""
    return KEY in leaves and key in encoder.DEFAULTS and leaves.get(key) is None


def read_config(path: str) -> Mapping[str, Any]:
    """Return the inputs that a config.json gives, by their keys; raises InputError.

    An unchanged file is cached, with the one of its quantisation beside it.
    """
    return read_current(KEY, partial(_parse_version, time_of_neighbour(path, QUANTISATION_FILE)), path)


def note_of_type(path: str) -> str:
    """Return a note on a file whose unknown model_type is read as a known one, "" elsewhere.

    Raises InputError.
    """
    return read_current(KEY, _note_of_version, path)


@lru_cache(maxsize=64)
def _parse_version(quantisation: int, path: str, changed: int, size: int) -> Mapping[str, Any]:
    """Return the inputs of a version of a file; quantisation, changed: times of changes of two files."""
    return inputs_of(with_quantisation(read_version(path, size), read_neighbour(path, QUANTISATION_FILE)))


@lru_cache(maxsize=64)
def _note_of_version(path: str, changed: int, size: int) -> str:
    document = language_model(read_version(path, size))
    name = document.get("model_type")
    if isinstance(name, str) and (name in TYPES or name in ENCODERS):
        return ""
    nearest = nearest_type(document)
    return (
        f"{KEY}: model_type {name} is not known; read as {nearest}, all fields understood" if nearest else ""
    )


def inputs_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs that a config.json's object gives, by their keys; raises MistakeError."""
    name = document.get("model_type")
    if isinstance(name, str) and name in ENCODERS and name not in WRAPPERS:
        return _inputs_of_encoder(name, Fields(document))
    whole, document = document, language_model(document)
    name = document.get("model_type")
    if not isinstance(name, str) or name not in TYPES:
        name = nearest_type(document)
        if not name:
            raise unknown_type(document)
    values, fields = values_of(document, TYPES[name])
    fields.check_rest()
    positions = values["positions"]
    if 0 < positions < DEFAULTS["model.sequence"]:
        values["sequence"] = positions
    if values["position"] == ALIBI:
        values["positions"] = 0
    tower = {f"vision.{key}": value for key, value in tower_of(whole, values["hidden"]).items()}
    tower = {key: value for key, value in tower.items() if f"model.{key}" in TOWER_KEYS}
    return {f"model.{key}": value for key, value in {**values, **tower}.items()}


def _inputs_of_encoder(name: str, fields: Fields) -> dict[str, Any]:
    """Return the inputs of a file of an encoder alone; raises MistakeError."""
    fields.skip("model_type")
    values = ENCODERS[name](name, fields)
    values |= published_in(fields, values["layers"])
    fields.check_rest()
    if values["layers"] > MAX_LAYERS:
        raise wrong("num_hidden_layers", f"at most {MAX_LAYERS}", values["layers"])
    return {f"model.{key}": value for key, value in values.items()}
