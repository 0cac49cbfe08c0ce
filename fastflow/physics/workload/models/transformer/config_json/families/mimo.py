"""MiMo."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import ABOVE, LLAMA, mtp
from fastflow.physics.workload.models.transformer.dimensions import OF_QKV

TYPES = {"mimo": LLAMA._replace(biases=OF_QKV, windows=ABOVE, extra_fields=mtp)}
