"""Dimensions of a transformer: its inputs, defaults of sizes that are 0, and checks of invalid sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize, map_values
from fastflow.core.field import Column, count, text
from fastflow.core.tables import Bools, Inputs, single
from fastflow.physics.workload.models.transformer.layer_pattern import (
    EXPERTS,
    KEY,
    MAX_LAYERS,
    WINDOW,
    fewest_layers,
    kinds_of,
)
from fastflow.physics.workload.network import Size
from fastflow.physics.workload.ops import grouped_gemm
from fastflow.physics.workload.ops.attention import MAX_QUERIES
from fastflow.physics.workload.precision import OUTPUT_BYTES

RMS, LAYER = "rms", "layer"
PRE, SANDWICH, POST, PARALLEL, PARALLEL_NORMS = "pre", "sandwich", "post", "parallel", "parallel_norms"
NO_BIAS, OF_QKV, OF_ATTENTION, ALL = "none", "qkv", "attention", "all"
KERNELS = ("library", "flash1", "flash2")
ROTARY, LEARNED, ALIBI, NO_POSITIONS = "rotary", "learned", "alibi", "none"
# operations of an element: those of operators of these names; ReLU, then its square (So et al., Primer,
# arXiv:2109.08668)
ACTIVATIONS = {"relu": 1.0, "relu2": 2.0, "gelu": 5.0, "silu": 3.0}
MAX_ELEMENTS = 4e18  # of a tensor, as of a network from a file
_MAX_WIDE = 1e12
_MULTIPLE = 256  # of a gated feed-forward layer's columns by default (Touvron et al., LLaMA's code)

SIZES = (
    Column(
        "model.size", "float", "",
        "number of parameters, such as 70B, to which a dense transformer is scaled in depth and"
        " width; 0: no scaling",
        0.0, 1e15,
    ),
    count("model.batch", "sequences of the global batch"),
    count("model.sequence", "tokens of a sequence"),
    Column("model.layers", "int", "", "layers of a transformer", 1.0, float(MAX_LAYERS)),
    count("model.hidden", "columns of a token between layers (hidden size)"),
    count("model.heads", "heads of attention"),
    count(
        "model.kv_heads",
        "heads of keys and values, each shared by the same number of query heads; 0: model.heads",
        low=0,
    ),
    count(
        "model.head_dim",
        "columns of a head; latent attention: those without rotary embedding; 0: hidden over heads",
        low=0,
    ),
    count("model.value_dim", "columns of a head's value; 0: model.head_dim", low=0),
    count(
        "model.latent", "columns of a token's latent keys and values in the cache (DeepSeek); 0: none", low=0,
    ),
    count("model.query_latent", "columns of a token's latent queries; 0: none", low=0),
    count("model.rotary", "latent attention: columns of a head's query and key with rotary embedding", low=0),
    count(
        "model.window",
        "keys that a query sees, that of its token included (transformer: in window layers); 0: all", low=0,
    ),
    count(
        "model.ffn",
        "columns of feed-forward layers; 0: 4 hidden, or if gated 8/3 hidden, rounded up to a multiple"
        " of 256", low=0,
    ),
    count("model.expert_ffn", "columns of an expert; 0: model.ffn", low=0),
    count("model.experts", "experts of a layer", low=0, high=grouped_gemm.MAX_EXPERTS),
    count("model.topk", "experts that a token chooses", low=0),
    count(
        "model.expert_groups", "groups of experts of equal size (n_group of a config.json); 0: none",
        low=0, high=4096,
    ),
    count(
        "model.topk_groups",
        "groups that the experts of one token may be in (topk_group of a config.json); 0: no groups",
        low=0, high=4096,
    ),
    count(
        "model.shared_ffn",
        "columns of all shared experts together, which every token uses; 0: expert_ffn for each", low=0,
    ),
    grouped_gemm.POWER_LAW,
    count("model.vocabulary", "tokens in the vocabulary"),
    Column(
        "model.train_tokens", "float", "",
        "tokens of the whole training, for train_s, train_energy_J and train_usd", 0.0, 1e18,
    ),
    Column(
        "model.train_tokens_per_parameter", "float", "",
        "tokens to train on per active parameter, such as 20 (Hoffmann et al., arXiv:2203.15556);"
        " 0: model.train_tokens", 0.0, 1e9,
    ),
    count("model.positions", "tokens of the longest sequence; 0: no limit", low=0),
)  # fmt: skip
STRUCTURE = (
    text(KEY, "kinds of layers in their order, such as 3*dense, 58*experts; repeated up to model.layers"),
    text(
        "model.norm",
        "normalisation: by the root mean square (rms), or layer normalisation (layer)",
        (RMS, LAYER),
    ),
    text(
        "model.block",
        "norms: before attention and before feed-forward (pre), after them (post), both (sandwich),"
        " or attention and feed-forward in parallel after one norm (parallel), or one each (parallel_norms)",
        (PRE, POST, SANDWICH, PARALLEL, PARALLEL_NORMS),
    ),
    Column("model.qk_norm", "bool", "", "true: the queries and keys of each head are normalised"),
    text("model.biases", "which GEMMs have biases", (NO_BIAS, OF_QKV, OF_ATTENTION, ALL)),
    text("model.position", "encoding of positions", (ROTARY, LEARNED, ALIBI, NO_POSITIONS)),
    text("model.activation", "activation of the feed-forward layers", tuple(ACTIVATIONS)),
    Column(
        "model.gated",
        "bool",
        "",
        "true: the feed-forward layer is gated (as SwiGLU): it has a second GEMM, for the gate",
    ),
    grouped_gemm.SHARED_EXPERTS,
    Column("model.tied", "bool", "", "true: head and embedding share weights"),
    Column("model.mtp", "int", "", "number of multi-token prediction (MTP) heads", 0.0, 16.0),
    Column("model.dropout", "bool", "", "true: dropout in training; its masks are kept"),
    Column(
        "model.fused_attention",
        "bool",
        "",
        "true: attention is one kernel; false: scores, softmax and context are kernels of their own",
    ),
    text(
        "model.attention_kernel",
        "kernel of fused attention: the library's newest for the chip, or FlashAttention's of"
        " 2022 (flash1) and 2023 (flash2), in A100's instructions on any chip",
        KERNELS,
    ),
    Column(
        "model.fused_gradients",
        "bool",
        "",
        "true: GEMMs add weight gradients to the wider sums (precision.gradient) themselves; false:"
        " separate passes do this",
    ),
)
DEFAULTS: Mapping[str, Any] = {
    "model.size": 0.0, "model.batch": 1024, "model.sequence": 4096, "model.layers": 32, "model.hidden": 4096,
    "model.heads": 32, "model.kv_heads": 0, "model.head_dim": 0, "model.value_dim": 0, "model.latent": 0,
    "model.query_latent": 0, "model.rotary": 0, "model.window": 0, "model.ffn": 0, "model.expert_ffn": 0,
    "model.experts": 0, "model.topk": 0, "model.expert_groups": 0, "model.topk_groups": 0,
    "model.shared_ffn": 0, "model.power_law": 0.0,
    "model.vocabulary": 32000, "model.positions": 0, KEY: "dense", "model.norm": RMS, "model.block": PRE,
    "model.qk_norm": False, "model.biases": NO_BIAS, "model.position": ROTARY, "model.activation": "silu",
    "model.gated": True, "model.shared_experts": 0, "model.tied": False, "model.mtp": 0,
    "model.dropout": False, "model.train_tokens": 1e12, "model.train_tokens_per_parameter": 0.0,
    "model.fused_attention": True,
    "model.fused_gradients": True, "model.attention_kernel": KERNELS[0],
}  # fmt: skip
"""Defaults of null without a config.json: a Llama 2 of 7 billion parameters."""


class Sizes(NamedTuple):
    """Sizes of models with the same structure: numbers of a single model, or columns of shape (points,).

    Flat, as the inputs `model.*` are that give its fields their names.
    """

    sequences: Size
    sequence: Size
    tokens: Size
    hidden: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    value_dim: Size
    latent: Size
    query_latent: Size
    rotary: Size
    window: Size
    ffn: Size
    expert_ffn: Size
    experts: Size
    topk: Size
    shared_ffn: Size
    power_law: Any
    vocabulary: Size
    positions: Size
    activation_bytes: Size  # of an element, for masks of a byte


def _with_default(value: Any, default: Any) -> Any:
    """Return sizes, with a default where they are 0."""
    return (value or default) if isinstance(value, int) else np.where(value > 0, value, default)


def ffn_of(hidden: Any, gated: bool) -> Any:
    """Return the default columns of a feed-forward layer."""
    return -(-(8 * hidden // 3) // _MULTIPLE) * _MULTIPLE if gated else 4 * hidden


def sizes_of(points: Inputs) -> Sizes:
    """Return the sizes of models with the same structure, with defaults for sizes that are 0.

    Models with invalid sizes have a network, too: callers may read its layers before validation.
    """
    stated = {name: single(points[f"model.{name}"]) for name in Sizes._fields if f"model.{name}" in points}
    batch, hidden, heads = single(points["model.batch"]), stated["hidden"], stated["heads"]
    head_dim = _with_default(stated["head_dim"], _with_default(hidden // heads, 1))
    ffn = _with_default(stated["ffn"], ffn_of(hidden, bool(points["model.gated"][0])))
    expert_ffn = _with_default(stated["expert_ffn"], ffn)
    shared = _with_default(stated["shared_ffn"], int(points["model.shared_experts"][0]) * expert_ffn)
    derived = {
        "sequences": batch, "tokens": batch * stated["sequence"], "head_dim": head_dim, "ffn": ffn,
        "kv_heads": _with_default(stated["kv_heads"], heads),
        "value_dim": _with_default(stated["value_dim"], head_dim),
        "experts": _with_default(stated["experts"], 1), "topk": _with_default(stated["topk"], 1),
        "expert_ffn": expert_ffn, "shared_ffn": shared,
        "positions": _with_default(stated["positions"], stated["sequence"]),
        "activation_bytes": single(map_values(OUTPUT_BYTES, points["model.dtype"]).astype(np.int64)),
    }  # fmt: skip
    return Sizes(**stated | derived)


def extra_structure(inputs: Inputs) -> tuple[Bools, ...]:
    """Return columns, besides those of the structure, in which models with the same kernels agree."""
    return tuple(inputs[f"model.{name}"] > 0 for name in ("latent", "query_latent", "shared_ffn"))


InvalidSizes = tuple[Bools, str, str, str]


def invalid_sizes(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with invalid sizes, as `Family.invalid_sizes`."""
    yield from invalid_heads(inputs)
    most = inputs["model.positions"]
    wrong = (most > 0) & (inputs["model.sequence"] > most)
    yield wrong, "model.sequence", "model.positions", "at most the {} tokens of model.positions"
    yield from _invalid_patterns(inputs)
    yield from _too_large(inputs)


