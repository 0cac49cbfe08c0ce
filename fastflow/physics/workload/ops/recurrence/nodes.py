"""Recurrences of linear-time mixers as nodes of a network: over prompts in chunks, or by single tokens."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Floats
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.linear_attention import Chunks, time_chunks, time_recurrent_step, time_scan
from fastflow.physics.workload.network import Amount, KernelType, Node, PassCost, Size
from fastflow.physics.workload.ops.recurrence.kernel_type import local_sequences, mixer_type
from fastflow.physics.workload.ops.recurrence.rule import Rule, Sides, Work
from fastflow.physics.workload.ops.recurrence.rules import RULES
from fastflow.physics.workload.sharding_rules import Share


class RecurrenceSizes(NamedTuple):
    """Sizes of a recurrence: numbers, or columns of shape (points,).

    Of the selective scan, heads are channels, whose values have one column and whose keys one head.
    """

    sequences: Size
    tokens: Size  # of a sequence
    key_heads: Size  # heads of queries and keys; groups of Mamba-2
    key_dim: Size  # columns of a key; the state's size of Mamba-2
    heads: Size  # of values
    value_dim: Size  # columns of a value
    state_bytes: Amount  # of an element of the state


def recurrence(name: str, rule: str, sizes: RecurrenceSizes, **fields: Any) -> Node:
    """Return a recurrence over prompts, in chunks; rule: of RULES; fields: further fields of the node.

    It saves what the authors' kernels save beside their inputs; states are recomputed.
    """
    entry, sides = RULES[rule], _sides(RULES[rule], sizes)
    saved = np.asarray(sizes.heads * entry.saved_pairs * entry.chunk).astype(np.int64)
    keeps = {"keeps": sizes.heads * sizes.value_dim + saved} if entry.saved_pairs else {}
    flop = entry.forward(sides).flop / sides.value
    # two gradients of each product; what is recomputed is none of the model's operations
    cost = PassCost(flop=_plain(flop), backward_flop=_plain(2.0 * flop))
    return _recurrence(CHUNKED[rule], name, sizes, cost, _input_columns(entry, sides, sizes), keeps | fields)


def recurrence_step(name: str, rule: str, sizes: RecurrenceSizes, **fields: Any) -> Node:
    """Return a single token a sequence of a recurrence; rule: of RULES; for serving, without a gradient."""
    entry, sides = RULES[rule], _sides(RULES[rule], sizes)
    flop = _plain(entry.step_flop * np.asarray(sides.key))
    return _recurrence(
        STEPS[rule], name, sizes, PassCost(flop=flop), _input_columns(entry, sides, sizes), fields
    )


def state_bytes(sizes: RecurrenceSizes) -> Amount:
    """Return the bytes of the states of a sequence, which do not grow with its tokens."""
    elements: Floats = np.asarray(1.0 * sizes.heads * sizes.key_dim * sizes.value_dim)
    return _plain(elements * sizes.state_bytes)


def _recurrence(
    kind: KernelType, name: str, sizes: RecurrenceSizes, cost: PassCost, reads: Amount, fields: dict[str, Any]
) -> Node:
    attributes = {field: 1.0 * getattr(sizes, field) for field in sizes._fields[1:]}
    return Node(
        name=name, type=kind, rows=sizes.sequences * sizes.tokens, cols=sizes.heads * sizes.value_dim,
        cost=cost, attributes={**attributes, "read_cols": reads}, **fields,
    )  # fmt: skip


def _sides(rule: Rule, sizes: RecurrenceSizes) -> Sides:
    key, value = 1.0 * np.asarray(sizes.key_dim), 1.0 * np.asarray(sizes.value_dim)
    return Sides(key, value, np.asarray(float(rule.chunk)), 1.0 * np.asarray(sizes.heads) / sizes.key_heads)


def _input_columns(rule: Rule, sides: Sides, sizes: RecurrenceSizes) -> Amount:
    return _plain(np.asarray(sizes.heads * rule.input_columns(sides)))


def _plain(values: Any) -> Amount:
    """Return a number where a column has no points."""
    column: Floats = np.asarray(values)
    return column if column.ndim else float(column)


# --- times


class _Local(NamedTuple):
    """A device's share of a recurrence; shape (kernels,)."""

    heads: Floats  # of all sequences
    tokens: Floats  # of a sequence
    sides: Sides
    state_bytes: Floats  # of an element of the state


def _local(rule: Rule, share: Share) -> _Local:
    """Return a device's share; devices with fewer key heads than devices have copies of them."""
    sizes = share.attributes
    heads, key_heads = (np.ceil(sizes[name] / share.col_shards) for name in ("heads", "key_heads"))
    sides = Sides(sizes["key_dim"], sizes["value_dim"], np.asarray(float(rule.chunk)), heads / key_heads)
    return _Local(local_sequences(share) * heads, sizes["tokens"], sides, sizes["state_bytes"])


def _work(rule: Rule, share: Share, local: _Local) -> Work:
    """Return what the kernels do, forward or backward, (kernels,)."""
    backward = share.is_backward
    columns = zip(rule.backward(local.sides), rule.forward(local.sides), strict=True)
    return Work(*(np.where(backward, gradient, forward) for gradient, forward in columns))


def _time_prompts(rule: Rule, device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time all tokens; the first states are read, and the last written."""
    local = _local(rule, share)
    work = _work(rule, share, local)
    elements = local.sides.key * local.sides.value
    states = 2.0 * local.state_bytes * elements
    moved = local.heads * (work.moved * local.tokens * share.bytes.activation + states)
    if rule.on_lanes:
        launched = time_scan(
            device, share.device, heads=local.heads, tokens=local.tokens, states=elements, moved=moved,
            passes=work.flop / rule.forward(local.sides).flop,
        )  # fmt: skip
    else:
        chunks = Chunks(
            local.heads, np.ceil(local.tokens / rule.chunk), local.tokens, work.states, work.columns, moved,
            work.launches, work.passes,
        )  # fmt: skip
        launched = time_chunks(device, share.device, chunks)
    return launched, local.heads * local.tokens * work.flop


def _time_step(rule: Rule, device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time a single token: reads and writes the states, and reads its inputs but gates, writes an output."""
    local = _local(rule, share)
    states = local.heads * local.sides.key * local.sides.value
    keys, values = rule.inputs.keys / local.sides.shared, rule.inputs.values + 1.0
    columns = local.heads * (keys * local.sides.key + values * local.sides.value) * share.bytes.activation
    launched = time_recurrent_step(
        device, share.device, states=states, moved=2.0 * local.state_bytes * states + columns
    )
    return launched, rule.step_flop * states


CHUNKED = {
    name: mixer_type(
        f"{name.replace('_', ' ')}, chunks", partial(_time_prompts, rule), launches=max(len(rule.kernels), 1)
    )
    for name, rule in RULES.items()
}
STEPS = {
    name: mixer_type(f"{name.replace('_', ' ')}, step", partial(_time_step, rule), trains=False)
    for name, rule in RULES.items()
}
