"""`model.config`: the unchanged config.json that is published with a language model's weights.

Its fields are those of Hugging Face's transformers library, by `model_type`. Properties that are in the code
of that library but not in the file (norms, gates, biases) are in `hf_architectures`. The data types of the
weights (`quantization_config`, `torch_dtype`) decide `model.dtype=auto` (`published`). Dropout rates in
training are not read: see `model.dropout`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fastflow.core.yaml_file import MistakeError, listed, read_current, wrong
from fastflow.physics.workload.models.transformer.dimensions import (
    ALIBI,
    ALL,
    DEFAULTS,
    NO_BIAS,
    OF_ATTENTION,
)
from fastflow.physics.workload.models.transformer.hf_architectures import (
    ABOVE,
    ACTIVATIONS,
    EVERY,
    TYPES,
    Architecture,
)
from fastflow.physics.workload.models.transformer.hf_fields import Fields, same_length
from fastflow.physics.workload.models.transformer.json_file import beside, read_version
from fastflow.physics.workload.models.transformer.layer_kind import ATTENTION, DENSE, EXPERTS, LayerKind
from fastflow.physics.workload.models.transformer.layer_pattern import MAX_LAYERS, pattern_text
from fastflow.physics.workload.models.transformer.published import published_in
from fastflow.physics.workload.models.transformer.quantization_config import (
    QUANTISATION_FILE,
    with_quantisation,
)

KEY = "model.config"
WINDOW = "window"
_LAYERS = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}
"""Kinds of attention, and whether they see a window. A chunk of tokens, of which each sees those before it in
the chunk, counts as a window of that length, in which a query of a long sequence sees twice as much."""
_LANGUAGE_MODELS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Fields that hold the language model of a file with several models."""
_COMMON_FIELDS = (
    "quantization_config", "compression_config", "torch_dtype", "dtype", "tie_word_embeddings",
)  # fmt: skip
_OTHER_MODELS = {
    "encoder_layers": "an encoder", "vision_config": "a model of images", "audio_config": "a model of sound",
    "num_encoder_layers": "an encoder",
    "_diffusers_version": "a diffusion model", "d_kv": "an encoder and a decoder",
}  # fmt: skip