def invalid_pass_sizes(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield invalid passes; their tokens are of many sequences: positions limit requests, not passes."""
    yield from invalid_heads(inputs)
    yield from _invalid_patterns(inputs)
    yield from _too_large(inputs)


def invalid_heads(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with invalid heads."""
    size = {name: inputs[f"model.{name}"] for name in ("heads", "kv_heads", "hidden", "head_dim")}
    derived = size["head_dim"] == 0
    uneven = derived & (size["hidden"] % size["heads"] > 0)
    yield uneven, "model.heads", "model.hidden", "a divisor of model.hidden, {}, or model.head_dim beside it"
    wrong = size["heads"] % np.where(size["kv_heads"] > 0, size["kv_heads"], 1) > 0
    yield wrong, "model.kv_heads", "model.heads", "a divisor of model.heads, {}"


def _invalid_patterns(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points whose sizes do not match the kinds of their layers."""
    names, inverse = factorize(inputs[KEY])
    kinds = [" ".join(kinds_of(name)).split() for name in names]
    fewest = [fewest_layers(name) for name in names]
    for number, least in enumerate(fewest):
        wrong = (inverse == number) & (inputs["model.layers"] < least)
        yield wrong, "model.layers", "model.layers", f"at least {least}, so that each kind of {KEY} has one"
    has_experts = np.array([EXPERTS in words for words in kinds])[inverse]
    has_window = np.array([WINDOW in words for words in kinds])[inverse]
    for has, key, feature in (
        (has_experts, "model.experts", "experts"), (has_experts, "model.topk", "experts"),
        (has_window, "model.window", "window"),
    ):  # fmt: skip
        yield has & (inputs[key] < 1), key, key, f"at least 1, since {KEY} has layers with {feature}"
        yield ~has & (inputs[key] > 0), key, key, f"0, unless {KEY} says which layers have {feature}"
    wrong = has_experts & (inputs["model.topk"] > inputs["model.experts"])
    yield wrong, "model.topk", "model.experts", "at most the {} of model.experts"
    yield from _invalid_expert_groups(inputs, has_experts)


def _invalid_expert_groups(inputs: Inputs, has_experts: Bools) -> Iterator[InvalidSizes]:
    """Yield points with invalid expert groups; has_experts: (points,)."""
    experts, topk = inputs["model.experts"], inputs["model.topk"]
    groups, topk_groups = inputs["model.expert_groups"], inputs["model.topk_groups"]
    for key in ("model.expert_groups", "model.topk_groups"):
        yield ~has_experts & (inputs[key] > 0), key, key, f"0, unless {KEY} says which layers have experts"
    each = experts // np.maximum(groups, 1)
    wrong = has_experts & (each * groups != experts) & (groups > 0)
    yield wrong, "model.expert_groups", "model.experts", "a divisor of model.experts, {}, or 0 for no groups"
    wrong = has_experts & ((topk_groups > groups) | ((topk_groups == 0) & (groups > 0)))
    allowed = "from 1 to model.expert_groups, {}; or 0, where that is 0"
    yield wrong, "model.topk_groups", "model.expert_groups", allowed
    wrong = has_experts & (groups > 0) & (topk_groups * each < topk)
    allowed = "so many that their experts are at least model.topk, {}"
    yield wrong, "model.topk_groups", "model.topk", allowed


def _too_large(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with too many tokens, or with tensors too large for 64-bit integers."""
    size = {name: 1.0 * inputs[f"model.{name}"] for name in (
        "batch", "sequence", "hidden", "heads", "head_dim", "value_dim", "rotary", "ffn", "expert_ffn",
        "topk", "shared_ffn", "vocabulary",
    )}  # fmt: skip
    wrong = size["sequence"] > MAX_QUERIES
    yield wrong, "model.sequence", "model.sequence", f"at most {MAX_QUERIES:g} tokens"
    wide = size["head_dim"] + size["value_dim"] + size["rotary"] + size["hidden"] / size["heads"]
    wrong = size["heads"] * wide > _MAX_WIDE
    yield (
        wrong,
        "model.heads",
        "model.heads",
        f"so small that all heads have at most {_MAX_WIDE:.0e} columns",
    )
    columns = 64.0 * (size["ffn"] + size["expert_ffn"] + 4.0 * size["hidden"]) + size["shared_ffn"]
    columns = columns + 4.0 * size["heads"] * wide + size["vocabulary"]
    columns = columns * np.maximum(size["topk"], 1.0)
    columns = columns + np.where(inputs["model.fused_attention"], 0.0, size["heads"] * size["sequence"])
    wrong = size["batch"] * size["sequence"] * columns > MAX_ELEMENTS
    allowed = f"so small that no tensor has more than {MAX_ELEMENTS:.0e} elements"
    yield wrong, "model.batch", "model.batch", allowed
