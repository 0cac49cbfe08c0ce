"""Placement of parallel shards: greedy fill in all orders of the axes, and the cost of their rings (5.2).

The first axis of an order takes adjacent devices, wrapping round into the next physical dimension where
one is full; the next takes what is adjacent to all of these; and so on. So a shard's device is the mixed
radix of its ranks, the order's first axis fastest, and an axis' ring depends on its degree and its
stride alone. An axis of degree 1 may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import merge
from itertools import permutations

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.tables import Floats
from fastflow.physics.network.collectives.algorithms import Cost, worse
from fastflow.physics.network.routing.contention import reach
from fastflow.physics.network.routing.patterns import BACKWARD, FORWARD, NEIGHBOURS, Group
from fastflow.physics.network.routing.topology import Topology
from fastflow.physics.parallelism.mesh import AXES, MESHES, PIPELINE

Order = tuple[int, ...]
"""The axes of a mesh by number, innermost first."""


def order_name(order: Order) -> str:
    """Write an order, innermost first, such as kp1-kp2-dp-lp."""
    return "-".join(AXES[axis] for axis in order)


def read_order(name: str) -> Order:
    """Read an order of all axes of one mesh. Raises InputError where the name is none."""
    words = name.split("-")
    if sorted(words) not in map(sorted, MESHES):
        meshes = ", or ".join(f"{', '.join(mesh[:-1])} and {mesh[-1]}" for mesh in MESHES)
        raise InputError("placement", name, f"auto, or {meshes} in any order, such as {'-'.join(MESHES[0])}")
    return tuple(AXES.index(word) for word in words)


def orders(mesh: Sequence[int], above: Sequence[int], stages_at_an_end: bool) -> list[Order]:
    """Return an order for every one that the axes above 1 can have, sorted; each the first of its kind.

    mesh: its axes, growing; above: those above 1. stages_at_an_end: if the pipeline is one of several, only
    orders in which it comes first or last.
    """
    fixed = (PIPELINE,) if stages_at_an_end and PIPELINE in above and len(above) > 1 else ()
    others = [axis for axis in mesh if axis not in (*above, *fixed)]
    moved = permutations(axis for axis in above if axis not in fixed)
    filled = [tuple(merge(order, others)) for order in moved]
    return sorted({one for order in filled for one in ((*order, *fixed), (*fixed, *order))})


def strides(order: Order, degrees: Sequence[int]) -> list[int]:
    """Return how many devices apart neighbours are along every axis; degrees: of every axis."""
    found, stride = [0] * len(degrees), 1
    for axis in order:
        found[axis] = stride
        stride *= degrees[axis]
    return found


def place(
    degrees: Sequence[int], placed: Sequence[Order], cost: Callable[[int, int, bool], Cost]
) -> tuple[Floats, Floats]:
    """Return load and hops of every axis in some orders, both of shape (orders, axes, 2).

    degrees: of every axis; cost: `neighbour_cost` of a degree, a stride, and whether it is the pipeline's.
    The last axis of the results is the level: within the package, and between packages. The effective
    bandwidth along an axis is the least of its levels' bandwidth over load (6.4).
    """
    found = [
        [
            cost(degree, stride, axis == PIPELINE) if degree > 1 else (0.0, 0.0, 0.0, 0.0)
            for axis, (degree, stride) in enumerate(zip(degrees, strides(order, degrees), strict=True))
        ]
        for order in placed
    ]
    levels = np.array(found)
    return levels[..., :2], levels[..., 2:]


def neighbour_cost(topology: Topology, devices: int, degree: int, stride: int, is_pipeline: bool) -> Cost:
    """Return what neighbours along an axis cost, as `reach` does; devices: those in use.

    They are a ring (NEIGHBOURS), but for a pipeline's, which send activations FORWARD and their gradients
    BACKWARD, whichever is worse.
    """
    ranks = Group((degree,), (stride,)).arrays()
    if not is_pipeline:
        return reach(topology, devices, *ranks, NEIGHBOURS, 0)
    forwards, backwards = (reach(topology, devices, *ranks, way, 0) for way in (FORWARD, BACKWARD))
    return worse(forwards, backwards)
