"""Gemma: norms around each part, windows; caches shared by layers and per-layer embeddings (3n, 4)."""

from __future__ import annotations

from collections import Counter

from fastflow.core.yaml_file import shown, wrong
from fastflow.physics.workload.models.transformer.config_json.architecture import (
    Architecture,
    Values,
    sized,
    with_mixer,
)
from fastflow.physics.workload.models.transformer.config_json.layers import WINDOW
from fastflow.physics.workload.models.transformer.dimensions import SANDWICH
from fastflow.physics.workload.models.transformer.json_fields import Fields, same_length
from fastflow.physics.workload.models.transformer.layer_kind import ATTENTION, EQUAL_KV, SHARED_KV, LayerKind

_NARROW = ("laurel_rank", "altup_num_inputs", "altup_active_idx", "vocab_size_per_layer_input")
_MODES = (
    "altup_correct_scale", "altup_coef_clip", "activation_sparsity_pattern", "use_bidirectional_attention",
)  # fmt: skip


def _embedded(fields: Fields, known: Values) -> Values:
    """Return the columns of per-layer embeddings; AltUp and LAuReL, 0.5% of the weights, are not read."""
    fields.skip(*_NARROW, *_MODES)
    columns = fields.count("hidden_size_per_layer_input", default=0, least=0)
    return {"layer_embedding": columns} if columns else {}


def _shared(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds of which the last ones use keys and values of earlier layers."""
    shared = min(fields.count("num_kv_shared_layers", default=0, least=0), len(kinds) - 1)
    first = len(kinds) - shared
    return [kind._replace(modifiers=(SHARED_KV,)) if i >= first else kind for i, kind in enumerate(kinds)]


def _of_3n(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    name, widths = fields.value("intermediate_size")
    if isinstance(widths, list):
        same_length(name, widths, len(kinds))
        sizes = fields.counts("intermediate_size") or []
        values["ffn"] = Counter(sizes).most_common(1)[0][0]
        kinds = [sized(kind, values, ffn=size) for kind, size in zip(kinds, sizes, strict=True)]
    return _shared(fields, values, kinds)


def _of_4(fields: Fields, known: Values) -> Values:
    values: Values = _embedded(fields, known)
    if fields.flag("enable_moe_block"):
        # a mixture beside the dense layer, each with norms of its own
        return values | {"shared_ffn": known["ffn"], "shared_experts": 0}
    fields.skip("num_experts", "top_k_experts", "moe_intermediate_size")
    return values | {"experts": 0}


def _layers_of_4(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds of Gemma 4: global layers have heads of another size, and perhaps keys that are values."""
    is_equal = fields.flag("attention_k_eq_v")
    head_dim = fields.count("global_head_dim", default=0 if "per_layer_config" in fields else 512)
    kv_heads = fields.count("num_global_key_value_heads", default=0, least=0)
    kind_sizes = {
        "head_dim": head_dim,
        "kv_heads": kv_heads if is_equal or "attention_k_eq_v" not in fields else 0,
    }
    kinds = [_shape_of_4(kind, values, kind_sizes, is_equal) for kind in kinds]
    doubled = fields.flag("use_double_wide_mlp")
    shared = _shared(fields, values, kinds)
    return [
        sized(kind, values, ffn=2 * values["ffn"]) if doubled and SHARED_KV in kind.modifiers else kind
        for kind in shared
    ]


def _shape_of_4(kind: LayerKind, values: Values, kind_sizes: dict[str, int], is_equal: bool) -> LayerKind:
    if kind.mixers != (ATTENTION,):
        return kind
    return sized(kind._replace(modifiers=(EQUAL_KV,) if is_equal else ()), values, **kind_sizes)


_GRIFFIN = {"recurrent": "rg_lru", "attention": WINDOW}


def _griffin(fields: Fields, known: Values) -> Values:
    """Return the sizes of RecurrentGemma: `intermediate_size` counts gate and up together."""
    fields.skip("w_init_variance_scale", "final_w_init_variance_scale", "logits_soft_cap")
    heads = known["heads"]
    width = fields.count("lru_width", default=known["hidden"])
    return {
        "ffn": known["ffn"] // 2, "linear_heads": heads, "linear_value_dim": max(width // heads, 1),
        "linear_key_dim": 1, "conv_width": fields.count("conv1d_width", default=4),
    }  # fmt: skip


def _griffin_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return the kinds of `block_types`, which repeat."""
    name, words = fields.value("block_types", "_block_types")
    words = ["recurrent", "recurrent", "attention"] if words is None else words
    if not isinstance(words, list) or not words or any(str(word) not in _GRIFFIN for word in words):
        raise wrong(name, f"a list of {', '.join(_GRIFFIN)}", shown(words))
    values["window"] = fields.count("attention_window_size", default=2048)
    return [with_mixer(kind, _GRIFFIN[str(words[i % len(words)])]) for i, kind in enumerate(kinds)]


_GEMMA = Architecture(tied=True, activation="gelu")
_GEMMA3 = _GEMMA._replace(block=SANDWICH, qk_norm=True, windows=6)
_GEMMA4 = _GEMMA3._replace(extra_fields=_of_4, layers=_layers_of_4)
TYPES = {
    "gemma": _GEMMA,
    "recurrent_gemma": _GEMMA._replace(extra_fields=_griffin, layers=_griffin_layers),
    "gemma2": _GEMMA._replace(block=SANDWICH, windows=2),
    "vaultgemma": _GEMMA._replace(windows=2),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma3n_text": _GEMMA3._replace(windows=5, extra_fields=_embedded, layers=_of_3n),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
}
