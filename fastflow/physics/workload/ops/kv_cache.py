"""A pass that applies rotary embedding to queries and keys, and writes keys and values to the cache.

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
from fastflow.physics.workload.graph import Kernel, PerElement
from fastflow.physics.workload.network import KernelType, Network, Node, Side, Size, with_attributes
from fastflow.physics.workload.ops.attention import attentions_of, decodes_of, with_hit_rates
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.ops.pointwise import OPERATORS
from fastflow.physics.workload.precision import Precision, wide_type
from fastflow.physics.workload.sharding_rules import Share


def kv_cache(
    name: str, rows: Size, cols: Size, *, read: Size, kept: Size, made: Size = 0, rounded: Size = 0
) -> Node:
    """Return a pass over rows x cols; read, kept, made and rounded are the columns that it moves of a row.

    read: of activations; kept: of the cache; made: of attention's operands; rounded: of activations that
    a second launch rounds to operands, where operands have fewer bytes.
    """
    columns = {"read": read, "kept": kept, "made": made, "rounded": rounded}
    return Node(name=name, type=TYPE, rows=rows, cols=cols, keeps=0, attributes=columns)


def kv_cache_in_prefill(name: str, rows: Size, cols: Size, core: Node, *, kept: Size) -> Node:
    """Return the pass before attention, whose queries are the columns that are not kept, as `kv_cache`.

    core: attention, which says how a benchmark repeats it.
    """
    columns = {"read": cols, "kept": kept, "made": cols - kept, "rounded": 0}
    attributes: dict[str, Any] = {**core.attributes, **columns}
    return Node(name=name, type=IN_PREFILL, rows=rows, cols=cols, keeps=0, attributes=attributes)


def kv_cache_in_decode(name: str, rows: Size, core: Node, *, read: Size, made: Size, kept: Size) -> Node:
    """Return the pass before decode attention, where the attention kernel does not include it.

    made: of activations; for latent attention over a narrow cache the whole query is rounded instead.
    """
    attributes: dict[str, Any] = {
        **core.attributes,
        "read": read,
        "made": made,
        "kept": kept,
        "rounded": core.inner * core.attributes["heads"],
    }
    return Node(name=name, type=DECODING, rows=rows, cols=core.output, keeps=0, attributes=attributes)


def _forward(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    node = network.nodes[i].node
    columns: Mapping[str, Any] = node.attributes
    narrow = 1.0 * (np.asarray(precision.attention) < precision.activation)
    moved = (
        columns["read"] * precision.activation
        + columns["kept"] * precision.cache
        + columns["made"] * precision.attention
    )
    moved = moved + narrow * columns["rounded"] * (precision.activation + precision.attention)
    launches = 1 + (narrow * (np.asarray(columns["rounded"]) > 0)).astype(np.int64)
    return kernel._replace(
        launches=kernel.launches._replace(repeat=launches),
        per_element=PerElement(moved / (launches * node.cols), OPERATORS["rotary"].flop),
    )


def _time(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time the pass where the attention kernel does not include it."""
    work, columns = decodes_of(share), share.attributes
    hits = with_hit_rates(device, work, share, ~work.shared).hits
    narrow = (columns["latent"] > 0.0) & (work.cache < share.bytes.activation)
    tokens, shards = work.sequences * work.q_len, share.col_shards
    queries = (columns["read"] + columns["made"]) * share.bytes.activation
    rounded = columns["rounded"] * (share.bytes.activation + work.cache)
    moved = np.where(narrow, rounded, queries) / shards + columns["kept"] * (
        share.bytes.activation + work.cache
    )
    launches: Floats = np.where(fuses_rotary(device, work), 0.0, 1.0)
    launched = run_passes(
        device, share.device, moved=launches * tokens * moved, launches=launches,
        operations=np.zeros(launches.size), trips=launches, hits=hits,
    )  # fmt: skip
    return launched, launches * tokens * columns["read"] * OPERATORS["rotary"].flop


def _forward_in_prefill(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    return _forward(network, i, kernel, precision)._replace(attributes=network.nodes[i].node.attributes)


def _time_in_prefill(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time the pass whose bytes the last cache may hold."""
    work, columns = attentions_of(share), share.attributes
    hits = with_hit_rates(device, work, share, True).hits
    moved = columns["read"] * share.bytes.activation + columns["kept"] * share.bytes.cache
    moved = moved + columns["made"] * share.bytes.attention
    ones = np.ones(hits.size)
    flop = share.elements * OPERATORS["rotary"].flop
    launched = run_passes(
        device, share.device, moved=share.elements / share.n * moved, launches=ones, operations=flop,
        trips=ones, hits=hits,
    )  # fmt: skip
    return launched, flop


def _from_file(
    where: str, node: Node, sides: Mapping[str, Side], model: Side, fields: Mapping[str, Any]
) -> Node:
    """Return the pass of a graph file over queries, keys and values; `kept`: columns of keys and values."""
    cols, kept = int(node.cols), sides["kept"].size
    if kept > cols:
        raise wrong(f"{where}.kept", f"at most its {cols} columns", kept)
    columns = {"read": cols, "made": cols - kept, "kept": kept, "rounded": 0}
    return node._replace(attributes=columns, cost=node.cost._replace(backward_moves=2.0))


TYPE: KernelType = replace(
    PASS, name="kv_cache", title="rotary embedding and cache", required=("cols", "kept"),
    optional=("rows", "reads"), forward=_forward, from_file=_from_file,
)  # fmt: skip
IN_PREFILL = replace(TYPE, forward=_forward_in_prefill, time=_time_in_prefill)
"""Before attention of a benchmark."""
DECODING = replace(TYPE, forward=with_attributes, time=_time, dtype=wide_type)
"""Before decode attention."""
