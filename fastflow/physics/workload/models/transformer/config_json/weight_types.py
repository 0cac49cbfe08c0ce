"""The data types of the weights of a config.json, of its modules and its cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastflow.physics.workload.data_types import WIDE
from fastflow.physics.workload.models.transformer.config_json.quantization_config import (
    Quantized,
    Weights,
    read_quantization,
)
from fastflow.physics.workload.models.transformer.json_fields import Fields

_TORCH = {"float16": "fp16", "torch.float16": "fp16"}  # servers read fp32 as 16 bits too


def published_in(
    fields: Fields, layers: int, has_experts: bool = False, has_others: bool = True
) -> dict[str, Any]:
    """Return the types of weights in a config.json, by the names of `PUBLISHED`.

    has_others: whether a mixture has dense layers or shared experts. Raises MistakeError.
    """
    _, torch = fields.value("torch_dtype", "dtype")
    wide = _TORCH.get(str(torch), WIDE[0])
    _, config = fields.value("quantization_config", "compression_config")
    fields.inside("quantization_config")
    _, of_experts = fields.value("expert_dtype")
    config = config if isinstance(config, dict) else {}
    method = config.get("quant_method")
    if not isinstance(method, str):
        return {"published.dtype": wide}
    quantized = read_quantization(config, method, layers)
    if has_experts and of_experts == "fp4" and quantized.experts.dtype in ("fp8", "fp8_block"):
        quantized = quantized._replace(experts=Weights("mxfp4"))  # of DeepSeek-V4: scales of 8 bits for 32
    return _published(quantized, wide, has_experts, has_others) | _cache_in(config)


def _published(quantized: Quantized, wide: str, has_experts: bool, has_others: bool) -> dict[str, Any]:
    """Return the types of modules; has_others: a mixture has dense layers or shared experts."""
    attention, dense, experts = quantized.attention, quantized.feed_forward, quantized.experts
    if has_experts and not has_others:
        dense = attention
    elif has_experts and quantized.shared.dtype:
        dense = quantized.shared
    values: dict[str, Any] = {"published.dtype": dense.dtype or wide}
    if has_experts and experts.dtype != dense.dtype:
        values["published.experts"] = experts.dtype or wide
    if attention.dtype != dense.dtype:
        values["published.attention"] = attention.dtype or wide
    grouped = [weights for weights in (experts, dense, attention) if weights.group is not None]
    if grouped:
        values |= {"published.group": grouped[0].group, "published.zero_points": grouped[0].zero_points}
    return values


def _cache_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the type of the cache that a file asks for, as TensorRT-LLM and vLLM obey."""
    scheme, algorithm = config.get("kv_cache_scheme"), config.get("kv_cache_quant_algo")
    if isinstance(scheme, dict):
        bits = scheme.get("num_bits")
        algorithm = {("float", 8): "FP8", ("int", 8): "INT8", ("float", 4): "NVFP4"}.get(
            (str(scheme.get("type")), bits if isinstance(bits, int) else 0), algorithm
        )
    dtype = {"FP8": "fp8", "INT8": "int8", "NVFP4": "nvfp4"}.get(str(algorithm).upper())
    return {} if dtype is None else {"published.cache": dtype}
