"""Packages whose devices have an uneven number of links between them: a table instead of dimensions.

A library that knows the table lays rings and messages over it, as NCCL does (NVIDIA/nccl src/graph):

- A ring visits all ranks over direct links, and has one link of every hop to itself. As many rings are taken
  as the links hold, in either direction. Ranks that no ring of direct links visits have one ring, some hops
  of which pass through a third device.
- A message between two devices without a link passes through a third one (NCCL's PATH_NVB), on the widest
  way of two hops; of ways as wide, the one with the most links, then the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fastflow.core.tables import Ints

NO_LINKS: Ints = np.zeros((0, 0), dtype=np.int64)


def _table(devices: int, links: dict[int, str]) -> Ints:
    """Return the links between every two devices, from the pairs that have each number of links."""
    table = np.zeros((devices, devices), dtype=np.int64)
    for count, pairs in links.items():
        for a, b in (map(int, pair) for pair in pairs.split()):
            table[a, b] = table[b, a] = count
    return table


LINK_TABLES: dict[str, Ints] = {
    "hybrid_cube_mesh": _table(8, {
        1: "01 02 13 26 37 45 46 57",
        2: "03 04 12 15 23 47 56 67",
    }),
}  # fmt: skip
"""By topology. hybrid_cube_mesh: a cube with diagonals on two opposite faces and two links on half of its
pairs, six at every device: DGX-1 with V100 (its whitepaper, 2017; counts as NCCL lists them, NVIDIA/nccl
issue 671)."""


def count_rings(links: Ints) -> int:
    """Return how many rings over all devices the links hold at once, 0 where there is none.

    links: between every two devices and in each direction, shape (devices, devices).
    """
    return _count_rings(tuple(map(tuple, links.tolist())))


@lru_cache(maxsize=256)
def _count_rings(rows: tuple[tuple[int, ...], ...]) -> int:
    links = np.array(rows, dtype=np.int64)
    devices = len(links)
    cycles: list[list[tuple[int, int]]] = []

    def walk(path: list[int]) -> None:
        if len(path) == devices and links[path[-1], path[0]]:
            cycles.append(list(zip(path, path[1:] + path[:1], strict=True)))
        for device in range(devices):
            if device not in path and links[path[-1], device]:
                walk([*path, device])

    walk([0])
    left, most = links.copy(), 0

    def pack(first: int, count: int) -> None:
        nonlocal most
        most = max(most, count)
        for index in range(first, len(cycles)):
            if count + int(left.sum(axis=0).min()) <= most:
                return
            hops = cycles[index]
            if all(left[hop] for hop in hops):
                for hop in hops:
                    left[hop] -= 1
                pack(index, count + 1)
                for hop in hops:
                    left[hop] += 1

    pack(0, 0)
    return most


def hops_of(links: Ints, source: int, target: int) -> list[tuple[int, int]]:
    """Return the links that a message takes, [] where there is no way of one or two hops."""
    if links[source, target]:
        return [(source, target)]
    best, way = (0, 0), []
    for third in range(len(links)):
        ends = (int(links[source, third]), int(links[third, target]))
        if (min(ends), sum(ends)) > best and min(ends):
            best, way = (min(ends), sum(ends)), [(source, third), (third, target)]
    return way


def busiest(links: Ints, messages: Sequence[tuple[int, int]]) -> float:
    """Return the most messages (source, target) that a link carries, among links that share them evenly."""
    load = np.zeros(links.shape)
    for source, target in messages:
        for hop in hops_of(links, source, target):
            load[hop] += 1.0
    used = links > 0
    return float((load[used] / links[used]).max(initial=0.0))
