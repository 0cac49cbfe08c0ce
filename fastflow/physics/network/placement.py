"""Placement of parallel shards: greedy fill in all orders of the axes, and the cost of their rings (5.2).

The first axis of an order takes adjacent devices, wrapping round into the next physical dimension where
one is full; the next takes devices adjacent to all of these; and so on. So a shard's device is the mixed
radix of its ranks, the order's first axis fastest, and an axis' ring depends on its degree and its
stride alone. An axis of degree 1 may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import merge
from itertools import permutations

import numpy as np

from fastflow.core.advice import advise
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
    """Write an order, innermost first, such as kp1-kp2-dp-pp."""
    return "-".join(AXES[axis] for axis in order)


def read_order(name: str) -> Order:
    """Read an order of all axes of one mesh; lp is the old name of pp. Raises InputError."""
    words = ["pp" if word == "lp" else word for word in name.split("-")]
    if "lp" in name.split("-"):
        advise(f"placement={name}: the axis lp is now pp: {'-'.join(words)}")
    if sorted(words) not in map(sorted, MESHES):
        meshes = ", or ".join(f"{', '.join(mesh[:-1])} and {mesh[-1]}" for mesh in MESHES)
        raise InputError("placement", name, f"auto, or {meshes} in any order, such as {'-'.join(MESHES[0])}")
    return tuple(AXES.index(word) for word in words)


def orders(mesh: Sequence[int], split_axes: Sequence[int], stages_at_an_end: bool) -> list[Order]:
    """Return one order of the mesh for every order of the axes with degrees above 1, sorted.

    mesh: its axes, growing; split_axes: those with degrees above 1. stages_at_an_end: if the pipeline is one
    of several, only orders in which it comes first or last.
    """
    fixed = (PIPELINE,) if stages_at_an_end and PIPELINE in split_axes and len(split_axes) > 1 else ()
    unsplit_axes = [axis for axis in mesh if axis not in (*split_axes, *fixed)]
    permuted = permutations(axis for axis in split_axes if axis not in fixed)
    merged = [tuple(merge(permutation, unsplit_axes)) for permutation in permuted]
    return sorted(
        {
            candidate
            for permutation in merged
            for candidate in ((*permutation, *fixed), (*fixed, *permutation))
        }
    )


def strides(order: Order, degrees: Sequence[int]) -> list[int]:
    """Return the stride in devices along every axis; degrees: of every axis."""
    result, stride = [0] * len(degrees), 1
    for axis in order:
        result[axis] = stride
        stride *= degrees[axis]
    return result


def axis_costs(
    degrees: Sequence[int], placed: Sequence[Order], cost: Callable[[int, int, bool], Cost]
) -> tuple[Floats, Floats]:
    """Return load and hops of every axis in some orders, both of shape (orders, axes, 2).

    degrees: of every axis; cost: `neighbour_cost` of a degree, a stride, and whether it is the pipeline's.
    The last axis of the results is the level: within the package, and between packages. The effective
    bandwidth along an axis is the least of its levels' bandwidth over load (6.4).
    """
    costs = [
        [
            cost(degree, stride, axis == PIPELINE) if degree > 1 else (0.0, 0.0, 0.0, 0.0)
            for axis, (degree, stride) in enumerate(zip(degrees, strides(order, degrees), strict=True))
        ]
        for order in placed
    ]
    levels = np.array(costs)
    return levels[..., :2], levels[..., 2:]


def neighbour_cost(topology: Topology, devices: int, degree: int, stride: int, is_pipeline: bool) -> Cost:
    """Return the cost of neighbours along an axis, as `reach` does; devices: those in use.

    They are a ring (NEIGHBOURS), but for a pipeline's, which send activations FORWARD and their gradients
    BACKWARD, whichever is worse.
    """
    ranks = Group((degree,), (stride,)).arrays()
    if not is_pipeline:
        return reach(topology, devices, *ranks, NEIGHBOURS, 0)
    forwards, backwards = (reach(topology, devices, *ranks, pattern, 0) for pattern in (FORWARD, BACKWARD))
    return worse(forwards, backwards)
