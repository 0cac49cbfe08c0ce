"""A model_type that no family knows: what the message says, or which known type reads the file as well.

A file of an unknown type is read where it names the class of a decoder (`architectures`), and one of a few
types of Llama's kind understands every field that changes what is computed. A note says which type.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from fastflow.core.yaml_file import MistakeError, listed, wrong
from fastflow.physics.workload.models.transformer.config_json.families import TYPES
from fastflow.physics.workload.models.transformer.config_json.values import values_of
from fastflow.physics.workload.models.transformer.json_fields import Fields

_OTHER_MODELS = {
    "encoder_layers": "an encoder", "vision_config": "a model of images", "audio_config": "a model of sound",
    "num_encoder_layers": "an encoder",
    "_diffusers_version": "a diffusion model", "d_kv": "an encoder and a decoder",
}  # fmt: skip
# types whose layers differ in what no field says (docs/config_json.md)
_OTHER_LAYERS = {
    "xlstm", "rwkv", "mllama_text_model", "jetmoe", "zaya", "inkling_text",
    "qwen4_exp", "qwen4_exp_text", "gpt_neo", "codegen", "ctrl", "modernbert-decoder", "hrm_text",
    "diffusion_gemma_text", "gemma4_assistant", "gemma4_unified_assistant",
}  # fmt: skip
_DECODERS = ("CausalLM", "ConditionalGeneration", "LMHeadModel")
# types that read files of others, by a field that files of their kind have; the first that fits
_BY_FIELD = (
    ("index_topk", "deepseek_v32"), ("kv_lora_rank", "deepseek_v3"),
    ("linear_num_value_heads", "qwen3_next"), ("", "llama"),
)  # fmt: skip


def nearest_type(document: Mapping[str, Any]) -> str:
    """Return the known type that understands a file of an unknown type, "" for none."""
    model_type, classes = document.get("model_type"), document.get("architectures")
    if not isinstance(model_type, str) or not isinstance(classes, list) or model_type in _OTHER_LAYERS:
        return ""
    if not any(isinstance(name, str) and _is_decoder(name, model_type) for name in classes):
        return ""
    for field, name in _BY_FIELD:
        if field and document.get(field) is None:
            continue
        if _understands(document, name):
            return name
    return ""


def _is_decoder(class_name: str, model_type: str) -> bool:
    """Say whether a class is a decoder's, and its name is that of the model_type."""
    end = next((end for end in _DECODERS if class_name.endswith(end)), "")
    stem = re.sub(r"(For)?$", "", class_name.removesuffix(end)).lower()
    plain = re.sub(r"[^a-z0-9]", "", model_type.lower())
    return bool(end and stem and plain) and (stem in plain or plain in stem)


def _understands(document: Mapping[str, Any], name: str) -> bool:
    try:
        _, fields = values_of(document, TYPES[name])
    except MistakeError:
        return False
    return not fields.not_understood()


def unknown_type(document: Mapping[str, Any]) -> MistakeError:
    """Return the error for a file whose model_type is not known, or that has none."""
    name = document.get("model_type")
    shown_name = json.dumps(name)
    other_kind = next((kind for field, kind in _OTHER_MODELS.items() if field in document), "")
    if other_kind:
        allowed = f"that of a language model of a decoder alone ({listed(TYPES)})"
        return wrong("model_type", allowed, f"{shown_name}, {other_kind}")
    if not isinstance(name, str):
        return wrong("model_type", f"one of {listed(TYPES)}", shown_name)
    nearest = difflib.get_close_matches(name.lower(), TYPES, n=3, cutoff=0.4)
    near = f"; the nearest are {listed(nearest)}" if nearest else ""
    unknown = _not_understood(document, nearest[0] if nearest else "llama")
    fields = f"; not understood in the file: {listed(unknown)}" if unknown else ""
    allowed = f"one of the {len(TYPES)} that docs/config_json.md lists{near}{fields}"
    return wrong("model_type", allowed, shown_name)


def _not_understood(document: Mapping[str, Any], nearest: str) -> list[str]:
    """Return the fields that a file of the nearest type would not have."""
    try:
        _, fields = values_of(document, TYPES[nearest])
    except MistakeError:
        fields = Fields({})  # too few fields were read
    return list(fields.not_understood())
