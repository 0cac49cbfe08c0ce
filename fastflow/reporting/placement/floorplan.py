"""Positions of the devices and switches of a network in a figure; colours and files are elsewhere.

Lengths are in pitches: 1 from a device to its neighbour in a row. A network is drawn level by level: the
devices of a package, then packages as wholes. x grows to the right, y upwards, and numbers run along
rows from the top left.
"""

from __future__ import annotations

from math import ceil, pi, prod, sqrt
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.network.routing.topology import FULL, LINE, RING, TREE, Topology

MOST_DRAWN = 1024  # devices: more of them are a smear on a screen
MOST_CIRCLE = 48  # nodes of a full mesh on a circle; more of them in rows
DEVICE = 0.22  # half a device's side
GRID, LOOP, CIRCLE, ROWS, SWITCHED = range(5)
_GAP = (2.0 - 4.0 * DEVICE, 0.7)  # twice the space between devices in a row, and that between packages
_ASPECT = 1.3  # width over height of what may be folded at will
_TIER = 0.62  # from one row of bars to the next
_MARGIN = 0.32  # around the devices of a package


class LevelLayout(NamedTuple):
    """One level of a network as it is drawn; a node is a device, or a package of devices."""

    form: int
    kind: Ints  # of every dimension, shape (dimensions,)
    whole: Ints  # nodes along it
    centre: Floats  # of every node that is drawn, (nodes, 2)
    half: Floats  # extent of a node to the right and upwards, (2,)
    bar: Floats  # height of the switch or leaf switch above every node, (nodes,)
    spine: Floats  # height of the spine above every node, (nodes,)
    post: Floats  # where along its leaf switch a node's link to the spine is, (nodes,)
    switches: list[Floats]  # lines that switches are drawn as, (2, 2) each
    low: Floats  # corners of all, (2,)
    high: Floats


class Floorplan(NamedTuple):
    """A whole network as it is drawn."""

    inner: LevelLayout  # of one package
    outer: LevelLayout  # of packages
    devices: int  # in all
    drawn: int  # the first of them
    package: int  # devices of a package
    origin: Floats  # of every package's own lengths, (packages drawn, 2)
    position: Floats  # of every device drawn, (drawn, 2)


