"""The algorithms of a group's collectives on a system's network, before bandwidths are known (5.2, 6.4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.network.collectives import custom_all_reduce, nccl
from fastflow.physics.network.collectives.algorithms import (
    ALGORITHMS,
    NUM_ALGORITHMS,
    REGISTRY,
    Cost,
    Dimension,
    Patterns,
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

    A collective has those of ALGORITHMS, one of a package where points request it, then NCCL's, then the
    custom kernels of servers.
    """

    offered: Bools  # shape (collectives, NUM_ALGORITHMS)
    offset: Ints  # first phase of each, CSR; shape (collectives * NUM_ALGORITHMS + 1,)
    phases: Floats  # columns as in `algorithms.Phase`; shape (phases, 5)
    sent: Floats  # by a rank on average [share of S]; shape (collectives, TOTAL_ALGORITHMS)
    nccl_topology: Floats  # as nccl.NcclTopology, by which libraries' algorithms are priced


def canonical_group(topology: Topology, devices: int, group: Group) -> Group:
    """Return the canonical group among those that have the same recipe.

    On a switch or a full mesh the placement of ranks does not matter: devices there can be renumbered so that
    those of every group are neighbours. devices: as `recipe` takes them.
    """
    rows, inner = [], 1
    remaining = list(zip(*group, strict=True))[::-1]
    for kind, size in zip(topology.kind.tolist(), topology.size.tolist(), strict=True):
        outer, ranks = inner * size, 1
        used = min(outer, devices)
        while remaining and remaining[-1][1] < used:
            degree, stride = remaining.pop()
            used_ranks = min(degree, used // stride)
            if stride % inner or used % (stride * used_ranks) or degree % used_ranks:
                return group
            if used_ranks < degree:
                remaining.append((degree // used_ranks, stride * used_ranks))
                if stride * used_ranks < outer:
                    return group
            ranks *= used_ranks
        if ranks > 1 and (kind not in (SWITCH, FULL) or devices % used):
            return group
        rows.append((ranks, inner))
        inner = outer
    return group_of(rows)


def recipe(topology: Topology, devices: int, group: Group, package: str = "") -> Recipe:
    """Return every algorithm of every collective of a group, while all groups like it work at once.

    devices: those in use, from 0 on, in whole groups. package: the name of a package's algorithm, "" for
    none. A group of one rank is offered everything at no cost.
    """
    ranks = group.ranks
    patterns, dimensions = _patterns(topology, devices, group), _dimensions(topology, devices, group)
    nccl_topology = nccl.nccl_topology(topology, devices, group, patterns)
    shape = (len(COLLECTIVES), NUM_ALGORITHMS)
    offered, sent_shares = (
        np.zeros(shape, dtype=np.bool_),
        np.zeros((len(COLLECTIVES), custom_all_reduce.TOTAL_ALGORITHMS)),
    )
    sent_shares[:, NUM_ALGORITHMS : nccl.TOTAL_ALGORITHMS] = nccl.sent(ranks, int(nccl_topology.inside))
    sent_shares[:, nccl.TOTAL_ALGORITHMS :] = custom_all_reduce.sent(ranks)
    offset, rows = [0], []
    algorithms = [REGISTRY[name] for name in (*ALGORITHMS, *filter(None, [package]))]
    for collective, algorithm in np.ndindex(shape):
        if ranks == 1 or collective == NO_EXCHANGE:
            offered[collective, algorithm] = True
        elif algorithm < len(algorithms):
            algorithm_phases = algorithms[algorithm].phases(collective, ranks, patterns, dimensions)
            if algorithm_phases:
                offered[collective, algorithm] = True
                sent_shares[collective, algorithm] = algorithms[algorithm].sent(collective, ranks)
                rows += algorithm_phases
        offset.append(len(rows))
    return Recipe(
        offered=offered,
        offset=np.array(offset),
        phases=np.array(rows, dtype=np.float64).reshape(-1, 5),
        sent=sent_shares,
        nccl_topology=np.array(nccl_topology),
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
    dimensions = []
    for dimension, degree, stride in factors.tolist() if aligned else []:
        direct = bool(topology.kind[dimension] == FULL)  # every rank has a link to every other
        pattern = ALL_PAIRS if direct else NEIGHBOURS
        cost = reach(topology, devices, *Group((degree,), (stride,)).arrays(), pattern, 0)
        dimensions.append(
            Dimension(ranks=degree, level=int(topology.level[dimension]), direct=direct, cost=cost)
        )
    return dimensions
