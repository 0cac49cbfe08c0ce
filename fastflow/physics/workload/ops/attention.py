"""Fused attention: queries against the keys of their sequence; scores never leave the chip (Dao et al.,
FlashAttention, arXiv:2205.14135).

Heads and sequences are sharded, or the queries of a sequence, which need all of its keys and values. The
backward pass recomputes the scores. The row sums of the output times its gradient come first, and the
gradient of the queries, which blocks add up in fp32, is rounded last (FlashAttention-2, arXiv:2307.08691).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fastflow.core.dedupe import compute_unique_rows
from fastflow.core.tables import Bools, Floats, Ints, Rows, take
from fastflow.core.yaml_file import MAX_NUMBER, listed, wrong
from fastflow.physics.timing.attention.decode import time_decoding
from fastflow.physics.timing.attention.decode_tiles import Decodes
from fastflow.physics.timing.attention.forward import OPERATIONS
from fastflow.physics.timing.attention.fused import time_attention, time_attention_backward
from fastflow.physics.timing.attention.tile_pairs import Attentions
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.warm_cache import hit_rates_of_layers
from fastflow.physics.workload.autodiff import cols_of
from fastflow.physics.workload.graph import BATCHED, NO_GRADIENT, ON_ACTIVATIONS, Dims, Kernel, PerElement
from fastflow.physics.workload.network import Amount, KernelType, Network, Node, PassCost, Side, Size
from fastflow.physics.workload.ops.batched_gemm import TYPE as BATCH
from fastflow.physics.workload.precision import Precision, attention_type, wide_type
from fastflow.physics.workload.sharding_rules import COLS, GROUPS, REPLICATE, ROWS, Share

MAX_DECODE_QUERIES = 16
"""Queries of a sequence, up to which a graph file uses decode kernels if there are more keys."""
MAX_QUERIES = 1e9
"""Queries of a sequence: timing counts tiles of 128 in a loop, which takes 0.1 s."""
_FP32 = 4.0
SOFTMAX_FLOP = 2.0 * (OPERATIONS + 1.0)
"""Of a score: operations of lanes and an exponential, each with the power of a multiply-add of fp32."""


class AttentionSizes(NamedTuple):
    """Sizes of attention: numbers, or columns of shape (points,)."""

    sequences: Size
    q_len: Size
    kv_len: Size  # the last keys of each sequence are those of its queries
    heads: Size
    kv_heads: Size
    head_dim: Size
    value_dim: Size
    window: Size  # keys that a query attends to, the query's key included; 0 for all


_SIZES = AttentionSizes._fields[1:]
_Work = TypeVar("_Work", Attentions, Decodes)


def attention(
    name: str, reads: tuple[str, ...], sizes: AttentionSizes, causal: Bools | bool, *,
    decodes: bool = False, latent: bool = False, expanded: bool = False, shared: Bools | bool = False,
    output: Floats | float = 0.0, flash: int = 0, copies: Ints | int = 0, **fields: Any,
) -> Node:  # fmt: skip
    """Return a kernel of attention.

    causal: no query attends to later keys; decodes: by a decode kernel, for few queries; latent: values are
    columns of the keys, read once; expanded: keys are not from a cache; shared: values and keys are the same
    memory; output: bytes of an element, 0 for those of a product; flash: version of the FlashAttention
    kernel, 0 for the library's kernel; copies: (points,), 1 where a benchmark repeats it
    (`timing.warm_cache`); fields: further fields of the node.
    """
    visible = visible_keys(sizes.q_len, sizes.kv_len, sizes.window, causal)
    head_dim, value_dim = sizes.head_dim, sizes.value_dim
    flop: Floats = 2.0 * (head_dim + value_dim) * visible / value_dim
    flags: Mapping[str, Any] = {
        "causal": 1.0 * causal,
        "latent": float(latent),
        "shared": 1.0 * shared,
        "expanded": float(expanded),
        "output": output,
        "flash": float(flash),
        **({} if isinstance(copies, int) else {"copies": 1.0 * copies}),
    }
    return Node(
        name=name, type=DECODING if decodes else TYPE, reads=reads, batch=sizes.sequences * sizes.heads,
        rows=sizes.q_len, inner=head_dim, cols=value_dim, width=sizes.heads * value_dim,
        cost=PassCost(flop=flop if flop.ndim else float(flop)),
        attributes={**dict(zip(_SIZES, sizes[1:], strict=True)), **flags}, **fields,
    )  # fmt: skip


def visible_keys(q_len: Size, kv_len: Size, window: Size, causal: Bools | bool) -> Floats:
    """Return the mean number of keys that a query attends to."""
    # without a window a query sees the keys before and after its own, if not causal: all of them
    first, tokens = np.asarray(kv_len) - q_len, np.asarray(kv_len) + q_len
    ahead = np.where(np.asarray(window) > 0, window, tokens) - 1.0
    last = np.where(causal, 0.0, ahead)  # keys after the query's key that it attends to
    to_the_end = _sum_of_least(first + last + 1.0, q_len, np.asarray(kv_len))
    hidden = _sum_of_least(first - ahead, q_len, np.asarray(kv_len))
    visible: Floats = (to_the_end - hidden) / q_len
    return visible


def _sum_of_least(first: Floats, count: Size, most: Ints) -> Floats:
    """Return the sum of first, first + 1, ..., each at least 0 and at most `most`."""
    low = np.clip(-first, 0.0, count)  # number of terms below 0
    high = np.clip(most - first, low, count)
    return (high - low) * (2.0 * first + low + high - 1.0) / 2.0 + (count - high) * most


def _forward(network: Network, i: int, kernel: Kernel, precision: Precision) -> Kernel:
    node = network.nodes[i].node
    return kernel._replace(
        rows=node.batch * node.rows,
        launches=kernel.launches._replace(batch=1, products=node.batch),
        per_element=PerElement(bytes=0.0, flop=node.cost.flop),
        attributes=node.attributes,
    )


def _backward(network: Network, i: int, kernel: Kernel, precision: Precision) -> list[Kernel]:
    """Return the row sums, the gradients of keys and values, and the rounding of the query gradient."""
    node = network.nodes[i].node
    if not any(map(network.needs_gradient, network.nodes[i].reads)):
        return []
    queries, *keys_and_values = network.operands(i)
    main = _forward(network, i, kernel, precision)
    elements = [
        _shared_elements(node, form.operand) for read, form in keys_and_values if network.needs_gradient(read)
    ]
    base_pass = main._replace(kind=ON_ACTIVATIONS, launches=main.launches._replace(products=1), attributes={})
    # clears the query gradient
    sums_bytes = 2.0 * precision.activation + _FP32 * (node.inner + 1.0) / node.cols
    return [
        base_pass._replace(label=f"{node.name} row sums", per_element=PerElement(sums_bytes, flop=2.0)),
        main._replace(
            attributes={**node.attributes, "backward": 1.0},
            per_element=PerElement(bytes=0.0, flop=2.0 * node.cost.flop),
            sums=network.sums(keys_and_values),
            comm=main.comm._replace(summed_cols=cols_of(sum(elements, 0.0), main)),
        ),
        base_pass._replace(
            label=f"{node.name} query gradient", cols=node.inner,
            per_element=PerElement(_FP32 + precision.activation, flop=1.0),
            sums=network.sums([queries]), comm=main.comm._replace(summed_cols=node.inner),
        ),
    ]  # fmt: skip


def _shared_elements(node: Node, operand: int) -> Amount:
    """Return the elements of all sequences' keys (operand 1) or values (2)."""
    attributes: Mapping[str, Any] = node.attributes
    of_a_token = attributes["kv_heads"] * attributes["head_dim" if operand == 1 else "value_dim"]
    elements: Amount = 1.0 * node.batch / attributes["heads"] * attributes["kv_len"] * of_a_token
    return elements


