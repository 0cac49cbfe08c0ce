"""MiniMax: lightning attention beside attention (01, M1), attention (M2), sparse attention (M3)."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values, with_mixer
from fastflow.physics.workload.models.transformer.dimensions import FULL, NO_GATE
from fastflow.physics.workload.models.transformer.json_fields import Fields, same_length
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind

_LIGHTNING, _SPARSE = "lightning", "sparse"
_NORM_TYPE, _OF_LAYER, _OF_HEAD = "qk_norm_type", "per_layer", "per_head"
_NORMS = {name: name for name in (_OF_LAYER, _OF_HEAD)}
_SCALES = (
    "layernorm_full_attention_alpha", "layernorm_full_attention_beta", "layernorm_linear_attention_alpha",
    "layernorm_linear_attention_beta", "layernorm_mlp_alpha", "layernorm_mlp_beta", "full_attn_alpha_factor",
    "full_attn_beta_factor", "linear_attn_alpha_factor", "linear_attn_beta_factor", "mlp_alpha_factor",
    "mlp_beta_factor", "shared_moe_mode", "postnorm", "block_size", "qk_norm_type", "mtp_transformer_layers",
    "mlp_intermediate_size", "num_mtp_modules",
)  # fmt: skip


def _hybrid(fields: Fields, known: Values) -> Values:
    """Return the sizes of lightning attention, which has as many heads as attention."""
    fields.skip(*_SCALES)
    head_dim = known["head_dim"] or known["hidden"] // known["heads"]
    return {"linear_heads": known["heads"], "linear_key_dim": head_dim}


def _lightning_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds by `attn_type_list`: 0 is lightning attention, 1 attention."""
    listed = fields.counts("attn_type_list")
    if listed is None:
        return kinds
    same_length("attn_type_list", listed, len(kinds))
    return [
        kind if is_full else with_mixer(kind, _LIGHTNING) for kind, is_full in zip(kinds, listed, strict=True)
    ]


def _m2(fields: Fields, known: Values) -> Values:
    """Return over which heads a norm of queries and keys goes: per_layer is over all of a layer."""
    fields.skip(*(name for name in _SCALES if name != _NORM_TYPE), "attn_type_list")
    return {"qk_norm_across_heads": fields.choice(_NORMS, _NORM_TYPE, default=_OF_LAYER) == _OF_LAYER}


def _m3(fields: Fields, known: Values) -> Values:
    """Return the sizes of the indexer, and the dense columns; `intermediate_size` is an expert's."""
    fields.skip(*_SCALES, "rotary_dim", "swiglu_alpha", "swiglu_limit", "use_gemma_norm", "use_routing_bias")
    inner = fields.inside("sparse_attention_config")
    block = inner.count("sparse_block_size", default=fields.count("index_block_size", default=1))
    blocks = inner.count(
        "sparse_topk_blocks", default=fields.count("index_topk_blocks", default=0, least=0), least=0
    )
    fields.skip("index_local_blocks")
    heads = inner.count("sparse_num_index_heads", default=fields.count("index_n_heads", default=1))
    return {
        "ffn": fields.count("dense_intermediate_size", default=known["ffn"]), "expert_ffn": known["ffn"],
        "index_heads": heads,
        "index_dim": inner.count("sparse_index_dim", default=fields.count("index_head_dim", default=128)),
        "index_topk": block * blocks,
        "shared_ffn": fields.count("shared_intermediate_size", default=0, least=0),
        "output_gate": FULL if fields.flag("attention_output_gate") else NO_GATE,
    }  # fmt: skip


def _m3_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    inner = fields.inside("sparse_attention_config")
    listed = inner.counts("sparse_attention_freq")
    if listed is None or not inner.flag("use_sparse_attention", default=True):
        return kinds
    same_length("sparse_attention_freq", listed, len(kinds))
    return [with_mixer(kind, _SPARSE) if flag else kind for kind, flag in zip(kinds, listed, strict=True)]


_HYBRID = LLAMA._replace(
    mixers={"linear_attention": _LIGHTNING}, extra_fields=_hybrid, layers=_lightning_layers
)
_M3 = LLAMA._replace(qk_norm=True, mixers={"minimax_m3_sparse": _SPARSE}, extra_fields=_m3, layers=_m3_layers)
TYPES = {
    **dict.fromkeys(("minimax", "minimax_text_01", "minimax_m1"), _HYBRID),
    "minimax_m2": LLAMA._replace(qk_norm=True, extra_fields=_m2),
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl_text"), _M3),
}
