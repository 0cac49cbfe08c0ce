"""Mamba and Mamba-2, alone (Mamba, Falcon-Mamba) and with attention (Jamba, Bamba, Falcon-H1, Granite 4)."""

from __future__ import annotations

from functools import partial

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values, with_mixer
from fastflow.physics.workload.models.transformer.dimensions import NO_POSITIONS, ROTARY
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import (
    ATTENTION,
    DENSE,
    EXPERTS,
    NO_FEED_FORWARD,
    LayerKind,
)

MAMBA, NORMED_MAMBA, MAMBA2 = "mamba", "normed_mamba", "mamba2"
MAMBA_MODES = (
    "use_mamba_kernels", "mamba_hidden_act", "mamba_proj_bias", "mamba_conv_bias", "use_conv_bias",
    "time_step_rank", "time_step_limit", "chunk_size", "mamba_chunk_size", "num_logits_to_keep",
    "residual_in_fp32", "rescale_prenorm_residual", "mamba_expand", "moe_shared_expert_overlap",
    "z_loss_coefficient", "mamba_rms_norm", "mamba_norm_before_gate", "projectors_bias", "use_mambapy",
    "use_associative_scan", "mamba_use_mlp", "mamba_state_dtype", "use_bias",
    "mlp_expansion_factor",
)  # fmt: skip
"""Fields of Mamba layers that change no size."""


def _auto(fields: Fields, names: tuple[str, ...], default: int) -> int:
    """Return a whole number, or the default where it is absent or `auto`."""
    _, value = fields.value(*names)
    return default if value in (None, "auto") else fields.count(*names)


def mamba2_sizes(fields: Fields, known: Values) -> Values:
    """Return the sizes of Mamba-2 layers."""
    fields.skip(*MAMBA_MODES)
    inner = fields.count("mamba_d_ssm", default=fields.count("mamba_expand", default=2) * known["hidden"])
    heads = fields.count("mamba_n_heads", "n_mamba_heads")
    return {
        "linear_heads": heads,
        "linear_value_dim": _auto(fields, ("mamba_d_head", "mamba_headdim"), max(inner // heads, 1)),
        "linear_key_dim": fields.count("mamba_d_state"),
        "linear_key_heads": fields.count("mamba_n_groups", "mamba_ngroups", default=1),
        "conv_width": fields.count("mamba_d_conv", default=4),
    }


def mamba_sizes(fields: Fields, known: Values) -> Values:
    """Return the sizes of Mamba layers, whose heads are channels."""
    fields.skip(*MAMBA_MODES)
    rank = -(-known["hidden"] // 16)
    return {
        "linear_heads": fields.count("mamba_expand", default=2) * known["hidden"],
        "linear_key_dim": fields.count("mamba_d_state", default=16),
        "linear_rank": _auto(fields, ("mamba_dt_rank",), rank),
        "conv_width": fields.count("mamba_d_conv", default=4),
    }


def _alone(fields: Fields, known: Values) -> Values:
    """Return the sizes of a model of Mamba layers alone, which have no feed-forward parts."""
    fields.skip(*MAMBA_MODES, "intermediate_size", "d_inner")
    inner = fields.count("intermediate_size", "d_inner", default=2 * known["hidden"])
    rank = -(-known["hidden"] // 16)
    return {
        "ffn": 0, "linear_heads": inner,
        "linear_key_dim": fields.count("state_size", "d_state", default=16),
        "linear_rank": _auto(fields, ("time_step_rank",), rank),
        "conv_width": fields.count("conv_kernel", "d_conv", default=4),
    }  # fmt: skip


def _alone2(fields: Fields, known: Values) -> Values:
    fields.skip(*MAMBA_MODES, "expand", "num_heads")
    head_dim = fields.count("head_dim", default=64)
    heads = fields.count("num_heads", default=fields.count("expand", default=2) * known["hidden"] // head_dim)
    return {
        "ffn": 0, "linear_heads": heads, "linear_value_dim": head_dim,
        "linear_key_dim": fields.count("state_size", default=128),
        "linear_key_heads": fields.count("n_groups", default=1),
        "conv_width": fields.count("conv_kernel", default=4),
    }  # fmt: skip


def _all(mixer: str, fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    return [LayerKind((mixer,), NO_FEED_FORWARD)] * len(kinds)


def _jamba(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds with attention, and with experts, in one layer of each period."""
    attention = _periodic(fields, "attn_layer", 8, 4, len(kinds))
    experts = _periodic(fields, "expert_layer", 2, 1, len(kinds))
    count = values.get("experts", 0)
    return [
        LayerKind((ATTENTION if attends else NORMED_MAMBA,), EXPERTS if mixed and count > 1 else DENSE)
        for attends, mixed in zip(attention, experts, strict=True)
    ]


def _periodic(fields: Fields, name: str, period: int, offset: int, layers: int) -> list[bool]:
    period = fields.count(f"{name}_period", default=period)
    offset = fields.count(f"{name}_offset", default=offset, least=0)
    return [i % period == offset % period for i in range(layers)]


def _bamba(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    listed = fields.counts("attn_layer_indices") or []
    fields.skip("layers_block_type")
    return [kind if i in listed else with_mixer(kind, MAMBA2) for i, kind in enumerate(kinds)]


def _parallel(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    return [with_mixer(kind, ATTENTION, MAMBA2) for kind in kinds]


def _granite4(fields: Fields, known: Values) -> Values:
    """Return the sizes of Granite 4: its shared expert is the dense layer of a model without experts."""
    words = {"rope": ROTARY, "nope": NO_POSITIONS}
    position = fields.choice(words, "position_embedding_type", default=NO_POSITIONS)
    mixture = fields.count("num_local_experts", default=0, least=0)
    dense = {} if mixture else {"ffn": fields.count("shared_intermediate_size", default=known["ffn"])}
    sizes = mamba2_sizes(fields, known) if "mamba_n_heads" in fields else {}
    return {"position": position, **dense, **sizes}


_ALONE = LLAMA._replace(position=NO_POSITIONS, tied=True, extra_fields=_alone)
_LLAMA_MAMBA2 = LLAMA._replace(mixers={"mamba": MAMBA2, "linear_attention": MAMBA2})
TYPES = {
    "jamba": LLAMA._replace(position=NO_POSITIONS, extra_fields=mamba_sizes, layers=_jamba),
    "bamba": LLAMA._replace(extra_fields=mamba2_sizes, layers=_bamba),
    "falcon_h1": LLAMA._replace(extra_fields=mamba2_sizes, layers=_parallel),
    "granitemoehybrid": _LLAMA_MAMBA2._replace(extra_fields=_granite4),
    "mamba": _ALONE._replace(layers=partial(_all, MAMBA)),
    "falcon_mamba": _ALONE._replace(layers=partial(_all, NORMED_MAMBA)),
    "mamba2": LLAMA._replace(position=NO_POSITIONS, extra_fields=_alone2, layers=partial(_all, MAMBA2)),
}  # fmt: skip
