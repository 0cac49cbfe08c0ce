"""`model.config`: the config.json that a published language model has beside its weights, read as it is.

Its fields are those of Hugging Face's transformers library, by `model_type`. What the code of that library
says of a type of model and the file does not (norms, gates, biases) is in `config_types`. In which data
types weights are stored (`quantization_config`, `torch_dtype`) is what `model.dtype=auto` goes by
(`published`). How much dropout there was in training is no part of a model here: see `model.dropout`.
"""

from __future__ import annotations

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
    Type,
)
from fastflow.physics.workload.models.transformer.hf_fields import Fields, same_length
from fastflow.physics.workload.models.transformer.json_file import read_version
from fastflow.physics.workload.models.transformer.layer_pattern import (
    DENSE,
    EXPERTS,
    MOST_LAYERS,
    WINDOW,
    written,
)
from fastflow.physics.workload.models.transformer.published import published_in

KEY = "model.config"
_LAYERS = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}
"""Kinds of attention, and whether they see a window. A chunk of tokens, of which each sees those before it in
the chunk, counts as a window of that length, in which a query of a long sequence sees twice as much."""
_OTHER_MODELS = {
    "encoder_layers": "an encoder", "vision_config": "a model of images", "audio_config": "a model of sound",
    "num_encoder_layers": "an encoder", "text_config": "a model of more than text",
    "_diffusers_version": "a diffusion model", "d_kv": "an encoder and a decoder",
}  # fmt: skip


