"""Lines that a figure draws for the links of a network, on its floor plan."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints, take
from fastflow.physics.network.link_loads import LinkLoads
from fastflow.physics.network.routing.topology import RING, Topology
from fastflow.reporting.placement.floorplan import CIRCLE, GRID, ROWS, SWITCHED, Floorplan, LevelLayout

STRAIGHT, WRAP, PLANE, CUT = range(4)
_STUB = 0.3  # of a link whose other end is elsewhere
_BEND, _MAX_BEND = 0.12, 0.4  # of a curve, over its length and at all
_PLANE = np.array([0.6, 0.8])  # where the next plane is: the third dimension of a page
_CURVE = np.linspace(0.0, 1.0, 9)


class Strokes(NamedTuple):
    """Lines of links. A link to a node that is not adjacent is drawn as a stub at each end."""

    line: Floats  # (strokes, corners, 2)
    value: Floats  # (strokes,)
    sort: int  # STRAIGHT, WRAP to the other edge, PLANE to the next plane, CUT to a node that is not drawn


def strokes(
    plan: Floorplan, topology: Topology, loads: LinkLoads, value: Floats, offset: float
) -> list[Strokes]:
    """Return lines for all directed links of a network, within the drawn part.

    value: of every link of `loads`; offset: distance of a link to the right of the line between its
    ends, 0 for one line with the greater value of both directions. Packages of several devices
    have one link between them, with the greatest value of the links of their devices.
    """
    is_drawn = [_device(end, plan.devices) < plan.drawn for end in (loads.source, loads.target)]
    rows = np.flatnonzero(is_drawn[0] | is_drawn[1])
    dimension, source, target = (column[rows] for column in loads[:3])
    inside = topology.level[dimension] == 0
    groups: list[Strokes] = []
    for level, in_level in enumerate((inside, ~inside)):
        if not in_level.any():
            continue
        if level == 0:
            package = _device(source[in_level], plan.devices) // plan.package
            base, unit, nodes, outside = package * plan.package, 1, plan.package, 0
        else:
            package = base = np.zeros(int(in_level.sum()), dtype=np.int64)
            unit, nodes = plan.package, plan.devices // plan.package
            outside = int((topology.level == 0).sum())
        begin, end = (
            _node_index(end_of[in_level], base, plan.devices, unit, nodes) for end_of in (source, target)
        )
        links = _Links(
            package=package,
            dimension=dimension[in_level] - outside,
            source=begin,
            target=end,
            value=value[rows[in_level]],
        )
        origin = plan.origin if level == 0 else np.zeros((1, 2))
        groups += _level_strokes((plan.inner, plan.outer)[level], links, origin, offset)
    return groups


class _Links(NamedTuple):
    """Links of one level; ends are nodes, or switches as in `LinkLoads`; shape (links,)."""

    package: Ints
    dimension: Ints
    source: Ints
    target: Ints
    value: Floats


def _device(end: Ints, devices: int) -> Ints:
    """Return a device of an end: itself, or the first below a switch."""
    return np.where(end >= 0, end, np.where(end >= -devices, -1 - end, -1 - devices - end))


def _node_index(end: Ints, base: Ints, devices: int, unit: int, nodes: int) -> Ints:
    """Return ends as indices of nodes of `unit` devices, relative to a base."""
    node = (_device(end, devices) - base) // unit
    return np.where(end >= 0, node, np.where(end >= -devices, -1 - node, -1 - nodes - node))


def _level_strokes(level: LevelLayout, links: _Links, origin: Floats, offset: float) -> list[Strokes]:
    """Return the lines of one level in all packages drawn, origin: of the packages, (packages, 2)."""
    links = _merge(links, one_way=offset == 0.0)
    if level.form == GRID:
        parts = _on_grid(level, links, offset)
    else:
        ends = [_device(end, int(level.size.prod())) for end in (links.source, links.target)]
        rows = np.flatnonzero(np.maximum(*ends) < level.centre.shape[0])
        a, b, reach = _ends(level, take(links, rows))
        if level.form in (CIRCLE, ROWS):
            line = _curves(a, b, level.half, offset)
        else:
            line = _lines(a, b, reach, offset)
        parts = [(STRAIGHT, line, rows)]
    return [
        Strokes(line + origin[links.package[rows_of]][:, None, :], links.value[rows_of], sort)
        for sort, line, rows_of in parts
        if rows_of.size
    ]


def _merge(links: _Links, one_way: bool) -> _Links:
    """Merge links that are drawn on top of each other, with the greatest value."""
    ends = np.stack([links.source, links.target])
    if one_way:
        ends = np.sort(ends, axis=0)
    unique, inverse = np.unique(
        np.stack([links.package, links.dimension, *ends]), axis=1, return_inverse=True
    )
    value = np.zeros(unique.shape[1])
    np.maximum.at(value, inverse.reshape(-1), links.value)
    return _Links(package=unique[0], dimension=unique[1], source=unique[2], target=unique[3], value=value)


def _ends(level: LevelLayout, links: _Links) -> tuple[Floats, Floats, Floats]:
    """Return both ends of drawn links, and the distances from the ends where lines begin, (links, 2)."""
    if level.form != SWITCHED:
        reach = np.broadcast_to(level.half, (links.source.size, 2))
        return level.centre[links.source], level.centre[links.target], reach
    nodes = int(level.size.prod())
    spines = np.minimum(links.source, links.target) < -nodes
    node = _device(np.maximum(links.source, links.target), nodes)  # or a leaf switch's first
    x = np.where(spines, level.post[node], level.centre[node, 0])
    low = np.where(spines, level.bar[node], level.centre[node, 1] + level.half[1])
    high = np.where(spines, level.spine[node], level.bar[node])
    up = links.source > links.target
    ends = [np.stack([x, np.where(is_upward, low, high)], axis=1) for is_upward in (up, ~up)]
    return ends[0], ends[1], np.zeros((node.size, 2))


def _on_grid(level: LevelLayout, links: _Links, offset: float) -> list[tuple[int, Floats, Ints]]:
    """Return (sort, lines, rows) of links between the nodes of a grid."""
    stride = np.concatenate([[1], np.cumprod(level.size)])[links.dimension]
    size = level.size[links.dimension]
    distance = links.target // stride % size - links.source // stride % size
    wraps = (level.kind[links.dimension] == RING) & (size > 2) & (abs(distance) == size - 1)
    direction = np.where(wraps, -1, 1) * np.sign(distance)
    axes = np.array([[1.0, 0.0], [0.0, -1.0], _PLANE / np.hypot(*_PLANE)])
    along = axes[links.dimension] * direction[:, None]
    count = level.centre.shape[0]
    leaves, enters = links.source < count, links.target < count
    cut = ~(leaves & enters)
    sort = np.where(links.dimension == 2, PLANE, np.where(wraps, WRAP, np.where(cut, CUT, STRAIGHT)))
    parts: list[tuple[int, Floats, Ints]] = []
    for kind in (STRAIGHT, WRAP, PLANE, CUT):
        rows = np.flatnonzero(sort == kind)
        if kind == STRAIGHT:
            a, b = level.centre[links.source[rows]], level.centre[links.target[rows]]
            parts.append((kind, _lines(a, b, np.broadcast_to(level.half, a.shape), offset), rows))
            continue
        for exists, end, sign in ((leaves, links.source, 1.0), (enters, links.target, -1.0)):
            cut_rows = rows[exists[rows]]
            outward = along[cut_rows] * sign
            a = level.centre[end[cut_rows]] + outward * _node_reach(level.half, outward)
            b = a + _STUB * outward
            line = _lines(*((a, b) if sign > 0 else (b, a)), np.zeros_like(a), offset)
            parts.append((kind, line, cut_rows))
    return parts


def _node_reach(half: Floats, along: Floats) -> Floats:
    """Return the distance from the middle of a node to its border in a direction, shape (links, 1)."""
    with np.errstate(divide="ignore"):
        reach: Floats = np.min(half / np.abs(along), axis=1, keepdims=True)
    return reach


def _lines(a: Floats, b: Floats, half: Floats, offset: float) -> Floats:
    """Return straight lines between nodes, to the right of the middle; shape (links, 2, 2)."""
    along = b - a
    along = along / np.hypot(along[:, 0], along[:, 1])[:, None]
    right = offset * np.stack([along[:, 1], -along[:, 0]], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.min(np.where(along == 0.0, np.inf, half / np.abs(along)), axis=1, keepdims=True)
    return np.stack([a + along * reach + right, b - along * reach + right], axis=1)


def _curves(a: Floats, b: Floats, half: Floats, offset: float) -> Floats:
    """Return curves between nodes, to the right of the middle; shape (links, corners, 2)."""
    straight = _lines(a, b, np.broadcast_to(half, a.shape), 0.0)
    a, b = straight[:, 0], straight[:, 1]
    along = b - a
    length = np.hypot(along[:, 0], along[:, 1])[:, None]
    right = np.stack([along[:, 1], -along[:, 0]], axis=1) / length
    corner = (a + b) / 2 + 2 * np.minimum(_BEND * length, _MAX_BEND) * right * (offset > 0.0)
    t = _CURVE[None, :, None]
    line: Floats = (1 - t) ** 2 * a[:, None] + 2 * t * (1 - t) * corner[:, None] + t**2 * b[:, None]
    return line
