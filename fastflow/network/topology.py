"""The system graph: networks within and between packages as one product of dimensions (4.2.3, 5.2).

Every dimension is a line, a ring, a full mesh, a switch or a fat tree; a mesh is a product of lines, a
torus of rings. Those within a package come first, then those between packages. A device has a
coordinate in each, and its number is their mixed radix, the first dimension fastest. Every device of a
package has off-package links of its own, so that the packages' networks are parallel planes, one for
each device of a package ("rails").

A device divides its bandwidth of a level evenly over its ports there: two in a line or ring (one
where only two devices are on it), one to each other device of a full mesh, one to a switch or tree.
A device at the end of a line has the same ports as any other; the outer one is idle.
"""

from __future__ import annotations

import re
from math import isqrt, prod
from typing import NamedTuple

import numpy as np

from fastflow.errors import InputError
from fastflow.tables import Floats, Ints

LINE, RING, FULL, SWITCH, TREE = range(5)
PACKAGE_TOPOLOGIES = ("ring", "mesh", "torus", "fully_connected", "switch")
TOPOLOGIES = (*PACKAGE_TOPOLOGIES, "fat_tree")
MOST_DEVICES = 2**20  # routing lays out every link of a system
MOST_CONNECTED = 1024  # in a full mesh, for the same reason
_ONE = {"ring": RING, "fully_connected": FULL, "switch": SWITCH, "fat_tree": TREE}
_MANY = {"mesh": LINE, "torus": RING}


class Topology(NamedTuple):
    """One system's network; shape (dimensions,), innermost first, dimensions of one device left out."""

    kind: Ints  # LINE, RING, FULL, SWITCH or TREE
    size: Ints  # devices along it
    level: Ints  # 0 within the package, 1 between packages
    share: Floats  # bandwidth of a device on the level over that of one of its directed links here
    leaf: Ints  # devices of one leaf switch of a TREE, else 0
    taper: Floats  # bandwidth into a TREE's leaf switch over that out of it, else 1


def topology(
    devices: int,
    package_devices: int,
    package_topology: str,
    package_shape: str,
    inter_topology: str,
    inter_shape: str,
    leaf: int,
    taper: float,
) -> Topology:
    """Return the network of a system of `devices` devices, `package_devices` of them in a package.

    Shapes are those of meshes and tori: "1d", "2d" or "3d", whose sides are as equal as they can be
    and grow outwards (512 in "2d" is 16x32), or the sides themselves, innermost first. leaf: packages
    below a leaf switch, on each plane of a fat tree; taper: bandwidth into that switch over that out of
    it. A wafer is one package of all devices.
    Raises InputError for anything that is no such network, by its key under `system.`.
    """
    if not 1 <= devices <= MOST_DEVICES:
        raise InputError("system.devices", devices, f"a number of devices from 1 to {MOST_DEVICES}")
    if package_devices < 1 or devices % package_devices:
        allowed = f"a number of devices that divides system.devices={devices}"
        raise InputError("system.package.devices", package_devices, allowed)
    packages = devices // package_devices
    for key, name, names, count in (
        ("system.package.topology", package_topology, PACKAGE_TOPOLOGIES, package_devices),
        ("system.topology", inter_topology, TOPOLOGIES, packages),
    ):
        if name not in names:
            raise InputError(key, name, "one of " + ", ".join(names))
        if name == "fully_connected" and count > MOST_CONNECTED:
            raise InputError(
                key, name, f"a topology for {count}; fully_connected takes at most {MOST_CONNECTED}"
            )

    inside = _sides("system.package.shape", package_topology, package_shape, package_devices, "devices")
    outside = _sides("system.shape", inter_topology, inter_shape, packages, "packages")
    is_tree = inter_topology == "fat_tree" and packages > 1
    if is_tree:
        _check_tree(packages, leaf, taper)
    kinds = [
        {**_ONE, **_MANY}[name]
        for name, sides in ((package_topology, inside), (inter_topology, outside))
        for _ in sides
    ]
    shares = [
        float(sum(map(_ports, (name,) * len(sides), sides)))
        for name, sides in ((package_topology, inside), (inter_topology, outside))
        for _ in sides
    ]
    return Topology(
        kind=np.array(kinds, dtype=np.int64),
        size=np.array(inside + outside, dtype=np.int64),
        level=np.array([0] * len(inside) + [1] * len(outside), dtype=np.int64),
        share=np.array(shares, dtype=np.float64),
        leaf=np.array([leaf if kind == TREE else 0 for kind in kinds], dtype=np.int64),
        taper=np.array([taper if kind == TREE else 1.0 for kind in kinds], dtype=np.float64),
    )


def _ports(name: str, size: int) -> int:
    """Return the ports of a device in a dimension of a network."""
    if name == "fully_connected":
        return size - 1
    return 1 if _ONE.get(name) in (SWITCH, TREE) else min(size - 1, 2)


def _check_tree(packages: int, leaf: int, taper: float) -> None:
    if leaf < 1 or packages % leaf:
        allowed = f"a divisor of the {packages} packages"
        raise InputError("system.leaf", leaf, allowed)
    if not 0.0 < taper < float("inf"):
        raise InputError("system.taper", taper, "a number above 0")


def _sides(key: str, name: str, shape: str, count: int, what: str) -> list[int]:
    """Return the sides of a network of `count` devices or packages, those of 1 left out."""
    if name in _ONE:
        return [count] if count > 1 else []
    dimensions = re.fullmatch(r"([123])d", shape)
    if dimensions:
        sides = _even_sides(count, int(dimensions[1]))
    elif re.fullmatch(r"[1-9]\d{0,7}(x[1-9]\d{0,7}){0,2}", shape, re.ASCII):
        sides = [int(side) for side in shape.split("x")]
    else:
        raise InputError(key, shape, "1d, 2d, 3d, or up to three sides such as 16x32")
    if prod(sides) != count:
        product = " x ".join(map(str, sides))
        allowed = f"1d, 2d, 3d, or sides whose product is {count} {what}; {product} is {prod(sides)}"
        raise InputError(key, shape, allowed)
    return [side for side in sides if side > 1]


def _even_sides(count: int, dimensions: int) -> list[int]:
    """Return the factors of `count` whose longest is shortest, in growing order."""
    if dimensions == 1:
        return [count]
    below = [side for side in range(1, isqrt(count) + 1) if count % side == 0]
    divisors = {*below, *(count // side for side in below)}
    found = (sorted([side, *_even_sides(count // side, dimensions - 1)]) for side in divisors)
    return min(found, key=lambda sides: sides[::-1])