def with_config(leaves: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the leaves of a configuration, with what a config.json says of a model; raises InputError.

    What is null is as the file has it, or else as `dimensions.DEFAULTS` has it; all other leaves stay.
    """
    if KEY not in leaves:
        return leaves
    given = {key: value for key, value in leaves.items() if key != KEY and value is not None}
    path = leaves[KEY]
    known = dict(DEFAULTS) if path is None else {**DEFAULTS, **read_config(str(path))}
    return {key: None for key in leaves if key != KEY} | known | given


def is_filled(leaves: Mapping[str, Any], key: str) -> bool:
    """Say whether a leaf that is null has a value all the same; set, it changes no other."""
    return KEY in leaves and key in DEFAULTS and leaves.get(key) is None


def read_config(path: str) -> Mapping[str, Any]:
    """Return the inputs that a config.json gives, by their keys; raises InputError.

    A file that has not changed since is not read again.
    """
    return read_current(KEY, _of_version, path)


@lru_cache(maxsize=64)
def _of_version(path: str, changed: int, size: int) -> Mapping[str, Any]:
    return inputs_of(read_version(path, size))


def inputs_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs that a config.json's object gives, by their keys; raises MistakeError."""
    name = document.get("model_type")
    if not isinstance(name, str) or name not in TYPES:
        other = next((what for field, what in _OTHER_MODELS.items() if field in document), "")
        allowed = f"that of a language model of a decoder alone ({listed(TYPES)})"
        raise wrong("model_type", allowed, ", ".join(filter(None, (json.dumps(name), other))))
    fields = Fields(document)
    fields.value("model_type")
    own = TYPES[name]
    found = _common(fields, own)
    if own.more:
        found |= own.more(fields, found)
    found |= _layers(fields, found, own)
    found |= published_in(fields, bool(found.get("experts")))
    fields.check_rest()
    positions = found["positions"]
    if 0 < positions < DEFAULTS["model.sequence"]:
        found["sequence"] = positions
    if found["position"] == ALIBI:
        found["positions"] = 0
    return {f"model.{key}": value for key, value in found.items()}


def _common(fields: Fields, own: Type) -> dict[str, Any]:
    """Return what all types of models have, by the names that it has among them."""
    heads = fields.count("num_attention_heads", "n_head", "n_heads")
    hidden = fields.count("hidden_size", "n_embd", "n_embed", "d_model")
    layers = fields.count("num_hidden_layers", "n_layer", "n_layers")
    if layers > MOST_LAYERS:
        raise wrong("num_hidden_layers", f"at most {MOST_LAYERS}", layers)
    head_dim = fields.count("head_dim", "attention_head_dim", default=0)
    if not head_dim and hidden % heads and "kv_lora_rank" not in fields:
        raise wrong("num_attention_heads", f"a divisor of its hidden size, {hidden}", heads)
    names = ("hidden_activation", "hidden_act", "activation_function")
    activation = fields.choice(ACTIVATIONS, *names, default=own.activation)
    return {
        "layers": layers, "hidden": hidden, "heads": heads, "head_dim": head_dim,
        "kv_heads": fields.count("num_key_value_heads", default=heads),
        "ffn": fields.count("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", default=0),
        "vocabulary": fields.count("vocab_size"), "positions": _positions(fields),
        "norm": own.norm, "block": own.block, "gated": own.gated, "activation": activation,
        "position": own.position, "qk_norm": own.qk_norm, "biases": _biases(fields, own),
        "tied": fields.flag("tie_word_embeddings", default=own.tied),
    }  # fmt: skip


def _positions(fields: Fields) -> int:
    """Return the tokens of the longest sequence, stretched as the file says; 0 where it does not say."""
    most = fields.count("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=0)
    fields.value("n_ctx")
    scaling = fields.inside("rope_scaling")
    before = fields.count("original_max_position_embeddings", default=most)
    before = scaling.count("original_max_position_embeddings", default=before)
    return max(most, int(scaling.factor("factor", 1.0) * before))


def _biases(fields: Fields, own: Type) -> str:
    """Return which products have biases."""
    if own.biases == ALL:
        return ALL if fields.flag("attention_bias", "use_bias", default=True) else NO_BIAS
    if fields.flag("mlp_bias"):
        return ALL
    if not fields.flag("attention_bias", "bias", default=own.biases != NO_BIAS):
        return NO_BIAS
    return OF_ATTENTION if own.biases == NO_BIAS else own.biases


# --- layers: windows and mixtures


def _layers(fields: Fields, known: Mapping[str, Any], own: Type) -> dict[str, Any]:
    """Return the pattern of a model's layers, its window and its experts."""
    layers = known["layers"]
    found: dict[str, Any] = {}
    windows = _windows(fields, layers, own, found)
    mixes = _mixes(fields, layers, known, found)
    every = [
        f"{WINDOW} {kind}" if windowed else kind
        for windowed, kind in zip(windows, (EXPERTS if one else DENSE for one in mixes), strict=True)
    ]
    return found | {"pattern": written(every)}


def _windows(fields: Fields, layers: int, own: Type, found: dict[str, Any]) -> list[bool]:
    """Return which layers see a window, and write down how long that is."""
    names = ("sliding_window", "attention_chunk_size", "sliding_window_size")
    window = fields.count(*names, default=0, least=0)
    listed: list[bool] | None = fields.choices(_LAYERS, "layer_types", layers)
    names = ("sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval")
    period = fields.count(*names, default=own.windows if isinstance(own.windows, int) else 0, least=0)
    above = fields.count("max_window_layers", default=layers, least=0)
    used = fields.flag("use_sliding_window", default=own.windows != ABOVE) and window > 0
    if listed is None and own.windows == ABOVE:
        listed = [used and i >= above for i in range(layers)]
    elif listed is None:
        listed = [used and (own.windows == EVERY or (i + 1) % max(period, 1) > 0) for i in range(layers)]
    if any(listed) and not window:
        raise MistakeError("a file that gives sliding_window, since its layer_types have one")
    if any(listed):
        found["window"] = window
    return listed


_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k")
_SHARED = ("shared_expert_intermediate_size", "shared_intermediate_size")


def _mixes(fields: Fields, layers: int, known: Mapping[str, Any], found: dict[str, Any]) -> list[bool]:
    """Return which layers have experts, and write down how many and how large they are."""
    experts = known.get("experts")  # where the type has said it already
    if experts is None:
        experts = fields.count(*_EXPERTS, default=0, least=0)
        if not experts:
            return [False] * layers
        found["experts"], found["topk"] = experts, fields.count(*_CHOSEN)
    columns = known.get("expert_ffn", known["ffn"])
    found["expert_ffn"] = fields.count("moe_intermediate_size", default=columns, least=0)
    found["shared_experts"] = fields.count("n_shared_experts", "num_shared_experts", default=0, least=0)
    if "n_group" in fields:
        groups = found["expert_groups"] = fields.count("n_group")
        found["topk_groups"] = fields.count("topk_group", default=groups)
    found["shared_ffn"] = fields.count(*_SHARED, default=known.get("shared_ffn", 0), least=0)
    return _mixed(fields, layers)


def _mixed(fields: Fields, layers: int) -> list[bool]:
    """Return which layers have experts."""
    listed = fields.counts("moe_layers")
    alone = set(fields.counts("mlp_only_layers") or ())
    first = fields.count("first_k_dense_replace", default=0, least=0)
    steps = fields.count("decoder_sparse_step", "interleave_moe_layer_step", default=1)
    where, every = fields.value("moe_layer_freq")
    if isinstance(every, list):
        same_length(where, every, layers)
        return [bool(one) for one in fields.counts("moe_layer_freq") or ()]
    period = fields.count("moe_layer_freq", default=1)
    if listed is not None:
        return [i in listed for i in range(layers)]
    return [i >= first and i % period == 0 and (i + 1) % steps == 0 and i not in alone for i in range(layers)]
