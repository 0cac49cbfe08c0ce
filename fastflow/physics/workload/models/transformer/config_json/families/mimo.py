"""MiMo: windows whose layers have heads of their own (V2)."""

from __future__ import annotations

from fastflow.core.yaml_file import MistakeError
from fastflow.physics.workload.models.transformer.config_json.architecture import (
    ABOVE,
    LLAMA,
    Values,
    dense_first,
    sized,
    with_mixer,
)
from fastflow.physics.workload.models.transformer.config_json.layers import WINDOW
from fastflow.physics.workload.models.transformer.dimensions import OF_QKV
from fastflow.physics.workload.models.transformer.json_fields import Fields, same_length
from fastflow.physics.workload.models.transformer.layer_kind import ATTENTION, LayerKind

_MODES = (
    "add_full_attention_sink_bias", "add_swa_attention_sink_bias", "attention_value_scale",
    "hybrid_block_size", "attention_projection_layout", "swa_rope_theta", "use_mrope",
)  # fmt: skip
_OF_WINDOWS = {
    "heads": "swa_num_attention_heads", "kv_heads": "swa_num_key_value_heads", "head_dim": "swa_head_dim",
    "value_dim": "swa_v_head_dim",
}  # fmt: skip


def _v2(fields: Fields, known: Values) -> Values:
    fields.skip(*_MODES)
    return {"value_dim": fields.count("v_head_dim", default=0, least=0)}


def _v2_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds by `hybrid_layer_pattern`, where 1 is a window; layers with windows have own heads."""
    listed = fields.counts("hybrid_layer_pattern")
    if listed is not None:
        same_length("hybrid_layer_pattern", listed, len(kinds))
        if any(listed) and not values["window"]:
            raise MistakeError("a file that gives sliding_window, since its hybrid_layer_pattern has one")
        kinds = [
            with_mixer(kind, WINDOW) if flag else with_mixer(kind, ATTENTION)
            for kind, flag in zip(kinds, listed, strict=True)
        ]
    kinds = dense_first(fields, values, kinds)
    window_sizes = {size: fields.count(name, default=0, least=0) for size, name in _OF_WINDOWS.items()}
    return [sized(kind, values, **window_sizes) if kind.mixers == (WINDOW,) else kind for kind in kinds]


TYPES = {
    "mimo": LLAMA._replace(biases=OF_QKV, windows=ABOVE),
    **dict.fromkeys(("mimo_v2_flash", "mimo_v2"), LLAMA._replace(extra_fields=_v2, layers=_v2_layers)),
}
