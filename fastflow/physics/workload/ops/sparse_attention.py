"""Sparse attention: every query attends to keys that are selected for it, and to the last ones beside them.

Keys may be compressed: each stands for several tokens. Heads share keys: all of them where keys are latent,
whose first columns are the values (DeepSeek-V3.2, section 2.1), else those of a group. It is sharded as
attention is: by heads, sequences and the queries of a sequence.

The backward pass gathers the selected keys again; blocks add up the gradients of keys, which many queries
share, in fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.timing.attention.sparse import (
    SparseAttentions,
    converts_before,
    time_sparse,
    time_sparse_backward,
)
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.memory_bound import run_passes
from fastflow.physics.workload.graph import Dims
from fastflow.physics.workload.network import KernelType, Node, PassCost, Size, no_gradient, with_attributes
from fastflow.physics.workload.ops.attention import TYPE as ATTENTION
from fastflow.physics.workload.ops.attention import (
    AttentionSizes,
    attention,
    attentions_of,
    time_both_passes,
    visible_keys,
)
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import wide_type
from fastflow.physics.workload.sharding_rules import ROWS, Share

PACKED_SCALES, PACKED_COLUMNS = 16.0, 2.0
"""Of a latent key in a cache of fp8, beside a byte for each value column: scales [B], and bytes of a rotated
column, which stays in bf16: 656 B a token (vLLM's fp8_ds_mla)."""


class Selection(NamedTuple):
    """Which keys a query attends to: numbers, or columns of shape (points,)."""

    topk: Size  # keys that are selected; 0: all
    ratio: Size = 1  # tokens that a selected key stands for
    last: Size = 0  # keys of the last tokens, one a token, beside the selected ones


def attended_keys(q_len: Size, kv_len: Size, selection: Selection) -> Floats:
    """Return the mean number of keys that a query attends to."""
    ratio, last = np.asarray(selection.ratio), np.asarray(selection.last)
    selected = visible_keys(q_len, kv_len, np.asarray(selection.topk) * ratio, True) / ratio
    recent = np.where(last > 0, visible_keys(q_len, kv_len, last, True), 0.0)
    keys: Floats = selected + recent
    return keys


def sparse_attention(
    name: str, reads: tuple[str, ...], sizes: AttentionSizes, selection: Selection, *, latent: bool = True,
    decodes: bool = False, trains: bool = False, **fields: Any,
) -> Node:  # fmt: skip
    """Return attention of every query to selected keys.

    latent: one head of keys, whose first columns are the values; decodes: few queries a sequence, over a
    cache; trains: keys are activations, not of a cache.
    """
    node = attention(name, reads, sizes, True, latent=latent, expanded=trains, **fields)
    keys = attended_keys(sizes.q_len, sizes.kv_len, selection)
    flop: Floats = 2.0 * (sizes.head_dim + sizes.value_dim) * keys / sizes.value_dim
    chosen: dict[str, Any] = {
        "topk": 1.0 * selection.topk,
        "ratio": 1.0 * selection.ratio,
        "last": 1.0 * selection.last,
    }
    return node._replace(
        type=TYPE,
        cost=PassCost(flop=flop if flop.ndim else float(flop)),
        attributes={**node.attributes, **chosen, "decodes": float(decodes)},
    )


def converted_keys(name: str, core: Node, reads: tuple[str, ...]) -> Node:
    """Return the pass that converts the keys of all sequences to activations, where a kernel needs that."""
    attributes: Mapping[str, Any] = core.attributes
    sequences: Size = core.batch // attributes["heads"]
    stored = -(-attributes["kv_len"] // np.asarray(attributes["ratio"]).astype(np.int64))
    return Node(
        name=name, type=CONVERSION, rows=sequences * stored, cols=core.inner, reads=reads,
        attributes=attributes, keeps=0, dims=Dims(("batch", "sequence")),
    )  # fmt: skip


def _column(size: Ints) -> Floats:
    return size.astype(np.float64)


def _selection(share: Share) -> Selection:
    return Selection(*(share.attributes[name].astype(np.int64) for name in Selection._fields))


def _work(share: Share) -> SparseAttentions:
    """Return a device's shards of sparse attention."""
    work, attributes, selection = attentions_of(share), share.attributes, _selection(share)
    stored = np.ceil(work.kv_len / selection.ratio) + selection.last
    selects: Bools = np.asarray(selection.topk > 0)
    most = np.where(selects, selection.topk, np.ceil(work.kv_len / selection.ratio))
    return SparseAttentions(
        point=work.point,
        sequences=_column(work.sequences),
        tokens=_column(work.sequences * work.q_len),
        keys=attended_keys(work.q_len, work.kv_len, selection),
        most=most + selection.last,
        stored=stored,
        heads=_column(work.heads),
        kv_heads=_column(work.kv_heads),
        head_dim=_column(work.head_dim),
        value_dim=_column(work.value_dim),
        latent=attributes["latent"] > 0.0,
        selects=selects,
        size=share.bytes.activation,
        cache=np.where(attributes["expanded"] > 0.0, share.bytes.activation, share.bytes.cache),
        output=share.bytes.activation,
        decodes=attributes["decodes"] > 0.0,
    )


def _time(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time forward kernels, and backward kernels, which have five products for two."""
    work, backward = _work(share), share.is_backward
    columns = work.head_dim * np.where(backward, 3.0, 1.0) + work.value_dim * np.where(backward, 2.0, 1.0)
    launched = time_both_passes(
        work, backward, partial(time_sparse, device), partial(time_sparse_backward, device)
    )
    return launched, 2.0 * work.tokens * work.heads * work.keys * columns


def _time_conversion(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time the conversion where it takes place."""
    attributes: Mapping[str, Floats] = share.attributes
    rows = share.elements / np.maximum(share.n, 1)
    latent = attributes["latent"] > 0.0
    work = SparseAttentions(
        point=share.device, sequences=rows, tokens=rows, keys=rows, most=rows, stored=rows,
        heads=np.ceil(attributes["heads"] / share.col_shards),
        kv_heads=np.ceil(attributes["kv_heads"] / share.col_shards), head_dim=attributes["head_dim"],
        value_dim=attributes["value_dim"], latent=latent, selects=latent, size=share.bytes.activation,
        cache=share.bytes.cache, output=share.bytes.activation, decodes=attributes["decodes"] > 0.0,
    )  # fmt: skip
    launches: Floats = converts_before(device, work).astype(np.float64)
    rotated = attributes["head_dim"] - attributes["value_dim"]
    packed = attributes["value_dim"] * share.bytes.cache + PACKED_SCALES + PACKED_COLUMNS * rotated
    stored = np.where(latent, packed, work.kv_heads * work.width * share.bytes.cache)
    moved = launches * rows * (stored + work.kv_heads * work.width * share.bytes.activation)
    launched = run_passes(
        device, share.device, moved=moved, launches=launches, operations=np.zeros(rows.size), trips=launches,
        late=launches,
    )  # fmt: skip
    return launched, launches * rows * work.kv_heads * work.width


TYPE: KernelType = replace(
    ATTENTION, name="sparse_attention", title="sparse attention", time=_time, dtype=wide_type,
)  # fmt: skip
CONVERSION: KernelType = replace(
    PASS, name="converted_keys", title="converted keys", sides={ROWS: ROWS}, reads=({ROWS: ROWS},),
    makes={ROWS: ROWS}, forward=with_attributes, backward=no_gradient, time=_time_conversion,
    dtype=wide_type,
)  # fmt: skip
