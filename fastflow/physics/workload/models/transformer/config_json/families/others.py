"""Further decoders of Llama's kind."""

from __future__ import annotations

from fastflow.core.yaml_file import MistakeError, shown, wrong
from fastflow.physics.workload.models.transformer.config_json.architecture import (
    ABOVE,
    LLAMA,
    Architecture,
    Values,
    dense_first,
    sized,
)
from fastflow.physics.workload.models.transformer.dimensions import (
    ALIBI,
    ALL,
    FULL,
    LAYER,
    NO_GATE,
    OF_QKV,
    PER_HEAD,
    ROTARY,
    SANDWICH,
)
from fastflow.physics.workload.models.transformer.json_fields import Fields, same_length
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind


def _qwen1(fields: Fields, known: Values) -> Values:
    """Return the columns of Qwen (of 2023), whose file counts those of gate and up together."""
    fields.skip("no_bias", "seq_length", "use_dynamic_ntk", "use_logn_attn")
    return {"ffn": known["ffn"] // 2}


def _baichuan(fields: Fields, known: Values) -> Values:
    # the 13B models, of 5120 hidden columns, have ALiBi, and their files no max_position_embeddings
    return {"position": ALIBI if known["hidden"] == 5120 else ROTARY}


def _doge(fields: Fields, known: Values) -> Values:
    if fields.flag("is_moe"):
        raise MistakeError("a file without is_moe, a mixture of Doge's own kind")
    fields.skip("keep_window_size", "num_experts", "num_experts_per_tok")
    return {"experts": 0}


def _minicpm(fields: Fields, known: Values) -> Values:
    fields.skip("sparse_config", "scale_depth", "dim_model_base", "scale_emb", "mup_denominator")
    return {}


def _minicpm_v(fields: Fields, known: Values) -> Values:
    fields.skip("image_size", "query_num", "slice_config", "drop_vision_last_layer", "vision_batch_size")
    fields.skip("batch_vision_input", "use_image_id", "audio_pool_step", "audio_chunk_length", "tts_config")
    fields.skip("init_audio", "init_vision", "init_tts", "insert_layer_id", "merger_times")
    return {}


def _laguna(fields: Fields, known: Values) -> Values:
    """Return the gate of attention's output: a number a head, or a column."""
    name, gating = fields.value("gating")
    if gating is not None and not isinstance(gating, bool | str):
        raise wrong(name, "true, false or text", shown(gating))
    fields.skip("swa_attention_sink_enabled", "qkv_bias", "moe_apply_router_weight_on_input")
    of_columns = gating in ("elementwise", "per-element")
    gate = NO_GATE if gating is False else FULL if of_columns else PER_HEAD
    return {"output_gate": gate}


def _laguna_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return kinds with the heads of each layer."""
    heads = fields.counts("num_attention_heads_per_layer")
    kinds = dense_first(fields, values, kinds)
    if heads is None:
        return kinds
    same_length("num_attention_heads_per_layer", heads, len(kinds))
    return [sized(kind, values, heads=count) for kind, count in zip(kinds, heads, strict=True)]


def _aria(fields: Fields, known: Values) -> Values:
    return {"expert_ffn": known["ffn"]}


_QKV = LLAMA._replace(biases=OF_QKV)
TYPES = {
    "seed_oss": _QKV,
    "dots1": LLAMA._replace(qk_norm=True, windows=ABOVE),
    "grok-1": Architecture(block=SANDWICH, activation="gelu"),
    **dict.fromkeys(
        (
            "internlm", "internlm2", "internlm3", "helium", "cwm", "hyperclovax", "solar", "xverse", "orion",
            "yi", "aquila", "telechat2", "mellum", "solar_open",
            "diffllama", "paddleocr_vl_text", "emu3_text_model",
        ),
        LLAMA,
    ),
    "apertus": LLAMA._replace(gated=False, activation="gelu", qk_norm=True),
    "nanochat": LLAMA._replace(gated=False, activation="relu2"),
    "jais2": LLAMA._replace(norm=LAYER, gated=False, activation="relu2", biases=ALL),
    "persimmon": LLAMA._replace(norm=LAYER, gated=False, activation="relu2", biases=ALL, qk_norm=True),
    "bitnet": LLAMA._replace(activation="relu2"),
    "doge": LLAMA._replace(extra_fields=_doge),
    "qwen": _QKV._replace(extra_fields=_qwen1),
    "baichuan": LLAMA._replace(extra_fields=_baichuan),
    "minicpm": LLAMA._replace(extra_fields=_minicpm),
    **dict.fromkeys(("minicpmv", "minicpmo"), LLAMA._replace(windows=ABOVE, extra_fields=_minicpm_v)),
    "laguna": LLAMA._replace(qk_norm=True, extra_fields=_laguna, layers=_laguna_layers),
    "aria_text": LLAMA._replace(extra_fields=_aria),
}  # fmt: skip
