"""OLMo."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA
from fastflow.physics.workload.models.transformer.dimensions import LAYER, POST

TYPES = {
    "olmo": LLAMA._replace(norm=LAYER),
    "olmo2": LLAMA._replace(block=POST, qk_norm=True),
    "olmoe": LLAMA._replace(qk_norm=True),
}
