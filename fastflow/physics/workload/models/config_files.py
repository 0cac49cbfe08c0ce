"""`model.config`: which family of models reads a config.json, and which one would read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from fastflow.core.errors import InputError
from fastflow.core.yaml_file import read_current, wrong
from fastflow.physics.workload.models.encoder_decoder import config_json as encoder_decoder
from fastflow.physics.workload.models.encoder_decoder.dimensions import DEFAULTS as OF_ENCODER_DECODER
from fastflow.physics.workload.models.encoder_decoder.dimensions import NAME as ENCODER_DECODER
from fastflow.physics.workload.models.transformer.config_json import read as transformer
from fastflow.physics.workload.models.transformer.config_json.families import TYPES
from fastflow.physics.workload.models.transformer.config_json.json_file import read_version

KEY = transformer.KEY
_NAME = "model.name"
_TRANSFORMER = "transformer"


def with_config(leaves: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the leaves of a configuration, with the model of a config.json; raises InputError.

    Leaves that are null come from the file, or else from the family's defaults. No other leaf changes.
    """
    if KEY not in leaves or leaves.get(_NAME) != ENCODER_DECODER:
        return _with_advice(transformer.with_config, leaves)
    overrides = {key: value for key, value in leaves.items() if key != KEY and value is not None}
    path = leaves[KEY]
    known = {**OF_ENCODER_DECODER, **({} if path is None else read_current(KEY, _parse_version, str(path)))}
    return {key: None for key in leaves if key != KEY} | known | overrides


def is_filled(leaves: Mapping[str, Any], key: str) -> bool:
    """Say whether a null leaf gets a value from the config.json; an explicit value changes no other leaf."""
    if leaves.get(_NAME) == ENCODER_DECODER:
        return KEY in leaves and key in OF_ENCODER_DECODER and leaves.get(key) is None
    return transformer.is_filled(leaves, key)


def _with_advice(
    read: Callable[[Mapping[str, Any]], Mapping[str, Any]], leaves: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the leaves of another family; a file that it refuses may be an encoder-decoder's."""
    try:
        return read(leaves)
    except InputError as error:
        path = leaves.get(KEY)
        if error.key != KEY or path is None:
            raise
        read_current(KEY, _reject_encoder_decoder, str(path))
        raise


@lru_cache(maxsize=64)
def _parse_version(path: str, changed: int, size: int) -> Mapping[str, Any]:
    document = read_version(path, size)
    name = document.get("model_type")
    if isinstance(name, str) and name in TYPES:
        allowed = _read_by("an encoder-decoder", "a decoder alone", _TRANSFORMER)
        raise wrong("model_type", allowed, json.dumps(name))
    return encoder_decoder.inputs_of(document)


@lru_cache(maxsize=64)
def _reject_encoder_decoder(path: str, changed: int, size: int) -> None:
    """Raise MistakeError with advice for the file of an encoder-decoder."""
    name = read_version(path, size).get("model_type")
    if isinstance(name, str) and name in encoder_decoder.TYPES:
        allowed = _read_by("a decoder alone", "an encoder-decoder", ENCODER_DECODER)
        raise wrong("model_type", allowed, json.dumps(name))


def _read_by(kind: str, others: str, reader: str) -> str:
    """Return what is allowed instead of a model_type that another family reads."""
    return f"that of {kind}: model={reader} {KEY}=FILE reads {others}"
