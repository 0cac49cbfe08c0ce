"""`model.config`: the config.json that a published language model has beside its weights, read as it is.

Its fields are those of Hugging Face's transformers library, by `model_type`. What the code of that library
says of a type of model and the file does not (norms, gates, biases) is in `_TYPES`. In which data types
weights are stored (`quantization_config`, `torch_dtype`) and how much dropout there was in training is no
part of a model here: see `model.dtype`, the group `precision` and `model.dropout`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from fastflow.workload.transformer.fields import Fields, same_length
from fastflow.workload.transformer.json_file import read_version
from fastflow.workload.transformer.pattern import DENSE, EXPERTS, MOST_LAYERS, WINDOW, written
from fastflow.workload.transformer.sizes import (
    ALIBI,
    ALL,
    DEFAULTS,
    LAYER,
    LEARNED,
    NO_BIAS,
    OF_ATTENTION,
    OF_QKV,
    PARALLEL,
    PARALLEL_NORMS,
    POST,
    PRE,
    RMS,
    ROTARY,
    SANDWICH,
)
from fastflow.yaml_file import MistakeError, listed, of_present, wrong

KEY = "model.config"
_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "relu": "relu", "relu2": "relu2", "relu_squared": "relu2",
    **dict.fromkeys(
        ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_accurate", "gelu_pytorch_tanh", "quick_gelu"),
        "gelu",
    ),
}  # fmt: skip
_LAYERS = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}
"""Kinds of attention, and whether they see a window. A chunk of tokens, of which each sees those before it in
the chunk, counts as a window of that length, in which a query of a long sequence sees twice as much."""
EVERY, ABOVE = "all", "above"
_OTHER_MODELS = {
    "encoder_layers": "an encoder", "vision_config": "a model of images", "audio_config": "a model of sound",
    "num_encoder_layers": "an encoder", "text_config": "a model of more than text",
    "_diffusers_version": "a diffusion model", "d_kv": "an encoder and a decoder",
}  # fmt: skip


class _Type(NamedTuple):
    """What the code of a type of model says where its file does not."""

    norm: str = RMS
    block: str = PRE
    gated: bool = True
    biases: str = NO_BIAS
    position: str = ROTARY
    tied: bool = False
    qk_norm: bool = False
    activation: str = "silu"  # where the file does not say it
    # which layers see a window where the file does not list them: "all", those "above" some; or all but the
    # last of each so many; 0: none
    windows: int | str = 0
    more: Callable[[Fields, dict[str, Any]], Mapping[str, Any]] | None = (
        None  # of the file, what is known so far
    )


def with_config(leaves: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the leaves of a configuration, with what a config.json says of a model; raises InputError.

    What is null is as the file has it, or else as `sizes.DEFAULTS` has it; all other leaves stay.
    """
    if KEY not in leaves:
        return leaves
    given = {key: value for key, value in leaves.items() if key != KEY and value is not None}
    path = leaves[KEY]
    known = dict(DEFAULTS) if path is None else {**DEFAULTS, **read_config(str(path))}
    return {key: None for key in leaves if key != KEY} | known | given


def read_config(path: str) -> Mapping[str, Any]:
    """Return the inputs that a config.json gives, by their keys; raises InputError.

    A file that has not changed since is not read again.
    """
    return of_present(KEY, _of_version, path)


@lru_cache(maxsize=64)
def _of_version(path: str, changed: int, size: int) -> Mapping[str, Any]:
    return inputs_of(read_version(path, size))


def inputs_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs that a config.json's object gives, by their keys; raises MistakeError."""
    name = document.get("model_type")
    if not isinstance(name, str) or name not in _TYPES:
        other = next((what for field, what in _OTHER_MODELS.items() if field in document), "")
        allowed = f"that of a language model of a decoder alone ({listed(_TYPES)})"
        raise wrong("model_type", allowed, ", ".join(filter(None, (json.dumps(name), other))))
    fields = Fields(document)
    fields.value("model_type")
    own = _TYPES[name]
    found = _common(fields, own)
    if own.more:
        found |= own.more(fields, found)
    found |= _layers(fields, found, own)
    fields.check_rest()
    positions = found["positions"]
    if 0 < positions < DEFAULTS["model.sequence"]:
        found["sequence"] = positions
    if found["position"] == ALIBI:
        found["positions"] = 0
    return {f"model.{key}": value for key, value in found.items()}


def _common(fields: Fields, own: _Type) -> dict[str, Any]:
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
    activation = fields.choice(_ACTIVATIONS, *names, default=own.activation)
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


