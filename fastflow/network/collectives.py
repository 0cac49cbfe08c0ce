"""What a collective costs: ring algorithms on a non-blocking switch (6.4).

A ring of N ranks moves a tensor of S bytes in N - 1 steps of S / N bytes for an all-gather or a
reduce-scatter, and in both, one after the other, for an all-reduce (Patarasuk and Yuan, Bandwidth
optimal all-reduce algorithms, J. Parallel Distrib. Comput. 69(2), 2009). A step takes the link's
latency and its bytes over the link's bandwidth. A non-blocking switch gives every ring edge its
own link, so nothing is shared.
"""

from __future__ import annotations

import numpy as np

from fastflow.columns import Floats, Ints
from fastflow.workload.graph import ALL_REDUCE, NO_EXCHANGE


def ring_steps(collective: Ints, ranks: Ints) -> Ints:
    """Return the steps of a ring collective among `ranks`; shapes equal."""
    rounds = np.select([collective == NO_EXCHANGE, collective == ALL_REDUCE], [0, 2], 1)
    return rounds * (ranks - 1)


def ring_bytes(collective: Ints, size: Floats, ranks: Ints) -> Floats:
    """Return what one rank sends in a ring collective over a tensor of `size` bytes [B]."""
    return ring_steps(collective, ranks) * size / ranks


def ring_time(
    collective: Ints,
    size: Floats,
    ranks: Ints,
    bandwidth: Floats,
    latency: Floats,
) -> Floats:
    """Return the time of a ring collective [s]; all shapes equal.

    size: bytes of the whole tensor; bandwidth of one direction of a device's links [B/s];
    latency of one step [s].
    """
    steps = ring_steps(collective, ranks)
    moved = ring_bytes(collective, size, ranks)
    return steps * latency + np.divide(moved, bandwidth, out=np.zeros_like(moved), where=moved > 0.0)
