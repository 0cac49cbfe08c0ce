"""ERNIE 4.5: dense, with experts, and with further experts for images."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values, dense_first
from fastflow.physics.workload.models.transformer.json_fields import Fields

_IMAGE_TOKENS = ("moe_multimodal_start", "moe_use_hard_gate", "moe_use_aux_free")


def _vl(fields: Fields, known: Values) -> Values:
    """Return the experts of text and images: those of images are counted as so many of text as they weigh.

    Each token chooses among the experts of its own kind; the sizes are lists, of text and of images.
    """
    fields.skip(*_IMAGE_TOKENS)
    numbers = fields.counts("moe_num_experts") if _is_list(fields, "moe_num_experts") else None
    widths = fields.counts("moe_intermediate_size") if _is_list(fields, "moe_intermediate_size") else None
    if not widths or not widths[0]:
        return {}
    numbers = numbers or [fields.count("moe_num_experts")] * len(widths)
    weight = sum(number * width for number, width in zip(numbers, widths, strict=False))
    return {
        "experts": max(round(weight / widths[0]), 1), "topk": fields.count("moe_k", "num_experts_per_tok"),
        "expert_ffn": widths[0],
    }  # fmt: skip


def _is_list(fields: Fields, name: str) -> bool:
    return isinstance(fields.value(name)[1], list)


_ERNIE = LLAMA._replace(tied=True)
TYPES = {
    "ernie4_5": _ERNIE,
    "ernie4_5_moe": _ERNIE,
    **dict.fromkeys(
        ("ernie4_5_vl_moe_text", "ernie4_5_moe_vl"), _ERNIE._replace(extra_fields=_vl, layers=dense_first)
    ),
}
