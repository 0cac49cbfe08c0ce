"""`model.dtype=auto`: the data types that a model was published in, or trained in.

A model's file has under `published` the type of its weights (`dtype`, and `experts` if it differs), and the
type in which its products were trained (`training`); a config.json has the weights' type in
`quantization_config` and `torch_dtype`. Serving uses the weights' types, training the training type. Where
the chip does not multiply in a type, products use the nearest type that it has: bf16, or else fp16 or fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastflow.core.errors import InputError
from fastflow.physics.workload.models.transformer.config_json.fields import Fields
from fastflow.physics.workload.precision import AUTO, FORMATS, NONE, OPERAND

KEY, EXPERTS = "model.dtype", "precision.experts"
DTYPE, OF_EXPERTS, TRAINED = (f"model.published.{name}" for name in ("dtype", "experts", "training"))
PUBLISHED = (DTYPE, OF_EXPERTS, TRAINED)
"""Leaves that decide the type of `auto`; they are not inputs."""
WIDE = ("bf16", "fp16", "fp32")
"""Fallback types of a chip that lacks the published type, the nearest first."""
_TORCH = {"float16": "fp16", "torch.float16": "fp16"}  # servers read fp32 as 16 bits too
_RATE = "chip.rate."


def with_types(leaves: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the leaves of a configuration, with the type of model.dtype=auto; raises InputError.

    An explicit type overrides the published type, of experts too.
    """
    if not leaves.keys() & set(PUBLISHED):
        return leaves
    resolved = {key: value for key, value in leaves.items() if key not in PUBLISHED}
    if resolved.get(KEY) != AUTO:
        return resolved
    dtype, resolved[KEY] = _type_of_products(leaves), _nearest(leaves)
    experts = leaves.get(OF_EXPERTS)
    if (
        experts is not None
        and not _trains(leaves)
        and resolved[KEY] == dtype
        and resolved.get(EXPERTS) == OPERAND
    ):
        resolved[EXPERTS] = experts
    return resolved


def note_of_types(leaves: Mapping[str, Any]) -> str:
    """Return a note on the type of model.dtype=auto where the chip lacks the published type; "" elsewhere."""
    if leaves.get(KEY) != AUTO or not leaves.keys() & set(PUBLISHED):
        return ""
    dtype, selected = _type_of_products(leaves), _nearest(leaves)
    return "" if selected == dtype else f"{KEY}: {selected}, since {leaves.get('chip.name')} has no {dtype}"


def decides_types(leaves: Mapping[str, Any], key: str) -> bool:
    """Say whether a leaf decides the type of model.dtype=auto."""
    decides = key in (KEY, EXPERTS, "model.training") or key.startswith(_RATE)
    return decides and leaves.get(KEY) == AUTO and DTYPE in leaves


def _trains(leaves: Mapping[str, Any]) -> bool:
    """Say whether a point is an iteration of training."""
    return leaves.get("model.training") is True and leaves.get("serve.mode", NONE) == NONE


def _type_of_products(leaves: Mapping[str, Any]) -> str:
    """Return the type of a model's products on a chip that has it; raises InputError."""
    published = str(leaves.get(DTYPE) or WIDE[0])
    if _trains(leaves):
        return str(leaves.get(TRAINED) or (published if published in WIDE else WIDE[0]))
    if published not in FORMATS:
        known = ", ".join(FORMATS)
        raise InputError(KEY, AUTO, f"one of {known}, since the model is published in {published}")
    return published


def _nearest(leaves: Mapping[str, Any]) -> str:
    """Return the type of a model's products, or the nearest type that the chip multiplies in."""
    dtype = _type_of_products(leaves)
    return next((name for name in (dtype, *WIDE) if _has(leaves, name)), dtype)


def _has(leaves: Mapping[str, Any], dtype: str) -> bool:
    rate = leaves.get(f"{_RATE}{dtype}", 0.0)
    return not isinstance(rate, int | float) or rate > 0.0  # a string is rejected where it is read


# --- of a config.json


def published_in(fields: Fields, has_experts: bool) -> dict[str, str]:
    """Return the types of weights in a config.json, by the names of `PUBLISHED`.

    Raises MistakeError.
    """
    _, torch = fields.value("torch_dtype", "dtype")
    wide = _TORCH.get(str(torch), WIDE[0])
    quantized = fields.inside("quantization_config")
    _, method = quantized.value("quant_method")
    if method is None:
        return {"published.dtype": wide}
    dtype = _type_of(quantized, str(method))
    if has_experts and (dtype == "mxfp4" or _leaves_attention(quantized)):
        return {"published.dtype": wide if dtype in FORMATS else dtype, "published.experts": dtype}
    return {"published.dtype": dtype}


def _type_of(quantized: Fields, method: str) -> str:
    """Return the data type of a method of quantisation, in words where it is unknown."""
    _, block = quantized.value("weight_block_size")
    _, algorithm = quantized.value("quant_algo")
    named = {"mxfp4": "mxfp4", "fbgemm_fp8": "fp8", "fp8": "fp8_block" if block else "fp8"}
    if method in named:
        return named[method]
    if algorithm is not None:
        of_modelopt = {"FP8": "fp8", "NVFP4": "nvfp4", "MXFP4": "mxfp4", "FP8_PB_WO": "fp8_block"}
        return of_modelopt.get(str(algorithm).upper(), f"{algorithm} of {method}")
    groups = quantized.inside("config_groups")
    for name in groups.names():
        group = groups.inside(name)
        weights, (_, operands) = group.inside("weights"), group.value("input_activations")
        (_, kind), (_, bits), (_, scales) = (weights.value(name) for name in ("type", "num_bits", "strategy"))
        known = {("float", 8): "fp8_block" if scales == "block" else "fp8", ("float", 4): "nvfp4"}
        if operands is not None:
            known["int", 8] = "int8"
        return known.get(
            (str(kind), bits if isinstance(bits, int) else 0), f"{bits} bits ({kind}) of {method}"
        )
    return method


def _leaves_attention(quantized: Fields) -> bool:
    """Say whether attention is not quantised, so that only experts are."""
    for name in ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers"):
        _, modules = quantized.value(name)
        if isinstance(modules, list) and any("attn" in str(module) for module in modules):
            return True
    return False