def floorplan(topology: Topology) -> Floorplan:
    """Lay a network out; of more than MOST_DRAWN devices the first whole packages, planes or rows."""
    size = [int(side) for side in topology.size]
    drawn = list(size)
    for j in reversed(range(len(size))):
        inside = prod(size[:j])
        drawn[j] = min(size[j], max(1, MOST_DRAWN // inside))
        if topology.kind[j] == TREE and drawn[j] > topology.leaf[j]:
            drawn[j] -= drawn[j] % int(topology.leaf[j])
    within = topology.level == 0
    side = np.array([DEVICE, DEVICE])
    inner = _level(topology, np.array(drawn, dtype=np.int64), within, side, _GAP[0] / 2)
    packages = bool(within.any())
    around = (inner.high - inner.low) / 2 + _MARGIN if packages else side
    gap = _GAP[1] if packages else _GAP[0] / 2
    outer = _level(topology, np.array(drawn, dtype=np.int64), ~within, around, gap)
    origin = outer.centre - (inner.high + inner.low) / 2
    position = origin[:, None, :] + inner.centre[None, :, :]
    package = int(topology.size[within].prod())
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
    kind, whole, leaf = topology.kind[chosen], topology.size[chosen], topology.leaf[chosen]
    drawn = drawn[chosen]
    step = 2 * half + gap
    count = int(drawn.prod())
    form = _form(kind, whole, drawn)
    bar = np.full(count, np.nan)
    spine, post, switches = bar.copy(), np.zeros(count), list[Floats]()
    if form == GRID:
        centre = _on_grid(drawn, step)
    elif form == LOOP:
        centre = _in_a_loop(count, bool(kind[0] == RING), step)
    elif form == CIRCLE:
        turn = pi / 2 - 2 * pi * np.arange(count) / count
        radius = step.max() * max(1.35 * count / (2 * pi), 0.95)
        centre = radius * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    else:
        below = int(leaf[0]) if kind[0] == TREE else count
        has_spine = bool(kind[0] == TREE and whole[0] > below)
        tiers = 0 if form == ROWS else 2 if has_spine else 1
        row, centre = _in_rows(count, below, step, tiers)
        if tiers:
            bar = centre[:, 1] + half[1] + _TIER
        if has_spine:
            spine = bar + _TIER
        post, switches = _bars(row, centre, half, bar, spine, below)
    low, high = centre.min(axis=0) - half, centre.max(axis=0) + half
    for line in switches:
        low, high = np.minimum(low, line.min(axis=0)), np.maximum(high, line.max(axis=0))
    return LevelLayout(
        form=form,
        kind=kind,
        whole=whole,
        centre=centre,
        half=half,
        bar=bar,
        spine=spine,
        post=post,
        switches=switches,
        low=low,
        high=high,
    )


def _form(kind: Ints, whole: Ints, drawn: Ints) -> int:
    if kind.size != 1:
        return GRID
    if kind[0] in (LINE, RING):
        return LOOP
    if kind[0] == FULL:
        return CIRCLE if drawn[0] <= MOST_CIRCLE else ROWS
    return SWITCHED


def _on_grid(drawn: Ints, step: Floats) -> Floats:
    """Place nodes in planes of rows, planes side by side and folded; shape (nodes, 2)."""
    sides = [*drawn.tolist(), 1, 1, 1][:3]
    number = np.arange(prod(sides))
    column, row, plane = number % sides[0], number // sides[0] % sides[1], number // (sides[0] * sides[1])
    wide, high = (sides[0] + 0.7) * step[0], (sides[1] + 0.7) * step[1]
    abreast = _abreast(sides[2], wide, high)
    x = column * step[0] + plane % abreast * wide
    y = row * step[1] + plane // abreast * high
    return np.stack([x, -y], axis=1)


def _abreast(count: int, wide: float, high: float, within: int = 0) -> int:
    """Return how many of `count` things look well in a row; `within` of them, or all, are whole rows."""
    part = within or count
    if count * wide <= 16.0:
        return part
    ideal = sqrt(_ASPECT * count * high / wide)
    near = [n for n in range(1, part + 1) if part % n == 0 and ideal / 2 <= n <= 2 * ideal]
    return min(near, key=lambda n: abs(n - ideal)) if near else max(1, min(part, round(ideal)))


def _in_a_loop(count: int, is_ring: bool, step: Floats) -> Floats:
    """Place a line's nodes in rows to and fro, and a ring's so that its last is beside its first."""
    if not is_ring or count < 3:
        wide = _abreast(count, step[0], step[1])
        row = np.arange(count) // wide
        along = np.arange(count) % wide
        column = np.where(row % 2 == 0, along, wide - 1 - along)
        return np.stack([column * step[0], -row * step[1]], axis=1)
    high = 2 * max(1, round(sqrt(count * step[0] / (step[1] * _ASPECT)) / 2)) if count > 16 else 2
    wide = ceil(count / high) - 1  # and a column that leads back
    there = np.arange(high * wide)
    row, along = there // wide, there % wide
    column = np.where(row % 2 == 0, along, wide - 1 - along) + 1
    back = count - there.size
    rows_back = np.linspace(high - 1, 0, back) if back > 1 else np.array([(high - 1) / 2])
    x = np.concatenate([column, np.zeros(back)]) * step[0]
    return np.stack([x, -np.concatenate([row, rows_back]) * step[1]], axis=1)


def _in_rows(count: int, leaf: int, step: Floats, tiers: int) -> tuple[Ints, Floats]:
    """Place nodes in rows with room for bars above them; returns row and centre of each.

    leaf: nodes of a leaf switch, or all. Rows hold whole leaf switches, or one is over several rows.
    """
    high, number, space = step[1] + tiers * _TIER, np.arange(count), 0.0
    wide = _abreast(count, step[0], high, leaf)
    if wide == leaf < count:
        wide, space = leaf * _abreast(ceil(count / leaf), leaf * step[0], high), 0.5
        row, column = number // wide, number % wide
    else:
        row = number // leaf * ceil(leaf / wide) + number % leaf // wide
        column = number % leaf % wide
    x = column * step[0] + column // leaf * space
    return row, np.stack([x, -row * high], axis=1)


def _bars(
    row: Ints, centre: Floats, half: Floats, bar: Floats, spine: Floats, below: int
) -> tuple[Floats, list[Floats]]:
    """Return every node's place for a link to the spine, and the lines of all switches."""
    lines: list[Floats] = []
    left, right = centre[:, 0].min() - half[0] - 0.3, centre[:, 0].max() + half[0] + 0.3
    leaf, post = np.arange(row.size) // below, centre[:, 0].copy()
    has_spine = bool(np.isfinite(spine).any())
    if not np.isfinite(bar).any():
        return post, lines
    joined: dict[float, list[float]] = {}
    for one in range(int(leaf.max()) + 1):
        rows = [np.flatnonzero((leaf == one) & (row == r)) for r in np.unique(row[leaf == one])]
        for part in rows:
            ends = centre[part, 0].min() - half[0], centre[part, 0].max() + half[0]
            lines.append(_level_line(*ends, bar[part[0]]))
            if len(rows) > 1:  # parts of one switch, joined at the side
                side = right if has_spine else left
                lines.append(_level_line(side, ends[has_spine], bar[part[0]]))
                joined.setdefault(float(one), []).append(bar[part[0]])
        post[leaf == one] = (centre[rows[0], 0].min() + centre[rows[0], 0].max()) / 2
    for heights in joined.values():
        side = right if has_spine else left
        lines.append(np.array([[side, min(heights)], [side, max(heights)]]))
    if has_spine:
        heights = np.unique(spine[::below]).tolist()
        lines += [_level_line(left, right - 0.3, y) for y in heights]
        if len(heights) > 1:
            lines.append(np.array([[left, heights[0]], [left, heights[-1]]]))
    return post, lines


def _level_line(start: float, end: float, y: float) -> Floats:
    return np.array([[start, y], [end, y]])
