"""Qwen: gated delta nets with every fourth layer of gated attention from Qwen3-Next on (Qwen3.5, 3.6)."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import (
    ABOVE,
    LLAMA,
    STATE_TYPES,
    Values,
    with_mixer,
)
from fastflow.physics.workload.models.transformer.dimensions import FULL, NO_GATE, OF_QKV
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind

_INTERVAL = 4
_SHARED = "shared_expert_intermediate_size"


def delta_sizes(fields: Fields, known: Values) -> Values:
    """Return the sizes of gated delta nets."""
    fields.skip("mtp_use_dedicated_embeddings", "linear_allow_neg_eigval", "linear_conv_bias")
    fields.skip(
        "linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"
    )
    return {
        "linear_heads": fields.count("linear_num_value_heads"),
        "linear_key_heads": fields.count("linear_num_key_heads"),
        "linear_key_dim": fields.count("linear_key_head_dim"),
        "linear_value_dim": fields.count("linear_value_head_dim"),
        "conv_width": fields.count("linear_conv_kernel_dim", default=4),
        "state_dtype": fields.choice(STATE_TYPES, "mamba_ssm_dtype", default="fp32"),
    }


def _next(fields: Fields, known: Values) -> Values:
    gate = FULL if fields.flag("attn_output_gate", default=True) else NO_GATE
    return delta_sizes(fields, known) | _shared_gate(fields, known) | {"output_gate": gate}


def _shared_gate(fields: Fields, known: Values) -> Values:
    """Return whether shared experts have a gate: Qwen's have, where there are any."""
    return {"shared_gate": _SHARED in fields}


def _linear_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds of which the last of each interval has attention, where the file does not list them."""
    interval = fields.count("full_attention_interval", default=_INTERVAL)
    if "layer_types" in fields:
        return kinds
    return [
        kind if (i + 1) % interval == 0 else with_mixer(kind, "gated_delta") for i, kind in enumerate(kinds)
    ]


_QWEN2 = LLAMA._replace(biases=OF_QKV, windows=ABOVE)
_QWEN3 = LLAMA._replace(qk_norm=True, windows=ABOVE)
_NEXT = LLAMA._replace(
    qk_norm=True, mixers={"linear_attention": "gated_delta"}, extra_fields=_next, layers=_linear_layers
)
TYPES = {
    **dict.fromkeys(
        (
            "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text",
            "qwen2_5_omni_text", "qwen2_audio_text",
        ),
        _QWEN2,
    ),
    "qwen2_moe": _QWEN2._replace(extra_fields=_shared_gate),
    **dict.fromkeys(
        (
            "qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_omni_moe_text",
            "qwen3_asr_text",
        ),
        _QWEN3,
    ),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe"), _NEXT
    ),
}  # fmt: skip
