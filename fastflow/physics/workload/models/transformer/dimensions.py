"""Dimensions of a transformer: its inputs, and defaults of sizes that are 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.field import Column, count, text
from fastflow.core.tables import Bools, Inputs, single
from fastflow.physics.workload.models.linear_attention import STATE, STATE_BYTES
from fastflow.physics.workload.models.transformer.layer_kind import MOST_LAYERS, PATTERN, LayerKind
from fastflow.physics.workload.network import Amount, Size
from fastflow.physics.workload.ops import grouped_gemm
from fastflow.physics.workload.precision import OUTPUT_BYTES

RMS, LAYER = "rms", "layer"
PRE, SANDWICH, POST, PARALLEL, PARALLEL_NORMS = "pre", "sandwich", "post", "parallel", "parallel_norms"
NO_BIAS, OF_QKV, OF_ATTENTION, ALL = "none", "qkv", "attention", "all"
DOCUMENTS, PREFERENCE = "model.document_length", "model.preference"
TEACHER = "model.teacher."
SHARED_GATE = "model.shared_gate"
BEFORE = count("model.before", "tokens of each sequence that are in the KV cache before a pass", low=0)
KERNELS = ("library", "flash1", "flash2")
LOSSES = ("whole", "eager", "chunked", "fused", "cut")
ROTARY, LEARNED, ALIBI, NO_POSITIONS = "rotary", "learned", "alibi", "none"
# operations of an element: those of operators of these names; ReLU, then its square (So et al., Primer,
# arXiv:2109.08668)
ACTIVATIONS = {"relu": 1.0, "relu2": 2.0, "gelu": 5.0, "silu": 3.0}
NO_GATE, PER_HEAD, FULL = "none", "head", "full"
_MOST = 1e6  # of each size of a linear-time mixer: products of three of them are 64-bit integers
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
    Column("model.layers", "int", "", "layers of a transformer", 1.0, float(MOST_LAYERS)),
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
    count(
        "model.rotary",
        "columns of a head's query and key with rotary embedding: of latent attention beside head_dim, else"
        " among them; 0: none of latent attention, else all", low=0,
    ),
    count(
        "model.window",
        "keys that a query sees, that of its token included (transformer: in layers with window, and tokens"
        " of a chunk in layers with chunked); 0: all", low=0,
    ),
    Column(
        "model.density", "float", "",
        "share of the keys before a query that a block-sparse or dilated mask keeps, in layers with"
        " attention; 0: all", 0.0, 1.0,
    ),
    count("model.index_heads", "heads of the indexer of sparse attention; 0: no indexer", low=0),
    count("model.index_dim", "columns of a head of the indexer; 0: no indexer", low=0),
    count("model.index_topk", "keys that the indexer selects for a query; 0: all", low=0),
    count("model.index_block", "tokens of a block that native_sparse selects as a whole; 0: one", low=0),
    count("model.compression", "tokens whose keys become one, in layers with compressed; 0: one", low=0),
    count("model.output_latent", "columns of a group's latent output of attention; 0: none", low=0),
    count("model.output_groups", "groups of heads with a latent output each; 0: one", low=0),
    count(
        "model.linear_heads", "heads of a linear-time mixer, each with a state; 0: no such mixer", low=0,
        high=_MOST,
    ),
    count(
        "model.linear_key_heads",
        "heads of its queries and keys (groups of Mamba-2), each shared by the same number of heads;"
        " 0: model.linear_heads", low=0, high=_MOST,
    ),
    count(
        "model.linear_key_dim", "columns of its head's key, rows of a state; 0: no mixer", low=0, high=_MOST,
    ),
    count(
        "model.linear_value_dim", "columns of a head's value; 0: model.linear_key_dim", low=0, high=_MOST,
    ),
    count(
        "model.linear_rank", "columns of the low-rank gates of a linear-time mixer; 0: its authors' default",
        low=0, high=_MOST,
    ),
    count(
        "model.conv_width",
        "tokens that a convolution reads, the current one included; 0: no convolution", low=0,
        high=_MOST,
    ),
    STATE,
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
    count("model.expert_latent", "columns that routed experts read and write; 0: model.hidden", low=0),
    count("model.streams", "streams of the residual (hyper-connections); 0: one", low=0, high=64),
    count(
        "model.layer_embedding", "columns of a token's embedding for each layer (Gemma 3n); 0: none", low=0,
    ),
    count(
        "model.adapter_rank",
        "columns of the low-rank adapters of Zamba2's blocks of shared weights; 0: no adapters", low=0,
    ),
    grouped_gemm.POWER_LAW,
    grouped_gemm.RANDOM,
    grouped_gemm.CAPACITY,
    grouped_gemm.PADDED,
    count("model.vocabulary", "tokens in the vocabulary"),
    count(
        "model.loss_chunks", "chunks of tokens of losses that work in chunks; 0: the number of their authors",
        low=0, high=4096,
    ),
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
    text(PATTERN, "kinds of layers in their order, such as 3*dense, 58*experts; repeated up to model.layers"),
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
    Column(
        SHARED_GATE,
        "bool",
        "",
        "true: the output of shared experts is multiplied by a gate of a number a token (Qwen's)",
    ),
    Column("model.qk_norm", "bool", "", "true: the queries and keys of each head are normalised"),
    Column(
        "model.qk_norm_across_heads",
        "bool",
        "",
        "true: with model.qk_norm, over all heads of a token at once, which tensor-parallel devices sum",
    ),
    text(
        "model.output_gate",
        "gate of attention's output: a number a head (head), or a column (full)",
        (NO_GATE, PER_HEAD, FULL),
    ),
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
    text(
        "model.loss",
        "what the loss keeps of the logits in training: fp32 (whole: Megatron), the model's type and fp32"
        " (eager: PyTorch), the model's type (chunked: torchtune), or nothing, with head and loss in chunks"
        " (fused: Liger) or logits recomputed (cut: cut cross entropy)",
        LOSSES,
    ),
)
DEFAULTS: Mapping[str, Any] = {
    "model.size": 0.0, "model.batch": 1024, "model.sequence": 4096, "model.layers": 32, "model.hidden": 4096,
    "model.heads": 32, "model.kv_heads": 0, "model.head_dim": 0, "model.value_dim": 0, "model.latent": 0,
    "model.query_latent": 0, "model.rotary": 0, "model.window": 0, "model.ffn": 0, "model.expert_ffn": 0,
    "model.experts": 0, "model.topk": 0, "model.expert_groups": 0, "model.topk_groups": 0,
    "model.shared_ffn": 0, SHARED_GATE: False, "model.power_law": 0.0, grouped_gemm.RANDOM.name: True,
    grouped_gemm.CAPACITY.name: 0.0, grouped_gemm.PADDED.name: False,
    "model.density": 0.0, "model.index_heads": 0, "model.index_dim": 0, "model.index_topk": 0,
    "model.index_block": 0, "model.compression": 0, "model.output_latent": 0, "model.output_groups": 0,
    "model.linear_heads": 0, "model.linear_key_heads": 0, "model.linear_key_dim": 0,
    "model.linear_value_dim": 0, "model.linear_rank": 0, "model.conv_width": 0, STATE.name: "fp32",
    "model.expert_latent": 0, "model.streams": 0, "model.layer_embedding": 0, "model.adapter_rank": 0,
    "model.output_gate": NO_GATE,
    "model.vocabulary": 32000, "model.positions": 0, PATTERN: "dense", "model.norm": RMS, "model.block": PRE,
    "model.qk_norm": False, "model.qk_norm_across_heads": False, "model.biases": NO_BIAS,
    "model.position": ROTARY, "model.activation": "silu",
    "model.gated": True, "model.shared_experts": 0, "model.tied": False, "model.mtp": 0,
    "model.dropout": False, "model.train_tokens": 1e12, "model.train_tokens_per_parameter": 0.0,
    "model.fused_attention": True,
    "model.fused_gradients": True, "model.attention_kernel": KERNELS[0],
    "model.loss": LOSSES[0], "model.loss_chunks": 0,
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
    density: Any
    index_heads: Size
    index_dim: Size
    index_topk: Size
    index_block: Size
    compression: Size
    output_latent: Size
    output_groups: Size
    linear_heads: Size
    linear_key_heads: Size
    linear_key_dim: Size
    linear_value_dim: Size
    linear_rank: Size
    conv_width: Size
    state_bytes: Amount  # of an element of a state
    ffn: Size
    expert_ffn: Size
    experts: Size
    topk: Size
    shared_ffn: Size
    expert_latent: Size
    streams: Size
    layer_embedding: Size
    adapter_rank: Size
    power_law: Any
    random_routing: Any
    capacity_factor: Any
    pad_to_capacity: Any
    vocabulary: Size
    loss_chunks: Size
    positions: Size
    activation_bytes: Size  # of an element, for masks of a byte


def with_default(value: Any, default: Any) -> Any:
    """Return sizes, with a default where they are 0."""
    return (value or default) if isinstance(value, int) else np.where(value > 0, value, default)


def ffn_of(hidden: Any, gated: bool) -> Any:
    """Return the default columns of a feed-forward layer."""
    return -(-(8 * hidden // 3) // _MULTIPLE) * _MULTIPLE if gated else 4 * hidden


def sizes_of(points: Inputs, kind: LayerKind | None = None) -> Sizes:
    """Return the sizes of models with the same structure, with defaults for sizes that are 0.

    kind: of a layer, whose own sizes count instead of the model's. Models with invalid sizes have a network,
    too: callers may read its layers before validation.
    """
    stated = {name: single(points[f"model.{name}"]) for name in Sizes._fields if f"model.{name}" in points}
    if kind is not None:
        stated |= dict(kind.sizes)
    batch, hidden, heads = single(points["model.batch"]), stated["hidden"], stated["heads"]
    if PREFERENCE in points and str(points[PREFERENCE][0]) != "none":
        batch = 2 * batch  # a chosen and a rejected sequence
    head_dim = with_default(stated["head_dim"], with_default(hidden // heads, 1))
    ffn = with_default(stated["ffn"], ffn_of(hidden, bool(points["model.gated"][0])))
    expert_ffn = with_default(stated["expert_ffn"], ffn)
    shared = with_default(stated["shared_ffn"], int(points["model.shared_experts"][0]) * expert_ffn)
    linear_heads, linear_key_dim = (
        with_default(stated[name], 1) for name in ("linear_heads", "linear_key_dim")
    )
    derived = {
        "sequences": batch, "tokens": batch * stated["sequence"], "head_dim": head_dim, "ffn": ffn,
        "kv_heads": with_default(stated["kv_heads"], heads),
        "value_dim": with_default(stated["value_dim"], head_dim),
        "experts": with_default(stated["experts"], 1), "topk": with_default(stated["topk"], 1),
        "expert_ffn": expert_ffn, "shared_ffn": shared,
        "positions": with_default(stated["positions"], stated["sequence"]),
        "loss_chunks": stated.get("loss_chunks", 0),
        "index_block": with_default(stated["index_block"], 1),
        "compression": with_default(stated["compression"], 1),
        "output_groups": with_default(stated["output_groups"], 1),
        "linear_heads": linear_heads, "linear_key_dim": linear_key_dim,
        "linear_key_heads": with_default(stated["linear_key_heads"], linear_heads),
        "linear_value_dim": with_default(stated["linear_value_dim"], linear_key_dim),
        "streams": with_default(stated["streams"], 1),
        "state_bytes": single(map_values(STATE_BYTES, points[STATE.name])),
        "activation_bytes": single(map_values(OUTPUT_BYTES, points["model.dtype"]).astype(np.int64)),
    }  # fmt: skip
    return Sizes(**stated | derived)


_STRUCTURAL = (
    "latent", "query_latent", "shared_ffn", "density", "index_heads", "index_topk", "output_latent",
    "conv_width", "expert_latent", "layer_embedding",
    "adapter_rank",
)  # fmt: skip
"""Sizes that decide which kernels there are: none where they are 0."""


CAUSAL = "model.causal"
"""An input of encoders alone."""


def is_causal(points: Inputs) -> bool:
    """Say whether tokens of models with the same structure attend to no later ones, as a decoder's do."""
    return CAUSAL not in points or bool(points[CAUSAL][0])


def extra_structure(inputs: Inputs) -> tuple[Bools, ...]:
    """Return columns, besides those of the structure, in which models with the same kernels agree."""
    several = (inputs[f"model.{name}"] > 1 for name in ("streams", "compression"))
    return *(inputs[f"model.{name}"] > 0 for name in _STRUCTURAL), *several
