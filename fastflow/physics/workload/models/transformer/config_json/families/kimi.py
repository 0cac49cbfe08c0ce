"""Kimi Linear and K3: Kimi delta attention, and latent attention in every fourth layer or so."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values, with_mixer
from fastflow.physics.workload.models.transformer.config_json.families.deepseek import (
    indexed_sizes,
    latent_sizes,
)
from fastflow.physics.workload.models.transformer.dimensions import FULL
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind

_DELTA = "kimi_delta"
_INTERVAL = 4


def _delta_sizes(fields: Fields, known: Values) -> Values:
    """Return the sizes of Kimi delta attention, of an object of their own or beside the others."""
    inner = fields.inside("linear_attn_config")
    width = fields.count("linear_conv_kernel_dim", default=4)
    return {
        "linear_heads": inner.count(
            "num_heads", default=fields.count("linear_num_heads", default=known["heads"])
        ),
        "linear_key_dim": inner.count("head_dim", default=fields.count("linear_head_dim", default=128)),
        "conv_width": inner.count("short_conv_kernel_size", default=width),
    }


def _linear(fields: Fields, known: Values) -> Values:
    fields.skip("activation_situ_linear_beta", "attn_res_block_size", "latent_moe_use_norm", "mla_use_nope")
    fields.skip("num_expert_group")
    gate = {"output_gate": FULL} if fields.flag("mla_use_output_gate") else {}
    return {**latent_sizes(fields, known), **_delta_sizes(fields, known), **gate}


def _layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds with attention in the listed layers, which are counted from 1."""
    if "layer_types" in fields:
        return kinds
    inner = fields.inside("linear_attn_config")
    full = inner.counts("full_attn_layers")
    inner.counts("kda_layers")
    has_attention = (
        [i > 0 and i % _INTERVAL == 0 for i in range(len(kinds))]
        if full is None
        else [i + 1 in full for i in range(len(kinds))]
    )
    return [
        kind if full_layer else with_mixer(kind, _DELTA)
        for kind, full_layer in zip(kinds, has_attention, strict=True)
    ]


def _glm_next(fields: Fields, known: Values) -> Values:
    """Return the sizes of GLM-5-Next: sparse latent attention beside Kimi delta attention, and streams."""
    fields.skip("linear_lower_bound", "index_kpool", "index_kpool_always_select_tail", "hc_sinkhorn_iters")
    return {
        **indexed_sizes(fields, known), **_delta_sizes(fields, known),
        "streams": fields.count("hc_mult", default=1),
    }  # fmt: skip


TYPES = {
    "glm5_next_text": LLAMA._replace(
        mixers={"linear_attention": _DELTA, "indexed_attention": "sparse"}, extra_fields=_glm_next
    ),
    "kimi_linear": LLAMA._replace(mixers={"linear_attention": _DELTA}, extra_fields=_linear, layers=_layers),
}
