"""Architectures of published models, by the `model_type` of a config.json.

Properties that are in the code of Hugging Face's transformers library but not in the file, and fields of a
single model type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fastflow.core.yaml_file import wrong
from fastflow.physics.workload.models.transformer.dimensions import (
    ALIBI,
    ALL,
    LAYER,
    LEARNED,
    NO_BIAS,
    OF_QKV,
    PARALLEL,
    PARALLEL_NORMS,
    POST,
    PRE,
    RMS,
    ROTARY,
    SANDWICH,
)
from fastflow.physics.workload.models.transformer.hf_fields import Fields

ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "relu": "relu", "relu2": "relu2", "relu_squared": "relu2",
    **dict.fromkeys(
        ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_accurate", "gelu_pytorch_tanh", "quick_gelu"),
        "gelu",
    ),
}  # fmt: skip
EVERY, ABOVE = "all", "above"


class Architecture(NamedTuple):
    """Properties of a model type that its config.json omits."""

    norm: str = RMS
    block: str = PRE
    gated: bool = True
    biases: str = NO_BIAS
    position: str = ROTARY
    tied: bool = False
    qk_norm: bool = False
    activation: str = "silu"  # where the file omits it
    # layers with window attention where the file does not list them: "all", or "above" a layer; or all but
    # the last of each period of this length; 0: none
    windows: int | str = 0
    extra_fields: Callable[[Fields, dict[str, Any]], Mapping[str, Any]] | None = (
        None  # of the file and the properties so far: further properties
    )


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
    grouped_heads = fields.count("num_kv_heads", "n_head_kv", default=heads)
    multi_query_heads = 1 if fields.flag("multi_query", default=True) else heads
    norms = fields.count("num_ln_in_parallel_attn", default=2 if new else 1)
    parallel = fields.flag("parallel_attn", default=True) or new
    return {
        "kv_heads": grouped_heads if new else multi_query_heads,
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
        "activation": names.choice(ACTIVATIONS, "name", default="silu"),
    }


def _latent(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of DeepSeek's latent attention, and its MTP modules."""
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
    if not all(kind == 1 for kind in listed):
        raise wrong("attn_type_list", "a list of 1, since linear attention is not known", "one with others")
    fields.count("mtp_transformer_layers", "mlp_intermediate_size", default=1, least=0)
    modules = fields.count("num_mtp_modules", default=0, least=0)
    return {
        "mtp": modules if fields.flag("use_mtp", default=True) else 0,
        "qk_norm": fields.flag("use_qk_norm"),
    }


def _glm4_moe(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    modules = fields.count("num_nextn_predict_layers", default=0, least=0)
    return {"mtp": modules, "qk_norm": fields.flag("use_qk_norm")}


def _mtp(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    return {"mtp": fields.count("num_nextn_predict_layers", default=0, least=0)}


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
    """Return dense and shared columns; `intermediate_size` is an expert's, and there is a shared expert."""
    experts = known["ffn"]
    fields.flag("use_qk_norm")  # it has no weights
    fields.counts("no_rope_layers")
    return {"ffn": fields.count("intermediate_size_mlp"), "expert_ffn": experts, "shared_ffn": experts}


def _phi(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    return {"qk_norm": fields.flag("qk_layernorm")}


_GPT2 = Architecture(LAYER, PRE, False, ALL, LEARNED, tied=True, activation="gelu", extra_fields=_gpt2)
_LLAMA = Architecture()
_LAYERED = Architecture(LAYER, PRE, False, ALL, tied=True, activation="gelu")  # of layer norms, not gated
_QWEN2 = _LLAMA._replace(biases=OF_QKV, windows=ABOVE)
_QWEN3 = _LLAMA._replace(qk_norm=True, windows=ABOVE)
_GEMMA = Architecture(tied=True, activation="gelu")
_DEEPSEEK = _LLAMA._replace(extra_fields=_latent)
_COHERE = Architecture(LAYER, PARALLEL, tied=True, extra_fields=_cohere)
TYPES = {
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gptj": Architecture(LAYER, PARALLEL, False, activation="gelu"),
    "gpt_neox": _LAYERED._replace(tied=False, extra_fields=_gpt_neox),
    "bloom": _LAYERED._replace(position=ALIBI),
    "mpt": _LAYERED._replace(biases=NO_BIAS, extra_fields=_mpt),
    "opt": _LAYERED._replace(position=LEARNED, activation="relu", extra_fields=_opt),
    "falcon": _LAYERED._replace(biases=NO_BIAS, extra_fields=_falcon),
    "llama": _LLAMA,
    "mistral": _LLAMA._replace(windows=EVERY),
    "mixtral": _LLAMA._replace(windows=EVERY),
    "qwen2": _QWEN2,
    "qwen2_moe": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3_vl_text": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
    "mimo": _QWEN2._replace(extra_fields=_mtp),
    "dots1": _LLAMA._replace(qk_norm=True, windows=ABOVE),
    "smollm3": _LLAMA._replace(windows=ABOVE),
    "ministral": _LLAMA._replace(windows=EVERY),
    "ministral3": _LLAMA._replace(windows=EVERY),
    "arcee": _LLAMA._replace(gated=False, activation="relu2"),
    "gemma": _GEMMA,
    "gemma2": _GEMMA._replace(block=SANDWICH, windows=2),
    "gemma3_text": _GEMMA._replace(block=SANDWICH, qk_norm=True, windows=6),
    "phi": _LAYERED._replace(tied=False, block=PARALLEL, extra_fields=_phi),
    "phi3": _LLAMA._replace(windows=EVERY),
    "phimoe": _LLAMA._replace(norm=LAYER, windows=EVERY),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "gpt_oss": _LLAMA._replace(biases=ALL, windows=2),
    "nemotron": _LAYERED._replace(biases=NO_BIAS, tied=False, activation="relu2"),
    "grok-1": Architecture(block=SANDWICH, activation="gelu"),
    "dbrx": Architecture(LAYER, extra_fields=_dbrx),
    "olmo": _LLAMA._replace(norm=LAYER),
    "olmo2": _LLAMA._replace(block=POST, qk_norm=True),
    "olmoe": _LLAMA._replace(qk_norm=True),
    "starcoder2": _LAYERED._replace(windows=EVERY),
    "stablelm": Architecture(LAYER, extra_fields=_stablelm),
    "cohere": _COHERE,
    "cohere2": _COHERE._replace(windows=4),
    "glm4": _LLAMA._replace(block=SANDWICH, biases=OF_QKV),
    "glm4_moe": _LLAMA._replace(biases=OF_QKV, extra_fields=_glm4_moe),
    "llama4_text": _LLAMA._replace(windows=4, extra_fields=_llama4),
    "internlm2": _LLAMA,
    "granite": _LLAMA,
    "granitemoe": _LLAMA,
    "granitemoeshared": _LLAMA,
    "seed_oss": _LLAMA,
    "minimax": _LLAMA._replace(extra_fields=_minimax),
    "minimax_m2": _LLAMA._replace(extra_fields=_minimax),
}
"""By `model_type`."""
