"""Sizes that config.json files of all families have, under the names that their authors gave them."""

from __future__ import annotations

from typing import Any

from fastflow.core.yaml_file import wrong
from fastflow.physics.workload.models.transformer.config_json.architecture import (
    ACTIVATIONS,
    Architecture,
    Values,
)
from fastflow.physics.workload.models.transformer.dimensions import ALL, NO_BIAS, OF_ATTENTION
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_pattern import MAX_LAYERS

HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "model_dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "num_attention_groups", "num_query_groups")
_FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
_VOCABULARY = ("vocab_size", "padded_vocab_size")
_POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length",
    "model_max_length", "context_length",
)  # fmt: skip
_ACTIVATION = ("hidden_activation", "hidden_act", "activation_function", "mlp_hidden_act")
_QK_NORM = ("use_qk_norm", "qk_layernorm", "use_qk_layernorm", "qk_norm", "use_query_key_norm")
_PARTIAL = ("partial_rotary_factor", "rotary_pct", "rotary_percent", "rope_pct")
_MTP = (
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers",
    "mtp_num_layers",
)  # fmt: skip
_MOST_MTP = 16


def common_sizes(fields: Fields, architecture: Architecture) -> Values:
    """Return the properties of all model types, by the names of their keys; raises MistakeError."""
    hidden, layers = fields.count(*HIDDEN), fields.count(*LAYERS, default=_listed_layers(fields))
    heads = fields.count(*HEADS, default=1 if architecture.layers else None)
    if layers > MAX_LAYERS:
        raise wrong("num_hidden_layers", f"at most {MAX_LAYERS}", layers)
    head_dim = fields.count("head_dim", "attention_head_dim", "kv_channels", default=0, least=0)
    if not head_dim and hidden % heads and "kv_lora_rank" not in fields:
        raise wrong("num_attention_heads", f"a divisor of its hidden size, {hidden}", heads)
    values = {
        "layers": layers, "hidden": hidden, "heads": heads, "head_dim": head_dim,
        "kv_heads": fields.count(*_KV_HEADS, default=heads), "ffn": _ffn(fields, architecture),
        "vocabulary": fields.count(*_VOCABULARY), "positions": _positions(fields),
        "norm": architecture.norm, "block": architecture.block, "gated": architecture.gated,
        "activation": fields.choice(ACTIVATIONS, *_ACTIVATION, default=architecture.activation),
        "position": architecture.position, "biases": _biases(fields, architecture),
        "qk_norm": fields.flag(*_QK_NORM, default=architecture.qk_norm),
        "qk_norm_across_heads": architecture.qk_norm_across_heads,
        "tied": fields.flag("tie_word_embeddings", "tie_embedding", default=architecture.tied),
    }  # fmt: skip
    return values | _modules(fields) | _partial_rotation(fields, head_dim or hidden // heads)


def _listed_layers(fields: Fields) -> int | None:
    """Return the number of layers of a file that lists their kinds alone."""
    listed = (
        fields.value(name)[1] for name in ("layers_block_type", "layer_types", "hybrid_override_pattern")
    )
    return next((len(kinds) for kinds in listed if isinstance(kinds, list | str) and kinds), None)


def _ffn(fields: Fields, architecture: Architecture) -> int:
    """Return the columns of feed-forward layers; 0 where they follow from others, or a list has them."""
    if architecture.layers and isinstance(fields.value("intermediate_size")[1], list):
        return 0
    return fields.count(*_FFN, default=0, least=0)


def _modules(fields: Fields) -> dict[str, int]:
    """Return the number of multi-token prediction modules, where there are any."""
    modules = min(fields.count(*_MTP, default=0, least=0), _MOST_MTP)
    return {"mtp": modules} if modules and fields.flag("use_mtp", default=True) else {}


def _partial_rotation(fields: Fields, head_dim: int) -> dict[str, int]:
    """Return the columns of a head that positions rotate, where they are not all."""
    rope = fields.inside("rope_parameters")
    default = rope.factor("partial_rotary_factor", default=1.0) if "partial_rotary_factor" in rope else 1.0
    share = fields.factor(*_PARTIAL, default=default)
    columns = fields.count("rotary_dim", default=int(share * head_dim), least=0)
    return {"rotary": columns} if 0 < columns < head_dim and "kv_lora_rank" not in fields else {}


def _positions(fields: Fields) -> int:
    """Return the tokens of the longest sequence, with RoPE scaling of the file; 0 where unknown."""
    most = fields.count(*_POSITIONS, default=0)
    fields.skip("n_ctx")
    scaling: Any = fields.inside("rope_scaling")
    if "factor" not in scaling:
        scaling = fields.inside("rope_parameters")
    before = fields.count("original_max_position_embeddings", default=most)
    before = scaling.count("original_max_position_embeddings", default=before)
    return max(most, int(scaling.factor("factor", default=1.0) * before))


def _biases(fields: Fields, architecture: Architecture) -> str:
    """Return which products have biases."""
    if architecture.biases == ALL:
        return ALL if fields.flag("attention_bias", "use_bias", default=True) else NO_BIAS
    if fields.flag("mlp_bias"):
        return ALL
    names = ("attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "bias")
    if not fields.flag(*names, default=architecture.biases != NO_BIAS):
        return NO_BIAS
    return OF_ATTENTION if architecture.biases == NO_BIAS else architecture.biases