def with_config(leaves: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the leaves of a configuration, with the model of a config.json; raises InputError.

    Leaves that are null come from the file, or else from `dimensions.DEFAULTS`. No other leaf changes.
    """
    if KEY not in leaves:
        return leaves
    overrides = {key: value for key, value in leaves.items() if key != KEY and value is not None}
    path = leaves[KEY]
    known = dict(DEFAULTS) if path is None else {**DEFAULTS, **read_config(str(path))}
    return {key: None for key in leaves if key != KEY} | known | overrides


def is_filled(leaves: Mapping[str, Any], key: str) -> bool:
    """Say whether a null leaf gets a value from the config.json; an explicit value changes no other leaf."""
    return KEY in leaves and key in DEFAULTS and leaves.get(key) is None


def read_config(path: str) -> Mapping[str, Any]:
    """Return the inputs that a config.json gives, by their keys; raises InputError.

    An unchanged file is cached.
    """
    return read_current(KEY, _parse_version, path)


@lru_cache(maxsize=64)
def _parse_version(path: str, changed: int, size: int) -> Mapping[str, Any]:
    return inputs_of(with_quantisation(read_version(path, size), beside(path, QUANTISATION_FILE)))


def inputs_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs that a config.json's object gives, by their keys; raises MistakeError."""
    document = _language_model(document)
    name = document.get("model_type")
    if not isinstance(name, str) or name not in TYPES:
        raise wrong("model_type", *_unknown_type(document))
    fields = Fields(document)
    values = _values(fields, TYPES[name])
    fields.check_rest()
    positions = values["positions"]
    if 0 < positions < DEFAULTS["model.sequence"]:
        values["sequence"] = positions
    if values["position"] == ALIBI:
        values["positions"] = 0
    return {f"model.{key}": value for key, value in values.items()}


def _values(fields: Fields, architecture: Architecture) -> dict[str, Any]:
    """Return the properties of a model of an architecture; raises MistakeError."""
    fields.value("model_type")
    values = _common(fields, architecture)
    if architecture.extra_fields:
        values |= architecture.extra_fields(fields, values)
    values |= _layers(fields, values, architecture)
    return values | published_in(fields, bool(values.get("experts")))


def _language_model(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model of a file, which may hold towers of images or sound beside it.

    What the file says once for all of its parts counts where the part does not say it.
    """
    name = document.get("model_type")
    if isinstance(name, str) and name in TYPES:
        return document
    part = next((name for name in _LANGUAGE_MODELS if isinstance(document.get(name), dict)), "")
    if not part:
        return document
    inner = document[part]
    common = {name: document[name] for name in _COMMON_FIELDS if inner.get(name) is None and name in document}
    return _language_model({**inner, **common})


def _unknown_type(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is allowed instead of a file's model_type, and what it is."""
    name = document.get("model_type")
    shown_name = json.dumps(name)
    other_kind = next((kind for field, kind in _OTHER_MODELS.items() if field in document), "")
    if other_kind:
        allowed = f"that of a language model of a decoder alone ({listed(TYPES)})"
        return allowed, f"{shown_name}, {other_kind}"
    if not isinstance(name, str):
        return f"one of {listed(TYPES)}", shown_name
    nearest = difflib.get_close_matches(name.lower(), TYPES, n=3, cutoff=0.4)
    near = f"; the nearest are {listed(nearest)}" if nearest else ""
    unknown = _not_understood(document, TYPES[nearest[0] if nearest else "llama"])
    fields = f"; not understood in the file: {listed(unknown)}" if unknown else ""
    return f"one of the {len(TYPES)} that docs/models.md lists{near}{fields}", shown_name


def _not_understood(document: Mapping[str, Any], nearest: Architecture) -> list[str]:
    """Return the fields that a file of the nearest architecture would not have."""
    fields = Fields(document)
    try:
        _values(fields, nearest)
    except MistakeError:
        return []  # too few fields were read
    return list(fields.not_understood())


def _common(fields: Fields, architecture: Architecture) -> dict[str, Any]:
    """Return the properties of all model types, by their field names."""
    heads = fields.count("num_attention_heads", "n_head", "n_heads")
    hidden = fields.count("hidden_size", "n_embd", "n_embed", "d_model")
    layers = fields.count("num_hidden_layers", "n_layer", "n_layers")
    if layers > MAX_LAYERS:
        raise wrong("num_hidden_layers", f"at most {MAX_LAYERS}", layers)
    head_dim = fields.count("head_dim", "attention_head_dim", default=0)
    if not head_dim and hidden % heads and "kv_lora_rank" not in fields:
        raise wrong("num_attention_heads", f"a divisor of its hidden size, {hidden}", heads)
    names = ("hidden_activation", "hidden_act", "activation_function")
    activation = fields.choice(ACTIVATIONS, *names, default=architecture.activation)
    return {
        "layers": layers, "hidden": hidden, "heads": heads, "head_dim": head_dim,
        "kv_heads": fields.count("num_key_value_heads", default=heads),
        "ffn": fields.count("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", default=0),
        "vocabulary": fields.count("vocab_size"), "positions": _positions(fields),
        "norm": architecture.norm, "block": architecture.block, "gated": architecture.gated,
        "activation": activation, "position": architecture.position, "qk_norm": architecture.qk_norm,
        "biases": _biases(fields, architecture),
        "tied": fields.flag("tie_word_embeddings", default=architecture.tied),
    }  # fmt: skip


def _positions(fields: Fields) -> int:
    """Return the tokens of the longest sequence, with RoPE scaling of the file; 0 where unknown."""
    most = fields.count("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=0)
    fields.value("n_ctx")
    scaling = fields.inside("rope_scaling")
    before = fields.count("original_max_position_embeddings", default=most)
    before = scaling.count("original_max_position_embeddings", default=before)
    return max(most, int(scaling.factor("factor", 1.0) * before))


def _biases(fields: Fields, architecture: Architecture) -> str:
    """Return which products have biases."""
    if architecture.biases == ALL:
        return ALL if fields.flag("attention_bias", "use_bias", default=True) else NO_BIAS
    if fields.flag("mlp_bias"):
        return ALL
    if not fields.flag("attention_bias", "bias", default=architecture.biases != NO_BIAS):
        return NO_BIAS
    return OF_ATTENTION if architecture.biases == NO_BIAS else architecture.biases


# --- layers: windows and mixtures


def _layers(fields: Fields, known: Mapping[str, Any], architecture: Architecture) -> dict[str, Any]:
    """Return the pattern of a model's layers, its window and its experts."""
    layers = known["layers"]
    values: dict[str, Any] = {}
    has_window = _windows(fields, layers, architecture, values)
    has_experts = _expert_layers(fields, layers, known, values)
    kinds = [
        LayerKind((WINDOW if windowed else ATTENTION,), EXPERTS if expert else DENSE)
        for windowed, expert in zip(has_window, has_experts, strict=True)
    ]
    return values | {"pattern": pattern_text(kinds)}


def _windows(fields: Fields, layers: int, architecture: Architecture, values: dict[str, Any]) -> list[bool]:
    """Return which layers have window attention, and set the window's length in `values`."""
    names = ("sliding_window", "attention_chunk_size", "sliding_window_size")
    window = fields.count(*names, default=0, least=0)
    has_window: list[bool] | None = fields.choices(_LAYERS, "layer_types", layers)
    names = ("sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval")
    period = fields.count(
        *names, default=architecture.windows if isinstance(architecture.windows, int) else 0, least=0
    )
    above = fields.count("max_window_layers", default=layers, least=0)
    used = fields.flag("use_sliding_window", default=architecture.windows != ABOVE) and window > 0
    if has_window is None and architecture.windows == ABOVE:
        has_window = [used and i >= above for i in range(layers)]
    elif has_window is None:
        has_window = [
            used and (architecture.windows == EVERY or (i + 1) % max(period, 1) > 0) for i in range(layers)
        ]
    if any(has_window) and not window:
        raise MistakeError("a file that gives sliding_window, since its layer_types have one")
    if any(has_window):
        values["window"] = window
    return has_window


_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_TOPK = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k")
_SHARED = ("shared_expert_intermediate_size", "shared_intermediate_size")


def _expert_layers(
    fields: Fields, layers: int, known: Mapping[str, Any], values: dict[str, Any]
) -> list[bool]:
    """Return which layers have experts, and set their number and sizes in `values`."""
    experts = known.get("experts")  # where the architecture has set it already
    if experts is None:
        experts = fields.count(*_EXPERTS, default=0, least=0)
        if not experts:
            return [False] * layers
        values["experts"], values["topk"] = experts, fields.count(*_TOPK)
    columns = known.get("expert_ffn", known["ffn"])
    values["expert_ffn"] = fields.count("moe_intermediate_size", default=columns, least=0)
    values["shared_experts"] = fields.count("n_shared_experts", "num_shared_experts", default=0, least=0)
    if "n_group" in fields:
        groups = values["expert_groups"] = fields.count("n_group")
        values["topk_groups"] = fields.count("topk_group", default=groups)
    values["shared_ffn"] = fields.count(*_SHARED, default=known.get("shared_ffn", 0), least=0)
    return _has_experts(fields, layers)


def _has_experts(fields: Fields, layers: int) -> list[bool]:
    """Return which layers have experts."""
    listed = fields.counts("moe_layers")
    dense_layers = set(fields.counts("mlp_only_layers") or ())
    first = fields.count("first_k_dense_replace", default=0, least=0)
    steps = fields.count("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    name, per_layer = fields.value("moe_layer_freq")
    if isinstance(per_layer, list):
        same_length(name, per_layer, layers)
        return [bool(flag) for flag in fields.counts("moe_layer_freq") or ()]
    period = fields.count("moe_layer_freq", default=1)
    if listed is not None:
        return [i in listed for i in range(layers)]
    return [
        i >= first and i % period == 0 and (i + 1) % steps == 0 and i not in dense_layers
        for i in range(layers)
    ]
