"""MPT and DBRX."""

from __future__ import annotations

from typing import Any

from fastflow.physics.workload.models.transformer.config_json.architecture import (
    ACTIVATIONS,
    GPT,
    Architecture,
)
from fastflow.physics.workload.models.transformer.dimensions import (
    ALIBI,
    ALL,
    LAYER,
    LEARNED,
    NO_BIAS,
    ROTARY,
)
from fastflow.physics.workload.models.transformer.json_fields import Fields


def _mpt(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    attention = fields.inside("attn_config")
    ratio = fields.factor("expansion_ratio", default=4.0)
    return {
        "ffn": int(ratio * known["hidden"]),
        "kv_heads": attention.count("kv_n_heads", default=_mpt_heads(attention, known["heads"])),
        "position": _mpt_position(attention),
        "qk_norm": attention.flag("qk_ln"),
        "biases": NO_BIAS if fields.flag("no_bias", default=True) else ALL,
    }  # fmt: skip


def _mpt_heads(attention: Fields, heads: int) -> int:
    kinds = {"multihead_attention": "all", "grouped_query_attention": "all", "multiquery_attention": "one"}
    return 1 if attention.choice(kinds, "attn_type", default="all") == "one" else heads


def _mpt_position(attention: Fields) -> str:
    if attention.flag("alibi"):
        return ALIBI
    return ROTARY if attention.flag("rope") else LEARNED


def _dbrx(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    attention, mixture = fields.inside("attn_config"), fields.inside("ffn_config")
    names = mixture.inside("ffn_act_fn")
    return {
        "kv_heads": attention.count("kv_n_heads", default=known["heads"]),
        "ffn": mixture.count("ffn_hidden_size"),
        "experts": mixture.count("moe_num_experts"),
        "topk": mixture.count("moe_top_k"),
        "activation": names.choice(ACTIVATIONS, "name", default="silu"),
    }


TYPES = {
    "mpt": GPT._replace(biases=NO_BIAS, extra_fields=_mpt),
    "dbrx": Architecture(LAYER, extra_fields=_dbrx),
}
