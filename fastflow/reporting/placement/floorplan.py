"""Positions of the devices and switches of a network in a figure; colours and files are elsewhere.

Lengths are in pitches: 1 from a device to its neighbour in a row. A network is drawn level by level: the
devices of a package, then whole packages. x grows to the right, y upwards, and numbers run along
rows from the top left.
"""

from __future__ import annotations

from math import ceil, pi, prod, sqrt
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.network.routing.topology import FULL, LINE, RING, TREE, Topology

MAX_DRAWN = 1024  # devices: more are not legible on a screen
MAX_CIRCLE = 48  # nodes of a full mesh on a circle; more are in rows
DEVICE = 0.22  # half a device's side
GRID, LOOP, CIRCLE, ROWS, SWITCHED = range(5)
_GAP = (2.0 - 4.0 * DEVICE, 0.7)  # twice the space between devices in a row, and that between packages
_ASPECT = 1.3  # width over height of foldable rows
_TIER_HEIGHT = 0.62  # from one row of bars to the next
_MARGIN = 0.32  # around the devices of a package


class LevelLayout(NamedTuple):
    """Drawing of a level of a network; a node is a device, or a package of devices."""

    form: int
    kind: Ints  # of every dimension, shape (dimensions,)
    size: Ints  # nodes along each
    centre: Floats  # of every node that is drawn, (nodes, 2)
    half: Floats  # extent of a node to the right and upwards, (2,)
    bar: Floats  # height of the switch or leaf switch above every node, (nodes,)
    spine: Floats  # height of the spine above every node, (nodes,)
    post: Floats  # x of a node's link from its leaf switch to the spine, (nodes,)
    switches: list[Floats]  # lines that switches are drawn as, (2, 2) each
    low: Floats  # corners of all, (2,)
    high: Floats


class Floorplan(NamedTuple):
    """Drawing of a network."""

    inner: LevelLayout  # of one package
    outer: LevelLayout  # of packages
    devices: int  # in all
    drawn: int  # the first of them
    package: int  # devices of a package
    origin: Floats  # of every package's coordinates, (packages drawn, 2)
    position: Floats  # of every device drawn, (drawn, 2)


