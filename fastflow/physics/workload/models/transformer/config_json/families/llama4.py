"""Llama 4: attention within chunks in three layers of four, a shared expert."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values, with_mixer
from fastflow.physics.workload.models.transformer.config_json.layers import CHUNKED
from fastflow.physics.workload.models.transformer.json_fields import Fields, same_length
from fastflow.physics.workload.models.transformer.layer_kind import ATTENTION, LayerKind


def _llama4(fields: Fields, known: Values) -> Values:
    """Return dense and shared columns; `intermediate_size` is an expert's, and there is a shared expert."""
    experts = known["ffn"]
    fields.skip(
        "attn_temperature_tuning", "floor_scale", "attn_scale", "use_qk_norm"
    )  # its norm has no weights
    return {
        "ffn": fields.count("intermediate_size_mlp"), "expert_ffn": experts, "shared_ffn": experts,
        "qk_norm": False,
    }  # fmt: skip


def _chunks(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds by `no_rope_layers`: 1 is attention within a chunk, 0 attention without positions."""
    listed = fields.counts("no_rope_layers")
    if not listed or "layer_types" in fields or not values["window"]:
        return kinds
    same_length("no_rope_layers", listed, len(kinds))
    return [
        with_mixer(kind, CHUNKED if flag else ATTENTION) for kind, flag in zip(kinds, listed, strict=True)
    ]


TYPES = {
    "llama4_text": LLAMA._replace(windows=4, extra_fields=_llama4, layers=_chunks),
}
