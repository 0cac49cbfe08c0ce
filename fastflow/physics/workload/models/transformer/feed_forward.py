"""The feed-forward part of a transformer's layer: dense, or a mixture of experts with shared experts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Inputs
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.transformer.building_blocks import (
    FEED_FORWARD,
    GATE_FLOP,
    HIDDEN,
    TOKENS,
    activation,
    gemm,
)
from fastflow.physics.workload.models.transformer.dimensions import ALL, BEFORE, SHARED_GATE, Sizes
from fastflow.physics.workload.network import Node, PassCost, Size
from fastflow.physics.workload.ops import elementwise, grouped_gemm, moe_passes
from fastflow.physics.workload.recompute_modules import KEEPS_OUTPUT, MLP, MOE, MOE_ACT, SHARED_EXPERTS

_EXPERTS, _LATENT = ("experts",), ("expert_latent",)
# products around experts that work in a latent space (Nemotron 3 Super's LatentMoE)
_DOWN, _UP = "latent down", "latent up"
_BIAS = "expert bias"
_SCORE, _WEIGHT = "shared score", "shared weight"
# Elements of 16 bits that frameworks move for an element of the experts' output, to add each expert's bias
# times the router's weight, which is in fp32 (_apply_bias of TEGroupedMLP, megatron/core/transformer/moe/
# experts.py, and of nemo_automodel/components/moe/layers.py). Forward: product 4 B, sum 10, concatenation 8,
# rounding 6. Backward: of rounding and sum 12, concatenation 4, products of the gradients of bias and weight
# 16, their sums 8
_BIAS_COST = PassCost(moves=14.0, flop=2.0, backward_moves=20.0, backward_flop=4.0)


def dense(points: Inputs, size: Sizes, read: str) -> tuple[list[Node], tuple[str, ...]]:
    """Return the nodes of a dense feed-forward layer on the output of `read`, and the output's node."""
    nodes = in_module(MLP, dense_nodes(points, size, size.ffn, read, ""))
    return nodes, (nodes[-1].name,)


def in_module(module: int, nodes: list[Node]) -> list[Node]:
    """Return nodes as a part that is recomputed as a whole: the last one's output is kept."""
    nodes = [node._replace(modules=node.modules | module) for node in nodes]
    nodes[-1] = nodes[-1]._replace(modules=nodes[-1].modules | KEEPS_OUTPUT)
    return nodes


def dense_nodes(points: Inputs, size: Sizes, ffn: Size, read: str, prefix: str) -> list[Node]:
    """Return the products of a dense feed-forward part, and the activation between them.

    ffn: its columns; prefix: of the nodes' names.
    """
    gated, biased = bool(points["model.gated"][0]), str(points["model.biases"][0]) == ALL
    up, middle, down = (prefix + name for name in _names(gated))
    cols = 2 * ffn if gated else ffn
    return [
        gemm(up, size, size.hidden, cols, read, (HIDDEN, FEED_FORWARD), biased),
        activation(middle, size, str(points["model.activation"][0]), gated, up, ffn),
        gemm(down, size, ffn, size.hidden, middle, (FEED_FORWARD, HIDDEN)),
    ]


def _names(gated: bool) -> tuple[str, str, str]:
    return ("gate and up", "gate", "down") if gated else ("up", "activation", "down")


class _Routed(NamedTuple):
    """The rows of a mixture's experts."""

    rows: Size  # that experts compute, padding included
    tokens: Size  # whose choices are spread over experts
    power_law: Any  # of their loads
    random: Any
    capacity: Any  # of an expert over the mean; 0: no limit


def _routed(size: Sizes) -> _Routed:
    """Return the rows of experts: padded ones have those of more tokens, and all of them as many."""
    if not np.any(size.capacity_factor):
        return _Routed(size.tokens * size.topk, size.tokens, size.power_law, size.random_routing, 0)
    # no expert has more than all tokens
    factor = np.minimum(size.capacity_factor, size.experts / size.topk)
    pads, limits = size.pad_to_capacity & (factor > 0.0), factor > 0.0
    kept = np.where(pads, factor, np.where(limits, np.minimum(factor, 1.0), 1.0))
    padded = np.ceil(size.tokens * np.where(pads, factor, 1.0)).astype(np.int64)
    return _Routed(
        _whole(size.tokens * size.topk * kept), _whole(padded), np.where(pads, 0.0, size.power_law),
        size.random_routing & ~pads, np.where(pads, 0.0, factor),
    )  # fmt: skip


def _whole(values: Any) -> Size:
    """Return sizes, rounded up; a single one as a number."""
    rounded = np.maximum(np.ceil(values), 1.0).astype(np.int64)
    return int(rounded) if rounded.ndim == 0 else rounded


