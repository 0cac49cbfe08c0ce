"""Hyper-connections: a residual of several streams (Zhu et al., arXiv:2409.19606; mHC, arXiv:2512.24880).

Before a branch, weights of its tokens mix the streams into its input; after it, they mix the streams with
each other and add its output to each. The weights, n^2 + 2 n of n streams, are a product of all streams.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.models.transformer.building_blocks import (
    GRADIENT_SUM_MOVES,
    HIDDEN,
    TOKENS,
    gemm,
)
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.network import Node, PassCost, Size
from fastflow.physics.workload.ops import pointwise

_DIMS = Dims(TOKENS, (), HIDDEN)
_WEIGHTS = ("stream_weights",)


class Streams(NamedTuple):
    """The streams of a branch: the node that makes its input, and the one that makes its weights."""

    nodes: tuple[Node, ...]
    mixed: str
    weights: str


def mixed_streams(size: Sizes, branch: str, read: str) -> Streams:
    """Return the nodes that mix the streams of `read` into the input of a branch."""
    streams, weights, mixed = size.streams, f"{branch} stream weights", f"{branch} streams"
    all_columns = streams * size.hidden
    product = gemm(
        weights, size, all_columns, streams * streams + 2 * streams, read, (HIDDEN, _WEIGHTS), wide=True,
        keeps=0,
    )  # fmt: skip
    moves = streams + 1.0
    mix = _pass(mixed, size, size.hidden, (read, weights), moves, 2.0 * streams)
    return Streams((product, mix), mixed, weights)


def stream_sum(size: Sizes, name: str, outputs: tuple[str, ...], read: str, weights: str) -> Node:
    """Return the pass that mixes the streams of `read` with each other, and adds a branch to each."""
    streams = size.streams
    moves = 2.0 + len(outputs) / streams  # of an element of all streams
    node = _pass(
        name, size, streams * size.hidden, (*outputs, read, weights), moves, 2.0 * streams + 2.0,
        backward_moves=GRADIENT_SUM_MOVES + 1.0 / streams,
    )  # fmt: skip
    return node._replace(type=pointwise.TYPES["add"], keeps=streams * size.hidden)


def expanded(size: Sizes, name: str, read: str) -> Node:
    """Return the pass that copies a token's columns to all streams."""
    return _pass(name, size, size.streams * size.hidden, (read,), 1.0 + 1.0 / size.streams, 0.0)


def reduced(size: Sizes, name: str, read: str) -> Node:
    """Return the pass that adds all streams up."""
    return _pass(name, size, size.hidden, (read,), size.streams + 1.0, 1.0 * size.streams)


def _pass(
    name: str, size: Sizes, cols: Size, reads: tuple[str, ...], moves: Any, flop: Any,
    backward_moves: Any = None,
) -> Node:  # fmt: skip
    return Node(
        name=name, type=pointwise.OPERATORS["mul"].base, rows=size.tokens, cols=cols, reads=reads,
        cost=PassCost(moves, flop, moves if backward_moves is None else backward_moves), keeps=0,
        keeps_whole=0, dims=_DIMS,
    )  # fmt: skip