def _biases(fields: Fields, own: _Type) -> str:
    """Return which products have biases."""
    if own.biases == ALL:
        return ALL if fields.flag("attention_bias", "use_bias", default=True) else NO_BIAS
    if fields.flag("mlp_bias"):
        return ALL
    if not fields.flag("attention_bias", "bias", default=own.biases != NO_BIAS):
        return NO_BIAS
    return OF_ATTENTION if own.biases == NO_BIAS else own.biases


# --- layers: windows and mixtures


def _layers(fields: Fields, known: Mapping[str, Any], own: _Type) -> dict[str, Any]:
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


def _windows(fields: Fields, layers: int, own: _Type, found: dict[str, Any]) -> list[bool]:
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


# --- what types of models have of their own


def _gpt2(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    return {"kv_heads": 1 if fields.flag("multi_query") else known["heads"]}


def _gpt_neox(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    parallel = fields.flag("use_parallel_residual", default=True)
    return {"block": PARALLEL_NORMS if parallel else PRE}


def _mpt(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    attention = fields.inside("attn_config")
    ratio = fields.factor("expansion_ratio", 4.0)
    return {
        "ffn": int(ratio * known["hidden"]),
        "kv_heads": attention.count("kv_n_heads", default=_mpt_heads(attention, known["heads"])),
        "position": _mpt_position(attention),
        "qk_norm": attention.flag("qk_ln"),
        "biases": NO_BIAS if fields.flag("no_bias", default=True) else ALL,
    }  # fmt: skip


def _mpt_heads(attention: Fields, heads: int) -> int:
    kinds = {"multihead_attention": "all", "grouped_query_attention": "all", "multiquery_attention": "one"}
    return 1 if attention.choice(kinds, "attn_type", default="all") == "one" else heads


def _mpt_position(attention: Fields) -> str:
    if attention.flag("alibi"):
        return ALIBI
    return ROTARY if attention.flag("rope") else LEARNED


def _opt(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    if (projected := fields.count("word_embed_proj_dim", default=known["hidden"])) != known["hidden"]:
        raise wrong("word_embed_proj_dim", f"its hidden_size, {known['hidden']}", projected)
    before = fields.flag("do_layer_norm_before", default=True)
    return {
        "block": PRE if before else POST,
        "biases": ALL if fields.flag("enable_bias", default=True) else NO_BIAS,
    }


def _falcon(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    new, heads = fields.flag("new_decoder_architecture"), known["heads"]
    several = fields.count("num_kv_heads", "n_head_kv", default=heads)
    of_one = 1 if fields.flag("multi_query", default=True) else heads
    norms = fields.count("num_ln_in_parallel_attn", default=2 if new else 1)
    parallel = fields.flag("parallel_attn", default=True) or new
    return {
        "kv_heads": several if new else of_one,
        "block": PRE if not parallel else PARALLEL_NORMS if norms == 2 else PARALLEL,
        "position": ALIBI if fields.flag("alibi") else ROTARY,
        "biases": ALL if fields.flag("bias") else NO_BIAS,
    }  # fmt: skip


def _dbrx(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    attention, mixture = fields.inside("attn_config"), fields.inside("ffn_config")
    names = mixture.inside("ffn_act_fn")
    return {
        "kv_heads": attention.count("kv_n_heads", default=known["heads"]),
        "ffn": mixture.count("ffn_hidden_size"),
        "experts": mixture.count("moe_num_experts"),
        "topk": mixture.count("moe_top_k"),
        "activation": names.choice(_ACTIVATIONS, "name", default="silu"),
    }


def _latent(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of DeepSeek's latent attention, and its modules for further tokens."""
    return {
        "latent": fields.count("kv_lora_rank"),
        "query_latent": fields.count("q_lora_rank", default=0),
        "rotary": fields.count("qk_rope_head_dim"),
        "head_dim": fields.count("qk_nope_head_dim"),
        "value_dim": fields.count("v_head_dim"),
        "kv_heads": 0,
        "mtp": fields.count("num_nextn_predict_layers", default=0, least=0),
    }


def _minimax(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    listed = fields.counts("attn_type_list") or []
    if not all(one == 1 for one in listed):
        raise wrong("attn_type_list", "a list of 1, since linear attention is not known", "one with others")
    fields.count("mtp_transformer_layers", "mlp_intermediate_size", default=1, least=0)
    further = fields.count("num_mtp_modules", default=0, least=0)
    return {
        "mtp": further if fields.flag("use_mtp", default=True) else 0,
        "qk_norm": fields.flag("use_qk_norm"),
    }


def _glm4_moe(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    further = fields.count("num_nextn_predict_layers", default=0, least=0)
    return {"mtp": further, "qk_norm": fields.flag("use_qk_norm")}


def _cohere(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    return {"qk_norm": fields.flag("use_qk_norm")}


def _stablelm(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    parallel = fields.flag("use_parallel_residual")
    qkv = fields.flag("use_qkv_bias")
    return {
        "block": PARALLEL if parallel else PRE,
        "qk_norm": fields.flag("qk_layernorm"),
        "biases": OF_QKV if qkv else NO_BIAS,
    }


def _llama4(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    """Return dense and shared columns: of an expert `intermediate_size`; every token goes to one more."""
    experts = known["ffn"]
    fields.flag("use_qk_norm")  # it has no weights
    fields.counts("no_rope_layers")
    return {"ffn": fields.count("intermediate_size_mlp"), "expert_ffn": experts, "shared_ffn": experts}


def _phi(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    return {"qk_norm": fields.flag("qk_layernorm")}


_GPT2 = _Type(LAYER, PRE, False, ALL, LEARNED, tied=True, activation="gelu", more=_gpt2)
_LLAMA = _Type()
_LAYERED = _Type(LAYER, PRE, False, ALL, tied=True, activation="gelu")  # of layer norms, not gated
_GEMMA = _Type(tied=True, activation="gelu")
_DEEPSEEK = _LLAMA._replace(more=_latent)
_COHERE = _Type(LAYER, PARALLEL, tied=True, more=_cohere)
_TYPES = {
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gptj": _Type(LAYER, PARALLEL, False, activation="gelu"),
    "gpt_neox": _LAYERED._replace(tied=False, more=_gpt_neox),
    "bloom": _LAYERED._replace(position=ALIBI),
    "mpt": _LAYERED._replace(biases=NO_BIAS, more=_mpt),
    "opt": _LAYERED._replace(position=LEARNED, activation="relu", more=_opt),
    "falcon": _LAYERED._replace(biases=NO_BIAS, more=_falcon),
    "llama": _LLAMA,
    "mistral": _LLAMA._replace(windows=EVERY),
    "mixtral": _LLAMA._replace(windows=EVERY),
    "qwen2": _LLAMA._replace(biases=OF_QKV, windows=ABOVE),
    "qwen2_moe": _LLAMA._replace(biases=OF_QKV, windows=ABOVE),
    "qwen3": _LLAMA._replace(qk_norm=True, windows=ABOVE),
    "qwen3_moe": _LLAMA._replace(qk_norm=True, windows=ABOVE),
    "gemma": _GEMMA,
    "gemma2": _GEMMA._replace(block=SANDWICH, windows=2),
    "gemma3_text": _GEMMA._replace(block=SANDWICH, qk_norm=True, windows=6),
    "phi": _LAYERED._replace(tied=False, block=PARALLEL, more=_phi),
    "phi3": _LLAMA._replace(windows=EVERY),
    "phimoe": _LLAMA._replace(norm=LAYER, windows=EVERY),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "gpt_oss": _LLAMA._replace(biases=ALL, windows=2),
    "nemotron": _LAYERED._replace(biases=NO_BIAS, tied=False, activation="relu2"),
    "grok-1": _Type(block=SANDWICH, activation="gelu"),
    "dbrx": _Type(LAYER, more=_dbrx),
    "olmo": _LLAMA._replace(norm=LAYER),
    "olmo2": _LLAMA._replace(block=POST, qk_norm=True),
    "olmoe": _LLAMA._replace(qk_norm=True),
    "starcoder2": _LAYERED._replace(windows=EVERY),
    "stablelm": _Type(LAYER, more=_stablelm),
    "cohere": _COHERE,
    "cohere2": _COHERE._replace(windows=4),
    "glm4": _LLAMA._replace(block=SANDWICH, biases=OF_QKV),
    "glm4_moe": _LLAMA._replace(biases=OF_QKV, more=_glm4_moe),
    "llama4_text": _LLAMA._replace(windows=4, more=_llama4),
    "internlm2": _LLAMA,
    "granite": _LLAMA,
    "granitemoe": _LLAMA,
    "granitemoeshared": _LLAMA,
    "seed_oss": _LLAMA,
    "minimax": _LLAMA._replace(more=_minimax),
    "minimax_m2": _LLAMA._replace(more=_minimax),
}
"""By `model_type`."""
