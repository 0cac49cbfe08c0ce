"""Qwen2 and Qwen3."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import ABOVE, LLAMA
from fastflow.physics.workload.models.transformer.dimensions import OF_QKV

_QWEN2 = LLAMA._replace(biases=OF_QKV, windows=ABOVE)
_QWEN3 = LLAMA._replace(qk_norm=True, windows=ABOVE)
TYPES = {
    "qwen2": _QWEN2,
    "qwen2_moe": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
}
