"""Hunyuan: norms of queries and keys, a shared expert; caches shared by pairs of layers (Large)."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values, dense_first
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import SHARED_KV, LayerKind

_MODES = (
    "moe_layer_num_skipped", "use_mixed_mlp_moe", "capacity_factor", "moe_drop_tokens", "use_cla",
    "cla_share_factor", "mlp_bias", "num_media_embeds", "class_num", "pool_type", "vit_input_resolution",
    "vit_patch", "vit_path", "vit_type", "vit_token", "vit_mapping_type", "vit_norm_type",
    "position_embedding_xdrope",
    "enable_moe_fp32_combine", "enable_lm_head_fp32", "enable_attention_fp32_softmax", "sep_token",
    "use_rotary_pos_emb",
    "org_vocab_size", "group_limited_greedy", "moe_random_routing_dropped_token", "attention_head_dim",
)  # fmt: skip


def _mixture(fields: Fields, known: Values) -> Values:
    fields.skip(*_MODES)
    return {"shared_experts": fields.same("num_shared_expert", "num_shared_experts", default=1, least=0)}


def _shared_caches(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds of which all but the first of each group use its keys and values (use_cla)."""
    if not fields.flag("use_cla"):
        return kinds
    group = fields.count("cla_share_factor", default=2)
    return [kind._replace(modifiers=(SHARED_KV,)) if i % group else kind for i, kind in enumerate(kinds)]


_HUNYUAN = LLAMA._replace(qk_norm=True, extra_fields=_mixture, layers=_shared_caches)
TYPES = {
    **dict.fromkeys(("hunyuan", "hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text"), _HUNYUAN),
    "hy_v3": LLAMA._replace(qk_norm=True, extra_fields=_mixture, layers=dense_first),
}
