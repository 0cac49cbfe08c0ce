"""All-to-all traffic along one dimension, in closed form (6.4).

Groups of `ranks` coordinates, `stride` apart, fill the first `used` coordinates of a dimension. All
results are in messages on the busiest link, where every ordered pair of a group has one message.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.physics.network.routing.topology import FULL, LINE, RING, SWITCH


@kernel
def _line(size: int, used: int, ranks: int, stride: int, is_ring: bool) -> int:
    """Return the messages on the busiest upward link of a line or ring.

    The downward links of the same groups carry as many, or fewer where a ring's ties go up: seen from the
    other end, groups are the same but for a rotation. Every rank adds the messages that begin at its
    coordinate and subtracts those that end there. In a ring, ranks from `far` on are nearer in the other
    direction.
    """
    near, far = ranks, ranks
    if is_ring:
        near, far = size // 2 // stride, -((size // 2 - size) // stride)  # the latter rounded up
    flow = np.zeros(size, dtype=np.int64)
    for block in range(0, used, ranks * stride):
        for offset in range(stride):
            for rank in range(ranks):
                ranks_above = ranks - 1 - rank
                wrapping = max(rank - far + 1, 0)
                flow[block + offset + rank * stride] += (
                    min(ranks_above, near) + wrapping - min(rank, near) - max(ranks_above - far + 1, 0)
                )
                flow[0] += wrapping
    max_messages, carried = 0, 0
    for at in range(size):
        carried += flow[at]
        max_messages = max(max_messages, carried)
    return max_messages


@kernel
def _leaf(used: int, ranks: int, stride: int, leaf: int) -> int:
    """Return the messages on the busiest link from a leaf switch of a tree to its spine."""
    flow = np.zeros((used - 1) // leaf + 1, dtype=np.int64)
    for block in range(0, used, ranks * stride):
        for offset in range(stride):
            first = block + offset
            for rank in range(ranks):
                switch = (first + rank * stride) // leaf
                begin = max(switch * leaf - first + stride - 1, 0) // stride
                end = min(((switch + 1) * leaf - first + stride - 1) // stride, ranks)
                flow[switch] += ranks - (end - begin)
    max_messages = 0
    for switch in range(flow.size):
        max_messages = max(max_messages, flow[switch])
    return max_messages


@kernel
def _line_hops(size: int, ranks: int, stride: int, is_ring: bool) -> int:
    """Return the hops between the ranks that are farthest from each other."""
    longest = (ranks - 1) * stride
    if is_ring and 2 * longest > size:
        near = size // 2 // stride * stride
        return max(near, size - near - stride)
    return longest


@kernel
def all_pairs(
    kind: int, size: int, leaf: int, used: int, ranks: int, stride: int
) -> tuple[float, float, float]:
    """Return messages on a device's busiest link, those on a leaf switch's, and the most hops."""
    if kind in (LINE, RING):
        is_ring = kind == RING
        hops = _line_hops(size, ranks, stride, is_ring)
        return float(_line(size, used, ranks, stride, is_ring)), 0.0, float(hops)
    if kind == FULL:
        return 1.0, 0.0, 1.0
    if kind == SWITCH:
        return float(ranks - 1), 0.0, 1.0
    across = _leaf(used, ranks, stride, leaf)
    return float(ranks - 1), float(across), 3.0 if across > 0 else 1.0
