"""Llama 4."""

from __future__ import annotations

from typing import Any

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA
from fastflow.physics.workload.models.transformer.config_json.fields import Fields


def _llama4(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    """Return dense and shared columns; `intermediate_size` is an expert's, and there is a shared expert."""
    experts = known["ffn"]
    fields.flag("use_qk_norm")  # it has no weights
    fields.counts("no_rope_layers")
    return {"ffn": fields.count("intermediate_size_mlp"), "expert_ffn": experts, "shared_ffn": experts}


TYPES = {"llama4_text": LLAMA._replace(windows=4, extra_fields=_llama4)}
