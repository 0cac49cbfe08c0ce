"""A pass that turns queries and keys by their positions, and writes keys and values to the cache.

Rotary embedding (Su et al., arXiv:2104.09864) and the cache's write are one kernel in serving libraries
(TensorRT-LLM's applyBiasRopeUpdateKVCache), which rounds to the types of attention and of the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastflow.tables import Ints
from fastflow.workload.graph import Kernel
from fastflow.workload.layers import KernelType, Network, Node, Side
from fastflow.workload.precision import Precision
from fastflow.workload.types.elementwise import TYPE as PASS
from fastflow.workload.types.operators import OPERATORS
from fastflow.yaml_file import wrong


def kv_cache(name: str, rows: Ints | int, cols: Ints | int, *, read: Ints, made: Ints, kept: Ints) -> Node:
    """Return a pass over rows x cols, which moves so many columns of activations, operands, and of the cache.

    read: columns of activations that it moves; made: of operands of attention; kept: of the cache.
    """
    own = {"read": read, "made": made, "kept": kept}
    return Node(name=name, type=TYPE, rows=rows, cols=cols, keeps=0, own=own)


def _forward(network: Network, i: int, kernel: Kernel, numbers: Precision) -> Kernel:
    node = network.nodes[i].node
    own: Mapping[str, Any] = node.own
    moved = own["read"] * numbers.activation + own["made"] * numbers.attention + own["kept"] * numbers.cache
    return kernel._replace(bytes_per_element=moved / node.cols, flop_per_element=OPERATORS["rotary"].flop)


def _of_file(
    where: str, node: Node, sides: Mapping[str, Side], model: Side, given: Mapping[str, Any]
) -> Node:
    """Return the pass of a file over queries, keys and values; `kept` are the columns of the latter two."""
    cols, kept = int(node.cols), sides["kept"].size
    if kept > cols:
        raise wrong(f"{where}.kept", f"at most its {cols} columns", kept)
    return node._replace(own={"read": cols, "made": cols - kept, "kept": kept}, backward_moves=2.0)


TYPE: KernelType = replace(
    PASS, name="kv_cache", title="rotary embedding and cache", needs=("cols", "kept"),
    takes=("rows", "reads"), forward=_forward, of_file=_of_file,
)  # fmt: skip
