"""Arcee: AFM with squared ReLU, and Trinity (afmoe) with gated attention and windows."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values
from fastflow.physics.workload.models.transformer.dimensions import FULL, SANDWICH
from fastflow.physics.workload.models.transformer.json_fields import Fields


def _afmoe(fields: Fields, known: Values) -> Values:
    fields.skip("mup_enabled", "load_balance_coeff", "route_norm", "num_expert_groups", "num_limited_groups")
    return {"output_gate": FULL}


TYPES = {
    "arcee": LLAMA._replace(gated=False, activation="relu2"),
    "afmoe": LLAMA._replace(block=SANDWICH, qk_norm=True, windows=4, extra_fields=_afmoe),
}
