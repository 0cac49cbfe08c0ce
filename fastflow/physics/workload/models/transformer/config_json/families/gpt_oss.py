"""gpt-oss: windows with sinks in every other layer, experts with biases."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values
from fastflow.physics.workload.models.transformer.dimensions import ALL
from fastflow.physics.workload.models.transformer.json_fields import Fields


def _modes(fields: Fields, known: Values) -> Values:
    fields.skip("initial_context_length", "swiglu_limit", "experts_per_token")
    return {}


TYPES = {"gpt_oss": LLAMA._replace(biases=ALL, windows=2, extra_fields=_modes)}
