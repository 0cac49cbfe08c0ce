"""Cohere's Command."""

from __future__ import annotations

from typing import Any

from fastflow.physics.workload.models.transformer.config_json.architecture import Architecture
from fastflow.physics.workload.models.transformer.config_json.fields import Fields
from fastflow.physics.workload.models.transformer.dimensions import LAYER, PARALLEL


def _cohere(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    return {"qk_norm": fields.flag("use_qk_norm")}


_COHERE = Architecture(LAYER, PARALLEL, tied=True, extra_fields=_cohere)
TYPES = {
    "cohere": _COHERE,
    "cohere2": _COHERE._replace(windows=4),
}
