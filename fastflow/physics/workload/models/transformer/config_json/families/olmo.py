"""OLMo: norms after attention and feed-forward (2, 3); hybrids with gated delta nets."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA
from fastflow.physics.workload.models.transformer.config_json.families.qwen import delta_sizes
from fastflow.physics.workload.models.transformer.dimensions import LAYER, POST

TYPES = {
    "olmo": LLAMA._replace(norm=LAYER),
    "olmo2": LLAMA._replace(block=POST, qk_norm=True),
    "olmo3": LLAMA._replace(block=POST, qk_norm=True, windows=4),
    "olmoe": LLAMA._replace(qk_norm=True),
    "flex_olmo": LLAMA._replace(block=POST, qk_norm=True),
    "olmo_hybrid": LLAMA._replace(
        qk_norm=True, mixers={"linear_attention": "gated_delta"}, extra_fields=delta_sizes
    ),
}
