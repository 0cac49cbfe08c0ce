"""Load of every link under a pattern of messages: dimension-ordered (X-Y) routing (5.2, 6.4).

A message corrects its coordinate in the innermost dimension first, then in the next. In a ring it
goes in the shorter direction, upwards where both are as long. A link that several messages share is derated
by their number (6.4), so a byte on every edge of a pattern takes `load` / (bandwidth of the level).

A range of links along a line is stored as two entries, at its ends; prefix sums over the line then
give every link's load. So a message costs the same however many hops it takes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.network.routing.all_pairs import all_pairs
from fastflow.physics.network.routing.patterns import ALL_PAIRS, SHIFT, Edges, logical_edges
from fastflow.physics.network.routing.topology import FULL, LINE, RING, SWITCH, TREE, Topology

# read, not written out: Numba would compile callees for a literal as well
_UNIT_STRIDE = np.ones(1, dtype=np.int64)


@kernel
def _coordinates(devices: int, size: int, stride: int) -> Ints:
    """Return every device's coordinate in a dimension, shape (devices,)."""
    coordinate = np.empty(devices, dtype=np.int64)
    at, here = 0, 0
    while at < devices:
        end = min(at + stride, devices)
        coordinate[at:end] = here
        at, here = end, (here + 1) % size
    return coordinate


class _Messages(NamedTuple):
    """Messages that move dimension by dimension; shape (edges,)."""

    at: Ints  # the device that each has reached
    target: Ints
    weight: Floats
    hops: Ints  # that it took on this level


@kernel
def _route_line(
    is_ring: bool, size: int, stride: int, coordinate: Ints, messages: _Messages, flow: Floats
) -> int:
    """Route messages along a line or ring: flow[0] upwards, flow[1] downwards; return the most hops.

    An entry of flow is the load of the link above a device less that of the link before it; a ring's
    last link closes it.
    """
    at, target, weight, hops = messages
    max_hops = 0
    for edge in range(at.size):
        here = coordinate[at[edge]]
        ahead = coordinate[target[edge]] - here
        if ahead == 0:
            continue
        direction, length, wraps = int(ahead < 0), abs(ahead), False
        if is_ring:
            forwards = ahead if ahead > 0 else ahead + size
            wraps = (2 * forwards <= size) != (ahead > 0)
            if wraps:
                direction, length = 1 - direction, size - length
        start, end = at[edge], at[edge] + ahead * stride
        first, beyond = (start, end) if direction == 0 else (end, start)
        flow[direction, first] += weight[edge]
        flow[direction, beyond] -= weight[edge]
        if wraps:
            flow[direction, start - here * stride] += weight[edge]
        at[edge] = end
        hops[edge] += length
        max_hops = max(max_hops, hops[edge])
    return max_hops


@kernel
def _route_switch(leaf: int, stride: int, coordinate: Ints, messages: _Messages, flow: Floats) -> int:
    """Route messages through a switch, or through leaf switches and a spine; return the most hops.

    leaf: devices of a leaf switch. flow: a device's up-link and down-link, and of a tree also those
    of a leaf switch, at its first device.
    """
    at, target, weight, hops = messages
    max_hops = 0
    for edge in range(at.size):
        begin = at[edge]
        here, there = coordinate[begin], coordinate[target[edge]]
        if here == there:
            continue
        end = begin + (there - here) * stride
        flow[0, begin] += weight[edge]
        flow[1, end] += weight[edge]
        hops[edge] += 1
        if here // leaf != there // leaf:
            flow[2, begin - here % leaf * stride] += weight[edge]
            flow[3, end - there % leaf * stride] += weight[edge]
            hops[edge] += 2
        at[edge] = end
        max_hops = max(max_hops, hops[edge])
    return max_hops


@kernel
def _route_full(stride: int, coordinate: Ints, messages: _Messages, flow: Floats) -> int:
    """Route messages over direct links, flow[receiver's coordinate, sender]; return the most hops."""
    at, target, weight, hops = messages
    max_hops = 0
    for edge in range(at.size):
        here, there = coordinate[at[edge]], coordinate[target[edge]]
        if here != there:
            flow[there, at[edge]] += weight[edge]
            at[edge] += (there - here) * stride
            hops[edge] += 1
            max_hops = max(max_hops, hops[edge])
    return max_hops


