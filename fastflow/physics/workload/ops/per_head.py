"""A product of each head's columns with weights of its own, such as absorbed latent attention has.

A group of rows is a head's; devices that share the heads share the groups. Its input and output are those of
all heads side by side, so that it reads and makes columns that are sharded by heads.
"""

from __future__ import annotations

from dataclasses import replace

from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.network import Node, Size
from fastflow.physics.workload.ops.gemm import TYPE as PRODUCT
from fastflow.physics.workload.sharding_rules import COLS, GROUPS, ROWS


def per_head(name: str, tokens: Size, heads: Size, inner: Size, cols: Size, read: str, dims: Dims) -> Node:
    """Return the product of `heads` times `inner` columns of every token with the weights of each head.

    dims: names of the tokens' dimensions, and as groups of the heads'.
    """
    return Node(
        name=name, type=TYPE, rows=tokens * heads, cols=cols, inner=inner, groups=heads, reads=(read,),
        dims=dims, keeps=0, wide=True,
    )  # fmt: skip


TYPE = replace(
    PRODUCT, name="per_head", title="product of each head", sides={ROWS: ROWS, COLS: GROUPS},
    reads=({ROWS: ROWS, GROUPS: COLS},), makes={ROWS: ROWS, GROUPS: COLS},
)  # fmt: skip
