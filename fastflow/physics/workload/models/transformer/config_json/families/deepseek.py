"""DeepSeek-V2 and V3: latent attention; Kimi K2 is of this kind."""

from __future__ import annotations

from typing import Any

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA
from fastflow.physics.workload.models.transformer.config_json.fields import Fields


def _latent(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of DeepSeek's latent attention, and its MTP modules."""
    return {
        "latent": fields.count("kv_lora_rank"),
        "query_latent": fields.count("q_lora_rank", default=0),
        "rotary": fields.count("qk_rope_head_dim"),
        "head_dim": fields.count("qk_nope_head_dim"),
        "value_dim": fields.count("v_head_dim"),
        "kv_heads": 0,
        "mtp": fields.count("num_nextn_predict_layers", default=0, least=0),
    }


_DEEPSEEK = LLAMA._replace(extra_fields=_latent)
TYPES = {
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
}
