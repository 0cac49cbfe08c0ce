"""Models of linear-time mixers alone, as flash-linear-attention names them, and RWKV-7."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fastflow.core.yaml_file import MistakeError
from fastflow.physics.workload.models.transformer.config_json.architecture import (
    LLAMA,
    Architecture,
    Values,
    with_mixer,
)
from fastflow.physics.workload.models.transformer.dimensions import LAYER, NO_POSITIONS
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind

_MODES = (
    "attn_mode", "expand_k", "expand_v", "hidden_ratio", "feature_map", "use_short_conv", "conv_size",
    "use_output_gate", "clamp_min", "fuse_norm", "fuse_swiglu", "fuse_cross_entropy", "use_gk", "use_gv",
    "elementwise_affine", "use_gate", "num_v_heads", "use_l2warp", "attn", "norm_first", "value_dim",
    "decay_low_rank_dim", "gate_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim", "allow_neg_eigval",
    "use_lower_bound", "qk_activation", "qk_norm", "use_beta", "norm_bias", "fuse_linear_cross_entropy",
)  # fmt: skip
_MULTIPLE = 256


def _expanded(
    expand_k: float, expand_v: float, has_convolution: bool, fields: Fields, known: Values
) -> Values:
    """Return the sizes of a mixer whose heads share hidden columns times an expansion.

    expand_k, expand_v, has_convolution: where the file omits them.
    """
    if fields.inside("attn").names():
        raise MistakeError("a file without attn, layers of attention among those of linear attention")
    fields.skip(*_MODES)
    hidden, heads = known["hidden"], known["heads"]
    ratio = fields.factor("hidden_ratio", default=4.0)
    columns = int(hidden * ratio * 2 / 3)
    key = fields.count("head_dim", default=int(hidden * fields.factor("expand_k", default=expand_k)) // heads)
    value = fields.factor("expand_v", default=expand_v)
    value_dim = int(key * value) if "head_dim" in fields else int(hidden * value) // heads
    return {
        "ffn": known["ffn"] or -(-columns // _MULTIPLE) * _MULTIPLE,
        "linear_heads": heads, "linear_key_heads": fields.count("num_kv_heads", default=heads),
        "linear_key_dim": max(key, 1), "linear_value_dim": max(value_dim, 1),
        "position": NO_POSITIONS, "head_dim": known["head_dim"] or max(hidden // heads, 1),
        **_convolution(fields, has_convolution),
    }  # fmt: skip


def _convolution(fields: Fields, default: bool) -> Values:
    width = fields.count("conv_size", default=4)
    return {"conv_width": width} if fields.flag("use_short_conv", default=default) else {}


def _rwkv7(fields: Fields, known: Values) -> Values:
    fields.skip(*_MODES)
    hidden = known["hidden"]
    head_dim = fields.count("head_dim", "head_size", default=64)
    ratio = fields.factor("hidden_ratio", default=4.0)
    heads = max(hidden // head_dim, 1)
    return {  # its ranks follow from the hidden columns, as in all that its authors published
        "ffn": known["ffn"] or int(hidden * ratio), "heads": heads, "kv_heads": heads, "head_dim": head_dim,
        "linear_heads": heads, "linear_key_dim": head_dim,
    }  # fmt: skip


def _all(mixer: str, fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    return [with_mixer(kind, mixer) for kind in kinds]


def _type(mixer: str, sizes: Callable[[Fields, Values], Values], **properties: Any) -> Architecture:
    return LLAMA._replace(
        position=NO_POSITIONS, extra_fields=sizes, layers=partial(_all, mixer), **properties
    )


TYPES = {
    "gla": _type("gated_linear", partial(_expanded, 0.5, 1.0, False)),
    "retnet": _type("retention", partial(_expanded, 1.0, 2.0, False)),
    "gated_deltanet": _type("gated_delta", partial(_expanded, 1.0, 2.0, True)),
    "kda": _type("kimi_delta", partial(_expanded, 1.0, 1.0, True)),
    "rwkv7": _type("rwkv7", _rwkv7, norm=LAYER, gated=False, activation="relu2"),
}
