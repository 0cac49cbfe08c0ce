"""What a collective costs: ring algorithms on a non-blocking switch (6.4).

A ring of N ranks moves a tensor of S bytes in N - 1 steps of S / N bytes for an all-gather or a
reduce-scatter, and in both, one after the other, for an all-reduce (Patarasuk and Yuan, Bandwidth
optimal all-reduce algorithms, J. Parallel Distrib. Comput. 69(2), 2009). A step takes the link's
latency and its bytes over the link's bandwidth. A non-blocking switch gives every ring edge its
own link, so nothing is shared.
"""

from __future__ import annotations

import numpy as np

from fastflow._jit import kernel
from fastflow.columns import Floats, Ints
from fastflow.workload.graph import ALL_REDUCE, NO_EXCHANGE


@kernel
def ring_steps(collective: int, ranks: int) -> int:
    """Return the steps of a ring collective among `ranks`."""
    if collective == NO_EXCHANGE:
        return 0
    return (2 if collective == ALL_REDUCE else 1) * (ranks - 1)


@kernel
def ring_bytes(collective: Ints, size: Floats, ranks: Ints) -> Floats:
    """Return what one rank sends in a ring collective over a tensor of `size` bytes [B]; shapes equal."""
    sent = np.empty(size.size)
    for i in range(size.size):
        sent[i] = ring_steps(collective[i], ranks[i]) * size[i] / ranks[i]
    return sent


@kernel
def ring_time(
    collective: Ints,
    ranks: Ints,
    sent: Floats,
    bandwidth: Floats,
    latency: Floats,
) -> Floats:
    """Return the time of a ring collective [s]; all shapes equal.

    sent: what one rank sends [B]; bandwidth of one direction of a device's links [B/s]; latency of one
    step [s].
    """
    time = np.empty(sent.size)
    for i in range(sent.size):
        moving = sent[i] / bandwidth[i] if sent[i] > 0.0 else 0.0
        time[i] = ring_steps(collective[i], ranks[i]) * latency[i] + moving
    return time