def mixture(points: Inputs, size: Sizes, read: str) -> tuple[list[Node], tuple[str, ...]]:
    """Return the nodes of an expert layer on the output of `read`, and the nodes whose sum is its output."""
    gated, kind = bool(points["model.gated"][0]), str(points["model.activation"][0])
    biased = str(points["model.biases"][0]) == ALL
    topk, ffn = size.topk, size.expert_ffn
    choices = _routed(size)
    rows = choices.rows
    is_latent = bool(np.any(np.asarray(size.expert_latent) > 0))
    width, columns = (size.expert_latent, _LATENT) if is_latent else (size.hidden, HIDDEN)
    attributes = grouped_gemm.mixture(
        choices.tokens, topk, size.experts, size.experts, choices.power_law, random=choices.random,
        capacity=choices.capacity,
    )  # fmt: skip
    up, middle, down = _names(gated)

    def a_pass(
        name: str, rows: Size, cols: Size, read: str, names: tuple[str, ...], moves: Any = None
    ) -> Node:
        return Node(
            name=name, type=moe_passes.TYPES[name], rows=rows, cols=cols, reads=(read,),
            attributes=attributes, dims=Dims(TOKENS, () if moves is None else _EXPERTS, names),
            cost=PassCost(moves=moves, backward_moves=moves),
        )  # fmt: skip

    def product(name: str, inner: Size, cols: Size, read: str, is_up: bool) -> Node:
        names = (columns, FEED_FORWARD) if is_up else (FEED_FORWARD, columns)
        vectors = size.experts * cols if biased else 0
        return Node(
            name=name, type=grouped_gemm.TYPE, rows=rows, cols=cols, inner=inner, groups=size.experts,
            reads=(read,), attributes={**attributes, "gated": float(gated and is_up)}, vectors=vectors,
            dims=Dims(TOKENS, *names, _EXPERTS), keeps=None if is_up else 0,
        )  # fmt: skip

    if gated:
        gate = Node(
            name=middle, type=moe_passes.TYPES["expert_gate"], rows=rows, cols=ffn, reads=(up,),
            attributes=attributes, dims=Dims(TOKENS, (), FEED_FORWARD, _EXPERTS),
        )  # fmt: skip
    else:
        of_groups = Dims(TOKENS, (), FEED_FORWARD, _EXPERTS)
        gate = activation(middle, size, kind, False, up, ffn, rows=rows, groups=size.experts, dims=of_groups)
    added, summed = [], down
    if biased and BEFORE.name not in points:  # products of servers add it
        summed = _BIAS
        added = [Node(
            name=_BIAS, type=elementwise.TYPE, rows=rows, cols=width, groups=size.experts, reads=(down,),
            cost=_BIAS_COST, dims=Dims(TOKENS, (), columns, _EXPERTS), keeps=0,
        )]  # fmt: skip
    gate = gate._replace(modules=MOE_ACT)
    nodes = [
        gemm("router", size, size.hidden, size.experts, read, (HIDDEN, _EXPERTS), biased, wide=True),
        a_pass("route", size.tokens, size.experts, "router", _EXPERTS),
        *([gemm(_DOWN, size, size.hidden, width, read, (HIDDEN, _LATENT))] if is_latent else []),
        a_pass("dispatch", rows, width, _DOWN if is_latent else read, columns, 1.0 + 1.0 / topk),
        product(up, width, 2 * ffn if gated else ffn, "dispatch", True),
        gate,
        product(down, ffn, width, middle, False),
        *added,
        a_pass("combine", size.tokens, width, summed, columns, 1.0 + topk),
        *([gemm(_UP, size, width, size.hidden, "combine", (_LATENT, HIDDEN))] if is_latent else []),
    ]
    nodes, shared = in_module(MOE, nodes), []
    if np.any(size.shared_ffn):
        shared = dense_nodes(points, size, size.shared_ffn, read, "shared ")
        if points[SHARED_GATE][0]:
            shared = _weighted(size, read, shared)
        shared = in_module(MOE | SHARED_EXPERTS, shared)
    routed = _UP if is_latent else "combine"
    return [*nodes, *shared], (routed, *(node.name for node in shared[-1:]))


def _weighted(size: Sizes, read: str, nodes: list[Node]) -> list[Node]:
    """Return the nodes of shared experts with a gate: the sigmoid of a token's number, which a product makes.

    The gate commutes with the last product: before it no device has partial sums.
    """
    *others, down = nodes
    weight = Node(
        name=_WEIGHT, type=elementwise.TYPE, rows=size.tokens, cols=size.shared_ffn,
        reads=(down.reads[0], _SCORE), cost=PassCost(2.0, GATE_FLOP, 4.0),
        dims=Dims(TOKENS, (), FEED_FORWARD),
    )  # fmt: skip
    score = gemm(_SCORE, size, size.hidden, 1, read, (HIDDEN, ()))
    return [*others, score, weight, down._replace(reads=(_WEIGHT,))]
