"""Layers of an encoder-decoder: branches with their norms and sums; self attention and cross attention.

Vaswani et al. (arXiv:1706.03762, section 3): an encoder layer has self attention of all tokens with all
tokens, a decoder layer causal self attention, cross attention of its tokens with the encoder's output, and
both a feed-forward part. Biases of relative positions (T5, arXiv:1910.10683, section 2.1) are computed
inside the fused kernel from a table of some numbers a head, as FlexAttention does (arXiv:2412.05496): they
move no bytes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from fastflow.core.tables import Floats, Inputs, single
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.memory_bound import run_passes
from fastflow.physics.workload.graph import ATTENTION, FEED_FORWARD, Dims
from fastflow.physics.workload.models.encoder_decoder.dimensions import (
    BUCKETS,
    RELATIVE_IN_LAYERS,
    Sides,
)
from fastflow.physics.workload.models.transformer.building_blocks import (
    GRADIENT_SUM_MOVES,
    HEADS,
    HIDDEN,
    TOKENS,
    gemm,
    mask,
    residual,
)
from fastflow.physics.workload.models.transformer.dimensions import ALL, KERNELS, PRE, Sizes
from fastflow.physics.workload.models.transformer.feed_forward import dense
from fastflow.physics.workload.models.transformer.network import layer_norm
from fastflow.physics.workload.network import INPUT, Node, PassCost, ProductPasses, Size
from fastflow.physics.workload.ops import elementwise
from fastflow.physics.workload.ops.attention import AttentionSizes, attention
from fastflow.physics.workload.ops.kv_cache import kv_cache_in_decode
from fastflow.physics.workload.sharding_rules import Share

CORE_DIMS = Dims(("sequence",), (), HEADS, ("batch",))
ADD, NORM = "add", "norm"
SELF, CROSS = "attention ", "cross "
"""Prefixes of the names of a branch's norm and sum."""
CROSS_KEYS = "cross key value"
ENCODED = "encoder output"


def last_node(points: Inputs) -> str:
    """Return the name of the last node of every layer."""
    return ADD if points["model.block"][0] == PRE else NORM


def is_biased(points: Inputs) -> bool:
    """Say whether products have biases."""
    return bool(points["model.biases"][0] == ALL)


def encoder_layer(points: Inputs, sides: Sides) -> tuple[Node, ...]:
    """Return the nodes of an encoder layer."""
    size = sides.source

    def self_attention(read: str) -> list[Node]:
        return _self_attention(points, size, read, causal=False)

    nodes = _branch(points, size, SELF, INPUT, self_attention, ATTENTION)
    return (*nodes, *_feed_forward(points, size, nodes[-1].name))


def decoder_layer(
    points: Inputs, sides: Sides, read: str, encoded: str, is_first: bool = False
) -> list[Node]:
    """Return the nodes of a decoder layer; encoded: the node whose output is the encoder's.

    is_first: that node is in this layer, or in the layer below.
    """
    size = sides.target

    def self_attention(read: str) -> list[Node]:
        return _self_attention(points, size, read, causal=True)

    def cross_attention(read: str) -> list[Node]:
        rereads = [] if is_first else [reread(sides.source, encoded)]
        return [*rereads, *_cross_attention(points, sides, read, encoded if is_first else ENCODED)]

    nodes = _branch(points, size, SELF, read, self_attention, ATTENTION)
    nodes += _branch(points, size, CROSS, nodes[-1].name, cross_attention, ATTENTION)
    return [*nodes, *_feed_forward(points, size, nodes[-1].name)]


def decode_layer(points: Inputs, sides: Sides) -> list[Node]:
    """Return the nodes of a decoder layer for few new tokens of each sequence, after cached ones."""
    size = sides.target

    def self_attention(read: str) -> list[Node]:
        return _self_attention_in_decode(points, size, read)

    def cross_attention(read: str) -> list[Node]:
        return _cross_attention_in_decode(points, sides, read)

    nodes = _branch(points, size, SELF, INPUT, self_attention, ATTENTION)
    nodes += _branch(points, size, CROSS, nodes[-1].name, cross_attention, ATTENTION)
    return [*nodes, *_feed_forward(points, size, nodes[-1].name)]


def _branch(
    points: Inputs, size: Sizes, prefix: str, read: str, branch: Callable[[str], list[Node]], part: int
) -> list[Node]:
    """Return a branch with its norm and residual sum; only the sum reads the branch's last node."""
    before, name = points["model.block"][0] == PRE, f"{prefix}{NORM}"
    nodes = [layer_norm(points, size, name, read)] if before else []
    *inner, output = branch(nodes[-1].name if before else read)
    inner = [node._replace(part=part) for node in (*inner, output._replace(keeps=0, keeps_whole=0))]
    dropout = bool(points["model.dropout"][0])
    add = residual(f"{prefix}{ADD}", size, (output.name, read), dropout, int(is_biased(points)))
    if prefix == SELF and points["model.position"][0] == RELATIVE_IN_LAYERS:
        add = add._replace(vectors=add.vectors + BUCKETS * size.heads)
    nodes += [*inner, add]
    return nodes if before else [*nodes, layer_norm(points, size, name, add.name)]


def _feed_forward(points: Inputs, size: Sizes, read: str) -> list[Node]:
    return _branch(points, size, "", read, lambda source: dense(points, size, source)[0], FEED_FORWARD)


