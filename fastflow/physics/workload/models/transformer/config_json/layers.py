"""The kinds of a model's layers, from the fields that config.json files of many families share."""

from __future__ import annotations

from fastflow.core.yaml_file import MistakeError, wrong
from fastflow.physics.workload.models.transformer.config_json.architecture import (
    ABOVE,
    EVERY,
    Architecture,
    Values,
    sized,
)
from fastflow.physics.workload.models.transformer.json_fields import Fields, same_length
from fastflow.physics.workload.models.transformer.layer_kind import (
    ATTENTION,
    DENSE,
    EXPERTS,
    LayerKind,
)
from fastflow.physics.workload.models.transformer.layer_pattern import (
    KV_HEADS,
    unused_if_latent,
    unused_sizes,
)

WINDOW, CHUNKED = "window", "chunked"
LOCAL = (WINDOW, CHUNKED)
"""Mixers whose queries see at most `model.window` keys."""
_MIXERS = {
    "full_attention": ATTENTION, "attention": ATTENTION, "global_attention": ATTENTION,
    "sliding_attention": WINDOW, "local_attention": WINDOW, "chunked_attention": CHUNKED,
}  # fmt: skip
_FEED_FORWARDS = {
    "dense": DENSE, "mlp": DENSE, "sparse": EXPERTS, "moe": EXPERTS, "hash_moe": EXPERTS,
}  # fmt: skip
_WINDOWS = ("sliding_window", "attention_chunk_size", "sliding_window_size", "local_attention")
_PERIODS = (
    "sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval",
    "global_attn_every_n_layers",
)  # fmt: skip
_EXPERTS = (
    "num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts", "num_routed_experts",
)  # fmt: skip
_TOPK = (
    "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k", "moe_topk", "moe_k",
    "top_k_experts",
)  # fmt: skip
_EXPERT_FFN = ("moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size")
_SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
_SHARED_FFN = (
    "shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size",
    "share_expert_dim", "share_expert_dims",
)  # fmt: skip
_OF_EACH = "moe_shared_expert_intermediate_size"
"""Columns of each shared expert; the other fields of _SHARED_FFN count those of all."""
_LATENT = ("moe_latent_size", "routed_expert_hidden_size")
_FIRST = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", "dense_mlp_idx")
OF_LAYER = {
    "num_attention_heads": "heads", "num_key_value_heads": "kv_heads", "head_dim": "head_dim",
    "v_head_dim": "value_dim", "intermediate_size": "ffn", "moe_intermediate_size": "expert_ffn",
}  # fmt: skip
"""Fields that a file may give for a layer alone (`per_layer_config`), and the sizes that they are."""


def layer_kinds(fields: Fields, values: Values, architecture: Architecture) -> list[LayerKind]:
    """Return the kind of each layer; sets the window and the experts in `values`; raises MistakeError."""
    mixers = _mixers(fields, values, architecture)
    has_experts = _expert_layers(fields, values)
    kinds = [
        LayerKind((mixer,), EXPERTS if expert else DENSE)
        for mixer, expert in zip(mixers, has_experts, strict=True)
    ]
    kinds = _own_sizes(fields, values, kinds)
    kinds = architecture.layers(fields, values, kinds) if architecture.layers else kinds
    return [_with_used_sizes(kind, values) for kind in kinds]


def _with_used_sizes(kind: LayerKind, values: Values) -> LayerKind:
    """Return a kind without sizes that it does not use, which files give for all layers alike."""
    unused = {*unused_sizes(kind)}
    if kind.has_experts and values.get("expert_ffn"):
        unused.add("ffn")
    if values.get("latent") and unused_if_latent(kind):
        unused.add(KV_HEADS)
    return kind._replace(sizes=tuple(size for size in kind.sizes if size[0] not in unused))


