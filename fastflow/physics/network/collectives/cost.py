"""Cost of a collective on a system's network (6.4).

Two stages, so that a sweep is cheap. `decompose.recipe` depends on the network and on the placement of the
ranks: it writes every algorithm of every collective (`algorithms`) as phases. `price` adds a device's
bandwidths and latencies: then a collective over S bytes takes latency + S * per_byte, and `cheapest` picks
the algorithm with the shortest time at the message's size.

S is the whole tensor, as each rank holds it before an all-reduce or a reduce-scatter or after an all-gather;
for an all-to-all the tensor of one rank; else the message.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.network.collectives.algorithms import AUTO, NUM_ALGORITHMS, Phase
from fastflow.physics.workload.graph import COLLECTIVES

KINDS = len(COLLECTIVES)
LOAD0, LOAD1, HOPS0, HOPS1, TOUCHED = range(len(Phase._fields))


class DeviceLinks(NamedTuple):
    """Bandwidth and latency of one device's links and memory, for its collectives."""

    intra: float  # bandwidth within the package, one direction, as payload [B/s]
    inter: float  # the same between packages [B/s]
    intra_latency: float  # of a hop [s]
    inter_latency: float
    memory: float  # main memory's bandwidth as a kernel reaches it [B/s]
    overhead: float  # of a call [s]


@kernel
def slower_link(intra_bytes: float, inter_bytes: float, links: DeviceLinks) -> float:
    """Return the time of bytes within the package and between packages, on the slower of both [s].

    A device may have no links of a level that none of its bytes take.
    """
    time = intra_bytes / links.intra if intra_bytes > 0.0 else 0.0
    return max(time, inter_bytes / links.inter if inter_bytes > 0.0 else 0.0)


@kernel
def price(
    offered: Bools,
    offset: Ints,
    phases: Floats,
    links: DeviceLinks,
    latency: Floats,
    per_byte: Floats,
) -> None:
    """Write the latency [s] and the time per byte of S [s/B] of every algorithm of every collective.

    offered, offset, phases: a Recipe's. latency, per_byte: shape (collectives, algorithms); infinite where
    not offered, zero where nothing is exchanged.
    """
    for collective in range(KINDS):
        for algorithm in range(NUM_ALGORITHMS):
            latency[collective, algorithm] = per_byte[collective, algorithm] = np.inf
            if not offered[collective, algorithm]:
                continue
            first = offset[collective * NUM_ALGORITHMS + algorithm]
            last = offset[collective * NUM_ALGORITHMS + algorithm + 1]
            fixed, moving = links.overhead if last > first else 0.0, 0.0
            for row in range(first, last):
                fixed += phases[row, HOPS0] * links.intra_latency + phases[row, HOPS1] * links.inter_latency
                moving += slower_link(phases[row, LOAD0], phases[row, LOAD1], links)
                moving += phases[row, TOUCHED] / links.memory
            latency[collective, algorithm] = fixed
            per_byte[collective, algorithm] = moving


@lean_kernel
def cheapest(
    latency: Floats, per_byte: Floats, row: int, collective: int, size: float, requested: int
) -> tuple[float, int]:
    """Return the time of a collective over `size` bytes [s] and the algorithm's number.

    latency, per_byte: prices, shape (rows, collectives, algorithms), read at `row`. requested: an algorithm,
    taken where it is offered for this collective; else, and for AUTO, the fastest.
    """
    if requested != AUTO and latency[row, collective, requested] < np.inf:
        return latency[row, collective, requested] + size * per_byte[row, collective, requested], requested
    best, best_algorithm = np.inf, 0
    for algorithm in range(latency.shape[2]):
        if latency[row, collective, algorithm] < np.inf:
            time = latency[row, collective, algorithm] + size * per_byte[row, collective, algorithm]
            if time < best:
                best, best_algorithm = time, algorithm
    return best, best_algorithm
