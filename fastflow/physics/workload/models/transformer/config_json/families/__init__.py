"""Architectures of published models by their `model_type`, a file a family."""

from __future__ import annotations

from collections.abc import Mapping

from fastflow.physics.workload.models.transformer.config_json.architecture import Architecture
from fastflow.physics.workload.models.transformer.config_json.families import (
    arcee,
    bailing,
    cohere,
    deepseek,
    ernie,
    exaone,
    gemma,
    glm,
    gpt,
    gpt_oss,
    granite,
    hunyuan,
    kimi,
    lfm2,
    linear,
    llama,
    llama4,
    longcat,
    mamba_hybrids,
    mimo,
    minimax,
    mosaic,
    nemotron,
    olmo,
    others,
    phi,
    qwen,
    stablelm,
    step,
)

_FAMILIES = (
    arcee,
    bailing,
    cohere,
    deepseek,
    ernie,
    exaone,
    gemma,
    glm,
    gpt,
    gpt_oss,
    granite,
    hunyuan,
    kimi,
    lfm2,
    linear,
    llama,
    llama4,
    longcat,
    mamba_hybrids,
    mimo,
    minimax,
    mosaic,
    nemotron,
    olmo,
    others,
    phi,
    qwen,
    stablelm,
    step,
)
TYPES: Mapping[str, Architecture] = {
    name: entry for family in _FAMILIES for name, entry in family.TYPES.items()
}
"""By `model_type`."""