def floorplan(topology: Topology) -> Floorplan:
    """Lay a network out; of more than MAX_DRAWN devices the first whole packages, planes or rows."""
    size = [int(side) for side in topology.size]
    drawn = list(size)
    for j in reversed(range(len(size))):
        inside = prod(size[:j])
        drawn[j] = min(size[j], max(1, MAX_DRAWN // inside))
        if topology.kind[j] == TREE and drawn[j] > topology.leaf[j]:
            drawn[j] -= drawn[j] % int(topology.leaf[j])
    in_package = topology.level == 0
    side = np.array([DEVICE, DEVICE])
    inner = _level(topology, np.array(drawn, dtype=np.int64), in_package, side, _GAP[0] / 2)
    has_packages = bool(in_package.any())
    half = (inner.high - inner.low) / 2 + _MARGIN if has_packages else side
    gap = _GAP[1] if has_packages else _GAP[0] / 2
    outer = _level(topology, np.array(drawn, dtype=np.int64), ~in_package, half, gap)
    origin = outer.centre - (inner.high + inner.low) / 2
    position = origin[:, None, :] + inner.centre[None, :, :]
    package = int(topology.size[in_package].prod())
    return Floorplan(
        inner=inner,
        outer=outer,
        devices=prod(size),
        drawn=prod(drawn),
        package=package,
        origin=origin,
        position=position.reshape(-1, 2),
    )


def _level(topology: Topology, drawn: Ints, chosen: Bools, half: Floats, gap: float) -> LevelLayout:
    """Lay the chosen dimensions of a topology out; half: of a node, gap: between nodes."""
    kind, size, leaf = topology.kind[chosen], topology.size[chosen], topology.leaf[chosen]
    drawn = drawn[chosen]
    step = 2 * half + gap
    count = int(drawn.prod())
    form = _form(kind, size, drawn)
    bar = np.full(count, np.nan)
    spine, post, switches = bar.copy(), np.zeros(count), list[Floats]()
    if form == GRID:
        centre = _on_grid(drawn, step)
    elif form == LOOP:
        centre = _on_loop(count, bool(kind[0] == RING), step)
    elif form == CIRCLE:
        turn = pi / 2 - 2 * pi * np.arange(count) / count
        radius = step.max() * max(1.35 * count / (2 * pi), 0.95)
        centre = radius * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    else:
        below = int(leaf[0]) if kind[0] == TREE else count
        has_spine = bool(kind[0] == TREE and size[0] > below)
        tiers = 0 if form == ROWS else 2 if has_spine else 1
        row, centre = _in_rows(count, below, step, tiers)
        if tiers:
            bar = centre[:, 1] + half[1] + _TIER_HEIGHT
        if has_spine:
            spine = bar + _TIER_HEIGHT
        post, switches = _switch_lines(row, centre, half, bar, spine, below)
    low, high = centre.min(axis=0) - half, centre.max(axis=0) + half
    for line in switches:
        low, high = np.minimum(low, line.min(axis=0)), np.maximum(high, line.max(axis=0))
    return LevelLayout(
        form=form,
        kind=kind,
        size=size,
        centre=centre,
        half=half,
        bar=bar,
        spine=spine,
        post=post,
        switches=switches,
        low=low,
        high=high,
    )


def _form(kind: Ints, size: Ints, drawn: Ints) -> int:
    if kind.size != 1:
        return GRID
    if kind[0] in (LINE, RING):
        return LOOP
    if kind[0] == FULL:
        return CIRCLE if drawn[0] <= MAX_CIRCLE else ROWS
    return SWITCHED


def _on_grid(drawn: Ints, step: Floats) -> Floats:
    """Place nodes in planes of rows, planes side by side and folded; shape (nodes, 2)."""
    sides = [*drawn.tolist(), 1, 1, 1][:3]
    number = np.arange(prod(sides))
    column, row, plane = number % sides[0], number // sides[0] % sides[1], number // (sides[0] * sides[1])
    wide, high = (sides[0] + 0.7) * step[0], (sides[1] + 0.7) * step[1]
    planes_per_row = _row_length(sides[2], wide, high)
    x = column * step[0] + plane % planes_per_row * wide
    y = row * step[1] + plane // planes_per_row * high
    return np.stack([x, -y], axis=1)


def _row_length(count: int, wide: float, high: float, group: int = 0) -> int:
    """Return a length of rows for `count` items; it divides `group`, or `count` without a group."""
    most = group or count
    if count * wide <= 16.0:
        return most
    ideal = sqrt(_ASPECT * count * high / wide)
    candidates = [n for n in range(1, most + 1) if most % n == 0 and ideal / 2 <= n <= 2 * ideal]
    return min(candidates, key=lambda n: abs(n - ideal)) if candidates else max(1, min(most, round(ideal)))


def _on_loop(count: int, is_ring: bool, step: Floats) -> Floats:
    """Place the nodes of a line in alternating rows, and of a ring so that the last is next to the first."""
    if not is_ring or count < 3:
        wide = _row_length(count, step[0], step[1])
        row = np.arange(count) // wide
        along = np.arange(count) % wide
        column = np.where(row % 2 == 0, along, wide - 1 - along)
        return np.stack([column * step[0], -row * step[1]], axis=1)
    high = 2 * max(1, round(sqrt(count * step[0] / (step[1] * _ASPECT)) / 2)) if count > 16 else 2
    wide = ceil(count / high) - 1  # and a column that leads back
    index = np.arange(high * wide)
    row, along = index // wide, index % wide
    column = np.where(row % 2 == 0, along, wide - 1 - along) + 1
    num_back = count - index.size
    row_of_back = np.linspace(high - 1, 0, num_back) if num_back > 1 else np.array([(high - 1) / 2])
    x = np.concatenate([column, np.zeros(num_back)]) * step[0]
    return np.stack([x, -np.concatenate([row, row_of_back]) * step[1]], axis=1)


def _in_rows(count: int, leaf: int, step: Floats, tiers: int) -> tuple[Ints, Floats]:
    """Place nodes in rows with room for bars above them; returns row and centre of each.

    leaf: nodes of a leaf switch, or all. Rows hold whole leaf switches, or a leaf switch spans several rows.
    """
    high, number, space = step[1] + tiers * _TIER_HEIGHT, np.arange(count), 0.0
    wide = _row_length(count, step[0], high, leaf)
    if wide == leaf < count:
        wide, space = leaf * _row_length(ceil(count / leaf), leaf * step[0], high), 0.5
        row, column = number // wide, number % wide
    else:
        row = number // leaf * ceil(leaf / wide) + number % leaf // wide
        column = number % leaf % wide
    x = column * step[0] + column // leaf * space
    return row, np.stack([x, -row * high], axis=1)


def _switch_lines(
    row: Ints, centre: Floats, half: Floats, bar: Floats, spine: Floats, below: int
) -> tuple[Floats, list[Floats]]:
    """Return the x of every node's link to the spine, and the lines of all switches."""
    lines: list[Floats] = []
    left, right = centre[:, 0].min() - half[0] - 0.3, centre[:, 0].max() + half[0] + 0.3
    leaf, post = np.arange(row.size) // below, centre[:, 0].copy()
    has_spine = bool(np.isfinite(spine).any())
    if not np.isfinite(bar).any():
        return post, lines
    joints: dict[float, list[float]] = {}
    for switch in range(int(leaf.max()) + 1):
        rows = [np.flatnonzero((leaf == switch) & (row == r)) for r in np.unique(row[leaf == switch])]
        for nodes in rows:
            ends = centre[nodes, 0].min() - half[0], centre[nodes, 0].max() + half[0]
            lines.append(_horizontal(*ends, bar[nodes[0]]))
            if len(rows) > 1:  # parts of one switch, joined at the side
                side = right if has_spine else left
                lines.append(_horizontal(side, ends[has_spine], bar[nodes[0]]))
                joints.setdefault(float(switch), []).append(bar[nodes[0]])
        post[leaf == switch] = (centre[rows[0], 0].min() + centre[rows[0], 0].max()) / 2
    for heights in joints.values():
        side = right if has_spine else left
        lines.append(np.array([[side, min(heights)], [side, max(heights)]]))
    if has_spine:
        heights = np.unique(spine[::below]).tolist()
        lines += [_horizontal(left, right - 0.3, y) for y in heights]
        if len(heights) > 1:
            lines.append(np.array([[left, heights[0]], [left, heights[-1]]]))
    return post, lines


def _horizontal(start: float, end: float, y: float) -> Floats:
    return np.array([[start, y], [end, y]])
