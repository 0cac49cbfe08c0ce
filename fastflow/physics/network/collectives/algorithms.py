"""Algorithms of collective communication, as phases of steps on a network (6.4).

A step of an algorithm moves b bytes over every edge of a pattern at once; the network gives the pattern's
cost: `load`, the bytes on the busiest link for a byte of an edge, and `hops`. An algorithm is then a short
list of phases, and its time is affine in the tensor's size S: the alpha-beta-gamma model of Thakur,
Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, Int. J. High Perform.
Comput. Appl. 19(1), 2005, and of Chan, Heimlich, Purkayastha and van de Geijn, Collective communication,
Concurrency Computat. 19(13), 2007.

- Ring: n - 1 steps of S / n for a reduce-scatter or an all-gather (Patarasuk and Yuan, Bandwidth optimal
  all-reduce algorithms, J. Parallel Distrib. Comput. 69(2), 2009), half the tensor in each direction. A
  broadcast is passed round the ring in n pieces.
- Halving-doubling: S/2 with the neighbour, S/4 at distance two, and so on (Rabenseifner, in Thakur et al.).
  Other than powers of two first add the surplus ranks' tensors to those of partners, in an all-reduce; the
  other collectives need a power of two. All-to-all is the hypercube exchange, S/2 a step; broadcast is van de
  Geijn's scatter and all-gather.
- Double binary tree: half the tensor up and down each of two trees, in pieces so small that all edges work
  at once (Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
  Parallel Comput. 35(12), 2009). A broadcast's edges go in one direction only, but its
  busiest link is taken to be as busy as in an all-reduce: an upper bound.
- Direct: every rank to every other, as many at a time as a device has ports. A broadcast is a scatter and an
  all-gather.
- Per dimension: a reduce-scatter in one dimension of the network after the other. The tensor is split into
  as many parts as there are dimensions. Each part starts in another dimension, so all links work at once.
- Hierarchical: the same, but all of a package before anything between packages, which then move 1/p of the
  tensor (BlueConnect: Cho et al., IBM J. Res. Dev. 63(6), 2019).

Reduction: an addition reads both operands, and sent bytes are read first; both go through main memory, and
neither overlaps with the transfer, as in the alpha-beta-gamma model. `touched` counts the bytes that a
rank's kernels read and write of its memory. A sum that is passed on at once is not written, bytes that
the receiver keeps are written by the sender, and the part that a rank keeps is not moved. Additions are
hidden by the memory traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from fastflow.core.registry import Registry
from fastflow.physics.workload.graph import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    POINT_TO_POINT,
    REDUCE_SCATTER,
)

AUTO = -1  # the fastest
RING, HALVING_DOUBLING, DOUBLE_TREE, DIRECT, HIERARCHICAL, PER_DIMENSION = range(6)
ALGORITHMS = ("ring", "halving-doubling", "double-binary-tree", "direct", "hierarchical", "per-dimension")
CHOICES = ("auto", *ALGORITHMS)
"""What `system.collective` may be, without the algorithms of packages."""
OF_PACKAGE = len(ALGORITHMS)  # the algorithm of a package that a point requests
NUM_ALGORITHMS = len(ALGORITHMS) + 1

Cost = tuple[float, float, float, float]
"""Cost of a pattern, as `contention.reach` returns it: load within packages and between, then both hops."""


def worse(first: Cost, second: Cost) -> Cost:
    """Return the worse cost of two patterns, on either level."""
    return (
        max(first[0], second[0]),
        max(first[1], second[1]),
        max(first[2], second[2]),
        max(first[3], second[3]),
    )


class Patterns(NamedTuple):
    """Cost of the patterns of a whole group."""

    neighbours: Cost
    pipeline: Cost  # the worse of forwards and backwards
    fold: Cost
    trees: Cost
    all_pairs: Cost
    exchange: Sequence[Cost]  # for each power of two that the ranks hold
    ports: int  # messages that a device sends at a time


class Dimension(NamedTuple):
    """A group's ranks along one dimension of the network."""

    ranks: int
    level: int  # 0 within packages, 1 between them
    direct: bool  # whether they exchange directly or round a ring
    cost: Cost  # of that pattern


class Phase(NamedTuple):
    """A phase of an algorithm, all its steps together; bytes as shares of S."""

    load0: float  # bytes on the busiest link within packages, over its share of the device's bandwidth
    load1: float  # the same between packages
    hops0: float
    hops1: float
    touched: float  # bytes that a rank's kernels read and write of its memory


