"""Phi."""

from __future__ import annotations

from typing import Any

from fastflow.physics.workload.models.transformer.config_json.architecture import EVERY, GPT, LLAMA
from fastflow.physics.workload.models.transformer.config_json.fields import Fields
from fastflow.physics.workload.models.transformer.dimensions import LAYER, PARALLEL


def _phi(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    return {"qk_norm": fields.flag("qk_layernorm")}


TYPES = {
    "phi": GPT._replace(tied=False, block=PARALLEL, extra_fields=_phi),
    "phi3": LLAMA._replace(windows=EVERY),
    "phimoe": LLAMA._replace(norm=LAYER, windows=EVERY),
}
