"""The properties of the model that a config.json describes, as an architecture reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastflow.core.yaml_file import MistakeError
from fastflow.physics.workload.models.transformer.config_json.architecture import Architecture, Values
from fastflow.physics.workload.models.transformer.config_json.layers import layer_kinds
from fastflow.physics.workload.models.transformer.config_json.sizes import common_sizes
from fastflow.physics.workload.models.transformer.config_json.weight_types import published_in
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import DENSE, LayerKind
from fastflow.physics.workload.models.transformer.layer_pattern import MAX_LAYERS, pattern_text
from fastflow.physics.workload.models.transformer.mixer import MIXERS

TOWERS = (
    "vision_config", "audio_config", "visual", "vision_tower", "mm_vision_tower", "vit_config",
    "vision_cfg", "speech_config", "talker_config", "code2wav_config", "token2wav_config", "img_processor",
    "embd_layer", "audio_processor", "projector_config", "vq_config", "resampler",
)  # fmt: skip
"""Fields that describe another model beside the language model."""
_OF_EXPERTS = (
    "experts", "topk", "expert_ffn", "shared_ffn", "shared_experts", "expert_groups", "topk_groups",
    "expert_latent",
)  # fmt: skip
"""Keys that count where a layer has experts."""
_OF_MIXERS = (
    "query_latent", "window", "compression", "index_heads", "index_dim", "index_topk", "index_block",
    "linear_heads", "linear_key_heads", "linear_key_dim", "linear_value_dim", "linear_rank", "conv_width",
    "adapter_rank",
)  # fmt: skip
"""Keys that count where a layer has a mixer that uses them."""


def values_of(document: Mapping[str, Any], architecture: Architecture) -> tuple[Values, Fields]:
    """Return the properties of a model by the names of their keys, and the fields; raises MistakeError."""
    fields = Fields(document)
    fields.skip("model_type", *TOWERS)
    values = common_sizes(fields, architecture)
    if architecture.extra_fields:
        values |= architecture.extra_fields(fields, values)
    kinds = layer_kinds(fields, values, architecture)
    if not 0 < len(kinds) <= MAX_LAYERS:
        raise MistakeError(f"a file of a model with 1 to {MAX_LAYERS} layers, not {len(kinds)}")
    values |= {"layers": len(kinds), "pattern": pattern_text(kinds)}
    has_dense = any(kind.feed_forward == DENSE for kind in kinds)
    has_others = has_dense or bool(values.get("shared_experts") or values.get("shared_ffn"))
    values |= published_in(fields, len(kinds), bool(values.get("experts")), has_others)
    return _used(values, kinds), fields


def _used(values: Values, kinds: list[LayerKind]) -> Values:
    """Return the properties without those of layers that the model does not have."""
    used = {key for kind in set(kinds) for mixer in kind.mixers for key in MIXERS[mixer].uses}
    unused = {name for name in _OF_MIXERS if f"model.{name}" not in used}
    if not any(kind.has_experts for kind in kinds):
        unused.update(_OF_EXPERTS)
    if "linear_heads" in unused:
        unused.add("state_dtype")
    return {key: value for key, value in values.items() if key not in unused}
