"""Placement of parallel shards: greedy fill in 24 orders, and the cost of their rings (5.2).

The first parallel dimension of an order takes adjacent devices, wrapping round into the next physical
dimension where one is full; the next takes what is adjacent to all of these; and so on. So a
shard's device is the mixed radix of its ranks, the order's first dimension fastest, and a parallel
dimension's ring depends on its degree and its stride alone.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np

from fastflow._jit import kernel
from fastflow.errors import InputError
from fastflow.network.patterns import BACKWARD, FORWARD, NEIGHBOURS
from fastflow.network.routing import reach
from fastflow.network.topology import FULL, SWITCH, Topology
from fastflow.tables import Floats, Ints

PARALLEL = ("kp1", "kp2", "dp", "lp")
ORDERS = tuple(permutations(range(len(PARALLEL))))
_ORDERS = np.array(ORDERS, dtype=np.int64)
_PIPELINE = PARALLEL.index("lp")
# arrays, since Numba would compile `reach` once more for literals
_NO_SECOND = np.array([1, 0])  # degree and stride of a group's second dimension
_NO_STEP = np.array([0])
_RING_PATTERNS = np.array([NEIGHBOURS])
_PIPELINE_PATTERNS = np.array([FORWARD, BACKWARD])


def order_name(number: int) -> str:
    """Write an order, innermost first: kp1-kp2-dp-lp is number 0."""
    return "-".join(PARALLEL[dimension] for dimension in ORDERS[number])


def order_number(name: str) -> int:
    """Read an order. Raises InputError where the name is none."""
    words = name.split("-")
    if sorted(words) != sorted(PARALLEL):
        raise InputError(
            "placement", name, "auto, or kp1, kp2, dp and lp in any order, such as kp1-kp2-dp-lp"
        )
    return ORDERS.index(tuple(PARALLEL.index(word) for word in words))


@kernel
def strides(order: int, degrees: Ints) -> Ints:
    """Return how many devices apart neighbours are along kp1, kp2, dp and lp, shape (4,).

    order: its number; degrees: of kp1, kp2, dp and lp, shape (4,).
    """
    found, stride = np.empty(4, dtype=np.int64), 1
    for dimension in _ORDERS[order]:
        found[dimension] = stride
        stride *= degrees[dimension]
    return found


@kernel
def distinct_orders(topology: Topology, degrees: Ints) -> Ints:
    """Return the orders that differ, the first of each kind, shape (orders,).

    Orders are alike where every dimension of more than one rank has the same stride; and all of them
    are where every device is as near as any other, on one switch or one full mesh.
    """
    orders = _ORDERS.shape[0]
    apart, kept, found = np.empty((orders, 4), dtype=np.int64), np.empty(orders, dtype=np.int64), 0
    kind = topology.kind
    is_flat = kind.size == 0 or (kind.size == 1 and (kind[0] == SWITCH or kind[0] == FULL))
    for order in range(1 if is_flat else orders):
        mine, is_new = strides(order, degrees), True
        for dimension in range(4):
            apart[found, dimension] = mine[dimension]
        for other in range(found):
            differs = False
            for dimension in range(4):
                moved = apart[other, dimension] != mine[dimension]
                differs = differs or (moved and degrees[dimension] > 1)
            is_new = is_new and differs
        if is_new:
            kept[found] = order
            found += 1
    return kept[:found]


@kernel
def place(topology: Topology, degrees: Ints) -> tuple[Floats, Floats]:
    """Return load and hops of every parallel dimension in every order, both of shape (24, 4, 2).

    degrees: of kp1, kp2, dp and lp, shape (4,). The last axis is the level: within the package, and
    between packages. kp1, kp2 and dp are rings (NEIGHBOURS); lp sends activations FORWARD and their
    gradients BACKWARD, whichever is worse. The effective bandwidth of a dimension is the least of its
    levels' bandwidth over load (6.4).
    """
    orders = _ORDERS.shape[0]
    load, hops = np.zeros((orders, 4, 2)), np.zeros((orders, 4, 2))
    devices = degrees[0] * degrees[1] * degrees[2] * degrees[3]
    # what is known already: (degree, stride, whether a pipeline), and where it stands
    known, found = np.empty((4 * orders, 5), dtype=np.int64), 0
    for order in range(orders):
        apart = strides(order, degrees)
        for dimension in range(4):
            degree, stride, is_pipeline = degrees[dimension], apart[dimension], int(dimension == _PIPELINE)
            if degree == 1:
                continue
            row = 0
            while row < found and (
                known[row, 0] != degree or known[row, 1] != stride or known[row, 2] != is_pipeline
            ):
                row += 1
            if row < found:
                for at in range(2):
                    load[order, dimension, at] = load[known[row, 3], known[row, 4], at]
                    hops[order, dimension, at] = hops[known[row, 3], known[row, 4], at]
                continue
            known[row, 0], known[row, 1], known[row, 2] = degree, stride, is_pipeline
            known[row, 3], known[row, 4] = order, dimension
            found += 1
            for pattern in _PIPELINE_PATTERNS if is_pipeline else _RING_PATTERNS:
                one = reach(
                    topology.kind, topology.size, topology.level,
                    topology.share, topology.leaf, topology.taper,
                    devices, degree, stride, _NO_SECOND[0], _NO_SECOND[1], pattern, _NO_STEP[0],
                )  # fmt: skip
                for at in range(2):
                    load[order, dimension, at] = max(load[order, dimension, at], one[at])
                    hops[order, dimension, at] = max(hops[order, dimension, at], one[2 + at])
    return load, hops