def _phase(pattern: Cost, steps: int, share: float, touched: float) -> Phase:
    """Return a phase of `steps` steps that together move `share` of S over every edge of a pattern."""
    load0, load1, hops0, hops1 = pattern
    return Phase(
        load0=load0 * share, load1=load1 * share, hops0=hops0 * steps, hops1=hops1 * steps, touched=touched
    )


def phases(
    collective: int, algorithm: int, n: int, patterns: Patterns, dimensions: Sequence[Dimension]
) -> list[Phase]:
    """Return an algorithm's phases among n > 1 ranks; empty where it does not offer the collective.

    dimensions: the group's, innermost first; empty where it is no product of any.
    """
    if algorithm == RING:
        return _ring(collective, n, patterns)
    if algorithm == HALVING_DOUBLING:
        return _halving_doubling(collective, n, patterns)
    if algorithm == DOUBLE_TREE:
        return _double_tree(collective, n, patterns)
    if algorithm == DIRECT:
        return _direct(collective, n, patterns)
    if algorithm == PER_DIMENSION:
        return _rotated(collective, dimensions, 1.0) if len(dimensions) > 1 else []
    inside = [dimension for dimension in dimensions if dimension.level == 0]
    across = [dimension for dimension in dimensions if dimension.level == 1]
    if not inside or not across:
        return []
    package_ranks = prod(dimension.ranks for dimension in inside)
    return _rotated(collective, inside, 1.0) + _rotated(collective, across, 1.0 / package_ranks)


def _ring(collective: int, n: int, patterns: Patterns) -> list[Phase]:
    # steps in units of n - 1, which move (n - 1) / n of S, and bytes touched
    rounds, touched = {
        REDUCE_SCATTER: (1, 2.0),  # one piece read and sent, n - 1 added, the last sum written
        ALL_GATHER: (1, (n - 1) / n),  # a rank's piece sent, n - 2 passed on
        ALL_REDUCE: (2, (3 * n - 2) / n),  # the last sum is sent as it is written
        BROADCAST: (2, 1.0),
    }.get(collective, (0, 0.0))
    if not rounds:
        return []
    return [_phase(patterns.neighbours, rounds * (n - 1), rounds * (n - 1) / n, touched)]


def _halving_doubling(collective: int, n: int, patterns: Patterns) -> list[Phase]:
    surplus = n - (1 << len(patterns.exchange))
    if surplus and collective != ALL_REDUCE:
        return []
    # repetitions of each exchange, and bytes touched for each byte of it: read and sent; or also read, added
    # to the rank's tensor, and written
    times, touched = {
        REDUCE_SCATTER: (1, 4.0),
        ALL_GATHER: (1, 1.0),
        ALL_REDUCE: (2, 5.0),
        ALL_TO_ALL: (1, 1.0),
        BROADCAST: (2, 2.0),
    }.get(collective, (0, 0.0))
    if not times:
        return []
    folded = [_phase(patterns.fold, 2, 2.0, 5.0)] if surplus else []
    shares = [
        0.5 if collective == ALL_TO_ALL else 0.5 / (1 << step) for step in range(len(patterns.exchange))
    ]
    return folded + [
        _phase(pattern, times, times * share, touched * share)
        for pattern, share in zip(patterns.exchange, shares, strict=True)
    ]


def _double_tree(collective: int, n: int, patterns: Patterns) -> list[Phase]:
    height = n.bit_length() - 1
    if collective == ALL_REDUCE:
        # of half the tensor each: three operands and a read on the way down as an inner node, one as a leaf
        return [_phase(patterns.trees, 2 * height, 0.5, 2.5)]
    if collective == BROADCAST:
        return [_phase(patterns.trees, height, 0.5, 1.0)]
    return []