def attentions_of(share: Share) -> Attentions:
    """Return a device's shards of attention kernels, or of the passes around them."""
    attributes: Mapping[str, Any] = share.attributes
    size = {name: attributes[name].astype(np.int64) for name in _SIZES}
    heads, kv_heads = (-(-size[name] // share.col_shards) for name in ("heads", "kv_heads"))
    is_pass, causal = share.m == 0, attributes["causal"] > 0.0
    q_len = np.where(is_pass, size["q_len"], share.m)
    rows = share.elements / np.maximum(share.n, 1)
    # devices that share the queries of a sequence have both early and late queries
    hidden_keys = np.where(causal, (size["q_len"] - q_len) // 2, 0)
    return Attentions(
        point=share.device,
        sequences=np.where(is_pass, np.ceil(rows / q_len).astype(np.int64), -(-share.batch // heads)),
        q_len=q_len,
        kv_len=size["kv_len"] - hidden_keys,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=size["head_dim"],
        value_dim=size["value_dim"],
        window=size["window"],
        causal=causal,
        flash=attributes["flash"].astype(np.int64),
        size=share.bytes.operand,
        cache=np.where(attributes["expanded"] > 0.0, share.bytes.operand, share.bytes.cache),
        output=np.where(attributes["output"] > 0.0, attributes["output"], share.bytes.output),
        hits=np.zeros(rows.size),
    )


def with_hit_rates(device: Device, work: _Work, share: Share, values: Bools | bool) -> _Work:
    """Return kernels with the shares of their tensors that the last cache holds from the run before.

    values: whether they are stored apart from the keys. A layer reads its activations, and writes and reads
    rotated queries, keys and values, of which decoding reads the cache of all tokens.
    """
    copies = share.attributes.get("copies")
    if copies is None or not copies.any():
        return work
    tokens = 1.0 * work.sequences * work.q_len
    visible = np.where(work.window > 0, np.minimum(work.window + work.q_len - 1, work.kv_len), work.kv_len)
    keys = 1.0 * work.kv_heads * (work.head_dim + values * work.value_dim)
    queries = tokens * work.heads
    used = queries * (work.head_dim * (share.bytes.activation + work.size) + work.value_dim * work.output)
    used += tokens * keys * share.bytes.activation
    used += work.sequences * np.where(work.q_len < work.kv_len, visible, work.kv_len) * keys * work.cache
    hits = hit_rates_of_layers(
        copies, used, device.library.cache[share.device], device.memories.capacity[share.device, -1]
    )
    return work._replace(hits=hits)


def decodes_of(share: Share) -> Decodes:
    """Return a device's shards of decode kernels; a latent cache has at least attention's data type."""
    work, latent = attentions_of(share), share.attributes["latent"] > 0.0
    common = {name: getattr(work, name) for name in Decodes._fields if name in Attentions._fields}
    cache = np.where(latent, np.maximum(share.bytes.cache, share.bytes.attention), share.bytes.cache)
    return Decodes(**common, shared=latent | (share.attributes["shared"] > 0.0))._replace(cache=cache)


def operations_of(work: Attentions | Decodes, causal: Bools, backward: Bools) -> Floats:
    """Return the operations: a product each with keys and values, backward three and two."""
    queries = 2.0 * work.sequences * work.heads * work.q_len
    pairs = queries * visible_keys(work.q_len, work.kv_len, work.window, causal)
    columns = work.head_dim * np.where(backward, 3.0, 1.0) + work.value_dim * np.where(backward, 2.0, 1.0)
    return np.asarray(pairs * columns)


def _time(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time forward kernels of many queries, and backward kernels."""
    work, backward = with_hit_rates(device, attentions_of(share), share, True), share.is_backward
    timed = (
        partial(compute_unique_rows, partial(time, device))
        for time in (time_attention, time_attention_backward)
    )
    return time_both_passes(work, backward, *timed), operations_of(work, work.causal, backward)


def time_both_passes(
    work: Rows, backward: Bools, time_forward: Callable[[Rows], Launched],
    time_backward: Callable[[Rows], Launched],
) -> Launched:  # fmt: skip
    """Return the launches of forward and backward kernels, in their order, each timed by its function."""
    if not backward.any():
        return time_forward(work)
    parts = [
        (rows, time(take(work, rows)))
        for selected, time in ((~backward, time_forward), (backward, time_backward))
        if (rows := np.flatnonzero(selected)).size
    ]
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    columns = zip(*(launched for _, launched in parts), strict=True)
    return Launched(*(np.concatenate(column)[order] for column in columns))


def _time_decoding(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time decode kernels, of few queries."""
    work = decodes_of(share)
    work = with_hit_rates(device, work, share, ~work.shared)
    return compute_unique_rows(partial(time_decoding, device), work), operations_of(
        work, share.attributes["causal"] > 0.0, np.zeros_like(work.shared)
    )


def _lanes(share: Share) -> Floats:
    """Return the operations of softmax, in fp32, for each operation of the products [flop/flop]."""
    size = share.attributes["head_dim"] + share.attributes["value_dim"]
    return SOFTMAX_FLOP / (2.0 * size)


def _from_file(
    where: str, node: Node, sides: Mapping[str, Side], model: Side, fields: Mapping[str, Any]
) -> Node:
    """Return the attention of a graph file, whose queries are the model's rows."""

    def size(key: str, default: str) -> int:
        return sides[key if key in sides else default].size

    sequences, heads, q_len = sides["batch"].size, sides["heads"].size, sides["rows"].size
    if sequences * q_len != model.size:
        allowed = f"such that batch x rows is the {model.size} rows of the model"
        raise wrong(f"{where}.batch", allowed, sequences)
    if q_len > MAX_QUERIES:
        raise wrong(f"{where}.rows", f"at most {MAX_QUERIES:g}", q_len)
    kv_heads, kv_len = size("kv_heads", "heads"), size("kv_len", "rows")
    if heads % kv_heads:
        raise wrong(f"{where}.kv_heads", f"a divisor of its {heads} heads", kv_heads)
    if kv_len < q_len:
        raise wrong(f"{where}.kv_len", f"at least its {q_len} rows, whose own keys are the last", kv_len)
    causal = fields.get("causal", True)
    if not isinstance(causal, bool):
        raise wrong(f"{where}.causal", "true or false", causal)
    head_dim, value_dim = sides["head_dim"].size, size("value_dim", "head_dim")
    if sequences * heads * kv_len * max(head_dim, value_dim) > MAX_NUMBER:
        raise wrong(f"{where}.heads", f"so small that keys have at most {MAX_NUMBER:.0e} elements", heads)
    window = sides["window"].size if "window" in sides else 0
    sizes = AttentionSizes(sequences, q_len, kv_len, heads, kv_heads, head_dim, value_dim, window)
    return attention(
        node.name, node.reads, sizes, causal,
        decodes=q_len <= MAX_DECODE_QUERIES and kv_len > q_len, keeps=node.keeps,
        keeps_whole=node.keeps_whole,
        dims=Dims(sides["rows"].names, (), sides["heads"].names, sides["batch"].names),
    )  # fmt: skip


def _check(at: str, node: Node, cols: Sequence[int | None], rows: int) -> int:
    """Check that it reads queries, keys and values, from three kernels or from a single kernel."""
    attributes: Mapping[str, Any] = node.attributes
    heads, kv_heads, size, value = (
        attributes[name] for name in ("heads", "kv_heads", "head_dim", "value_dim")
    )
    operand_widths = (heads * size, kv_heads * size, kv_heads * value)
    if len(cols) not in (1, 3):
        raise wrong(f"{at}.reads", "one kernel, or three: queries, keys, values", listed(node.reads))
    widths = (sum(operand_widths),) if len(cols) == 1 else operand_widths
    for name, actual, expected in zip(node.reads, cols, widths, strict=True):
        if actual is not None and actual != expected:
            raise wrong(f"{at}.reads", f"kernels of {listed(widths)} columns", f"{name}, which has {actual}")
    return widths[0] if len(cols) == 1 else 0


_KEYS_AND_VALUES = {ROWS: REPLICATE, COLS: COLS, GROUPS: ROWS}
TYPE = KernelType(
    name="attention",
    title="attention",
    kind=BATCHED,
    gradient=NO_GRADIENT,
    sides={ROWS: GROUPS, COLS: COLS},
    reads=({ROWS: ROWS, COLS: COLS, GROUPS: ROWS}, _KEYS_AND_VALUES, _KEYS_AND_VALUES),
    makes=BATCH.makes,
    required=("batch", "rows", "heads", "head_dim"),
    optional=("kv_heads", "kv_len", "value_dim", "window", "causal", "reads"),
    optional_sides=("kv_heads", "kv_len", "value_dim", "window"),
    forward=_forward,
    backward=_backward,
    check=_check,
    from_file=_from_file,
    shared=_shared_elements,
    time=_time,
    dtype=attention_type,
    lanes=_lanes,
)
DECODING = replace(TYPE, title="attention, decoding", time=_time_decoding, dtype=wide_type)
"""Few queries of a sequence over many keys: the cache is rounded to activations as it is read."""
