"""A product with block-diagonal weights: each group of columns has a separate block, and makes a group.

Rows are those of all groups: `rows / groups` tokens times a block of inner x cols each. Groups are heads, so
that tensor parallelism divides them; where a plan shards the tokens of a sequence that a mixer needs whole,
groups are sharded, as the mixer's heads are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.network import KernelType, Node, Size
from fastflow.physics.workload.ops.gemm import TYPE as PRODUCT
from fastflow.physics.workload.ops.recurrence.kernel_type import SEQUENCE
from fastflow.physics.workload.sharding_rules import COLS, GROUPS, ROWS

TYPE: KernelType = replace(
    PRODUCT,
    name="block_diagonal",
    title="block-diagonal product",
    sides={ROWS: ROWS, SEQUENCE: GROUPS},
    reads=({ROWS: ROWS, GROUPS: COLS},),
    makes={ROWS: ROWS, GROUPS: COLS},
    required=("inner", "cols", "groups"),
)


def block_diagonal(
    name: str, tokens: Size, groups: Size, inner: Size, cols: Size, names: tuple[str, ...], **fields: Any
) -> Node:
    """Return a product of each group's `inner` columns with a block of inner x cols weights.

    tokens: rows of its input; names: of the dimension of groups; fields: further fields of the node.
    """
    return Node(
        name=name, type=TYPE, rows=tokens * groups, inner=inner, cols=cols, groups=groups,
        dims=Dims(("batch", SEQUENCE), (), (), names), **fields,
    )  # fmt: skip
