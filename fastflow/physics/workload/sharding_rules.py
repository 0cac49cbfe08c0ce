"""How a kernel type is sharded: its sides, and the placements of its tensors along a mesh axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs, Ints, Texts
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched

ROWS, INNER, COLS, GROUPS = "rows", "inner", "cols", "groups"
"""Sides of a kernel: of its output, and the inner side that a product contracts. A group of rows is never
split: each group goes to a separate product, such as an expert's."""
SIDES = (ROWS, INNER, COLS, GROUPS)
REPLICATE, PARTIAL = "B", "P"
"""Placements of a tensor along a mesh axis, other than sharded in a side."""
OUTPUT = {ROWS: ROWS, COLS: COLS, GROUPS: GROUPS}
"""Of a kernel that is sharded as its output is."""


class ElementBytes(NamedTuple):
    """Bytes of an element of a kernel's tensors, by role, as in `precision.Precision`; shape (kernels,)."""

    operand: Floats  # as a product computes with it
    stored: Floats  # of a weight as a product reads it
    conversion: Floats  # instructions that convert a weight
    output: Floats  # of a weight gradient: all that is moved to sum it
    activation: Floats
    attention: Floats
    cache: Floats


class Share(NamedTuple):
    """A device's shards of kernels of a single type; shape (kernels,)."""

    device: Ints  # index of the device
    kind: Ints
    m: Ints  # of a product: m x k times k x n; of a pass 0, 0 and its columns; of an update m x n weights
    k: Ints
    n: Ints
    batch: Ints  # products
    rows: Ints  # of the whole, unsharded kernel
    products: Ints
    row_shards: Ints  # number of shards of a side
    col_shards: Ints
    group_shards: Ints
    elements: Floats  # of a pass
    num_microbatches: Ints
    bytes: ElementBytes
    attributes: Mapping[str, Floats]  # as graph.Kernel.attributes, unsharded

    @property
    def is_backward(self) -> Bools:
        """Which kernels of a type that times its gradient are of the backward pass, (kernels,)."""
        flags: Bools = self.attributes.get("backward", np.zeros(self.n.size)) > 0.0
        return flags


Time = Callable[[Device, Share], tuple[Launched, Floats]]
"""Returns how a launch of each shard runs, and its operations [flop]."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ShardingRule:
    """How kernels of a type are timed and sharded: the part of a `network.KernelType` that sharding needs.

    `reads`, of each operand, and `makes`, of the output, map every side that can be sharded to the placement
    of the tensor along the mesh axis: sharded in a side of the kernel (the inner side is the columns of its
    input), replicated or a partial sum. A gradient has the placement of its tensor, except that the gradient
    of a replicated tensor is a partial sum, and the reverse.
    """

    title: str  # on the screen
    kind: int  # of its forward kernel: PRODUCT and BATCHED are tiled, others are memory-bound passes
    gradient: int  # of its weights; NO_GRADIENT: it has no weights
    # from "rows", "inner", "cols", or a dimension, where they shard it, to the side
    sides: Mapping[str, str]
    reads: tuple[Mapping[str, str], ...]
    makes: Mapping[str, str]  # before any collective
    time: Time | None = None  # of its products, or of its forward pass; None: by their kind
    times_backward: bool = False  # whether `time` is of the passes of its gradient, too
    launches: int = 1  # kernels of its library that it stands for, forward
    times_update: bool = False  # whether `time` is of the update of its weights, and of nothing else
    dtype: Callable[[Inputs], Texts] | None = None  # in which they compute, (points,); None: model.dtype
    stored: Callable[[Inputs], Texts] | None = None  # in which operands are stored; None: as they compute
    # of shards: operations on vector lanes for each operation of their products [flop/flop]; None: none
    lanes: Callable[[Share], Floats] | None = None
