"""`quantization_config` of a config.json: the data type of the weights of each module.

Its formats are those of transformers' quantisers, compressed-tensors, NVIDIA's ModelOpt, AMD's Quark, torchao
and vLLM. A file lists the modules that are quantised or left out, by names, wildcards or regular expressions,
for every layer or for some. A module counts as left out where most of its products in most of its layers are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

NUMBER = "#"  # any layer's or expert's number
ATTENTION, FEED_FORWARD, SHARED, EXPERTS = "attention", "feed-forward", "shared experts", "experts"
_GATED = ("gate_proj", "up_proj", "down_proj")
_LATENT = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
_OF_LAYER = f"model.layers.{NUMBER}"
# Names of transformers, and the shorter ones of DeepSeek-V4's own files
_PRODUCTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    ATTENTION: (
        tuple(f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")),
        tuple(f"self_attn.{name}" for name in _LATENT),
        ("attn.wq", "attn.wo"),
    ),
    FEED_FORWARD: (tuple(f"mlp.{name}" for name in _GATED), ("ffn.w1", "ffn.w2")),
    SHARED: (tuple(f"mlp.shared_experts.{name}" for name in _GATED), ("ffn.shared_experts.w1",)),
    EXPERTS: (
        tuple(f"mlp.experts.{NUMBER}.{name}" for name in _GATED),
        (f"ffn.experts.{NUMBER}.w1",), (f"block_sparse_moe.experts.{NUMBER}.w1",),
    ),
}  # fmt: skip
_EXCLUSIONS = (
    "modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "exclude", "skip_modules",
    "llm_int8_skip_modules",
)  # fmt: skip
_EXPRESSION = "re:"
_MAX_TEXT = 500  # of a name or an expression
_MAX_PATTERNS = 200  # different ones, numbers of layers aside


QUANTISATION_FILE = "hf_quant_config.json"
"""In which ModelOpt wrote what is `quantization_config` today."""


def with_quantisation(document: Mapping[str, Any], neighbour: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object of a config.json, with the quantisation in ModelOpt's own file where it has none.

    neighbour: the object of `QUANTISATION_FILE`, as TensorRT-LLM and vLLM read it.
    """
    quantisation = _object(neighbour, "quantization")
    if not quantisation or any(name in document for name in ("quantization_config", "compression_config")):
        return document
    return {**document, "quantization_config": {"quant_method": "modelopt", **quantisation}}


class Weights(NamedTuple):
    """How the weights of a module are stored."""

    dtype: str  # a data type of products, or words where it is not modelled; "": of 16 bits
    group: int | None = None  # weights that share a scale; 0: a column does; None: not said
    zero_points: bool = False


WIDE = Weights("")


class Quantized(NamedTuple):
    """The weights of the modules of a model."""

    attention: Weights
    feed_forward: Weights  # dense layers
    shared: Weights
    experts: Weights


def read_quantization(config: Mapping[str, Any], method: str, layers: int) -> Quantized:
    """Return how the modules of a model are stored; config: `quantization_config`, of a `method`."""
    base, groups = _schemes(config, method)
    excluded = [*_left_out(config), *_left_out(_object(config, "quant_config"))]
    is_overlaid = method in ("fp8", "finegrained_fp8") and bool(_object(config, "quantized_layers"))
    if is_overlaid:  # `ignore` is that of the overlay, whose modules are listed too
        excluded = _texts(config.get("modules_to_not_convert"))
    overlays = _overlays(config)

    def of(module: str) -> Weights:
        if _has(module, excluded, layers):
            return WIDE
        for targets, weights in overlays:
            if _has(module, targets, layers):
                return weights
        for targets, weights in groups:
            if not targets or _has(module, targets, layers) or "Linear" in targets:
                return weights
        return WIDE if groups else base

    if method == "mxfp4":
        return Quantized(WIDE, WIDE, WIDE, base)
    if method == "experts_int8":
        return Quantized(WIDE, WIDE, WIDE, base)
    experts = config.get("moe_quant_algo")
    read = Quantized(*map(of, _PRODUCTS))
    return read._replace(experts=_of_algorithm(str(experts), config)) if isinstance(experts, str) else read


# --- modules


