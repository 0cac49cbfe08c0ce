"""Kernels of linear-time mixers: short causal convolutions, and recurrences in chunks or by single tokens.

A mixer keeps a matrix of key x value columns for each head and sequence, which every token decays and adds
to. Gated delta nets (Yang et al., arXiv:2412.06464) first subtract what the state holds for the token's key;
Mamba-2 (Dao and Gu, arXiv:2405.21060) does not. Prompts run in chunks, whose tokens attend to each other;
a single token reads and writes the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Floats
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.linear_attention import (
    time_chunks,
    time_convolution,
    time_recurrent_step,
    time_short_step,
)
from fastflow.physics.workload.network import (
    Amount,
    KernelType,
    Node,
    PassCost,
    Size,
    forward_with_attributes,
)
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import wide_type
from fastflow.physics.workload.sharding_rules import Share

ACTIVATION_FLOP = 4.0
"""Operations of SiLU: negate, exponential, add, divide."""


class RecurrenceSizes(NamedTuple):
    """Sizes of a recurrence: numbers, or columns of shape (points,)."""

    sequences: Size
    tokens: Size  # of a sequence
    key_heads: Size  # heads of queries and keys; groups of Mamba-2
    key_dim: Size  # columns of a key; the state's size of Mamba-2
    heads: Size  # of values
    value_dim: Size  # columns of a value
    state_bytes: Amount  # of an element of the state


class Rule(NamedTuple):
    """How a recurrence runs in chunks, by the kernels of a library."""

    chunk: int  # tokens
    launches: int  # kernels
    step: float  # least time from the state of a chunk to that of the next [s]
    # of columns of a key and of a value, tokens of a chunk, and heads that share a key: elements that all
    # kernels move for a token and head
    moved: Callable[[Floats, Floats, float, Floats], Floats]
    flop: Callable[[Floats, Floats, float, Floats], Floats]  # operations of a token and head in a chunk
    step_flop: float  # operations of an element of the state for a single token


def _delta_moved(key: Floats, value: Floats, chunk: float, shared: Floats) -> Floats:
    # running sums of decays, products of keys with their inverse, keys and values that it corrects, states,
    # outputs: each kernel writes what the next ones read (fla-org/flash-linear-attention@ffc1fb9)
    return 4.0 + 7.0 * key + 6.0 * value + 6.0 * chunk + 2.0 * key * value / chunk


def _scan_moved(key: Floats, value: Floats, chunk: float, shared: Floats) -> Floats:
    # decays, states of chunks, their passing, products of pairs, outputs (state-spaces/mamba@ac16c07)
    return 8.0 + 3.0 * value + (4.0 * key + 2.0 * chunk) / shared + 8.0 * key * value / chunk


def _delta_flop(key: Floats, value: Floats, chunk: float, shared: Floats) -> Floats:
    # pairs of keys, the inverse of their triangle, keys and values times it
    corrected = 2.0 * chunk * key + chunk * chunk / 3.0 + 2.0 * chunk * (key + value)
    # pairs of queries and keys times values; the state at keys, at queries, and what is added to it
    return corrected + 2.0 * chunk * (key + value) + 6.0 * key * value


def _scan_flop(key: Floats, value: Floats, chunk: float, shared: Floats) -> Floats:
    # pairs times values; the state at queries, and what is added to it
    return 2.0 * chunk * (key / shared + value) + 4.0 * key * value


DELTA, SCAN = "gated_delta", "state_space"
RULES = {
    # decay, subtract what the key finds, add the key times the rest, multiply by a query
    DELTA: Rule(64, 6, 0.93e-6, _delta_moved, _delta_flop, 7.0),
    SCAN: Rule(256, 5, 0.93e-6, _scan_moved, _scan_flop, 5.0),
}
"""Recurrences by name. The least time of a chunk is calibrated on gated delta nets in chunks on an H100 and a
B200 (ai-dynamo/aiconfigurator@095f58a); no kernel of Mamba-2 in chunks was measured."""


def convolution(
    name: str, sequences: Size, tokens: Size, channels: Size, width: Amount, **fields: Any
) -> Node:
    """Return a causal convolution of each channel over the last `width` tokens, with SiLU; of prompts."""
    return _convolution(CONVOLUTION, name, sequences, tokens, channels, width, **fields)


def convolution_step(name: str, sequences: Size, channels: Size, width: Amount, **fields: Any) -> Node:
    """Return a causal convolution of a single token a sequence, whose last tokens are in memory."""
    return _convolution(CONVOLUTION_STEP, name, sequences, 1, channels, width, **fields)


def _convolution(
    kind: KernelType, name: str, sequences: Size, tokens: Size, channels: Size, width: Amount, **fields: Any
) -> Node:
    flop = 2.0 * width + ACTIVATION_FLOP
    return Node(
        name=name, type=kind, rows=sequences * tokens, cols=channels, cost=PassCost(flop=flop),
        attributes={"tokens": np.asarray(tokens, dtype=np.float64), "width": width}, **fields,
    )  # fmt: skip


def recurrence(name: str, rule: str, sizes: RecurrenceSizes, **fields: Any) -> Node:
    """Return a recurrence over prompts, in chunks; rule: of RULES."""
    chunk = float(RULES[rule].chunk)
    key, value = 1.0 * np.asarray(sizes.key_dim), 1.0 * np.asarray(sizes.value_dim)
    shared = 1.0 * np.asarray(sizes.heads) / sizes.key_heads
    flop: Floats = RULES[rule].flop(key, value, chunk, shared) / value
    return _recurrence(CHUNKED[rule], name, sizes, flop, **fields)


def recurrence_step(name: str, rule: str, sizes: RecurrenceSizes, **fields: Any) -> Node:
    """Return a single token a sequence of a recurrence; rule: of RULES."""
    flop: Floats = RULES[rule].step_flop * np.asarray(sizes.key_dim)
    return _recurrence(STEPS[rule], name, sizes, flop, **fields)


def _recurrence(kind: KernelType, name: str, sizes: RecurrenceSizes, flop: Floats, **fields: Any) -> Node:
    """Return a recurrence; flop: operations of an element of its output."""
    per_element: Amount = flop if flop.ndim else float(flop)
    attributes = {field: 1.0 * getattr(sizes, field) for field in sizes._fields[1:]}
    return Node(
        name=name, type=kind, rows=sizes.sequences * sizes.tokens, cols=sizes.heads * sizes.value_dim,
        cost=PassCost(flop=per_element), attributes=attributes,
        **fields,
    )  # fmt: skip


# --- times


def _time_convolution(device: Device, share: Share) -> tuple[Launched, Floats]:
    tokens = share.attributes["tokens"]
    columns = share.n.astype(np.float64)
    launched = time_convolution(
        device, share.device, sequences=np.ceil(share.elements / columns / tokens), tokens=tokens,
        channels=columns, moved=2.0 * share.elements * share.bytes.activation,
    )  # fmt: skip
    return launched, _convolution_flop(share)


def _time_convolution_step(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time a single token: reads and writes it and the tokens before it, once each."""
    moved = 2.0 * share.elements * share.attributes["width"] * share.bytes.activation
    launched = time_short_step(device, share.device, channels=share.elements, moved=moved)
    return launched, _convolution_flop(share)


