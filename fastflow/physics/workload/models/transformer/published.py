"""`model.dtype=auto`: the data types that a model was published in, or trained in.

A model's file has under `published` the type of its weights (`dtype`, and `experts` if it differs), and the
type in which its products were trained (`training`); a config.json has the weights' type in
`quantization_config` and `torch_dtype`. Serving uses the weights' types, training the training type. Where
the chip does not multiply in a type, training uses the nearest type that it has: bf16, or else fp16 or fp32.
Serving keeps the weights as they are, and products convert them to that type (`data_types.AS_WEIGHTS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastflow.core.errors import InputError
from fastflow.physics.workload.data_types import AS_WEIGHTS, OF_WEIGHTS_ALONE, UNMODELLED, WIDE
from fastflow.physics.workload.models.transformer.layer_kind import EXPERTS as LAYER_OF_EXPERTS
from fastflow.physics.workload.models.transformer.layer_kind import PATTERN
from fastflow.physics.workload.precision import (
    ATTENTION_WEIGHTS,
    AUTO,
    CACHE,
    CACHE_TYPES,
    DEFAULT_GROUP,
    EXPERTS,
    FORMATS,
    GROUP,
    NONE,
    OPERAND,
    ZERO_POINTS,
)

KEY = "model.dtype"
DTYPE, OF_EXPERTS, OF_ATTENTION, OF_CACHE, GROUPS, WITH_ZEROS, TRAINED = (
    f"model.published.{name}"
    for name in ("dtype", "experts", "attention", "cache", "group", "zero_points", "training")
)
PUBLISHED = (DTYPE, OF_EXPERTS, OF_ATTENTION, OF_CACHE, GROUPS, WITH_ZEROS, TRAINED)
"""Leaves that decide the type of `auto`; they are not inputs."""
_FOLLOWING: Mapping[str, tuple[str, Any]] = {
    OF_EXPERTS: (EXPERTS, OPERAND), OF_ATTENTION: (ATTENTION_WEIGHTS, OPERAND), OF_CACHE: (CACHE, OPERAND),
    GROUPS: (GROUP, DEFAULT_GROUP), WITH_ZEROS: (ZERO_POINTS, False),
}  # fmt: skip
"""Of a published property, the key that it sets, where this has its default."""
_RATE = "chip.rate."


def with_types(leaves: Mapping[str, Any], refuses: bool = True) -> Mapping[str, Any]:
    """Return the leaves of a configuration, with the type of model.dtype=auto; raises InputError.

    An explicit type overrides the published types, of modules too. refuses: raise InputError for a published
    type that is not modelled, rather than return `UNMODELLED`.
    """
    if not leaves.keys() & set(PUBLISHED):
        return leaves
    resolved = dict(leaves)
    for name in PUBLISHED:
        resolved.pop(name, None)
    if resolved.get(KEY) != AUTO:
        return resolved
    published = [leaves.get(name) for name in (DTYPE, OF_EXPERTS, OF_ATTENTION)]
    if not refuses and not _trains(leaves) and not all(map(_is_known, published)):
        return resolved | {KEY: UNMODELLED}
    resolved[KEY] = _nearest(leaves)
    if _trains(leaves):
        return resolved
    for name, (key, default) in _FOLLOWING.items():
        value = leaves.get(name)
        if value is not None and resolved.get(key) == default:
            resolved[key] = _held(leaves, _known(str(value))) if default == OPERAND else value
    return resolved


def note_of_types(leaves: Mapping[str, Any]) -> str:
    """Return a note on types that a chip does not multiply in, and what they are computed in; "" for none."""
    if leaves.get(KEY) == AUTO and not leaves.keys() & set(PUBLISHED):
        return ""
    resolved, chip = with_types(leaves, refuses=False), leaves.get("chip.name")
    if resolved.get(KEY) == UNMODELLED:
        return ""  # the reason says it
    notes = []
    if leaves.get(KEY) == AUTO:
        dtype, selected = _type_of_products(leaves), str(resolved[KEY])
        if selected != dtype:
            notes.append(f"{KEY}: {selected}, since {chip} has no {dtype}")
    has_experts = leaves.get("model.experts") or LAYER_OF_EXPERTS in str(leaves.get(PATTERN, ""))
    of_parts = [EXPERTS] * bool(has_experts) + [ATTENTION_WEIGHTS] * ("model.heads" in leaves)
    for key in (KEY, *of_parts):
        weights = str(resolved.get(key))
        computed = _computed_instead(leaves, weights)
        if computed:
            notes.append(f"{key}: {weights} is multiplied in {computed}, since {chip} has no units for it")
    return "; ".join(notes)


def _computed_instead(leaves: Mapping[str, Any], dtype: str) -> str:
    """Return the type that products of a type compute in, "" where it is what the type says."""
    is_known = _has(leaves, dtype) or dtype not in {*AS_WEIGHTS, *OF_WEIGHTS_ALONE}
    if is_known or not any(_has(leaves, name) for name in WIDE):
        return ""
    candidates = FORMATS[AS_WEIGHTS.get(dtype, dtype)].products
    computed = next(name for name in candidates if _has(leaves, name))
    is_said = dtype not in AS_WEIGHTS and (computed == candidates[0] or candidates[0] in WIDE)
    return "" if is_said else computed


def decides_types(leaves: Mapping[str, Any], key: str) -> bool:
    """Say whether a leaf decides the type of model.dtype=auto."""
    keys = (KEY, "model.training", *(key for key, _ in _FOLLOWING.values()))
    decides = key in keys or key.startswith(_RATE)
    return decides and leaves.get(KEY) == AUTO and DTYPE in leaves


def _trains(leaves: Mapping[str, Any]) -> bool:
    """Say whether a point is an iteration of training."""
    return leaves.get("model.training") is True and leaves.get("serve.mode", NONE) == NONE


def _type_of_products(leaves: Mapping[str, Any]) -> str:
    """Return the type of a model's products on a chip that has it; raises InputError."""
    published = str(leaves.get(DTYPE) or WIDE[0])
    if _trains(leaves):
        return str(leaves.get(TRAINED) or (published if published in WIDE else WIDE[0]))
    return _known(published)


def _is_known(published: Any) -> bool:
    return published is None or published in FORMATS or published in CACHE_TYPES


def _known(published: str) -> str:
    """Return a published type; raises InputError for one that is not modelled."""
    if not _is_known(published):
        known = ", ".join(FORMATS)
        raise InputError(KEY, AUTO, f"one of {known}, since the model is published in {published}")
    return published


def _nearest(leaves: Mapping[str, Any]) -> str:
    """Return the type of a model's products, or the nearest type that the chip multiplies in.

    Servers keep narrow weights, and convert them.
    """
    dtype = _type_of_products(leaves)
    if dtype in AS_WEIGHTS and not _has(leaves, dtype) and not _trains(leaves):
        return AS_WEIGHTS[dtype]
    return _held(leaves, dtype)


def _held(leaves: Mapping[str, Any], dtype: str) -> str:
    """Return a type, or the nearest wide type that the chip has instead of one that it lacks."""
    if dtype not in WIDE and not _trains(leaves):
        return dtype
    return next((name for name in (dtype, *WIDE) if _has(leaves, name)), dtype)


def _has(leaves: Mapping[str, Any], dtype: str) -> bool:
    rate = leaves.get(f"{_RATE}{dtype}", 0.0)
    return not isinstance(rate, int | float) or rate > 0.0  # a string is rejected where it is read
