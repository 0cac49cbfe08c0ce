"""LFM2: short convolutions with gates, and attention in some layers."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values, with_mixer
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind

CONVOLUTION = "short_conv"


def _sizes(fields: Fields, known: Values) -> Values:
    """Return the convolution's width and the columns of feed-forward parts, rounded as the code does."""
    fields.skip("conv_bias", "conv_dim", "conv_dim_out", "block_dim", "block_mlp_init_scale")
    fields.skip("block_out_init_scale", "block_use_swiglu", "block_use_xavier_init", "block_norm_eps")
    fields.skip("use_pos_enc", "theta", "num_heads", "use_expert_bias", "block_ff_dim")
    fields.skip("conv_use_xavier_init")
    columns = fields.count("block_ff_dim", default=known["ffn"])
    if fields.flag("block_auto_adjust_ff_dim", default="block_multiple_of" in fields):
        multiple = fields.count("block_multiple_of", default=256)
        scale = fields.factor("block_ffn_dim_multiplier", default=1.0)
        columns = -(-int(scale * (2 * columns // 3)) // multiple) * multiple
    fields.skip("block_multiple_of", "block_ffn_dim_multiplier")
    return {"conv_width": fields.count("conv_L_cache", default=3), "ffn": columns}


def _layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    listed = fields.counts("full_attn_idxs")
    if listed is None or "layer_types" in fields:
        return kinds
    return [kind if i in listed else with_mixer(kind, CONVOLUTION) for i, kind in enumerate(kinds)]


TYPES = dict.fromkeys(
    ("lfm2", "lfm2_moe"),
    LLAMA._replace(
        qk_norm=True, tied=True, mixers={"conv": CONVOLUTION}, extra_fields=_sizes, layers=_layers
    ),
)
