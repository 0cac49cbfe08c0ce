"""OLMo: norms after attention and feed-forward (2, 3); hybrids with gated delta nets."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA
from fastflow.physics.workload.models.transformer.config_json.families.qwen import delta_sizes
from fastflow.physics.workload.models.transformer.dimensions import LAYER, POST

_NORMED = LLAMA._replace(qk_norm=True, qk_norm_across_heads=True)
"""Norms of queries and keys over all heads (q_norm and k_norm of the authors' modeling files)."""
TYPES = {
    "olmo": LLAMA._replace(norm=LAYER),
    "olmo2": _NORMED._replace(block=POST),
    "olmo3": _NORMED._replace(block=POST, windows=4),
    "olmoe": _NORMED,
    "flex_olmo": _NORMED._replace(block=POST),
    "olmo_hybrid": _NORMED._replace(mixers={"linear_attention": "gated_delta"}, extra_fields=delta_sizes),
}