@kernel
def _route(kind: int, size: int, leaf: int, stride: int, messages: _Messages, flow: Floats) -> int:
    """Move every message along one dimension; return the most hops of any on this level so far."""
    coordinate = _coordinates(flow.shape[1], size, stride)
    if kind == FULL:
        return _route_full(stride, coordinate, messages, flow)
    if kind in (SWITCH, TREE):
        below = leaf if kind == TREE else size
        return _route_switch(below, stride, coordinate, messages, flow)
    return _route_line(kind == RING, size, stride, coordinate, messages, flow)


@kernel
def planes(kind: int, size: int) -> int:
    """Return the number of directed links of each device in a dimension."""
    if kind == FULL:
        return size
    return 4 if kind == TREE else 2


@kernel
def add_up(size: int, stride: int, flow: Floats) -> None:
    """Turn the entries that `_route_line` made into loads, in place."""
    for direction in range(2):
        for line in range(0, flow.shape[1], size * stride):
            for at in range(line + stride, min(line + size * stride, flow.shape[1])):
                flow[direction, at] += flow[direction, at - stride]


@kernel
def link_flows(network: Topology, first: int, last: int, edges: Edges, flow: Floats) -> tuple[int, int]:
    """Route messages, add the entries that they make to `flow`, and return the most hops of each level.

    first, last: the dimensions that the devices' numbers count. flow: shape (planes of these,
    devices), see `_route_line`, `_route_switch` and `_route_full`.
    """
    kind, size, level, leaf = network.kind, network.size, network.level, network.leaf
    hops = np.zeros(edges.source.size, dtype=np.int64)
    messages = _Messages(edges.source.copy(), edges.target, edges.weight, hops)
    inside, outside, plane, stride = 0, 0, 0, _UNIT_STRIDE[0]
    for j in range(first, last):
        if j > first and level[j] != level[j - 1]:
            hops[:] = 0
        end = plane + planes(kind[j], size[j])
        max_hops = _route(kind[j], size[j], leaf[j], stride, messages, flow[plane:end])
        inside, outside = (
            (max(inside, max_hops), outside) if level[j] == 0 else (inside, max(outside, max_hops))
        )
        plane, stride = end, stride * size[j]
    return inside, outside


@kernel
def _max_flow(flow: Floats, plane: int, end: int) -> float:
    """Return the largest entry of some planes."""
    max_flow = 0.0
    for row in range(plane, end):
        for at in range(flow.shape[1]):
            max_flow = max(max_flow, flow[row, at])
    return max_flow


@kernel
def _busiest(network: Topology, first: int, last: int, flow: Floats) -> tuple[float, float]:
    """Return each level's largest load of a link, after `link_flows`."""
    kind, size, level, share, leaf, taper, _ = network
    load0, load1, plane, stride = 0.0, 0.0, 0, _UNIT_STRIDE[0]
    for j in range(first, last):
        end = plane + planes(kind[j], size[j])
        if kind[j] in (LINE, RING):
            add_up(size[j], stride, flow[plane:end])
        load = share[j] * _max_flow(flow, plane, plane + 2 if kind[j] == TREE else end)
        if kind[j] == TREE:
            load = max(load, share[j] * taper[j] / leaf[j] * _max_flow(flow, plane + 2, end))
        load0, load1 = (max(load0, load), load1) if level[j] == 0 else (load0, max(load1, load))
        plane, stride = end, stride * size[j]
    return load0, load1


@kernel
def split(size: Ints, devices: int, degrees: Ints, strides: Ints) -> tuple[Ints, bool]:
    """Return a group's factors, rows of (dimension, degree, stride), innermost first; and whether it has any.

    A group that is aligned with a topology's dimensions (whose sizes are `size`) is the product of its
    factors, each of them equidistant devices on one dimension; any other has none. As a Group, a
    factor communicates within its dimension alone.
    """
    factors, count = np.empty((size.size, 3), dtype=np.int64), 0
    inner, row, degree, stride = 1, -1, 1, 0
    for j in range(size.size):
        outer = inner * size[j]
        if degree == 1 and row + 1 < degrees.size:
            row += 1
            degree, stride = degrees[row], strides[row]
        if degree > 1 and stride < outer:
            if stride % inner != 0:
                break
            capacity = size[j] // (stride // inner)  # ranks that the dimension holds
            if degree <= capacity:
                factor_ranks, fits = degree, outer % (stride * degree) == 0 or devices <= outer
            else:
                factor_ranks, fits = capacity, outer % stride == 0 and degree % capacity == 0
            if not fits:
                break
            factors[count, 0], factors[count, 1], factors[count, 2] = j, factor_ranks, stride
            count, degree, stride = count + 1, degree // factor_ranks, outer
        inner = outer
    if degree > 1 or row + 1 < degrees.size:
        return factors[:0], False
    return factors[:count], True