def _convolution_flop(share: Share) -> Floats:
    return share.elements * (2.0 * share.attributes["width"] + ACTIVATION_FLOP)


class _Local(NamedTuple):
    """A device's share of a recurrence; shape (kernels,)."""

    heads: Floats  # of all sequences
    tokens: Floats  # of a sequence
    key: Floats  # columns of a key
    value: Floats
    shared: Floats  # heads of values that share a key
    state_bytes: Floats  # of an element of the state


def _local(share: Share) -> _Local:
    sizes = share.attributes
    tokens, value = sizes["tokens"], sizes["value_dim"]
    heads = np.ceil(share.elements / (tokens * value))
    shared = sizes["heads"] / sizes["key_heads"]
    return _Local(heads, tokens, sizes["key_dim"], value, shared, sizes["state_bytes"])


def _time_chunks(rule: Rule, device: Device, share: Share) -> tuple[Launched, Floats]:
    local = _local(share)
    chunk = float(rule.chunk)
    moved = rule.moved(local.key, local.value, chunk, local.shared) * local.tokens * share.bytes.activation
    states = 2.0 * local.state_bytes * local.key * local.value
    launched = time_chunks(
        device, share.device, heads=local.heads, chunks=np.ceil(local.tokens / chunk), tokens=local.tokens,
        key=local.key, value=local.value, moved=local.heads * (moved + states),
        launches=np.full(share.m.size, float(rule.launches)), step=rule.step,
    )  # fmt: skip
    return launched, local.heads * local.tokens * rule.flop(local.key, local.value, chunk, local.shared)


def _time_step(rule: Rule, device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time a single token: reads and writes the states, and reads a query, a key and a value, writes one."""
    local = _local(share)
    states = local.heads * local.key * local.value
    columns = local.heads * 2.0 * (local.key / local.shared + local.value) * share.bytes.activation
    launched = time_recurrent_step(
        device, share.device, states=states, moved=2.0 * local.state_bytes * states + columns
    )
    return launched, rule.step_flop * states


def _type(title: str, time: Callable[[Device, Share], tuple[Launched, Floats]]) -> KernelType:
    name = title.replace(", ", "_").replace(" ", "_")
    return replace(
        PASS,
        name=name,
        title=title,
        forward=partial(forward_with_attributes, PASS),
        time=time,
        dtype=wide_type,
    )


CONVOLUTION = _type("causal convolution", _time_convolution)
CONVOLUTION_STEP = _type("causal convolution, step", _time_convolution_step)
CHUNKED = {
    name: _type(f"{name.replace('_', ' ')}, chunks", partial(_time_chunks, rule))
    for name, rule in RULES.items()
}
STEPS = {
    name: _type(f"{name.replace('_', ' ')}, step", partial(_time_step, rule)) for name, rule in RULES.items()
}