def _left_out(config: Mapping[str, Any]) -> list[str]:
    """Return the patterns of modules that are not quantised."""
    patterns = [text for name in _EXCLUSIONS for text in _texts(config.get(name))]
    dynamic = [name[2:] for name in _object(config, "dynamic") if name.startswith("-:")]  # GPTQModel's
    wide = [
        name
        for name, value in _object(config, "extra_config").items()  # AutoRound's
        if isinstance(value, dict) and value.get("bits") in (16, 32)
    ]
    return [*patterns, *(_EXPRESSION + text for text in dynamic), *wide]


def _has(module: str, patterns: Sequence[str], layers: int) -> bool:
    """Say whether patterns match most products of a module, in most layers, under some names of these."""
    counts = _counted(tuple(patterns))
    return any(
        sum(min(1.0, _layers_of(name, counts, layers)) for name in names) > 0.5 * len(names)
        for names in _PRODUCTS[module]
    )


@lru_cache(maxsize=64)
def _counted(patterns: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Return different patterns, numbers aside, each with how often it is there."""
    counts = Counter(
        text if text.startswith(_EXPRESSION) else re.sub(r"(?<=\.)\d+(?=\.|\*|$)", NUMBER, text)
        for text in patterns
        if 0 < len(text) <= _MAX_TEXT
    )
    return tuple(counts.most_common(_MAX_PATTERNS))


def _layers_of(product: str, counts: Iterable[tuple[str, int]], layers: int) -> float:
    """Return the share of layers whose product some patterns match."""
    share = 0.0
    for pattern, count in counts:
        if pattern.startswith(_EXPRESSION):
            numbers = range(max(layers, 1))
            matches = [_matches(pattern, _name(product, str(number))) for number in numbers]
            share += sum(matches) / len(matches)
        elif _matches(pattern, _name(product, NUMBER)):
            of_layer = re.search(rf"\b(layers|blocks|h)\.{NUMBER}", pattern) is not None
            share += min(count / max(layers, 1), 1.0) if of_layer else 1.0
    return share


def _name(product: str, layer: str) -> str:
    number = layer if layer == NUMBER else "0"
    return f"{_OF_LAYER}.{product}".replace(f"layers.{NUMBER}", f"layers.{layer}").replace(NUMBER, number)


@lru_cache(maxsize=4096)
def _matches(pattern: str, name: str) -> bool:
    """Say whether a pattern matches the name of a product: as an expression, with wildcards, or in part."""
    if pattern.startswith(_EXPRESSION):
        expression = _compiled(pattern.removeprefix(_EXPRESSION))
        return expression is not None and expression.search(name) is not None
    core = re.sub(r"^(language_model\.|model\.)*", "", pattern)
    short = re.sub(r"^(language_model\.|model\.)*", "", name)
    if "*" in core:
        expression = _compiled("(^|.*[.])" + ".*".join(map(re.escape, core.split("*"))) + r"($|[.].*)")
        return expression is not None and expression.match(short) is not None
    return f".{core}." in f".{short}."


@lru_cache(maxsize=4096)
def _compiled(text: str) -> re.Pattern[str] | None:
    """Return a regular expression of a file, None where it is none or may take long."""
    if re.search(r"[*+}]\)?[*+{]", text):  # a repetition of a repetition
        return None
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return None


# --- methods

_OF_MODELOPT = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "NVFP4": "nvfp4", "NVFP4_AWQ": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "MXFP4": "mxfp4", "FP8_PB_WO": "fp8_block", "FP8_BLOCK_SCALES": "fp8_block", "W4A16_AWQ": "w4a16",
    "W4A16_GPTQ": "w4a16", "W4A16": "w4a16", "INT4_AWQ": "w4a16", "W4A8_AWQ": "w4afp8", "W8A16": "w8a16",
    "W8A16_GPTQ": "w8a16", "W8A8_SQ_PER_CHANNEL": "int8", "INT8_SQ": "int8", "INT8": "int8",
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": "int8", "W4A16_MXFP4": "mxfp4_w4a16",
    "W4A8_MXFP4_FP8": "mxfp4_w4a8",
    "W4A8_MXFP4_MXFP8": "mxfp4_w4a8", "NVFP4_W4A16": "nvfp4_w4a16",
}  # fmt: skip
_OF_TORCHAO = {
    "int4_weight_only": "w4a16", "int8_weight_only": "w8a16", "float8_weight_only": "fp8_w8a16",
    "int8_dynamic_activation_int8_weight": "int8", "int8_dynamic_activation_int4_weight": "w4a8",
    "float8_dynamic_activation_float8_weight": "fp8", "float8_dynamic_activation_int4_weight": "w4afp8",
    "int4weightonlyconfig": "w4a16", "int8weightonlyconfig": "w8a16", "float8weightonlyconfig": "fp8_w8a16",
    "int8dynamicactivationint8weightconfig": "int8", "int8dynamicactivationint4weightconfig": "w4a8",
    "float8dynamicactivationfloat8weightconfig": "fp8", "float8dynamicactivationint4weightconfig": "w4afp8",
}  # fmt: skip
_NAMED = {
    "mxfp4": Weights("mxfp4"), "fbgemm_fp8": Weights("fp8"), "ptpc_fp8": Weights("fp8"),
    "experts_int8": Weights("w8a16", 0), "eetq": Weights("w8a16", 0), "bitnet": Weights("w2a8", 0),
    "tpu_int8": Weights("w8a16", 0),
}  # fmt: skip
"""BitNet b1.58 has weights of three values in 2 bits, and int8 activations (arXiv:2402.17764)."""
_NF4_GROUP = 64  # of bitsandbytes, bnb_4bit_blocksize


def _schemes(config: Mapping[str, Any], method: str) -> tuple[Weights, list[tuple[list[str], Weights]]]:
    """Return how weights are stored, and of which modules: patterns of each group, [] for all."""
    if method in _NAMED:
        return _NAMED[method], []
    if method in ("fp8", "finegrained_fp8"):
        return Weights("fp8_block" if config.get("weight_block_size") else "fp8"), []
    algorithm = config.get("quant_algo")
    if isinstance(algorithm, str) and algorithm.upper() != "MIXED_PRECISION":
        return _of_algorithm(algorithm, config), []
    groups = [
        (_texts(group.get("targets")), _of_group(group, method))
        for group in _object(config, "config_groups").values()
        if isinstance(group, dict)
    ]
    if groups:
        return groups[0][1], groups
    if isinstance(algorithm, str):  # mixed: modules are listed
        return WIDE, []
    return _of_method(config, method), []


def _of_method(config: Mapping[str, Any], method: str) -> Weights:
    """Return how weights are stored by a method that has keys of its own."""
    bits, name = _integer(config.get("bits") or config.get("w_bit")), method.removesuffix("_marlin")
    if name in ("awq", "gptq", "gptqmodel", "auto-round", "auto_round", "autoround", "intel/auto-round"):
        group = _group(config.get("group_size", config.get("q_group_size")))
        if str(config.get("data_type", "int")).startswith("mx_fp"):
            return Weights("mxfp4_w4a16" if _integer(config.get("act_bits")) == 16 else "mxfp4")
        if str(config.get("data_type", "int")).startswith("nv_fp"):
            return Weights("nvfp4")
        zeros = config.get("zero_point") is not False if name == "awq" else True
        return Weights(f"w{bits or 4}a16", group, zeros)  # GPTQ's files have zero points, if all equal
    if name in ("bitsandbytes", "bnb"):
        in_8_bits = config.get("load_in_8bit") is True or config.get("_load_in_8bit") is True
        return Weights("int8") if in_8_bits else Weights("w4a16", _NF4_GROUP)
    if name == "hqq":
        weights = _object(_object(config, "quant_config"), "weight_quant_params")
        bits = _integer(weights.get("nbits"))
        return Weights(f"w{bits or 4}a16", _group(weights.get("group_size")), zero_points=True)
    if name == "torchao":
        return _of_torchao(config)
    if name == "quanto":
        kind = str(config.get("weights"))
        return Weights(
            {"int8": "w8a16", "int4": "w4a16", "int2": "w2a16", "float8": "fp8_w8a16"}.get(kind, kind)
        )
    if name == "quark":
        return _of_quark(_object(config, "global_quant_config"))
    return Weights(method)


def _of_algorithm(algorithm: str, config: Mapping[str, Any]) -> Weights:
    """Return how weights are stored by an algorithm of ModelOpt."""
    dtype = _OF_MODELOPT.get(algorithm.upper())
    if dtype is None:
        return Weights(f"{algorithm} of {config.get('quant_method', 'modelopt')}")
    return Weights(dtype, _group(config.get("group_size")) if dtype.startswith("w") else None)


def _overlays(config: Mapping[str, Any]) -> list[tuple[list[str], Weights]]:
    """Return modules whose type is said one by one: `quantized_layers` of ModelOpt, `layer_quant_config`."""
    by_weights: dict[Weights, list[str]] = {}
    for name, value in _object(config, "quantized_layers").items():
        if isinstance(value, dict) and isinstance(value.get("quant_algo"), str):
            by_weights.setdefault(_of_algorithm(value["quant_algo"], value), []).append(name)
    for name, value in _object(config, "layer_quant_config").items():
        if isinstance(value, dict):
            by_weights.setdefault(_of_quark(value), []).append(name)
    return [(names, weights) for weights, names in by_weights.items()]


def _of_group(group: Mapping[str, Any], method: str) -> Weights:
    """Return how weights are stored by a group of compressed-tensors."""
    weights, operands = _object(group, "weights"), group.get("input_activations")
    kind, bits, strategy = (
        str(weights.get("type")),
        _integer(weights.get("num_bits")),
        weights.get("strategy"),
    )
    size = _group(weights.get("group_size"))
    if kind == "float" and bits == 8:
        dtype = "fp8_block" if strategy == "block" else "fp8"
        return Weights("fp8_w8a16" if "input_activations" in group and operands is None else dtype)
    if kind == "float" and bits == 4:
        dtype = "mxfp4" if size == 32 else "nvfp4"
        alone = "input_activations" in group and operands is None
        eight = isinstance(operands, dict) and operands.get("num_bits") == 8
        suffix = "_w4a16" if alone else "_w4a8" if eight and dtype == "mxfp4" else ""
        return Weights(dtype + suffix)
    if kind == "int" and bits:
        of_activations = "a16"
        if isinstance(operands, dict):
            of_activations = "afp8" if operands.get("type") == "float" else "a8"
        is_int8 = bits == 8 and of_activations == "a8"
        zeros = weights.get("symmetric") is False
        return Weights("int8") if is_int8 else Weights(f"w{bits}{of_activations}", size or 0, zeros)
    return Weights(f"{weights.get('num_bits')} bits ({kind}) of {method}")


def _of_torchao(config: Mapping[str, Any]) -> Weights:
    quant_type = config.get("quant_type")
    while isinstance(quant_type, dict) and "_type" not in quant_type and quant_type:
        quant_type = quant_type.get("default", next(iter(quant_type.values())))
    arguments = _object(config, "quant_type_kwargs")
    if isinstance(quant_type, dict):
        arguments, quant_type = _object(quant_type, "_data"), quant_type.get("_type")
    name = str(quant_type)
    dtype = _OF_TORCHAO.get(name.lower())
    if dtype is None:
        return Weights(f"{name} of torchao")
    default = 128 if dtype == "w4a16" else 32 if dtype == "w4a8" else 0
    group = _group(arguments.get("group_size"))
    return Weights(dtype, default if group is None else group) if dtype.startswith("w") else Weights(dtype)


def _of_quark(scheme: Mapping[str, Any]) -> Weights:
    weight, operands = _object(scheme, "weight"), scheme.get("input_tensors")
    kind, group = str(weight.get("dtype")).lower(), _group(weight.get("group_size"))
    if kind.startswith("fp8"):
        return Weights("fp8" if operands else "fp8_w8a16")
    if kind in ("fp4", "mxfp4"):
        narrow = str(_object(scheme, "input_tensors").get("dtype")).lower() if operands else ""
        return Weights("mxfp4" if "fp4" in narrow else "mxfp4_w4a8" if narrow else "mxfp4_w4a16")
    integer = re.fullmatch(r"u?int([2348])", kind)
    if integer:
        bits = int(integer[1])
        if operands:
            return Weights("int8") if bits == 8 else Weights(f"w{bits}a8", group)
        return Weights(f"w{bits}a16", group or 0, zero_points=kind.startswith("u"))
    return Weights(f"{kind} of quark")


# --- values of a file, which may be anything


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _integer(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _group(value: Any) -> int | None:
    """Return the weights that share a scale, 0 for a column, None where a file does not say it."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 < value <= 2**20 else 0
