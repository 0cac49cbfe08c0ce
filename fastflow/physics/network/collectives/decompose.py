"""The algorithms of a group's collectives on a system's network, before bandwidths are known (5.2, 6.4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.network.collectives import custom_all_reduce, nccl
from fastflow.physics.network.collectives.algorithms import (
    WAYS,
    Cost,
    Dimension,
    Patterns,
    phases,
    sent,
    worse,
)
from fastflow.physics.network.routing.contention import reach, split
from fastflow.physics.network.routing.patterns import (
    ALL_PAIRS,
    BACKWARD,
    EXCHANGE,
    FOLD,
    FORWARD,
    NEIGHBOURS,
    TREES,
    Group,
    group_of,
)
from fastflow.physics.network.routing.topology import FULL, SWITCH, Topology
from fastflow.physics.workload.graph import COLLECTIVES, NO_EXCHANGE


class Recipe(NamedTuple):
    """Every algorithm of every collective of one group on one network, before bandwidths are known.

    A collective has a row of WAYS of them, then NCCL's ways, then those of serving libraries.
    """

    offered: Bools  # shape (collectives, WAYS)
    offset: Ints  # first phase of each, CSR; shape (collectives * WAYS + 1,)
    phases: Floats  # columns as in `algorithms.Phase`; shape (phases, 5)
    sent: Floats  # what a rank sends on average [share of S]; shape (collectives, peer.ALL_WAYS)
    spread: Floats  # as nccl.Spread, by which the ways of libraries are priced


def alike(topology: Topology, devices: int, group: Group) -> Group:
    """Return a group that has the same recipe, one for as many groups as it can.

    On a switch or a full mesh it does not matter where ranks sit: devices there can be renumbered so that
    those of every group are neighbours. devices: as `recipe` takes them.
    """
    rows, inner = [], 1
    left = list(zip(*group, strict=True))[::-1]
    for kind, size in zip(topology.kind.tolist(), topology.size.tolist(), strict=True):
        outer, ranks = inner * size, 1
        used = min(outer, devices)
        while left and left[-1][1] < used:
            degree, stride = left.pop()
            here = min(degree, used // stride)
            if stride % inner or used % (stride * here) or degree % here:
                return group
            if here < degree:
                left.append((degree // here, stride * here))
                if stride * here < outer:
                    return group
            ranks *= here
        if ranks > 1 and (kind not in (SWITCH, FULL) or devices % used):
            return group
        rows.append((ranks, inner))
        inner = outer
    return group_of(rows)


def recipe(topology: Topology, devices: int, group: Group) -> Recipe:
    """Return every algorithm of every collective of a group, all groups of its kind working at once.

    devices: those in use, from 0 on, in whole groups. A group of one rank is offered everything at no cost.
    """
    ranks = group.ranks
    patterns, dimensions = _patterns(topology, devices, group), _dimensions(topology, devices, group)
    spread = nccl.spread(topology, devices, group, patterns)
    shape = (len(COLLECTIVES), WAYS)
    offered, sending = (
        np.zeros(shape, dtype=np.bool_),
        np.zeros((len(COLLECTIVES), custom_all_reduce.ALL_WAYS)),
    )
    sending[:, WAYS : nccl.ALL_WAYS] = nccl.sent(ranks, int(spread.inside))
    sending[:, nccl.ALL_WAYS :] = custom_all_reduce.sent(ranks)
    offset, rows = [0], []
    for collective, algorithm in np.ndindex(shape):
        if ranks == 1 or collective == NO_EXCHANGE:
            offered[collective, algorithm] = True
        else:
            found = phases(collective, algorithm, ranks, patterns, dimensions)
            if found:
                offered[collective, algorithm] = True
                sending[collective, algorithm] = sent(collective, algorithm, ranks)
                rows += found
        offset.append(len(rows))
    return Recipe(
        offered=offered,
        offset=np.array(offset),
        phases=np.array(rows, dtype=np.float64).reshape(-1, 5),
        sent=sending,
        spread=np.array(spread),
    )


def _patterns(topology: Topology, devices: int, group: Group) -> Patterns:
    """Return the cost of the patterns of a whole group."""

    def cost(pattern: int, step: int = 0) -> Cost:
        return reach(topology, devices, *rows, pattern, step)

    ranks, rows = group.ranks, group.arrays()
    neighbours = cost(NEIGHBOURS)
    return Patterns(
        neighbours=neighbours,
        pipeline=worse(cost(FORWARD), cost(BACKWARD)),
        fold=cost(FOLD) if ranks & (ranks - 1) else (0.0, 0.0, 0.0, 0.0),
        trees=cost(TREES),
        all_pairs=cost(ALL_PAIRS),
        exchange=[cost(EXCHANGE, step) for step in range(ranks.bit_length() - 1)],
        ports=_ports(topology, neighbours),
    )


def _ports(topology: Topology, neighbours: Cost) -> int:
    """Return the ports of a device on the outermost level that its neighbours are reached over."""
    level = 1 if neighbours[3] > 0.0 else 0
    return int(topology.share[topology.level == level].max(initial=1.0))


def _dimensions(topology: Topology, devices: int, group: Group) -> list[Dimension]:
    """Return a group's dimensions, innermost first; none where it is not aligned with the network's."""
    factors, aligned = split(topology.size, devices, *group.arrays())
    found = []
    for dimension, degree, stride in factors.tolist() if aligned else []:
        direct = bool(topology.kind[dimension] == FULL)  # every rank has a link of its own to every other
        pattern = ALL_PAIRS if direct else NEIGHBOURS
        cost = reach(topology, devices, *Group((degree,), (stride,)).arrays(), pattern, 0)
        found.append(Dimension(ranks=degree, level=int(topology.level[dimension]), direct=direct, cost=cost))
    return found