def _direct(collective: int, n: int, patterns: Patterns) -> list[Phase]:
    if collective == POINT_TO_POINT:
        return [_phase(patterns.pipeline, 1, 1.0, 1.0)]
    steps, touched = {
        REDUCE_SCATTER: (1, 2.0),
        ALL_GATHER: (1, 1.0 / n),
        ALL_REDUCE: (2, 2.0),  # sums are distributed as they are written
        ALL_TO_ALL: (1, (n - 1) / n),
        BROADCAST: (2, 1.0),  # the root reads all but its share, every rank its share
    }.get(collective, (0, 0.0))
    if not steps:
        return []
    # a port sends one message after the other (the one-port model of Chan et al., of every port)
    rounds = -(-(n - 1) // patterns.ports)
    return [_phase(patterns.all_pairs, steps * rounds, steps / n, touched)]


def _rotated(collective: int, dimensions: Sequence[Dimension], size: float) -> list[Phase]:
    """Return the phases over some dimensions, of a tensor of `size` [share of S].

    A phase takes as long as its slowest part. A reduce-scatter shrinks the parts from phase to phase, an
    all-gather grows them back over the same edges, and an all-reduce does both.
    """
    scatter = collective in (REDUCE_SCATTER, ALL_REDUCE)
    gather = collective in (ALL_GATHER, ALL_REDUCE, BROADCAST)
    if not scatter and not gather:
        return []
    # a broadcast is the root's scatter, which loads a link no more than a gather, and a gather
    times, count = 2 if collective in (ALL_REDUCE, BROADCAST) else 1, len(dimensions)
    part_sizes = [size / count] * count  # of each part
    result = []
    for stage in range(count):
        concurrent = []
        for part in range(count):
            ranks, _, direct, cost = dimensions[(part + stage) % count]
            steps = 1 if direct else ranks - 1
            touched = 2.0 * part_sizes[part] if scatter else 0.0
            if gather:
                touched += steps * part_sizes[part] / ranks
            concurrent.append(_phase(cost, times * steps, times * steps * part_sizes[part] / ranks, touched))
            part_sizes[part] /= ranks
        load0, load1, hops0, hops1, touched_bytes = zip(*concurrent, strict=True)
        result.append(
            Phase(
                load0=max(load0),
                load1=max(load1),
                hops0=max(hops0),
                hops1=max(hops1),
                touched=sum(touched_bytes),
            )
        )
    return result


def sent(collective: int, algorithm: int, n: int) -> float:
    """Return the bytes that a rank sends on average, in an algorithm with the collective [share of S]."""
    once = (n - 1) / n
    if collective == ALL_REDUCE:
        return 2.0 * once
    if collective == POINT_TO_POINT:
        return 1.0
    if collective == ALL_TO_ALL and algorithm == HALVING_DOUBLING:
        return 0.5 * (n.bit_length() - 1)
    if collective == BROADCAST and algorithm in (DIRECT, HIERARCHICAL, PER_DIMENSION):
        return once / n + once  # the root's scatter, and an all-gather
    if collective == BROADCAST and algorithm == HALVING_DOUBLING:
        return 0.5 * (n.bit_length() - 1) / n + once
    return once


def least_sent(collective: int, n: int) -> float:
    """Return the bytes that each of n ranks sends on average, where it sends no more than it must."""
    return sent(collective, RING, n)


class Algorithm(NamedTuple):
    """An algorithm of collectives of more than one rank; collectives are numbers of `graph.COLLECTIVES`."""

    phases: Callable[[int, int, Patterns, Sequence[Dimension]], list[Phase]]
    """From a collective, its ranks, the costs of patterns and the dimensions of their network, to the phases.
    Without phases it does not offer the collective, and the fastest of fastflow's own takes its place."""
    sent: Callable[[int, int], float] = least_sent
    """From a collective and its ranks to the bytes that a rank sends on average [share of S]."""


def _built_in(algorithm: int) -> Algorithm:
    """Return one of fastflow's algorithms, by its number."""
    return Algorithm(
        phases=lambda collective, n, patterns, dimensions: phases(
            collective, algorithm, n, patterns, dimensions
        ),
        sent=lambda collective, n: sent(collective, algorithm, n),
    )


REGISTRY: Registry[Algorithm] = Registry(
    "system.collective",
    "collectives",
    lambda thing: isinstance(thing, Algorithm),
    "a fastflow.physics.network.collectives.algorithms.Algorithm",
    {name: _built_in(number) for number, name in enumerate(ALGORITHMS)},
)
"""Algorithms by name: those of `ALGORITHMS`, and those of packages, which a point has to request."""


def package_of(name: str) -> str:
    """Return the name of a package's algorithm; "" for `auto` and fastflow's own."""
    return "" if name in CHOICES else name


def number_of(name: str) -> int:
    """Return the number of an algorithm that a point requests, as `cost.cheapest` takes it."""
    return OF_PACKAGE if package_of(name) else CHOICES.index(name) - 1
