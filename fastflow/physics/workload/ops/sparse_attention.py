"""Sparse attention: every query attends to the keys that an indexer selects for it.

Latent attention in the absorbed form (DeepSeek-V3.2, section 2.1): all heads share the keys, whose first columns
are the values. It is sharded as attention is: by heads, sequences and the queries of a sequence. A query attends
to as many keys as within a window of the selected number, wherever they are.

The backward pass gathers the selected keys again; blocks add up the gradients of keys, which many queries share, in
fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastflow.core.tables import Bools, Floats, take
from fastflow.physics.timing.attention.sparse import (
    SparseAttentions,
    converts_before,
    time_sparse,
    time_sparse_backward,
)
from fastflow.physics.timing.attention.tile_pairs import Attentions
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.memory_bound import run_passes
from fastflow.physics.workload.graph import Dims, Kernel
from fastflow.physics.workload.network import KernelType, Network, Node, Size
from fastflow.physics.workload.ops.attention import (
    TYPE as ATTENTION,
)
from fastflow.physics.workload.ops.attention import (
    AttentionSizes,
    attention,
    attentions_of,
    operations_of,
    visible_keys,
)
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import Precision, wide_type
from fastflow.physics.workload.sharding_rules import ROWS, Share

PACKED_SCALES, PACKED_COLUMNS = 16.0, 2.0
"""Of a key in a cache of fp8, beside a byte for each value column: scales [B], and bytes of a rotated column, which
stays in bf16: 656 B a token (vLLM's fp8_ds_mla)."""


def sparse_attention(
    name: str, reads: tuple[str, ...], sizes: AttentionSizes, topk: Size, *, decodes: bool = False,
    trains: bool = False, **fields: Any,
) -> Node:  # fmt: skip
    """Return attention of every query to at most `topk` keys, absorbed: one head of keys and values.

    trains: keys are activations, not of a cache.
    """
    node = attention(name, reads, sizes._replace(window=topk), True, latent=True, expanded=trains, **fields)
    return node._replace(type=TYPE, attributes={**node.attributes, "decodes": float(decodes)})


def converted_keys(name: str, core: Node, reads: tuple[str, ...]) -> Node:
    """Return the pass that converts the keys of all sequences to activations, where a kernel needs that."""
    sequences = core.batch // core.attributes["heads"]
    return Node(
        name=name, type=CONVERSION, rows=sequences * core.attributes["kv_len"], cols=core.inner, reads=reads,
        attributes=core.attributes, keeps=0, dims=Dims(("batch", "sequence")),
    )  # fmt: skip


def _work(share: Share) -> tuple[SparseAttentions, Attentions]:
    """Return a device's shards of sparse attention."""
    work, attributes = attentions_of(share), share.attributes
    zeros = np.zeros(work.q_len.size, dtype=np.int64)
    causal = np.ones(work.q_len.size, dtype=np.bool_)
    return SparseAttentions(
        point=work.point,
        sequences=1.0 * work.sequences,
        tokens=1.0 * work.sequences * work.q_len,
        keys=visible_keys(work.q_len, work.kv_len, work.window, causal),
        most=1.0 * work.window,
        kv_len=1.0 * work.kv_len + zeros,
        heads=1.0 * work.heads,
        head_dim=1.0 * work.head_dim,
        value_dim=1.0 * work.value_dim,
        size=share.bytes.activation,
        cache=np.where(attributes["expanded"] > 0.0, share.bytes.activation, share.bytes.cache),
        output=share.bytes.activation,
        decodes=attributes["decodes"] > 0.0,
    ), work


def _time(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time forward and backward kernels."""
    work, attention_work = _work(share)
    backward: Bools = share.attributes.get("backward", np.zeros(share.m.size)) > 0.0
    flop = operations_of(attention_work, np.ones(share.m.size, dtype=np.bool_), backward)
    if not backward.any():
        return time_sparse(device, work), flop
    rows = [np.flatnonzero(~backward), np.flatnonzero(backward)]
    timed = zip(rows, (time_sparse, time_sparse_backward), strict=True)
    parts = [time(device, take(work, some)) for some, time in timed if some.size]
    order = np.argsort(np.concatenate([some for some in rows if some.size]))
    columns = zip(*parts, strict=True)
    return Launched(*(np.concatenate(column)[order] for column in columns)), flop


def _forward_conversion(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    return kernel._replace(attributes=network.nodes[i].node.attributes)


def _time_conversion(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time the conversion where it takes place."""
    attributes: Mapping[str, Floats] = share.attributes
    rows = share.elements / np.maximum(share.n, 1)
    heads = np.ceil(attributes["heads"] / share.col_shards)
    work = SparseAttentions(
        point=share.device, sequences=rows, tokens=rows, keys=rows, most=rows, kv_len=rows, heads=heads,
        head_dim=attributes["head_dim"], value_dim=attributes["value_dim"], size=share.bytes.activation,
        cache=share.bytes.cache, output=share.bytes.activation, decodes=attributes["decodes"] > 0.0,
    )  # fmt: skip
    launches: Floats = 1.0 * converts_before(device, work)
    rotated = attributes["head_dim"] - attributes["value_dim"]
    packed = attributes["value_dim"] * share.bytes.cache + PACKED_SCALES + PACKED_COLUMNS * rotated
    moved = launches * rows * (packed + attributes["head_dim"] * share.bytes.activation)
    launched = run_passes(
        device, share.device, moved=moved, launches=launches, operations=np.zeros(rows.size), trips=launches
    )
    return launched, launches * rows * attributes["value_dim"]


TYPE: KernelType = replace(
    ATTENTION, name="sparse_attention", title="sparse attention", time=_time, dtype=wide_type,
)  # fmt: skip
CONVERSION: KernelType = replace(
    PASS, name="converted_keys", title="converted keys", sides={ROWS: ROWS}, reads=({ROWS: ROWS},),
    makes={ROWS: ROWS}, forward=_forward_conversion, backward=lambda *_: [], time=_time_conversion,
    dtype=wide_type,
)  # fmt: skip