def reread(size: Sizes, read: str) -> Node:
    """Return a node that makes the encoder's output an input of this layer, too; it launches no kernel.

    Devices that share the tokens gather them in every layer, as a product of Megatron-LM gathers its input
    (core/tensor_parallel/layers.py at 000c4ac). Backward, a pass adds the gradient of this layer to that of
    the layers above: two tensors in, a tensor out (PyTorch's autograd).
    """
    return Node(
        name=ENCODED, type=_REREAD, rows=size.tokens, cols=size.hidden, reads=(read,), keeps=0, keeps_whole=0,
        cost=PassCost(0.0, 0.0, GRADIENT_SUM_MOVES, 1.0), dims=Dims(TOKENS, (), HIDDEN), part=ATTENTION,
    )  # fmt: skip


def _launch_nothing(device: Device, share: Share) -> tuple[Launched, Floats]:
    none = np.zeros(share.m.size)
    passes = run_passes(device, share.device, moved=none, launches=none, operations=none, trips=none)
    return passes, none


_REREAD = replace(elementwise.TYPE, title="output of another layer", time=_launch_nothing)


# --- attention


def _self_attention(points: Inputs, size: Sizes, read: str, *, causal: bool) -> list[Node]:
    return [
        _queries_keys_values(points, size, read),
        _core(points, "attention", ("qkv",), size, size.sequence, causal),
        _projection("projection", size, "attention"),
    ]


def _cross_attention(points: Inputs, sides: Sides, read: str, encoded: str) -> list[Node]:
    """Return cross attention; its queries are the decoder's tokens, its keys and values the encoder's."""
    size = sides.target
    operands = ("cross query", CROSS_KEYS, CROSS_KEYS)
    return [
        cross_keys(points, sides, encoded),
        _cross_queries(points, size, read),
        _core(points, "cross attention", operands, size, sides.source.sequence, False),
        _projection("cross projection", size, "cross attention"),
    ]


def cross_keys(points: Inputs, sides: Sides, encoded: str) -> Node:
    """Return the product of a decoder layer with the encoder's output: keys and values of cross attention."""
    size = sides.source
    cols = 2 * size.kv_heads * size.head_dim
    return gemm(
        CROSS_KEYS, size, size.hidden, cols, encoded, (HIDDEN, HEADS), is_biased(points), keeps_whole=0,
        part=ATTENTION,
        passes=ProductPasses(regathers_input=True),  # the encoder's output is saved once, as devices have it
    )  # fmt: skip


def _queries_keys_values(points: Inputs, size: Sizes, read: str) -> Node:
    cols = (size.heads + 2 * size.kv_heads) * size.head_dim
    return gemm("qkv", size, size.hidden, cols, read, (HIDDEN, HEADS), is_biased(points), keeps_whole=0)


def _cross_queries(points: Inputs, size: Sizes, read: str) -> Node:
    cols = size.heads * size.head_dim
    return gemm(
        "cross query", size, size.hidden, cols, read, (HIDDEN, HEADS), is_biased(points), keeps_whole=0
    )


def _core(points: Inputs, name: str, reads: tuple[str, ...], size: Sizes, keys: Size, causal: bool) -> Node:
    """Return fused attention of the tokens of `size` with `keys` tokens of each sequence."""
    return attention(
        name, reads, _core_sizes(size, keys), causal, expanded=True, dims=CORE_DIMS,
        keeps=mask(size, 4),  # the sum of each query's exponentials, in fp32
        flash=KERNELS.index(str(points["model.attention_kernel"][0])),
    )  # fmt: skip


def _core_sizes(size: Sizes, keys: Size) -> AttentionSizes:
    return AttentionSizes(
        size.sequences, size.sequence, keys, size.heads, size.kv_heads, size.head_dim, size.head_dim, 0
    )


def _projection(name: str, size: Sizes, read: str) -> Node:
    return gemm(name, size, size.heads * size.head_dim, size.hidden, read, (HEADS, HIDDEN))


# --- decoding


def _self_attention_in_decode(points: Inputs, size: Sizes, read: str) -> list[Node]:
    """Return self attention over the cache, which takes the keys and values of the new tokens first."""
    keys = single(points["model.before"]) + size.sequence
    core = _decode_core("attention", ("cache",), size, keys, True)
    kept = 2 * size.kv_heads * size.head_dim
    cache = kv_cache_in_decode("cache", size.tokens, core, read=0, made=0, kept=kept)
    return [
        _queries_keys_values(points, size, read),
        cache._replace(reads=("qkv",), dims=Dims(("batch", "sequence"), (), HEADS)),
        core,
        _projection("projection", size, "attention"),
    ]


def _cross_attention_in_decode(points: Inputs, sides: Sides, read: str) -> list[Node]:
    """Return cross attention over the cache of the source, to which no step adds."""
    size = sides.target
    return [
        _cross_queries(points, size, read),
        _decode_core("cross attention", ("cross query",), size, sides.source.sequence, False),
        _projection("cross projection", size, "cross attention"),
    ]


def _decode_core(name: str, reads: tuple[str, ...], size: Sizes, keys: Size, causal: bool) -> Node:
    return attention(name, reads, _core_sizes(size, keys), causal, decodes=True, dims=CORE_DIMS)


def without_sequence(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes of a step of few tokens a sequence, which no device shares: of whole sequences."""
    return tuple(
        node._replace(
            dims=node.dims._replace(rows=tuple(name for name in node.dims.rows if name != "sequence"))
        )
        for node in nodes
    )
