"""Step-3: queries of two factors. Step 3.5 and 3.7: windows with heads of their own, a gate for each head.

Step-3 has one head of keys, whatever its file says (sgl-project/sglang@0171cdf, srt/models/step3_vl.py).
"""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import (
    LLAMA,
    Values,
    dense_first,
    sized,
)
from fastflow.physics.workload.models.transformer.config_json.layers import WINDOW
from fastflow.physics.workload.models.transformer.dimensions import NO_GATE, PER_HEAD
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind

_MODES = (
    "att_impl_type", "use_moe_router_bias", "need_fp32_gate", "moe_layer_offset", "moe_every_n_layer",
    "sink", "sliding_window_pattern", "share_q_dim", "norm_expert_weight", "yarn_only_types",
    "partial_rotary_factors", "swiglu_limits", "swiglu_limits_shared", "use_rope_layers", "mtp_layer_types",
    "mtp_mlp_layer_types", "partial_rotary_factor", "enable_sliding_window", "use_moe",
)  # fmt: skip


def _flash(fields: Fields, known: Values) -> Values:
    """Return the gate of each head, and the first layer with experts where the file does not list them."""
    fields.skip(*_MODES)
    gated = fields.flag("use_head_wise_attn_gate", "gating", default=True)
    fields.skip("gating")
    return {"output_gate": PER_HEAD if gated else NO_GATE}


def _flash_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds of which those with windows have heads of their own."""
    other = fields.inside("attention_other_setting")
    other.skip("attention_type", "true_head_dim")
    window_sizes = {
        "heads": other.count(
            "num_attention_heads", default=fields.count("num_sliding_attention_heads", default=0)
        ),
        "kv_heads": other.count("num_attention_groups", default=0, least=0),
        "head_dim": other.count("head_dim", default=0, least=0),
    }
    kinds = dense_first(fields, values, kinds, _DENSE)
    return [sized(kind, values, **window_sizes) if kind.mixers == (WINDOW,) else kind for kind in kinds]


def _factored(fields: Fields, known: Values) -> Values:
    """Return the columns of the factor of queries that heads share; all heads share one of keys."""
    fields.skip("num_attention_groups")
    return {"query_latent": fields.count("share_q_dim", default=2048), "kv_heads": 1}


def _factored_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds of which the first is dense, where the file does not list those with experts."""
    return dense_first(fields, values, kinds)


_DENSE = 3  # layers before the first with experts, where the file does not list them

TYPES = {
    "step3_text": LLAMA._replace(extra_fields=_factored, layers=_factored_layers),
    **dict.fromkeys(
        ("step3p5", "step3p7"),
        LLAMA._replace(qk_norm=True, extra_fields=_flash, layers=_flash_layers),
    ),
}
