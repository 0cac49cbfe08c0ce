"""Encoders of images, by the `model_type` of their config.json: alone, or the tower of a language model.

What the files omit is in the code of huggingface/transformers (models/vit, dinov2, siglip, clip, qwen2_vl,
qwen2_5_vl, qwen3_vl, gemma3, gemma4, internvl, pixtral, mistral3, llama4, glm4v, idefics3, llava), of
OpenGVLab/InternVL (internvl_chat) and moonshotai/Kimi-VL (moonvit). Scales of residual branches (LayerScale)
and the statistics of normalised pixels are too few to count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt
from typing import Any, NamedTuple

from fastflow.core.yaml_file import MistakeError, wrong
from fastflow.physics.workload.models.transformer.config_json.architecture import ACTIVATIONS
from fastflow.physics.workload.models.transformer.config_json.encoders import output_of
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    LAYER,
    LEARNED,
    NO_BIAS,
    OF_ATTENTION,
    PRE,
    RMS,
    ROTARY,
    SANDWICH,
)
from fastflow.physics.workload.models.transformer.encoder.dimensions import (
    DEFAULTS,
    NAME,
    NO_OUTPUT,
    OF_IMAGES,
    POOLER,
    PROBE,
    PROJECTOR,
)
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import LayerKind
from fastflow.physics.workload.models.transformer.layer_pattern import pattern_text

_COMMON: Mapping[str, Any] = {
    **{key.removeprefix("model."): value for key, value in {**DEFAULTS, **OF_IMAGES}.items()},
    "block": PRE, "norm": LAYER, "biases": ALL, "output": NO_OUTPUT, "activation": "gelu",
}  # fmt: skip
_GLM_SHARE = 3  # products of a gated layer


def _side(fields: Fields, name: str, default: int | None = None) -> int:
    """Return a size in pixels or patches, which a file may give for each of two sides."""
    where, value = fields.value(name)
    if isinstance(value, list):
        sides = fields.counts(name) or []
        if not sides or min(sides) < 1 or len({*sides}) > 1:
            raise wrong(where, "a whole number, or two that are equal", str(value))
        return sides[0]
    if isinstance(value, dict):
        return fields.inside(name).count("height", "longest_edge", default=default)
    return fields.count(name, default=default)


def _sizes(fields: Fields, prefix: str = "", ffn: int | None = None) -> dict[str, Any]:
    """Return the sizes that all towers have, by the names of their fields."""
    hidden = fields.count(f"{prefix}hidden_size", "embed_dim")
    heads = fields.count(f"{prefix}num_attention_heads", "num_heads")
    layers = fields.count(f"{prefix}num_hidden_layers", "depth")
    if ffn is None:
        ratio = fields.factor("mlp_ratio", default=4.0)
        ffn = fields.count(f"{prefix}intermediate_size", default=int(ratio * hidden))
    head_dim = fields.count("head_dim", default=0)
    if not head_dim and hidden % heads:
        raise wrong("num_attention_heads", f"a divisor of its hidden size, {hidden}", heads)
    names = ("hidden_act", "hidden_activation", "activation")
    return {
        **_COMMON, "layers": layers, "hidden": hidden, "heads": heads, "ffn": ffn, "head_dim": head_dim,
        "patch": _side(fields, "patch_size"),
        "channels": fields.count("num_channels", "in_channels", "in_chans", default=3),
        "temporal_patch": fields.count("temporal_patch_size", default=1),
        "activation": fields.choice(ACTIVATIONS, *names, default="gelu"),
    }  # fmt: skip


def _positions(fields: Fields, values: dict[str, Any], class_tokens: int) -> dict[str, Any]:
    """Return the image size, the tokens before its patches, and a learned vector for each of them."""
    size = _side(fields, "image_size")
    patches = (size // values["patch"]) ** 2
    if patches < 1:
        raise wrong("image_size", f"at least the {values['patch']} of patch_size", size)
    return {"image_size": size, "class_tokens": class_tokens, "positions": patches + class_tokens,
            "position": LEARNED}  # fmt: skip


def _vit(fields: Fields, class_tokens: int = 1) -> dict[str, Any]:
    values = _sizes(fields)
    values["biases"] = ALL if fields.flag("qkv_bias", default=True) else NO_BIAS
    return values | _positions(fields, values, class_tokens) | output_of(fields, POOLER)


def _dino(fields: Fields) -> dict[str, Any]:
    """Return DINOv2's; its gated layers have 2/3 of the columns, in steps of 8 (Dinov2SwiGLUFFN)."""
    values = _sizes(fields)
    gated = fields.flag("use_swiglu_ffn")
    if gated:
        wide = int(fields.factor("mlp_ratio", default=4.0) * values["hidden"])
        values |= {"ffn": (int(wide * 2 / 3) + 7) // 8 * 8, "gated": True, "activation": "silu"}
    registers = fields.count("num_register_tokens", default=0, least=0)
    return values | _positions(fields, values, 1 + registers) | output_of(fields, NO_OUTPUT)


def _dino3(fields: Fields) -> dict[str, Any]:
    values = _sizes(fields)
    registers = fields.count("num_register_tokens", default=4, least=0)
    where = _positions(fields, values, 1 + registers) | {"positions": 0, "position": ROTARY}
    return values | where | {"gated": fields.flag("use_gated_mlp")} | output_of(fields, NO_OUTPUT)


def _siglip(fields: Fields) -> dict[str, Any]:
    values = _sizes(fields)
    probe = fields.flag("vision_use_head", default=True)
    num_patches = fields.count("num_patches", default=0)
    where = (
        {"image_size": isqrt(num_patches) * values["patch"], "positions": num_patches}
        if num_patches and "image_size" not in fields else _positions(fields, values, 0)
    )  # fmt: skip
    return values | where | {"output": PROBE if probe else NO_OUTPUT}


def _clip(fields: Fields) -> dict[str, Any]:
    values = _sizes(fields)
    return values | _positions(fields, values, 1) | {"embedding_norm": True}


def _qwen2(fields: Fields) -> dict[str, Any]:
    """Return Qwen2-VL's tower, whose `hidden_size` is that of the language model."""
    hidden = fields.count("embed_dim")
    ffn = int(fields.factor("mlp_ratio", default=4.0) * hidden)
    values = _sizes(fields, ffn=ffn) | {"hidden": hidden, "position": ROTARY}
    return values | _merger(fields, values, fields.count("hidden_size"))


def _qwen2_5(fields: Fields) -> dict[str, Any]:
    """Return Qwen2.5-VL's: windows of some pixels a side, but for some layers (arXiv:2502.13923, 2.1.1)."""
    values = _sizes(fields) | {"position": ROTARY, "norm": RMS, "gated": True}
    pixels = fields.count("window_size", default=112)
    whole = fields.counts("fullatt_block_indexes")
    seen = (pixels // values["patch"]) ** 2
    if whole is not None and len({*whole}) < values["layers"]:
        kinds = [LayerKind() if i in whole else LayerKind(("chunked",)) for i in range(values["layers"])]
        values |= {"pattern": pattern_text(kinds), "window": max(seen, 1)}
    fields.skip("tokens_per_second")
    return values | _merger(fields, values, fields.count("out_hidden_size"))


def _qwen3(fields: Fields) -> dict[str, Any]:
    values = _sizes(fields) | {
        "position": ROTARY, "learned_positions": True, "positions": fields.count("num_position_embeddings"),
    }  # fmt: skip
    further = len(fields.counts("deepstack_visual_indexes") or ())
    fields.skip("apply_vit_abs_pos_embed")
    return values | _merger(fields, values, fields.count("out_hidden_size")) | {"mergers": further}


def _merger(fields: Fields, values: Mapping[str, Any], output: int) -> dict[str, Any]:
    """Return the projector of two products, the first as wide as the merged patches."""
    merge = fields.count("spatial_merge_size", default=2)
    return {
        "output": PROJECTOR, "merge": merge, "projector": f"{merge * merge * values['hidden']}, {output}",
    }  # fmt: skip


def _glm4v(fields: Fields) -> dict[str, Any]:
    """Return GLM-4.1V's: 2 x 2 patches to `out_hidden_size`, one more product, and a gated layer.

    The gated layer counts as two products of as many weights. The layers' gated columns are
    `out_hidden_size` too (Glm4VisionMlp).
    """
    output, wide = fields.count("out_hidden_size"), fields.count("intermediate_size")
    values = _sizes(fields, ffn=output) | {
        "norm": RMS, "gated": True, "position": ROTARY, "learned_positions": True, "embedding_norm": True,
        "biases": OF_ATTENTION if fields.flag("attention_bias") else NO_BIAS,
    }  # fmt: skip
    positions = (_side(fields, "image_size") // values["patch"]) ** 2
    chain = f"{output}, {output}, {_GLM_SHARE * wide // 2}, {output}"
    return values | {
        "output": PROJECTOR, "merge": fields.count("spatial_merge_size", default=2), "projector": chain,
        "positions": positions,
    }  # fmt: skip


def _gemma4(fields: Fields) -> dict[str, Any]:
    """Return Gemma 4's: learned vectors of rows and of columns beside rotary embedding."""
    values = _sizes(fields) | {
        "block": SANDWICH, "norm": RMS, "gated": True, "qk_norm": True, "biases": NO_BIAS,
        "position": ROTARY, "learned_positions": True,
        "positions": 2 * fields.count("position_embedding_size"),
        "kv_heads": fields.count("num_key_value_heads", default=0),
    }  # fmt: skip
    fields.skip("global_head_dim")
    return values | {"merge": fields.count("pooling_kernel_size", default=3), "pooled": True,
                     "image_tokens": fields.count("default_output_length", default=280)}  # fmt: skip


def _internvit(fields: Fields) -> dict[str, Any]:
    values = _sizes(fields)
    _, norm = fields.value("norm_type")
    normed = fields.flag("qk_normalization", "use_qk_norm")
    biased = fields.flag("qkv_bias", "attention_bias", default=True)
    values |= _positions(fields, values, 1)
    return values | {
        "norm": RMS if str(norm).startswith("rms") else LAYER, "qk_norm": normed,
        "biases": ALL if biased else OF_ATTENTION, "tiles": 1,
    }  # fmt: skip


def _pixtral(fields: Fields) -> dict[str, Any]:
    return _sizes(fields) | {
        "norm": RMS, "gated": True, "biases": NO_BIAS, "position": ROTARY, "embedding_norm": True,
        "largest_image": _side(fields, "image_size"),
    }  # fmt: skip


def _llama4(fields: Fields) -> dict[str, Any]:
    """Return Llama 4's: pixel shuffle, two products of the adapter and one of the projector."""
    values = _sizes(fields)
    ratio = fields.factor("pixel_shuffle_ratio", default=0.5)
    inner, outer = fields.count("projector_input_dim"), fields.count("projector_output_dim")
    fields.skip("vision_output_dim")
    values |= _positions(fields, values, 1) | {"position": ROTARY, "learned_positions": True}
    return values | {"embedding_norm": True, "merge": max(round(1.0 / ratio), 1), "tiles": 16,
                     "chain": f"{inner}, {outer}, "}  # fmt: skip


def _moonvit(fields: Fields, prefix: str = "") -> dict[str, Any]:
    """Return MoonViT's (Kimi-VL, arXiv:2504.07491): learned vectors of a grid beside rotary embedding."""
    height, width = fields.count("init_pos_emb_height"), fields.count("init_pos_emb_width")
    values = _sizes(fields, prefix) | {
        "position": ROTARY, "learned_positions": True, "positions": height * width,
    }  # fmt: skip
    fields.skip("init_pos_emb_time", "mm_hidden_size", "text_hidden_size", "video_attn_type")
    merge = _side(fields, "merge_kernel_size", 2)
    return values | {"merge": merge, "chain": f"{merge * merge * values['hidden']}, "}


VISION_ENCODERS: Mapping[str, Callable[[Fields], dict[str, Any]]] = {
    "clip_vision_model": _clip,
    "deit": lambda fields: _vit(fields, 2),
    "dinov2": _dino,
    "dinov2_with_registers": _dino,
    "dinov3_vit": _dino3,
    "gemma4_vision": _gemma4,
    "glm4v_vision": _glm4v,
    "intern_vit_6b": _internvit,
    "internvl_vision": _internvit,
    "llama4_vision_model": _llama4,
    "moonvit": _moonvit,
    "moonvit3d": lambda fields: _moonvit(fields, "vt_"),
    "pixtral": _pixtral,
    "qwen2_5_vl": _qwen2_5,
    "qwen2_vl": _qwen2,
    "qwen3_vl": _qwen3,
    "siglip2_vision_model": _siglip,
    "siglip_vision_model": _siglip,
    "vit": _vit,
}
"""By `model_type`: the sizes and properties of an encoder of images, by its keys without `model.`."""


class Wrapper(NamedTuple):
    """What a model of text and images says of the tower: its type, where the tower's part omits it."""

    encoder: str = ""
    projector: Callable[[Fields, dict[str, Any], int], dict[str, Any]] | None = None


def _two_products(fields: Fields, tower: dict[str, Any], hidden: int) -> dict[str, Any]:
    """Return LLaVA's projector; or Mistral 3's, after a product that merges patches."""
    merge = fields.count("spatial_merge_size", default=1)
    before = f"{tower['hidden']}, " if merge > 1 else ""
    return {"merge": merge, "projector": f"{before}{hidden}, {hidden}"}


def _shuffled(fields: Fields, tower: dict[str, Any], hidden: int) -> dict[str, Any]:
    """Return InternVL's projector: patches side by side, and two products."""
    merge = max(round(1.0 / fields.factor("downsample_ratio", default=0.5)), 1)
    tiles = fields.count("max_dynamic_patch", default=12)
    return {"merge": merge, "projector": f"{hidden}, {hidden}", "tiles": tiles}


def _pooled(fields: Fields, tower: dict[str, Any], hidden: int) -> dict[str, Any]:
    """Return Gemma 3's projector: the mean of patches, so that an image has a fixed number of tokens."""
    tokens, patches = fields.count("mm_tokens_per_image", default=256), tower["positions"]
    return {"merge": max(isqrt(patches // tokens), 1), "pooled": True, "projector": f"{hidden}"}


def _one_product(fields: Fields, tower: dict[str, Any], hidden: int) -> dict[str, Any]:
    return {"merge": fields.count("scale_factor", default=1), "projector": f"{hidden}"}


def _chained(fields: Fields, tower: dict[str, Any], hidden: int) -> dict[str, Any]:
    """Return the products that the tower's part names, and one to the columns of the language model."""
    return {"projector": f"{tower.get('chain', '')}{hidden}"}


_QWEN3 = Wrapper("qwen3_vl")
_GLM = Wrapper("glm4v_vision")
WRAPPERS: Mapping[str, Wrapper] = {
    "gemma3": Wrapper("siglip_vision_model", _pooled),
    "gemma4": Wrapper("gemma4_vision", _chained),
    "glm4v": _GLM,
    "glm4v_moe": _GLM,
    "idefics3": Wrapper("siglip_vision_model", _one_product),
    "internvl": Wrapper("internvl_vision", _shuffled),
    "internvl_chat": Wrapper("intern_vit_6b", _shuffled),
    "kimi_k25": Wrapper("moonvit3d", _chained),
    "kimi_vl": Wrapper("moonvit", _chained),
    "llama4": Wrapper("llama4_vision_model", _chained),
    "llava": Wrapper("clip_vision_model", _two_products),
    "mistral3": Wrapper("pixtral", _two_products),
    "paligemma": Wrapper("siglip_vision_model", _one_product),
    "qwen2_5_vl": Wrapper("qwen2_5_vl"),
    "qwen2_vl": Wrapper("qwen2_vl"),
    "qwen3_5": _QWEN3,
    "qwen3_5_moe": _QWEN3,
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "smolvlm": Wrapper("siglip_vision_model", _one_product),
}
"""Models of text and images, by the `model_type` of the whole file."""
_OF_OTHERS = ("projection_dim", "encoder_stride", "pooler_output_size", "vision_use_head")
"""Fields of an encoder of images that belong to a part beside it."""
_OF_TOWERS = ("image_tokens", "tiles", "largest_image", "chain")
"""Properties of the way from an image to its tiles, which an encoder alone does not have."""


def image_encoder_of(name: str, fields: Fields) -> dict[str, Any]:
    """Return the properties of an encoder of images alone; raises MistakeError."""
    values = VISION_ENCODERS[name](fields)
    fields.skip(*_OF_OTHERS)
    values = {key: value for key, value in values.items() if key not in _OF_TOWERS}
    if "image_size" not in values:
        values["image_size"] = fields.count("image_size", default=448)
    if values["pooled"] or (values["merge"] and values["output"] != PROJECTOR):
        values |= {"pooled": False, "merge": 0}
    return {**values, "name": NAME}


def tower_of(document: Mapping[str, Any], hidden: int) -> dict[str, Any]:
    """Return the tower of images of a model of text and images, {} where none is known.

    hidden: columns of the language model. By the keys of an encoder without `model.`, and `image_tokens`,
    `tiles` and `image_size`, which say what becomes of an image. Raises MistakeError.
    """
    wrapper, part = WRAPPERS.get(str(document.get("model_type"))), document.get("vision_config")
    if wrapper is None or not isinstance(part, dict):
        return {}
    fields, whole = Fields(part, "vision_config."), Fields(document)
    _, kind = fields.value("model_type")
    read = VISION_ENCODERS.get(str(kind)) or VISION_ENCODERS[wrapper.encoder]
    try:
        values = read(fields)
    except MistakeError:
        if len(part) < 4:  # a part that says nothing is no tower
            return {}
        raise
    if wrapper.projector:
        values |= {"output": PROJECTOR, **wrapper.projector(whole, values, hidden)}
    values.pop("chain", None)
    values.pop("largest_image", None)
    return values
