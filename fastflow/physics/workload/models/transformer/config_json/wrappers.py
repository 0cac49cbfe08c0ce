"""The language model inside a config.json of several models, such as one with an encoder of images.

Files of transformers leave out of an inner object the values that its class has by default
(`to_diff_dict` of its configuration_utils); these defaults are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastflow.physics.workload.models.transformer.config_json.families import TYPES

LANGUAGE_MODELS = (
    "text_config", "llm_config", "language_config", "thinker_config", "language_model_config",
    "llm_cfg", "lm_config",
)  # fmt: skip
"""Fields that hold the language model of a file with several models, and further fields that end so."""
_COMMON_FIELDS = (
    "quantization_config", "compression_config", "torch_dtype", "dtype", "tie_word_embeddings",
    "architectures",
)  # fmt: skip
# of types whose inner object may lack its model_type: that of the language model
_TYPE_INSIDE = {
    "llava": "llama", "llava_next": "llama", "mllama": "mllama_text_model", "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "llama4": "llama4_text", "mistral3": "mistral",
    "qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
    "glm4v": "glm4v_text", "glm4v_moe": "glm4v_moe_text", "minimax_m3_vl": "minimax_m3_vl_text",
    "step3p7": "step3p5", "step3_vl": "step3_text", "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
    "paligemma": "gemma", "deepseek_vl_v2": "deepseek_v2", "kimi_vl": "deepseek_v3",
    "kimi_k25": "kimi_k2", "kimi_k3": "kimi_linear", "aya_vision": "cohere2", "aria": "aria_text",
}  # fmt: skip
_MOST_NESTED = 8
_SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim",
)  # fmt: skip
# of classes in transformers 5.18, models/NAME/configuration_NAME.py
_OF_CLASS = {
    "llama": (32000, 4096, 11008, 32, 32, None, None),
    "mixtral": (32000, 4096, 14336, 32, 32, 8, None),
    "phi3": (32064, 3072, 8192, 32, 32, None, None),
    "cohere2": (256000, 8192, 22528, 40, 64, 64, 128),
    "granite": (32000, 4096, 11008, 32, 32, None, None),
    "lfm2": (65536, 2560, 12288, 32, 32, 8, None),
    "deepseek_v2": (102400, 4096, 11008, 32, 32, 32, None),
    "deepseek_v3": (129280, 7168, 18432, 61, 128, 128, None),
    "exaone4": (102400, 4096, 16384, 32, 32, 32, None),
    "mistral": (32000, 4096, 14336, 32, 32, 8, None),
    "ministral3": (131072, 4096, 14336, 34, 32, 8, 128),
    "qwen2": (151936, 4096, 22016, 32, 32, 32, None),
    "qwen3": (151936, 4096, 22016, 32, 32, 32, 128),
    "gemma": (256000, 3072, 24576, 28, 16, 16, 256),
    "gemma2": (256000, 2304, 9216, 26, 8, 4, 256),
    "gemma3_text": (262208, 2304, 9216, 26, 8, 4, 256),
    "gemma3n_text": (262400, 2048, 16384, 35, 8, 2, 256),
    "gemma4_text": (262144, 2304, 9216, 30, 8, 4, 256),
    "gemma4_unified_text": (262144, 2304, 9216, 30, 8, 4, 256),
    "llama4_text": (202048, 5120, 8192, 48, 40, 8, 128),
    "qwen2_vl_text": (152064, 8192, 29568, 80, 64, 8, None),
    "qwen2_5_vl_text": (152064, 8192, 29568, 80, 64, 8, None),
    "qwen3_vl_text": (151936, 4096, 22016, 32, 32, 32, 128),
    "qwen3_vl_moe_text": (151936, 2048, 5632, 24, 16, 16, 128),
    "glm4v_moe_text": (151424, 4096, 10944, 46, 96, 8, None),
    "minimax_m3_vl_text": (200064, 6144, 3072, 60, 64, 4, 128),
    "ernie4_5_vl_moe_text": (103424, 2560, 12288, 28, 20, 4, None),
    "mistral4": (131072, 4096, 12288, 36, 32, 32, None),
    "qwen3_5_text": (248320, 4096, 12288, 32, 16, 4, 256),
    "qwen3_5_moe_text": (248320, 2048, None, 40, 16, 2, 256),
    "glm4v_text": (151552, 4096, 13696, 40, 32, 2, None),
    "step3p5": (128815, 4096, 11264, 45, 64, 8, 128),
    "step3_text": (128815, 7168, 18432, 61, 64, 1, 256),
}
_FURTHER = {
    "gemma3_text": {"sliding_window": 4096},
    "gemma3n_text": {"sliding_window": 512, "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 15},
    "gemma4_text": {"sliding_window": 512, "hidden_size_per_layer_input": 256},
    "gemma4_unified_text": {"sliding_window": 1024},
    "llama4_text": {
        "intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1,
        "attention_chunk_size": 8192, "interleave_moe_layer_step": 1,
    },
}  # fmt: skip


def language_model(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model of a file, which may hold towers of images or sound beside it.

    What the file says once for all of its parts counts where the part does not say it.
    """
    for _ in range(_MOST_NESTED):
        name = document.get("model_type")
        part = _part_of(document)
        if not part or (isinstance(name, str) and name in TYPES and not _is_empty(document)):
            return document
        inner = dict(document[part])
        inside = _TYPE_INSIDE.get(name) if isinstance(name, str) else None
        if inside and not inner.get("model_type"):
            inner["model_type"] = inside
        common = {
            name: document[name] for name in _COMMON_FIELDS if inner.get(name) is None and name in document
        }
        document = _defaults_of(inner) | {key: value for key, value in inner.items() if value is not None}
        document = document | common
    return document


def _part_of(document: Mapping[str, Any]) -> str:
    """Return the field that holds a language model, "" for none."""
    further = (name for name in document if name.endswith(("text_config", "llm_config", "language_config")))
    names = (*LANGUAGE_MODELS, *further)
    return next((name for name in names if isinstance(document.get(name), dict)), "")


def _is_empty(document: Mapping[str, Any]) -> bool:
    """Say whether a file of a type that is known has all sizes in its inner object."""
    return not any(name in document for name in ("hidden_size", "n_embd", "d_model"))


def _defaults_of(inner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes that an inner object has by default."""
    name = inner.get("model_type")
    if not isinstance(name, str) or name not in _OF_CLASS:
        return {}
    sizes = zip(_SIZES, _OF_CLASS[name], strict=True)
    return {field: size for field, size in sizes if size is not None} | _FURTHER.get(name, {})
