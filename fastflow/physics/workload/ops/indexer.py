"""An indexer of sparse attention (DeepSeek-V3.2, section 2.1): scores of all visible keys, and the selection.

A query has a few heads, all of them score the same keys; the score of a key is the sum of the heads' products
with it, those below 0 left out, times the query's weight of each head. Keys may stand for several tokens
(DeepSeek-V4). Tensor-parallel devices do not divide the index heads, as in vLLM and SGLang: each device
selects for its own heads of attention. Sequences and the queries of a sequence are sharded.

The indexer trains separately from the rest of the model, by the divergence of its scores from attention's
(section 2.1.1): its inputs get no gradient. Its backward pass recomputes the scores of the selected keys, and
computes the gradients of queries and keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Texts
from fastflow.physics.timing.attention.indexer import time_scores, time_selection
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.workload.data_types import FP32_SCALE_BYTES
from fastflow.physics.workload.graph import INPUT_GRADIENT, Dims, Kernel, PerElement
from fastflow.physics.workload.network import (
    Amount,
    KernelType,
    Network,
    Node,
    PassCost,
    Size,
    forward_with_attributes,
    no_gradient,
)
from fastflow.physics.workload.ops import gemm
from fastflow.physics.workload.ops.attention import visible_keys
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import Precision, wide_type
from fastflow.physics.workload.sharding_rules import ROWS, Share

TOKENS = ("batch", "sequence")
SCALED_AT_ONCE = 128
"""Columns of a key that share a scale, in fp32 (vLLM's DeepseekV32IndexerCache)."""
# Operations: of a score, maximum and multiply-add; of the selection, a compare in each of two reads
SCORE_FLOP, SELECTION_FLOP = 3.0, 2.0
GRADIENT_PRODUCTS = 3.0  # scores once more, gradients of queries and of keys


class IndexerSizes(NamedTuple):
    """Sizes of an indexer: numbers, or columns of shape (points,)."""

    sequences: Size
    q_len: Size
    kv_len: Size  # keys that it scores; the last ones are those of its queries
    heads: Size
    dim: Size
    topk: Size  # keys that are selected
    ratio: Size = 1  # tokens that a key stands for


def index_cache_bytes(dim: Amount) -> Amount:
    """Return the bytes of a token in the indexer's cache: fp8 with a scale for 128 columns (132 for 128)."""
    return dim + FP32_SCALE_BYTES * -(-dim // SCALED_AT_ONCE)


def index_scores(name: str, reads: tuple[str, ...], sizes: IndexerSizes, **fields: Any) -> Node:
    """Return the scores of all visible keys, of every query."""
    visible = _visible(sizes.q_len, sizes.kv_len, sizes.ratio)
    flop = visible * sizes.heads * (2.0 * sizes.dim + SCORE_FLOP)
    return _of_tokens(SCORES, name, reads, sizes, flop, cols=sizes.topk, **fields)


def index_selection(name: str, reads: tuple[str, ...], sizes: IndexerSizes, **fields: Any) -> Node:
    """Return the selection of the keys with the highest scores, of every query."""
    visible = _visible(sizes.q_len, sizes.kv_len, sizes.ratio)
    flop = np.where(visible > sizes.topk, SELECTION_FLOP * visible, 0.0)
    return _of_tokens(SELECTION, name, reads, sizes, flop, cols=sizes.topk, **fields)


def _visible(q_len: Size, kv_len: Size, ratio: Size) -> Floats:
    """Return the mean number of keys that a query may select from."""
    visible: Floats = visible_keys(q_len, kv_len, 0, True) / ratio
    return visible


def _of_tokens(
    kind: KernelType, name: str, reads: tuple[str, ...], sizes: IndexerSizes, flop: Floats, cols: Size,
    **fields: Any,
) -> Node:  # fmt: skip
    """Return a node with a row of `cols` columns a token; flop: operations of a token."""
    per_element = flop / np.maximum(cols, 1)
    return Node(
        name=name, type=kind, rows=sizes.sequences * sizes.q_len, cols=cols, reads=reads,
        cost=PassCost(flop=per_element if per_element.ndim else float(per_element)), keeps=0, keeps_whole=0,
        attributes={field: 1.0 * getattr(sizes, field) for field in sizes._fields[1:]},
        dims=Dims(TOKENS), **fields,
    )  # fmt: skip


class _Local(NamedTuple):
    """A device's share; shape (kernels,)."""

    tokens: Floats
    sequences: Floats
    visible: Floats  # keys of a query, in the mean


def _local(share: Share) -> _Local:
    """Return a device's tokens; devices that share a sequence have early and late queries alike."""
    sizes = share.attributes
    tokens = np.ceil(share.elements / np.maximum(share.n, 1))
    q_len, kv_len, ratio = (sizes[name].astype(np.int64) for name in ("q_len", "kv_len", "ratio"))
    visible = visible_keys(q_len, kv_len, np.zeros_like(q_len), True) / ratio
    return _Local(tokens, np.ceil(tokens / sizes["q_len"]), visible)


def _time_scores(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time forward kernels, over all keys, and backward kernels, over the selected ones."""
    local, sizes = _local(share), share.attributes
    selected = np.minimum(local.visible, sizes["topk"])
    pairs = local.tokens * np.where(share.is_backward, GRADIENT_PRODUCTS * selected, local.visible)
    keys = local.sequences * np.ceil(sizes["kv_len"] / sizes["ratio"])
    launched = time_scores(
        device, share.device, pairs=pairs, heads=sizes["heads"], dim=sizes["dim"], tokens=local.tokens,
        keys_moved=keys * index_cache_bytes(sizes["dim"]),
    )  # fmt: skip
    return launched, pairs * sizes["heads"] * (2.0 * sizes["dim"] + SCORE_FLOP)


def _time_selection(device: Device, share: Share) -> tuple[Launched, Floats]:
    local, most = _local(share), share.attributes["topk"]
    launched = time_selection(
        device,
        share.device,
        tokens=local.tokens,
        visible=local.visible,
        most=most,
        shared=share.attributes.get("decodes", np.zeros(share.m.size)) > 0.0,
    )
    return launched, np.where(local.visible > most, SELECTION_FLOP * local.tokens * local.visible, 0.0)


def _scores_backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    node = network.nodes[i].node
    sizes: Mapping[str, Any] = node.attributes
    selected = np.minimum(
        visible_keys(sizes["q_len"], sizes["kv_len"], 0, True) / sizes["ratio"], sizes["topk"]
    )
    trained = [read for read in network.nodes[i].reads if network.needs_gradient(read)]
    if not trained:
        return []
    flop = GRADIENT_PRODUCTS * selected * sizes["heads"] * (2.0 * sizes["dim"] + SCORE_FLOP) / node.cols
    return [
        kernel._replace(
            attributes={**sizes, "backward": 1.0}, per_element=PerElement(0.0, flop),
            sums=network.sums(network.operands(i)),
            comm=kernel.comm._replace(summed_cols=sum((network.share(i, read) for read in trained), 0)),
        )
    ]  # fmt: skip


def _weights_only(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the backward pass of a product whose input is detached from the model's loss."""
    return [
        gradient
        for gradient in gemm.TYPE.backward(network, i, kernel, precision)
        if gradient.kind != INPUT_GRADIENT
    ]


def score_type(inputs: Inputs) -> Texts:
    """Return the data type of every point's scores: fp8 where the chip multiplies it, (points,)."""
    wide = wide_type(inputs)
    return np.where(inputs.get("chip.rate.fp8", np.zeros(wide.size)) > 0.0, "fp8", wide)


_BY_TOKENS = {ROWS: ROWS}
_TOKENS_ONLY = replace(
    PASS,
    sides=_BY_TOKENS,
    reads=(_BY_TOKENS,),
    makes=_BY_TOKENS,
    forward=partial(forward_with_attributes, PASS),
)
SCORES = replace(
    _TOKENS_ONLY, name="index_scores", title="index scores", time=_time_scores, backward=_scores_backward,
    dtype=score_type,
)  # fmt: skip
SELECTION = replace(
    _TOKENS_ONLY, name="index_selection", title="index selection", time=_time_selection,
    backward=no_gradient, dtype=wide_type,
)  # fmt: skip
DETACHED = replace(gemm.TYPE, backward=_weights_only)
"""A product with weights of an indexer, whose input gets no gradient."""
