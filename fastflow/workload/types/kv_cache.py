"""A pass that turns queries and keys by their positions, and writes keys and values to the cache.

Rotary embedding (Su et al., arXiv:2104.09864) and the cache's write are one kernel in serving libraries
(TensorRT-LLM's applyBiasRopeUpdateKVCache), which rounds to the types of attention and of the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastflow.workload.graph import Kernel
from fastflow.workload.layers import KernelType, Network, Node, Side, Size
from fastflow.workload.precision import Precision
from fastflow.workload.types.elementwise import TYPE as PASS
from fastflow.workload.types.operators import OPERATORS
from fastflow.yaml_file import wrong


def kv_cache(
    name: str, rows: Size, cols: Size, *, read: Size, kept: Size, made: Size = 0, rounded: Size = 0
) -> Node:
    """Return a pass over rows x cols; of each row it moves so many columns in each role.

    read: of activations; kept: of the cache; made: of attention's operands; rounded: of activations that
    are operands too once a second launch has rounded them, where these have fewer bytes.
    """
    own = {"read": read, "kept": kept, "made": made, "rounded": rounded}
    return Node(name=name, type=TYPE, rows=rows, cols=cols, keeps=0, own=own)


def _forward(network: Network, i: int, kernel: Kernel, numbers: Precision) -> Kernel:
    node = network.nodes[i].node
    own: Mapping[str, Any] = node.own
    narrow = 1.0 * (np.asarray(numbers.attention) < numbers.activation)
    moved = own["read"] * numbers.activation + own["kept"] * numbers.cache + own["made"] * numbers.attention
    moved = moved + narrow * own["rounded"] * (numbers.activation + numbers.attention)
    launches = 1 + (narrow * (np.asarray(own["rounded"]) > 0)).astype(np.int64)
    return kernel._replace(
        repeat=launches, bytes_per_element=moved / (launches * node.cols),
        flop_per_element=OPERATORS["rotary"].flop,
    )  # fmt: skip


def _of_file(
    where: str, node: Node, sides: Mapping[str, Side], model: Side, given: Mapping[str, Any]
) -> Node:
    """Return the pass of a file over queries, keys and values; `kept` are the columns of the latter two."""
    cols, kept = int(node.cols), sides["kept"].size
    if kept > cols:
        raise wrong(f"{where}.kept", f"at most its {cols} columns", kept)
    own = {"read": cols, "made": cols - kept, "kept": kept, "rounded": 0}
    return node._replace(own=own, backward_moves=2.0)


TYPE: KernelType = replace(
    PASS, name="kv_cache", title="rotary embedding and cache", needs=("cols", "kept"),
    takes=("rows", "reads"), forward=_forward, of_file=_of_file,
)  # fmt: skip
