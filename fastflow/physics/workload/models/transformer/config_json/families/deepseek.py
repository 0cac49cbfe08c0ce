"""DeepSeek: latent attention, an indexer that selects its keys (V3.2), compressed keys (V4)."""

from __future__ import annotations

from functools import partial

from fastflow.core.yaml_file import wrong
from fastflow.physics.workload.models.transformer.config_json.architecture import (
    LLAMA,
    Values,
    dense_first,
    sized,
    with_mixer,
)
from fastflow.physics.workload.models.transformer.dimensions import FULL
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind

_WITHOUT_MEANING = (
    "qk_head_dim", "rope_interleave", "indexer_rope_interleave", "ep_size",
    "index_topk_freq", "index_skip_topk_offset", "index_topk_pattern", "indexer_types", "num_hash_layers",
    "scale_fmt", "expert_dtype", "lm_head", "rm_head", "index_share_for_mtp_iteration",
    "dim_model_base", "scale_depth",
)  # fmt: skip


def latent_sizes(fields: Fields, known: Values) -> Values:
    """Return the sizes of latent attention; none where the file has attention of heads instead."""
    if not fields.flag("use_mla", default=True) or "kv_lora_rank" not in fields:
        fields.skip("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        return {}
    fields.skip(*_WITHOUT_MEANING)
    return {
        "latent": fields.count("kv_lora_rank"),
        "query_latent": fields.count("q_lora_rank", default=0, least=0),
        "rotary": fields.count("qk_rope_head_dim", default=0, least=0),
        "head_dim": fields.count("qk_nope_head_dim"),
        "value_dim": fields.count("v_head_dim"),
        "kv_heads": 0,
        "qk_norm": False,  # norms of the latent vectors are part of latent attention
    }


def indexed_sizes(fields: Fields, known: Values) -> Values:
    """Return the sizes of latent attention to the keys that an indexer selects."""
    sizes = latent_sizes(fields, known)
    if not sizes or "index_topk" not in fields:
        return sizes
    return sizes | {
        "index_heads": fields.count("index_n_heads"),
        "index_dim": fields.count("index_head_dim"),
        "index_topk": fields.count("index_topk"),
    }


def _sparse_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    return [with_mixer(kind, "sparse") for kind in kinds] if values.get("index_topk") else kinds


_COMPRESSED = "compressed"
_V4_WORDS = {
    "sliding_attention": _COMPRESSED,
    "compressed_sparse_attention": _COMPRESSED, "heavily_compressed_attention": _COMPRESSED,
}  # fmt: skip
_RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_SELECTED_UP_TO = 16
"""Compression up to which an indexer selects among the compressed keys; beyond it, queries see all."""


def _v4(fields: Fields, known: Values) -> Values:
    """Return the sizes of DeepSeek-V4: one head of keys that are values, low-rank queries and outputs."""
    fields.skip(
        *_WITHOUT_MEANING, "moe_layer_freq", "hc_sinkhorn_iters", "compress_rope_theta", "qk_rope_head_dim"
    )
    return {
        "kv_heads": fields.count("num_key_value_heads", default=1),
        "query_latent": fields.count("q_lora_rank", default=0, least=0),
        "rotary": fields.count("qk_rope_head_dim", default=known["head_dim"]),
        "output_groups": fields.count("o_groups", default=1),
        "output_latent": fields.count("o_lora_rank", default=0, least=0),
        "index_heads": fields.count("index_n_heads", default=0, least=0),
        "index_dim": fields.count("index_head_dim", default=0, least=0),
        "streams": fields.count("hc_mult", default=1),
        "ffn": fields.count("intermediate_size", "moe_intermediate_size"),
        "expert_ffn": fields.count("moe_intermediate_size"),
    }


def _v4_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds with the compression of each layer, and an indexer where it is small."""
    topk = fields.count("index_topk", default=0, least=0)
    return [
        _v4_kind(kind, ratio, topk, values)
        for kind, ratio in zip(kinds, _ratios(fields, values), strict=True)
    ]


def _v4_kind(kind: LayerKind, ratio: int, topk: int, values: Values) -> LayerKind:
    sizes = {"compression": ratio}  # 0: the window alone
    if 0 < ratio <= _SELECTED_UP_TO and topk:
        sizes["index_topk"] = topk
    return sized(with_mixer(kind, _COMPRESSED), values, **sizes)


def _ratios(fields: Fields, values: Values) -> list[int]:
    """Return how many tokens' keys become one in each layer, 0 for layers with a window alone."""
    layers = values["layers"]
    listed = fields.counts("compress_ratios")
    rates = fields.inside("compress_rates")
    names = [name for name in _RATIOS if name in rates.names()]
    of_words = _RATIOS | {name: rates.count(name) for name in names}
    words = fields.choices(of_words, "layer_types", layers, len(listed or ()))
    if words is not None:
        return words
    if listed is None or not layers <= len(listed) <= layers + values.get("mtp", 0):
        raise wrong("compress_ratios", f"a list with an entry for each of the {layers} layers", listed)
    return listed[:layers]


_LATENT = LLAMA._replace(extra_fields=latent_sizes)
_SPARSE = LLAMA._replace(
    mixers={"indexed_attention": "sparse", "deepseek_sparse_attention": "sparse"},
    extra_fields=indexed_sizes,
    layers=_sparse_layers,
)


def _gated(streams: bool, fields: Fields, known: Values) -> Values:
    """Return the sizes of sparse latent attention with a gated output, perhaps with residual streams."""
    fields.skip("gated_norm_rank", "hc_magnitude", "learnable_sink_init")
    more = {"streams": fields.count("hc_mult", default=1)} if streams else {}
    return {**indexed_sizes(fields, known), "output_gate": FULL, **more}


def _gated_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    return dense_first(fields, values, _sparse_layers(fields, values, kinds))


TYPES = {
    "axk2": _SPARSE._replace(extra_fields=partial(_gated, False), layers=_gated_layers),
    "hy_v4": _SPARSE._replace(extra_fields=partial(_gated, True), layers=_gated_layers),
    **dict.fromkeys(("deepseek", "deepseek_ocr2_text"), LLAMA),
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "kimi_k2", "axk1", "mistral4", "youtu", "minicpm3", "glm4_moe_lite"),
        _LATENT,
    ),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), _SPARSE),
    "deepseek_v4": LLAMA._replace(mixers=_V4_WORDS, extra_fields=_v4, layers=_v4_layers),
}  # fmt: skip
