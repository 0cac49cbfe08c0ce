"""Cohere's Command: attention and feed-forward in parallel after one norm."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import Architecture, Values
from fastflow.physics.workload.models.transformer.dimensions import LAYER, PARALLEL
from fastflow.physics.workload.models.transformer.json_fields import Fields


def _moe(fields: Fields, known: Values) -> Values:
    fields.skip("prefix_dense_sliding_window_pattern", "shared_expert_combination_strategy")
    dense = fields.count("prefix_dense_intermediate_size", default=known["ffn"])
    return {"ffn": dense, "expert_ffn": known["ffn"]}


_COHERE = Architecture(LAYER, PARALLEL, tied=True)
TYPES = {
    "cohere": _COHERE,
    "cohere2": _COHERE._replace(windows=4),
    "cohere2_moe": _COHERE._replace(windows=4, extra_fields=_moe),
}
