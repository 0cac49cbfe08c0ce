"""Arrays on a mesh of devices, part by part, and what the devices of a group make of their parts.

Along every axis of the mesh a tensor is split in a dimension, broadcast, or a partial sum. A dimension is
dealt out evenly; what several axes split is split by each.
"""

from itertools import product
from math import prod

import numpy as np

BROADCAST, PARTIAL = "B", "P"


class PlanError(AssertionError):
    """A plan that does not bring what a kernel needs, or brings what nobody needs."""


class Mesh:
    """Devices by their coordinates; degrees: by axis."""

    def __init__(self, degrees):
        self.degrees = degrees
        self.devices = list(product(*map(range, degrees.values())))

    def at(self, device, axis):
        return device[list(self.degrees).index(axis)]

    def group(self, device, axes):
        """Return the devices that differ from one along some axes only."""
        apart = [axis for axis in self.degrees if axis not in axes]
        return [o for o in self.devices if all(self.at(o, axis) == self.at(device, axis) for axis in apart)]

    def numbers(self, device, side, cut):
        """Return which entries of a side a device has; cut: the dimensions that axes split."""
        found = np.zeros(1, dtype=int)
        for name, count in side:
            own = np.arange(count)
            if name:
                own = own.reshape(*self.degrees.values(), -1)
                at = [
                    [self.at(device, axis)] if cut.get(axis) == name else slice(None) for axis in self.degrees
                ]
                for place, one in enumerate(at):
                    own = own[(slice(None),) * place + (one,)]
            found = (found[:, None] * count + own.reshape(-1)[None, :]).reshape(-1)
        return found


def splits(layout, side):
    return {axis: where[1] for axis, where in layout.items() if where[0] == side}


class Tensor:
    """Every device's part of a tensor; layout, by axis: ("rows" or "cols", dimension), BROADCAST, PARTIAL."""

    def __init__(self, mesh, sides, layout, parts):
        self.mesh, self.sides, self.layout, self.parts = mesh, sides, layout, parts
        self.share = 1.0  # of its columns, that is exchanged

    def numbers(self, device, layout=None):
        layout = self.layout if layout is None else layout
        return tuple(
            self.mesh.numbers(device, side, splits(layout, name))
            for side, name in zip(self.sides, ("rows", "cols"), strict=True)
        )

    @property
    def elements(self):
        """Elements of a part, the same number everywhere."""
        (count,) = {part.size for part in self.parts.values()}
        return count * self.share

    def moved(self, axes, layout):
        """Return the tensor in another layout, from parts of the devices along some axes alone."""
        parts = {}
        for device in self.mesh.devices:
            want = self.numbers(device, layout)
            part, there = (
                np.zeros([len(own) for own in want]),
                np.zeros([len(own) for own in want], dtype=int),
            )
            for other in self.mesh.group(device, axes):
                have = self.numbers(other)
                to = np.ix_(*(np.isin(w, h) for w, h in zip(want, have, strict=True)))
                own = np.ix_(*(np.isin(h, w) for w, h in zip(want, have, strict=True)))
                part[to] += self.parts[other][own]
                there[to] += 1
            sums = prod(self.mesh.degrees[axis] for axis in axes if self.layout[axis] == PARTIAL)
            copies = prod(self.mesh.degrees[axis] for axis in axes if self.layout[axis] == BROADCAST)
            if (there != sums * copies).any():
                raise PlanError(f"{self.layout} to {layout} along {axes}")
            parts[device] = part / copies
        found = Tensor(self.mesh, self.sides, layout, parts)
        found.share = self.share
        return found

    def taken(self, want):
        """Return the tensor in another layout, for which every device takes a part of its own; else None."""
        if any(have not in (want[axis], BROADCAST) or want[axis] == PARTIAL != have
               for axis, have in self.layout.items()):  # fmt: skip
            return None
        return self.moved((), want)

    def spread(self, axes):
        """Return the tensor as partial sums along some axes: each device's part among zeros."""
        layout = self.layout | dict.fromkeys(axes, PARTIAL)
        parts = {}
        for device in self.mesh.devices:
            part = np.zeros([len(own) for own in self.numbers(device, layout)])
            copies = [axis for axis in axes if self.layout[axis] == BROADCAST]
            if all(self.mesh.at(device, axis) == 0 for axis in copies):
                places = zip(self.numbers(device, layout), self.numbers(device), strict=True)
                part[np.ix_(*(np.isin(whole, own) for whole, own in places))] = self.parts[device]
            parts[device] = part
        return Tensor(self.mesh, self.sides, layout, parts)


def joined(tensors):
    """Return the sum of tensors without an exchange: partial where they do not lie alike."""
    layout = {}
    for axis in tensors[0].layout:
        found = {one.layout[axis] for one in tensors}
        if len(found) > 1 and PARTIAL not in found:
            found -= {BROADCAST}
        layout[axis] = found.pop() if len(found) == 1 else PARTIAL
    total = None
    for one in tensors:
        apart = {axis for axis in layout if layout[axis] == PARTIAL != one.layout[axis]}
        one = one.spread(apart).taken(layout)
        total = one.parts if total is None else {at: total[at] + part for at, part in one.parts.items()}
    return Tensor(tensors[0].mesh, tensors[0].sides, layout, total)


def collective(have, want):
    """Return what turns one layout into another."""
    if have in (want, BROADCAST):
        return ""
    if have == PARTIAL:
        return "all-reduce" if want == BROADCAST else "reduce-scatter"
    return "all-gather" if want == BROADCAST else "all-to-all"
