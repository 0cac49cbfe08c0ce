"""Load of every link of a system, for figures and for checks (5.2, Figure 5)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.network.routing.contention import add_up, link_flows, planes
from fastflow.physics.network.routing.patterns import Edges
from fastflow.physics.network.routing.topology import FULL, LINE, RING, TREE, Topology


class LinkLoads(NamedTuple):
    """Every directed link of a system and its load; shape (links,).

    An end is a device, or a switch: -1 - d for the switch, or leaf switch, whose first device is d, and
    -1 - N - d for a spine above N devices' leaf switches.
    """

    dimension: Ints
    source: Ints
    target: Ints
    messages: Floats  # sum of the weights of the messages that share it
    load: Floats  # messages over the link's share of a device's bandwidth on its level


def link_loads(topology: Topology, edges: Edges) -> LinkLoads:
    """Return the load of every link under some messages."""
    rows = sum(planes(kind, size) for kind, size in zip(topology.kind, topology.size, strict=True))
    devices = np.arange(int(topology.size.prod()))
    flow = np.zeros((rows, devices.size))
    link_flows(topology, 0, topology.kind.size, edges, flow)
    none = np.zeros(0, dtype=np.int64)
    parts: list[tuple[NDArray[Any], ...]] = [(none, none, none, none * 0.0, none * 0.0)]
    plane, stride = 0, 1
    for j, (kind, size, _, share, leaf, taper) in enumerate(zip(*topology[:6], strict=True)):
        end = plane + planes(kind, size)
        if kind in (LINE, RING):
            add_up(size, stride, flow[plane:end])
        coordinate = devices // stride % size
        for port, carried in enumerate(flow[plane:end]):
            scale = share * taper / leaf if kind == TREE and port > 1 else share
            source, target, exists = _ends(kind, size, leaf, stride, devices, coordinate, port)
            columns = (np.full(devices.size, j), source, target, carried, carried * scale)
            parts.append(tuple(column[exists] for column in columns))
        plane, stride = end, stride * size
    dimension, begins, ends, messages, load = (np.concatenate(column) for column in zip(*parts, strict=True))
    return LinkLoads(dimension=dimension, source=begins, target=ends, messages=messages, load=load)


def _ends(
    kind: int, size: int, leaf: int, stride: int, devices: Ints, coordinate: Ints, port: int
) -> tuple[Ints, Ints, Bools]:
    """Return the ends of the links of one plane of `flow`, and which links exist; shapes (devices,)."""
    first = devices - coordinate * stride
    if kind == FULL:
        return devices, first + port * stride, coordinate != port
    if kind in (LINE, RING):
        above = first + (coordinate + 1) % size * stride
        last = size - 1 if kind == LINE else size
        if kind == RING and size == 2 and port == 1:
            last = 0  # two devices have but one link, upwards from both
        exists = coordinate < last
        return (devices, above, exists) if port == 0 else (above, devices, exists)
    switch = -1 - (devices - coordinate % leaf * stride if kind == TREE else first)
    spine = -1 - devices.size - first
    below, above, exists = (
        (devices, switch, coordinate >= 0) if port < 2 else (switch, spine, coordinate % leaf == 0)
    )
    return (below, above, exists) if port % 2 == 0 else (above, below, exists)
