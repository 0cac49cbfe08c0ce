"""Arrivals of a fleet in order: those of the trace, and followers, which wait in a binary heap.

Where encoders have devices of their own, requests come there first, and wait in the heap until their
embeddings are at the servers.
"""

from __future__ import annotations

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.encoder_pool.queue import encoded_at
from fastflow.performance.serving.fleet.state import (
    ENCODE,
    FURTHER,
    HEAP,
    SEND,
    TAKEN,
    WAITS,
    Arrivals,
    Trace,
)


@lean_kernel
def needs_more(arrivals: Arrivals) -> bool:
    """Say whether the next requests of the trace have to be loaded: all that are have arrived."""
    return bool(arrivals.counts[FURTHER] and arrivals.counts[TAKEN] == arrivals.order.size)


@lean_kernel
def next_arrival_at(arrivals: Arrivals, trace: Trace) -> float:
    """Return when the next request arrives [s]; inf: none will, as far as is known."""
    soonest, taken = float("inf"), arrivals.counts[TAKEN]
    if taken < arrivals.order.size:
        soonest = trace.sent[arrivals.order[taken]]
    if arrivals.counts[HEAP] > 0:
        soonest = min(soonest, arrivals.when[0])
    return soonest


@lean_kernel
def first_arrival(arrivals: Arrivals, trace: Trace) -> int:
    """Return the request that arrives next; those of the trace go before followers at the same time."""
    taken = arrivals.counts[TAKEN]
    if arrivals.counts[HEAP] > 0 and (
        taken == arrivals.order.size or arrivals.when[0] < trace.sent[arrivals.order[taken]]
    ):
        return int(arrivals.request[0])
    return int(arrivals.order[taken])


@lean_kernel
def drop_first(arrivals: Arrivals, request: int) -> None:
    """Drop the request that `first_arrival` returned."""
    if arrivals.counts[HEAP] == 0 or arrivals.request[0] != request:
        arrivals.counts[TAKEN] += 1
        return
    arrivals.counts[HEAP] -= 1
    last = arrivals.counts[HEAP]
    _swap(arrivals, 0, last)
    node = 0
    while True:
        least = node
        for child in (2 * node + 1, 2 * node + 2):
            if child < last and _is_before(arrivals, child, least):
                least = child
        if least == node:
            return
        _swap(arrivals, node, least)
        node = least


@lean_kernel
def add_follower(arrivals: Arrivals, request: int, when: float) -> None:
    """Let a follower, or a request whose images are encoded, arrive at a time [s]."""
    node = arrivals.counts[HEAP]
    arrivals.when[node], arrivals.request[node] = when, request
    arrivals.counts[HEAP] += 1
    while node > 0 and _is_before(arrivals, node, (node - 1) // 2):
        _swap(arrivals, node, (node - 1) // 2)
        node = (node - 1) // 2


@lean_kernel
def encode(arrivals: Arrivals, request: int, now: float) -> None:
    """Let an encoder have the images of a request, which then arrives at the servers."""
    encode_s = arrivals.encode_s[ENCODE]
    encoded = encoded_at(arrivals.encoders, encode_s, now)
    arrivals.encode_s[WAITS] += encoded - encode_s - now
    add_follower(arrivals, request, encoded + arrivals.encode_s[SEND])


@lean_kernel
def _is_before(arrivals: Arrivals, a: int, b: int) -> bool:
    if arrivals.when[a] != arrivals.when[b]:
        return bool(arrivals.when[a] < arrivals.when[b])
    return bool(arrivals.number[arrivals.request[a]] < arrivals.number[arrivals.request[b]])


@lean_kernel
def _swap(arrivals: Arrivals, a: int, b: int) -> None:
    arrivals.when[a], arrivals.when[b] = arrivals.when[b], arrivals.when[a]
    arrivals.request[a], arrivals.request[b] = arrivals.request[b], arrivals.request[a]
