"""All-to-all traffic along one dimension, in closed form (6.4).

Groups of `ranks` coordinates, `apart` apart, fill the first `used` coordinates of a dimension. All
results are in messages on the busiest link, where every ordered pair of a group has one message.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.physics.network.routing.topology import FULL, LINE, RING, SWITCH


@kernel
def _line(size: int, used: int, ranks: int, apart: int, is_ring: bool) -> int:
    """Return the messages on the busiest upward link of a line or ring.

    The downward links of the same groups carry as many, or fewer where a ring's ties go up: seen from the
    other end, groups are the same but for a rotation. Every rank adds what begins and takes away what
    ends at its coordinate. In a ring, ranks from `far` on are nearer the other way round.
    """
    near, far = ranks, ranks
    if is_ring:
        near, far = size // 2 // apart, -((size // 2 - size) // apart)  # the latter rounded up
    flow = np.zeros(size, dtype=np.int64)
    for block in range(0, used, ranks * apart):
        for offset in range(apart):
            for rank in range(ranks):
                later = ranks - 1 - rank
                wrapping = max(rank - far + 1, 0)
                flow[block + offset + rank * apart] += (
                    min(later, near) + wrapping - min(rank, near) - max(later - far + 1, 0)
                )
                flow[0] += wrapping
    most, carried = 0, 0
    for at in range(size):
        carried += flow[at]
        most = max(most, carried)
    return most


@kernel
def _leaf(used: int, ranks: int, apart: int, leaf: int) -> int:
    """Return the messages on the busiest link from a leaf switch of a tree to its spine."""
    flow = np.zeros((used - 1) // leaf + 1, dtype=np.int64)
    for block in range(0, used, ranks * apart):
        for offset in range(apart):
            first = block + offset
            for rank in range(ranks):
                switch = (first + rank * apart) // leaf
                begin = max(switch * leaf - first + apart - 1, 0) // apart
                end = min(((switch + 1) * leaf - first + apart - 1) // apart, ranks)
                flow[switch] += ranks - (end - begin)
    most = 0
    for switch in range(flow.size):
        most = max(most, flow[switch])
    return most


@kernel
def _line_hops(size: int, ranks: int, apart: int, is_ring: bool) -> int:
    """Return the hops between the ranks that are farthest from each other."""
    longest = (ranks - 1) * apart
    if is_ring and 2 * longest > size:
        near = size // 2 // apart * apart
        return max(near, size - near - apart)
    return longest


@kernel
def all_pairs(
    kind: int, size: int, leaf: int, used: int, ranks: int, apart: int
) -> tuple[float, float, float]:
    """Return messages on a device's busiest link, those on a leaf switch's, and the most hops."""
    if kind in (LINE, RING):
        is_ring = kind == RING
        hops = _line_hops(size, ranks, apart, is_ring)
        return float(_line(size, used, ranks, apart, is_ring)), 0.0, float(hops)
    if kind == FULL:
        return 1.0, 0.0, 1.0
    if kind == SWITCH:
        return float(ranks - 1), 0.0, 1.0
    across = _leaf(used, ranks, apart, leaf)
    return float(ranks - 1), float(across), 3.0 if across > 0 else 1.0
