"""StableLM."""

from __future__ import annotations

from typing import Any

from fastflow.physics.workload.models.transformer.config_json.architecture import Architecture
from fastflow.physics.workload.models.transformer.dimensions import LAYER, NO_BIAS, OF_QKV, PARALLEL, PRE
from fastflow.physics.workload.models.transformer.json_fields import Fields


def _stablelm(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    parallel = fields.flag("use_parallel_residual")
    qkv = fields.flag("use_qkv_bias")
    return {
        "block": PARALLEL if parallel else PRE,
        "qk_norm": fields.flag("qk_layernorm"),
        "biases": OF_QKV if qkv else NO_BIAS,
    }


TYPES = {"stablelm": Architecture(LAYER, extra_fields=_stablelm)}
