"""Names of models on the hub where their weights are published, such as `meta-llama/Llama-3.1-8B`.

A name stands for the choice of the group `model` that has its architecture and its types of weights.
Checkpoints with the weights in other types (`-FP8`) are not listed: `model.config=FILE` reads theirs.
"""

from __future__ import annotations

import difflib
import re

MODEL = "model"
HUB_NAMES = {
    "bigscience/bloom": "bloom_176b",
    "deepseek-ai/DeepSeek-R1": "deepseek_v3",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3-Base": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3.2": "deepseek_v32",
    "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek_v32",
    "deepseek-ai/DeepSeek-V4-Flash": "deepseek_v4_flash",
    "facebook/bart-large": "bart_large",
    "google-bert/bert-base-uncased": "bert_base",
    "google-bert/bert-large-uncased": "bert_large",
    "google-t5/t5-11b": "t5_11b",
    "google-t5/t5-base": "t5_base",
    "google/flan-t5-xxl": "flan_t5_xxl",
    "google/gemma-3-27b-it": "gemma3_27b",
    "google/gemma-3-27b-pt": "gemma3_27b",
    "google/gemma-4-26B-A4B": "gemma4_26b",
    "google/gemma-4-26B-A4B-it": "gemma4_26b",
    "google/siglip-so400m-patch14-384": "siglip_so400m",
    "google/t5-v1_1-xxl": "flan_t5_xxl",
    "google/vit-large-patch16-224": "vit_l_16",
    "meta-llama/Llama-2-13b-chat-hf": "llama2_13b",
    "meta-llama/Llama-2-13b-hf": "llama2_13b",
    "meta-llama/Llama-2-70b-chat-hf": "llama2_70b",
    "meta-llama/Llama-2-70b-hf": "llama2_70b",
    "meta-llama/Llama-2-7b-chat-hf": "llama2_7b",
    "meta-llama/Llama-2-7b-hf": "llama2_7b",
    "meta-llama/Llama-3.1-405B": "llama3_405b",
    "meta-llama/Llama-3.1-405B-Instruct": "llama3_405b",
    "meta-llama/Llama-3.1-70B": "llama3_70b",
    "meta-llama/Llama-3.1-70B-Instruct": "llama3_70b",
    "meta-llama/Llama-3.1-8B": "llama3_8b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama3_8b",
    "meta-llama/Llama-3.3-70B-Instruct": "llama3_70b",
    "meta-llama/Llama-4-Maverick-17B-128E": "llama4_maverick",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": "llama4_maverick",
    "meta-llama/Llama-4-Scout-17B-16E": "llama4_scout",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "llama4_scout",
    "MiniMaxAI/MiniMax-M2": "minimax_m2_5",
    "MiniMaxAI/MiniMax-M2.1": "minimax_m2_5",
    "MiniMaxAI/MiniMax-M2.5": "minimax_m2_5",
    "MiniMaxAI/MiniMax-M3": "minimax_m3",
    "mistralai/Mixtral-8x22B-Instruct-v0.1": "mixtral_8x22b",
    "mistralai/Mixtral-8x22B-v0.1": "mixtral_8x22b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral_8x7b",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral_8x7b",
    "moonshotai/Kimi-K2-Base": "kimi_k2",
    "moonshotai/Kimi-K2-Instruct": "kimi_k2",
    "moonshotai/Kimi-K2.5": "kimi_k2_5",
    "moonshotai/Kimi-Linear-48B-A3B-Base": "kimi_linear_48b",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": "kimi_linear_48b",
    "mosaicml/mpt-30b": "mpt_30b",
    "mosaicml/mpt-7b": "mpt_7b",
    "nvidia/Nemotron-4-340B-Base": "nemotron4_340b",
    "nvidia/Nemotron-4-340B-Instruct": "nemotron4_340b",
    "nvidia/Nemotron-H-56B-Base-8K": "nemotron_h_56b",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron3_nano_30b",
    "openai/gpt-oss-120b": "gpt_oss_120b",
    "openai/gpt-oss-20b": "gpt_oss_20b",
    "openai/whisper-large-v3": "whisper_large_v3",
    "openai/whisper-large-v3-turbo": "whisper_large_v3_turbo",
    "Qwen/Qwen3-235B-A22B": "qwen3_235b",
    "Qwen/Qwen3-30B-A3B": "qwen3_30b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3_30b",
    "Qwen/Qwen3-30B-A3B-Thinking-2507": "qwen3_30b",
    "Qwen/Qwen3-32B": "qwen3_32b",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3_30b",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "qwen3_next_80b",
    "Qwen/Qwen3-Next-80B-A3B-Thinking": "qwen3_next_80b",
    "Qwen/Qwen3-VL-30B-A3B-Instruct": "qwen3_vl_30b",
    "Qwen/Qwen3-VL-30B-A3B-Thinking": "qwen3_vl_30b",
    "Qwen/Qwen3-VL-8B-Instruct": "qwen3_vl_8b",
    "Qwen/Qwen3-VL-8B-Thinking": "qwen3_vl_8b",
    "Qwen/Qwen3.5-27B": "qwen3_5_27b",
    "Qwen/Qwen3.5-35B-A3B": "qwen3_5_35b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3_5_397b",
    "xai-org/grok-1": "grok1",
    "XiaomiMiMo/MiMo-V2-Flash": "mimo_v2_flash",
    "zai-org/GLM-5": "glm_5",
    "zhipuai/GLM-5": "glm_5",
}
_BY_LOWER_CASE = {name.lower(): choice for name, choice in HUB_NAMES.items()}
_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def with_library_names(value: str) -> str:
    """Return a value of the group `model`, or a list of values, with the library's names; in either case."""
    return _NAME.sub(lambda match: _BY_LOWER_CASE.get(match[0].lower(), match[0]), value)


def library_model(name: str) -> str:
    """Return the choice of the group `model` that has a name on a hub, in either case; "" for none."""
    return _BY_LOWER_CASE.get(name.strip().lower(), "")


def advice_on_hub_name(name: str) -> str:
    """Return the end of an error message for a name that the library lacks: the nearest, and another way."""
    near = difflib.get_close_matches(name.lower(), _BY_LOWER_CASE, n=1, cutoff=0.75)
    known = next((f"; did you mean {hub_name}?" for hub_name in HUB_NAMES if hub_name.lower() in near), "")
    return f"; model=transformer model.config=FILE reads the config.json of another model{known}"
