"""GPT-2 and its successors: layer norms, a feed-forward layer that is not gated."""

from __future__ import annotations

from typing import Any

from fastflow.core.yaml_file import wrong
from fastflow.physics.workload.models.transformer.config_json.architecture import EVERY, GPT, Architecture
from fastflow.physics.workload.models.transformer.dimensions import (
    ALIBI,
    ALL,
    LAYER,
    LEARNED,
    NO_BIAS,
    PARALLEL,
    PARALLEL_NORMS,
    POST,
    PRE,
    ROTARY,
)
from fastflow.physics.workload.models.transformer.json_fields import Fields


def _gpt2(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    return {"kv_heads": 1 if fields.flag("multi_query") else known["heads"]}


def _gpt_neox(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    parallel = fields.flag("use_parallel_residual", default=True)
    return {"block": PARALLEL_NORMS if parallel else PRE}


def _opt(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    if (projected := fields.count("word_embed_proj_dim", default=known["hidden"])) != known["hidden"]:
        raise wrong("word_embed_proj_dim", f"its hidden_size, {known['hidden']}", projected)
    before = fields.flag("do_layer_norm_before", default=True)
    return {
        "block": PRE if before else POST,
        "biases": ALL if fields.flag("enable_bias", default=True) else NO_BIAS,
    }


def _falcon(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    new, heads = fields.flag("new_decoder_architecture"), known["heads"]
    grouped_heads = fields.count("num_kv_heads", "n_head_kv", default=heads)
    multi_query_heads = 1 if fields.flag("multi_query", default=True) else heads
    norms = fields.count("num_ln_in_parallel_attn", default=2 if new else 1)
    parallel = fields.flag("parallel_attn", default=True) or new
    return {
        "kv_heads": grouped_heads if new else multi_query_heads,
        "block": PRE if not parallel else PARALLEL_NORMS if norms == 2 else PARALLEL,
        "position": ALIBI if fields.flag("alibi") else ROTARY,
        "biases": ALL if fields.flag("bias") else NO_BIAS,
    }  # fmt: skip


_GPT2 = GPT._replace(position=LEARNED, extra_fields=_gpt2)
TYPES = {
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gptj": Architecture(LAYER, PARALLEL, False, activation="gelu"),
    "gpt_neox": GPT._replace(tied=False, extra_fields=_gpt_neox),
    "bloom": GPT._replace(position=ALIBI),
    "opt": GPT._replace(position=LEARNED, activation="relu", extra_fields=_opt),
    "falcon": GPT._replace(biases=NO_BIAS, extra_fields=_falcon),
    "starcoder2": GPT._replace(windows=EVERY),
}
