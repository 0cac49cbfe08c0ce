"""A pass that turns queries and keys by their positions, and writes keys and values to the cache.

Rotary embedding (Su et al., arXiv:2104.09864) and the cache's write are one kernel in serving libraries
(TensorRT-LLM's applyBiasRopeUpdateKVCache), which rounds to the types of attention and of the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastflow.core.tables import Floats
from fastflow.core.yaml_file import wrong
from fastflow.physics.timing.attention.decode import fuses_rotary
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.memory_bound import run_passes
from fastflow.physics.workload.graph import Kernel
from fastflow.physics.workload.network import KernelType, Network, Node, Side, Size
from fastflow.physics.workload.ops.attention import decodes_of
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.ops.pointwise import OPERATORS
from fastflow.physics.workload.precision import Precision, wide_type
from fastflow.physics.workload.sharding_rules import Share


def kv_cache(
    name: str, rows: Size, cols: Size, *, read: Size, kept: Size, made: Size = 0, rounded: Size = 0
) -> Node:
    """Return a pass over rows x cols; of each row it moves so many columns in each role.

    read: of activations; kept: of the cache; made: of attention's operands; rounded: of activations that
    are operands too once a second launch has rounded them, where these have fewer bytes.
    """
    own = {"read": read, "kept": kept, "made": made, "rounded": rounded}
    return Node(name=name, type=TYPE, rows=rows, cols=cols, keeps=0, own=own)


def before_decoding(name: str, rows: Size, core: Node, *, read: Size, made: Size, kept: Size) -> Node:
    """Return the same pass before attention of few queries, where its kernel does not do that itself.

    made: of activations again; of latent attention over a narrow cache all of a query is rounded to it.
    """
    own: dict[str, Any] = {
        **core.own,
        "read": read,
        "made": made,
        "kept": kept,
        "rounded": core.inner * core.own["heads"],
    }
    return Node(name=name, type=DECODING, rows=rows, cols=core.output, keeps=0, own=own)


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


def _keep_own(network: Network, i: int, kernel: Kernel, numbers: Precision) -> Kernel:
    return kernel._replace(own=network.nodes[i].node.own)


def _time(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time the pass where attention's kernel does not do it."""
    work, own = decodes_of(share), share.own
    narrow = (own["latent"] > 0.0) & (work.cache < share.activation)
    tokens, ways = work.sequences * work.q_len, share.col_ways
    queries = (own["read"] + own["made"]) * share.activation
    rounded = own["rounded"] * (share.activation + work.cache)
    moved = np.where(narrow, rounded, queries) / ways + own["kept"] * (share.activation + work.cache)
    launches: Floats = np.where(fuses_rotary(device, work), 0.0, 1.0)
    launched = run_passes(
        device, share.device, moved=launches * tokens * moved, launches=launches,
        operations=np.zeros(launches.size), trips=launches,
    )  # fmt: skip
    return launched, launches * tokens * own["read"] * OPERATORS["rotary"].flop


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
DECODING = replace(TYPE, forward=_keep_own, time=_time, dtype=wide_type)
"""Before attention of few queries."""