def _own_sizes(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds with the sizes that a file gives for single layers."""
    of_layers = fields.inside("per_layer_config")
    numbers = {int(name): name for name in of_layers.names() if name.isdecimal() and len(name) < 6}
    for number, name in numbers.items():
        if number < len(kinds):
            layer_fields = of_layers.inside(name)
            sizes = {size: layer_fields.count(field, default=0, least=0) for field, size in OF_LAYER.items()}
            kinds[number] = sized(kinds[number], values, **sizes)
    return kinds


# --- mixers


def _mixers(fields: Fields, values: Values, architecture: Architecture) -> list[str]:
    """Return the mixer of each layer, and set the window's length in `values`."""
    layers, windows = values["layers"], architecture.windows
    window = fields.count(*_WINDOWS, default=0, least=0)
    further = values.get("mtp", 0)
    listed = fields.choices(_MIXERS | dict(architecture.mixers), "layer_types", layers, further)
    period = _period(fields, windows if isinstance(windows, int) else 0, layers)
    above = fields.count("max_window_layers", default=layers, least=0)
    used = fields.flag("use_sliding_window", default=windows != ABOVE) and window > 0
    local = CHUNKED if "attention_chunk_size" in fields else WINDOW
    if listed is None and windows == ABOVE:
        listed = [local if used and i >= above else ATTENTION for i in range(layers)]
    elif listed is None:
        every = windows == EVERY
        is_local = [used and (every or (i + 1) % max(period, 1) > 0) for i in range(layers)]
        listed = [local if has else ATTENTION for has in is_local]
    if any(mixer in LOCAL for mixer in listed) and not window:
        raise MistakeError("a file that gives sliding_window, since its layer_types have one")
    values["window"] = window
    return listed


def _period(fields: Fields, default: int, layers: int) -> int:
    """Return the period of layers of which all but the last see a window; also as letters, LLLG."""
    name, value = fields.value(*_PERIODS)
    if isinstance(value, str):
        if not value or set(value) - set("LG") or value.find("G") + 1 != len(value):
            raise wrong(name, "letters L of local layers, then G of a global layer", value)
        return len(value)
    return min(fields.count(*_PERIODS, default=default, least=0), layers + 1)


# --- experts


def _expert_layers(fields: Fields, values: Values) -> list[bool]:
    """Return which layers have experts, and set their number and sizes in `values`."""
    experts = values.get("experts")  # where the architecture has set it already
    if experts is None:
        experts = fields.same(*_EXPERTS, default=0, least=0)
    if experts < 1:
        fields.skip(*_TOPK, *_EXPERT_FFN, *_SHARED, *_SHARED_FFN, *_FIRST, *_LATENT, "mlp_layer_types")
        return [False] * values["layers"]
    values["experts"] = experts
    for key, names, default in (
        ("topk", _TOPK, None), ("expert_ffn", _EXPERT_FFN, values["ffn"]), ("shared_experts", _SHARED, 0),
        ("expert_latent", _LATENT, 0),
    ):  # fmt: skip
        fields.skip(*names)
        if key not in values:
            values[key] = fields.same(*names, default=default, least=0)
    if "n_group" in fields:
        groups = values["expert_groups"] = fields.count("n_group")
        values["topk_groups"] = fields.count("topk_group", default=groups)
    columns = fields.same(*_SHARED_FFN, default=values.get("shared_ffn", 0), least=0)
    each = columns if _OF_EACH in fields else 0
    values["shared_ffn"] = each * values["shared_experts"] if each else columns
    return _has_experts(fields, values["layers"], values.get("mtp", 0))


def _has_experts(fields: Fields, layers: int, further: int) -> list[bool]:
    """Return which layers have experts."""
    kinds = fields.choices(_FEED_FORWARDS, "mlp_layer_types", layers, further)
    listed = _listed(fields)
    dense_layers = set(fields.counts("mlp_only_layers") or ())
    first, last = fields.same(*_FIRST, default=0, least=0), _last(fields, layers)
    steps = fields.same("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1)
    name, per_layer = fields.value("moe_layer_freq")
    flags = fields.flags("is_moe_layer", layers)
    if kinds is not None:
        return [kind == EXPERTS for kind in kinds]
    if flags is not None:
        return flags
    if isinstance(per_layer, list):
        same_length(name, per_layer, layers)
        return [bool(flag) for flag in fields.counts("moe_layer_freq") or ()]
    period = fields.count("moe_layer_freq", default=1)
    if listed is not None:
        return [i in listed for i in range(layers)]
    return [
        first <= i <= last and i % period == 0 and (i + 1) % steps == 0 and i not in dense_layers
        for i in range(layers)
    ]


def _last(fields: Fields, layers: int) -> int:
    """Return the number of the last layer that may have experts; -1 in a file is the last of all."""
    _, value = fields.value("moe_layer_end_index")
    if isinstance(value, list):
        return max(fields.counts("moe_layer_end_index") or [layers])
    last = fields.count("moe_layer_end_index", default=layers, least=-1)
    return layers if last < 0 else last


def _listed(fields: Fields) -> list[int] | None:
    """Return the numbers of the layers that have experts, from a list or from text such as 3,4,5."""
    name, value = fields.value("moe_layers_enum")
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if not all(part.isdecimal() and len(part) < 6 for part in parts):
            raise wrong(name, "numbers of layers, with commas between them", value)
        return [int(part) for part in parts]
    return fields.counts("moe_layers_enum") or fields.counts("moe_layers")
