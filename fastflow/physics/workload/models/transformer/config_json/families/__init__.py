"""Architectures of published models by their `model_type`, a file a family."""

from __future__ import annotations

from collections.abc import Mapping

from fastflow.physics.workload.models.transformer.config_json.architecture import Architecture
from fastflow.physics.workload.models.transformer.config_json.families import (
    cohere,
    deepseek,
    gemma,
    glm,
    gpt,
    granite,
    llama,
    llama4,
    mimo,
    minimax,
    mosaic,
    nemotron,
    olmo,
    phi,
    qwen,
    stablelm,
)

_FAMILIES = (
    cohere,
    deepseek,
    gemma,
    glm,
    gpt,
    granite,
    llama,
    llama4,
    mimo,
    minimax,
    mosaic,
    nemotron,
    olmo,
    phi,
    qwen,
    stablelm,
)
TYPES: Mapping[str, Architecture] = {
    name: entry for family in _FAMILIES for name, entry in family.TYPES.items()
}
"""By `model_type`."""
