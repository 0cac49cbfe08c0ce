"""Communication patterns of a group of ranks: senders and receivers of concurrent messages (5.1, 6.4).

The ranks of a group are the mixed radix of its degrees, the first one fastest, and each of them has a
stride in devices. Every device is in one group, and all groups communicate at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints

NEIGHBOURS = 0  # a ring in both directions, half of a message in each
FORWARD = 1  # r to r + 1, without closing the ring
BACKWARD = 2  # r to r - 1
EXCHANGE = 3  # r with r xor 2^step, among the largest power of two of ranks
FOLD = 4  # ranks beyond that power of two with r - 2^floor(log2 n)
TREES = 5  # both trees of a double binary tree, every edge in both directions
ALL_PAIRS = 6  # everyone to everyone else
SHIFT = 7  # r to r + step mod n: one of the n - 1 rounds of ALL_PAIRS


class Group(NamedTuple):
    """Placement of ranks on devices: rows of equidistant devices, strides growing; no row for one rank."""

    degrees: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """Devices of the group."""
        return prod(self.degrees)

    def arrays(self) -> tuple[Ints, Ints]:
        """Return degrees and strides as kernels take them, shapes (rows,)."""
        return np.array(self.degrees, dtype=np.int64), np.array(self.strides, dtype=np.int64)


class Edges(NamedTuple):
    """Messages between devices; shape (edges,)."""

    source: Ints
    target: Ints
    weight: Floats  # bytes of the message over those of the pattern


def group_of(rows: Iterable[tuple[int, int]]) -> Group:
    """Return the group whose ranks are the product of rows of equidistant devices: (degree, stride) each.

    Neighbours in the network are neighbours in the group, and rows that continue each other become one.
    """
    degrees: list[int] = []
    strides: list[int] = []
    for stride, degree in sorted((stride, degree) for degree, stride in rows if degree > 1):
        if degrees and stride == degrees[-1] * strides[-1]:
            degrees[-1] *= degree
        else:
            degrees.append(degree)
            strides.append(stride)
    return Group(tuple(degrees), tuple(strides))


@kernel
def power_below(ranks: int) -> int:
    """Return the largest power of two that is at most `ranks`."""
    power = 1
    while 2 * power <= ranks:
        power *= 2
    return power


@kernel
def tree_parents(ranks: int) -> Ints:
    """Return every rank's parent in the in-order binary tree, -1 at its root; shape (ranks,).

    Counted from 1, a node's lowest set bit is its height: odd ones are leaves, and the root is the
    largest power of two (Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth
    broadcast, reduction and scan, Parallel Computing 35(12), 2009).
    """
    parents = np.empty(ranks, dtype=np.int64)
    parents[:] = -1
    for node in range(1, ranks + 1):
        height = node & -node
        if height > 1:
            parents[node - height // 2 - 1] = node - 1
            if node < ranks:
                below = min(power_below(ranks - node), height // 2)
                parents[node + below - 1] = node - 1
    return parents


@kernel
def _tree_pairs(ranks: int) -> tuple[Ints, Ints]:
    """Return every edge of both trees, in both directions.

    The second tree is the first mirrored, or moved on by one where ranks are odd: inner nodes of one are
    leaves of the other, so that no rank has more than four edges.
    """
    sender, receiver = np.empty(4 * (ranks - 1), dtype=np.int64), np.empty(4 * (ranks - 1), dtype=np.int64)
    parents = tree_parents(ranks)
    at = 0
    for child, parent in enumerate(parents):
        if parent < 0:
            continue
        if ranks % 2 == 0:
            child2, parent2 = ranks - 1 - child, ranks - 1 - parent
        else:
            child2, parent2 = (child + 1) % ranks, (parent + 1) % ranks
        for a, b in ((child, parent), (parent, child), (child2, parent2), (parent2, child2)):
            sender[at], receiver[at] = a, b
            at += 1
    return sender, receiver


@kernel
def _partner(pattern: int, step: int, ranks: int, power: int, rank: int, message: int) -> int:
    """Return the receiver of a rank's first (0) or second (1) message, -1 for none."""
    partner = -1
    if pattern == NEIGHBOURS:
        partner = (rank + (1 if message == 0 else ranks - 1)) % ranks
    elif message == 0:
        if pattern == FORWARD and rank + 1 < ranks:
            partner = rank + 1
        elif pattern == BACKWARD:
            partner = rank - 1
        elif pattern == EXCHANGE and rank < power:
            partner = rank ^ (1 << step)
        elif pattern == FOLD and rank >= power:
            partner = rank - power
        elif pattern == SHIFT:
            partner = (rank + step) % ranks
    elif pattern == FOLD and rank + power < ranks:
        partner = rank + power
    return partner


@kernel
def pairs(pattern: int, step: int, ranks: int) -> tuple[Ints, Ints]:
    """Return the sending and the receiving rank of every message of a pattern; shapes (messages,).

    ALL_PAIRS is not among them: it is SHIFT with every step of 1 to ranks - 1.
    """
    if pattern == TREES:
        return _tree_pairs(ranks)
    sender, receiver = np.empty(2 * ranks, dtype=np.int64), np.empty(2 * ranks, dtype=np.int64)
    power, count = power_below(ranks), 0
    for rank in range(ranks):
        for message in range(2):
            partner = _partner(pattern, step, ranks, power, rank, message)
            if partner >= 0:
                sender[count], receiver[count] = rank, partner
                count += 1
    return sender[:count], receiver[:count]


@kernel
def logical_edges(devices: int, degrees: Ints, strides: Ints, pattern: int, step: int) -> Edges:
    """Return all messages that move at once.

    devices: those in use, 0 to devices - 1, whole groups. degrees, strides: a Group's, whose
    groups tile the devices: a stride times its degree divides the next stride.
    """
    ranks = 1
    for degree in degrees:
        ranks *= degree
    sender, receiver = pairs(pattern, step, ranks)
    for ends in (sender, receiver):
        for message in range(ends.size):  # where a rank is, from its group's first device on
            rank, offset = ends[message], 0
            for row in range(degrees.size):
                offset += rank % degrees[row] * strides[row]
                rank //= degrees[row]
            ends[message] = offset
    edges = devices // ranks * sender.size
    source, target = np.empty(edges, dtype=np.int64), np.empty(edges, dtype=np.int64)
    weight, edge_weight = np.empty(edges), 0.5 if pattern == NEIGHBOURS else 1.0
    at, base = 0, 0
    while base < devices:
        first = base  # device of a group from here on
        for row in range(degrees.size):
            if base // strides[row] % degrees[row] > 0:
                span = degrees[row] * strides[row]
                first = max(first, base // span * span + span)
        if first == base:
            for message in range(sender.size):
                source[at] = base + sender[message]
                target[at] = base + receiver[message]
                weight[at] = edge_weight
                at += 1
            first += 1
        base = first
    return Edges(source, target, weight)
