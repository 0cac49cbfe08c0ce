"""MiniMax."""

from __future__ import annotations

from typing import Any

from fastflow.core.yaml_file import wrong
from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA
from fastflow.physics.workload.models.transformer.config_json.fields import Fields


def _minimax(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    listed = fields.counts("attn_type_list") or []
    if not all(kind == 1 for kind in listed):
        raise wrong("attn_type_list", "a list of 1, since linear attention is not known", "one with others")
    fields.count("mtp_transformer_layers", "mlp_intermediate_size", default=1, least=0)
    modules = fields.count("num_mtp_modules", default=0, least=0)
    return {
        "mtp": modules if fields.flag("use_mtp", default=True) else 0,
        "qk_norm": fields.flag("use_qk_norm"),
    }


_MINIMAX = LLAMA._replace(extra_fields=_minimax)
TYPES = {
    "minimax": _MINIMAX,
    "minimax_m2": _MINIMAX,
}
