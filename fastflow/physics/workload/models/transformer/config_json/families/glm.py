"""GLM-4."""

from __future__ import annotations

from typing import Any

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA
from fastflow.physics.workload.models.transformer.config_json.fields import Fields
from fastflow.physics.workload.models.transformer.dimensions import OF_QKV, SANDWICH


def _glm4_moe(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    modules = fields.count("num_nextn_predict_layers", default=0, least=0)
    return {"mtp": modules, "qk_norm": fields.flag("use_qk_norm")}


TYPES = {
    "glm4": LLAMA._replace(block=SANDWICH, biases=OF_QKV),
    "glm4_moe": LLAMA._replace(biases=OF_QKV, extra_fields=_glm4_moe),
}
