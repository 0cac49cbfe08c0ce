"""How a type of kernel is cut: its sides, and the layouts of its tensors along an axis that cuts one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fastflow.core.tables import Floats, Inputs, Ints, Texts
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched

ROWS, INNER, COLS, GROUPS = "rows", "inner", "cols", "groups"
"""Sides of a kernel: of what it makes, and between the two that a product contracts. Groups of rows are
dealt out whole: each goes to products of its own, such as an expert's."""
SIDES = (ROWS, INNER, COLS, GROUPS)
REPLICATE, PARTIAL = "B", "P"
"""Layouts of a tensor along an axis of the mesh, beside a split in a side."""
OUTPUT = {ROWS: ROWS, COLS: COLS, GROUPS: GROUPS}
"""Of a kernel that is cut as what it makes is."""


class Share(NamedTuple):
    """One device's shares of kernels of one type; shape (kernels,)."""

    device: Ints  # which one it runs on
    kind: Ints
    m: Ints  # of one product: m x k times k x n; of a pass 0, 0 and its columns
    k: Ints
    n: Ints
    batch: Ints  # products
    rows: Ints  # of the whole kernel, uncut
    products: Ints
    row_shards: Ints  # devices among which a side is cut
    col_shards: Ints
    group_shards: Ints
    elements: Floats  # of a pass
    num_microbatches: Ints  # micro-batches
    operand: Floats  # [B] of an element, in the data type that the type computes in
    output: Floats
    activation: Floats
    attention: Floats
    cache: Floats
    attributes: Mapping[str, Floats]  # as graph.Kernel.attributes has it, uncut


Time = Callable[[Device, Share], tuple[Launched, Floats]]
"""How one launch of each share runs, and the operations that it does."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ShardingRule:
    """How kernels of a type are timed and cut: the part of a `network.KernelType` that splits go by.

    `reads`, of each operand, and `makes` have an entry for every side that can be cut: how a tensor lies
    along the axis then, split in one of the kernel's sides (the inner one is the columns of what it reads),
    broadcast or a partial sum. Its gradient lies as it does, but that a broadcast one's is a partial sum, and
    the other way round.
    """

    title: str  # on the screen
    kind: int  # of its forward kernel: PRODUCT and BATCHED are searched for tiles, others are passes
    gradient: int  # of the weights that it owns; NO_GRADIENT: it owns none
    sides: Mapping[str, str]  # of "rows", "inner" and "cols", those that cut it: which side
    reads: tuple[Mapping[str, str], ...]
    makes: Mapping[str, str]  # before anything is exchanged
    time: Time | None = None  # of its products, or of its forward pass; None: as their kind is
    dtype: Callable[[Inputs], Texts] | None = None  # that those compute in, (points,); None: model.dtype
    stored: Callable[[Inputs], Texts] | None = None  # that they read operands in; None: as they compute
