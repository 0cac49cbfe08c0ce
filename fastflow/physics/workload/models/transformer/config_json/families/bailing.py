"""Ling and Ring of Bailing: a mixture (2.0), lightning or Kimi delta attention beside latent attention.

Generation 2.5 has lightning attention (vLLM's bailing_moe_linear.py), generation 3.0 Kimi delta attention
(bailing_moe_v3.py).
"""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values, with_mixer
from fastflow.physics.workload.models.transformer.config_json.families.deepseek import latent_sizes
from fastflow.physics.workload.models.transformer.dimensions import FULL, NO_BIAS, NO_GATE, OF_QKV, PER_HEAD
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind

_MODES = (
    "group_norm_size", "linear_silu", "linear_rope", "use_linear_silu", "linear_attn_norm_group_size",
    "moe_router_enable_expert_bias", "moe_router_enable_routed_scaling", "moe_router_enable_shared_expert",
    "norm_head", "norm_softmax", "multi_gate", "use_rmsnorm", "rope_traditional", "mtp_loss_scaling_factor",
    "num_kv_heads_for_linear_attn", "linear_mode", "linear_scale", "half_rope", "no_kda_lora",
    "kda_safe_gate", "kda_lower_bound", "max_window_layers",
)  # fmt: skip


def _moe(fields: Fields, known: Values) -> Values:
    fields.skip(*_MODES)
    qkv = fields.flag("use_qkv_bias")
    return {"biases": OF_QKV if qkv else NO_BIAS}


def _is_delta(fields: Fields) -> bool:
    """Say whether a file is of the generation whose linear layers are Kimi delta attention."""
    return any(name in fields for name in ("no_kda_lora", "kda_safe_gate", "kda_lower_bound"))


def _hybrid(fields: Fields, known: Values) -> Values:
    """Return the sizes of latent attention where there is any, and of the linear layers."""
    head_dim = known["head_dim"] or known["hidden"] // known["heads"]
    sizes = latent_sizes(fields, known)
    gates = {"head_wise": PER_HEAD, "element_wise": FULL}
    gate = fields.choice(gates, "gated_attention_proj_granularity_type", default=NO_GATE)
    linear: Values = {"linear_heads": known["heads"], "linear_key_dim": head_dim, "output_gate": gate}
    if _is_delta(fields):
        linear["conv_width"] = fields.count("short_conv_kernel_size", default=4)
    return {**_moe(fields, known), **sizes, **linear}


def _hybrid_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds with attention in the last layer of each group, and in a group that is not full."""
    group = fields.count("layer_group_size", default=8)
    mixer = "kimi_delta" if _is_delta(fields) else "lightning"
    whole = len(kinds) // group * group
    return [
        kind if (i + 1) % group == 0 or i >= whole else with_mixer(kind, mixer)
        for i, kind in enumerate(kinds)
    ]


_MOE = LLAMA._replace(extra_fields=_moe)
TYPES = {
    "bailing_moe": _MOE,
    "bailing_moe_v2": _MOE._replace(qk_norm=True),
    **dict.fromkeys(
        ("bailing_hybrid", "bailing_moe_linear", "bailing_moe_v2_5"),
        LLAMA._replace(qk_norm=True, extra_fields=_hybrid, layers=_hybrid_layers),
    ),
}