@kernel
def _all_pairs(network: Topology, devices: int, factors: Ints) -> tuple[float, float, float, float]:
    """Return `reach` of ALL_PAIRS in a product of factors.

    The pairs of one factor's ranks are those of the group, once for every rank of the others: a message
    comes from any rank of the outer factors' sides and goes to any of the inner ones'.
    """
    kind, size, level, share, leaf, taper, _ = network
    load0, load1, hops0, hops1 = 0.0, 0.0, 0.0, 0.0
    group = 1
    for row in range(factors.shape[0]):
        group *= factors[row, 1]
    inner, j = 1, 0
    for row in range(factors.shape[0]):
        while j < factors[row, 0]:
            inner, j = inner * size[j], j + 1
        used = min(size[j], -(-devices // inner))
        ranks, spacing = factors[row, 1], factors[row, 2] // inner
        of_device, of_leaf, hops = all_pairs(kind[j], size[j], leaf[j], used, ranks, spacing)
        if kind[j] == TREE:
            of_device = max(of_device, of_leaf * taper[j] / leaf[j])
        load = share[j] * of_device * (group // ranks)
        if level[j] == 0:
            load0, hops0 = max(load0, load), hops0 + hops
        else:
            load1, hops1 = max(load1, load), hops1 + hops
    return load0, load1, hops0, hops1


@kernel
def _region(size: Ints, devices: int, degrees: Ints, strides: Ints) -> tuple[int, int, int, int]:
    """Return the dimensions, first to last, that a group's messages need, the unit, and the devices in use.

    Dimensions inside the strides hold copies of the same traffic, and so do those outside the span of
    a group: one copy is enough. `unit` devices become one.
    """
    first, unit = 0, 1
    while first < size.size:
        inner, is_inside = unit * size[first], True
        for stride in strides:
            is_inside = is_inside and stride % inner == 0
        if not is_inside:
            break
        first, unit = first + 1, inner
    span = degrees[-1] * strides[-1]
    last, outer = first, unit
    while last < size.size and outer % span != 0 and outer < devices:
        last, outer = last + 1, outer * size[last]
    return first, last, unit, min(devices, outer) // unit


@kernel
def reach(
    network: Topology, devices: int, degrees: Ints, strides: Ints, pattern: int, step: int
) -> tuple[float, float, float, float]:
    """Return the cost of a pattern of all groups at once: load0, load1, hops0, hops1 of both levels.

    devices: those in use, from 0 on, in whole groups. degrees, strides: a Group's. load: messages on the
    level's busiest link over its share of the device's bandwidth, so that b bytes a message take
    b * load / bandwidth [s]; hops: the most of any message on the level.
    """
    ranks = 1
    for degree in degrees:
        ranks *= degree
    if ranks == 1:
        return 0.0, 0.0, 0.0, 0.0
    if pattern == ALL_PAIRS:
        factors, aligned = split(network.size, devices, degrees, strides)
        if aligned:
            return _all_pairs(network, devices, factors)
    first, last, unit, used = _region(network.size, devices, degrees, strides)
    spacings = strides // unit
    if last - first == 1 and network.kind[first] in (SWITCH, FULL):
        # devices are all as near, and groups never share a link: one group of neighbours
        used, degrees, spacings = ranks, np.full(1, ranks), np.ones(1, dtype=np.int64)
    rows, inner, size = 0, 1, network.size.copy()
    for j in range(first, last):
        if j == last - 1 and network.kind[j] != RING:
            size[j] = min(size[j], -(-used // inner))  # devices beyond those in use are idle
        rows, inner = rows + planes(network.kind[j], size[j]), inner * size[j]
    cropped = Topology(
        network.kind, size, network.level, network.share, network.leaf, network.taper, network.links
    )

    flow = np.zeros((rows, inner))
    hops0, hops1 = 0, 0
    # all pairs in rounds, so that memory does not grow with their number
    round_pattern, rounds = (SHIFT, ranks) if pattern == ALL_PAIRS else (pattern, 2)
    for shift in range(1, rounds):
        edges = logical_edges(used, degrees, spacings, round_pattern, shift if pattern == ALL_PAIRS else step)
        inside, outside = link_flows(cropped, first, last, edges, flow)
        hops0, hops1 = max(hops0, inside), max(hops1, outside)
    load0, load1 = _busiest(cropped, first, last, flow)
    return load0, load1, float(hops0), float(hops1)
