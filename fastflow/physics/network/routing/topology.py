"""The system graph: networks within and between packages as one product of dimensions (4.2.3, 5.2).

Every dimension is a line, a ring, a full mesh, a switch or a fat tree; a mesh is a product of lines, a
torus of rings. Those within a package come first, then those between packages. A device has a
coordinate in each, and its number is their mixed radix, the first dimension fastest. Every device of a
package has off-package links, so that the packages' networks are parallel planes, one for
each device of a package ("rails").

A device divides its bandwidth of a level evenly over its ports there: two in a line or ring (one
where only two devices are on it), one to each other device of a full mesh, one to a switch or tree.
A device at the end of a line has the same ports as any other; the outer one is idle.

A package whose devices have an uneven number of links between them also has a table of these (`link_table`),
which NCCL goes by. Messages that are routed by dimension, those of the paper's algorithms, see an even torus
in its place.

A host (`host`) has two cards under each of its PCIe switches, two such switches on a socket, and as many
sockets as the cards need: up to three switches of two in a row. Cards that cannot reach each other directly
exchange through the host's memory, and what a card reaches beyond its own switch is HOST_SHARES of its lanes.

A job that uses a part of each package (`hardware.packages`) has the links that are there: ports that lead
to devices outside the part are idle. The part of a mesh or torus is the most even box of it, or where no
box has so many devices a path through it, a ring where they are even in number: any product of two lines
has a cycle of every even length.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import product
from math import isqrt, prod
from typing import NamedTuple

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.tables import Floats, Ints
from fastflow.physics.hardware.packages import DEVICES, MAX_DEVICES, PACKAGE, devices_per_package
from fastflow.physics.network.routing.link_table import LINK_TABLES, NO_LINKS

LINE, RING, FULL, SWITCH, TREE = range(5)
_COMMON_TOPOLOGIES = ("ring", "mesh", "torus", "fully_connected", "switch")
PACKAGE_TOPOLOGIES = (*_COMMON_TOPOLOGIES, *LINK_TABLES)
TOPOLOGIES = (*_COMMON_TOPOLOGIES, "fat_tree", "host")
MAX_CONNECTED = 1024  # in a full mesh, since routing lays out every link of a system
MAX_TRIED = 1024  # device counts tried near an invalid one
_ONE_DIMENSION = {"ring": RING, "fully_connected": FULL, "switch": SWITCH, "fat_tree": TREE}
HOST_FANOUT = 2  # cards of a PCIe switch, and switches of a socket
HOST_SHARES = (1.0, 0.127, 0.034)
"""Of a card's lanes: to the card of its own switch, over the host bridge to others of its socket, and to
another socket. A ring crosses by two cards of a switch at once. Calibrated: long rings among two, four and
eight L40S (collectives_l40s, ai-dynamo/aiconfigurator@095f58a)."""
_PER_SIDE = {"mesh": LINE, "torus": RING, **dict.fromkeys(LINK_TABLES, RING)}


class Topology(NamedTuple):
    """One system's network; shape (dimensions,), innermost first, dimensions of one device left out.

    links alone is of devices, not of dimensions.
    """

    kind: Ints  # LINE, RING, FULL, SWITCH or TREE
    size: Ints  # devices along it
    level: Ints  # 0 within the package, 1 between packages
    share: Floats  # bandwidth of a device on the level over that of one of its directed links here
    leaf: Ints  # devices of one leaf switch of a TREE, else 0
    taper: Floats  # bandwidth into a TREE's leaf switch over that out of it, else 1
    links: Ints = NO_LINKS  # between every two devices of a whole package, (devices, devices), where uneven


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
    """Return the network of a system of `devices` devices, in packages of `package_devices`.

    As many of each package as `hardware.packages` says are in it. Shapes are those of meshes and tori: "1d",
    "2d" or "3d", whose sides are as equal as they can be and grow outwards (512 in "2d" is 16x32), or the
    sides themselves, innermost first; a package's are those of all of its devices. leaf: packages below a
    leaf switch, on each plane of a fat tree; taper: bandwidth into that switch over that out of it. A wafer
    is one package of all devices.
    Raises InputError for an invalid network, by its key under `system.`.
    """
    if not 1 <= devices <= MAX_DEVICES:
        raise InputError(DEVICES, devices, f"a number of devices from 1 to {MAX_DEVICES}")
    if package_devices < 1:
        raise InputError(PACKAGE, package_devices, "at least 1 device")
    build = partial(
        _build, package_topology=package_topology, package_shape=package_shape,
        inter_topology=inter_topology, inter_shape=inter_shape, leaf=leaf, taper=taper,
    )  # fmt: skip
    if not devices_per_package(devices, package_devices):
        raise InputError(DEVICES, devices, _advice(build, devices, package_devices))
    return build(devices, package_devices)


def _build(
    devices: int, package_devices: int, *, package_topology: str, package_shape: str,
    inter_topology: str, inter_shape: str, leaf: int, taper: float,
) -> Topology:  # fmt: skip
    """Return the network as `topology` does, of devices that suit the packages."""
    inside = devices_per_package(devices, package_devices)
    packages = devices // inside
    _check_name("system.package.topology", package_topology, PACKAGE_TOPOLOGIES, inside)
    _check_name("system.topology", inter_topology, TOPOLOGIES, packages)
    of_system = ((DEVICES, devices),)
    of_package = ((PACKAGE, package_devices), *(of_system if devices == package_devices else ()))
    package_sides = _sides(
        "system.package.shape", package_topology, package_shape, package_devices, of_package
    )
    if inter_topology == "host":
        system_sides = [side for side, _ in _host_sides(packages, inside)]
    else:
        system_sides = _sides("system.shape", inter_topology, inter_shape, packages, of_system)
    if inter_topology == "fat_tree" and packages > 1:
        _check_tree(packages, leaf, taper, of_system)
    inner = _part(package_topology, package_sides, inside)
    outer = [({**_ONE_DIMENSION, **_PER_SIDE, "host": SWITCH}[inter_topology], side) for side in system_sides]
    shares = [float(sum(_ports(name, side) for side in sides)) for name, sides in (
        (package_topology, package_sides), (inter_topology, system_sides),
    )]  # fmt: skip
    outer_shares = [shares[1]] * len(outer)
    if inter_topology == "host":
        outer_shares = [1.0 / share for _, share in _host_sides(packages, inside)]
    kinds = [kind for kind, _ in inner + outer]
    return Topology(
        kind=np.array(kinds, dtype=np.int64),
        size=np.array([size for _, size in inner + outer], dtype=np.int64),
        level=np.array([0] * len(inner) + [1] * len(outer), dtype=np.int64),
        share=np.array([shares[0]] * len(inner) + outer_shares, dtype=np.float64),
        leaf=np.array([leaf if kind == TREE else 0 for kind in kinds], dtype=np.int64),
        taper=np.array([taper if kind == TREE else 1.0 for kind in kinds], dtype=np.float64),
        links=LINK_TABLES.get(package_topology, NO_LINKS),
    )


def _host_sides(packages: int, inside: int) -> list[tuple[int, float]]:
    """Return the sides of a host of `packages` packages of `inside` cards, each with its share of
    HOST_SHARES.

    Packages are those of a switch or more; numbers that the fan-out does not divide are as far apart as need
    be.
    """
    sides, remaining, below = [], packages, inside
    for share in HOST_SHARES[:-1]:
        if below >= HOST_FANOUT:  # what this switch has below it is within a package
            below //= HOST_FANOUT
        elif remaining % HOST_FANOUT == 0 or remaining < HOST_FANOUT:
            sides.append((min(HOST_FANOUT, remaining), share))
            remaining //= min(HOST_FANOUT, remaining)
    is_one_socket = packages * inside <= HOST_FANOUT**2
    sides.append((remaining, HOST_SHARES[-2 if is_one_socket else -1]))
    return [(side, share) for side, share in sides if side > 1]


def _check_name(key: str, name: str, names: tuple[str, ...], count: int) -> None:
    """Refuse a topology that is none of `names`, or not one for `count` devices or packages."""
    if name not in names:
        raise InputError(key, name, "one of " + ", ".join(names))
    if name == "fully_connected" and count > MAX_CONNECTED:
        raise InputError(key, name, f"a topology for {count}; fully_connected takes at most {MAX_CONNECTED}")


def _part(name: str, sides: list[int], count: int) -> list[tuple[int, int]]:
    """Return kinds and sizes of the dimensions that `count` devices of a package's network have."""
    if name in _ONE_DIMENSION:
        kind = _ONE_DIMENSION[name] if name != "ring" or [count] == sides else LINE
        return [(kind, count)] if count > 1 else []
    if prod(sides) == count:
        return [(_PER_SIDE[name], side) for side in sides]
    divisors = [[part for part in range(1, side + 1) if count % part == 0] for side in sides]
    boxes = [box for box in product(*divisors) if prod(box) == count]
    if not boxes:
        return [(LINE if count % 2 else RING, count)]
    best = min(boxes, key=lambda box: (sorted(box, reverse=True), box))
    return [
        (_PER_SIDE[name] if part == side else LINE, part)
        for part, side in zip(best, sides, strict=True)
        if part > 1
    ]


def _advice(build: Callable[..., Topology], devices: int, package: int) -> str:
    """Return the allowed device counts where packages do not divide the devices, the nearest ones first."""

    def works(count: int, per_package: int, **changed: str) -> bool:
        try:
            return (
                devices_per_package(count, per_package) > 0
                and build(count, per_package, **changed).size.size >= 0
            )
        except InputError:
            return False

    below = range(devices - 1, max(devices - MAX_TRIED, 1) - 1, -1)
    above = range(devices + 1, min(devices + MAX_TRIED, MAX_DEVICES) + 1)
    counts = [next((count for count in side if works(count, package)), 0) for side in (below, above)]
    each = [(count, devices_per_package(count, package)) for count in counts if count]
    options = [f"{DEVICES}={count} ({count // per_package} x {per_package})" for count, per_package in each]
    part = max(part for part in range(1, package) if devices % part == 0)
    if works(devices, part):
        options.append(f"{PACKAGE}={part}")
    elif works(devices, part, package_shape="2d"):
        options.append(f"{PACKAGE}={part} system.package.shape=2d")
    allowed = f"as many devices of each package of {package}, at least {max(2, -(-package // 2))}"
    return ": ".join(filter(None, (allowed, ", or ".join(options))))


def _ports(name: str, size: int) -> int:
    """Return the ports of a device in a dimension of a network."""
    if name == "fully_connected":
        return size - 1
    return 1 if _ONE_DIMENSION.get(name) in (SWITCH, TREE) else min(size - 1, 2)


Source = tuple[tuple[str, int], ...]
"""Keys and values that a number of devices or packages follows from."""


def _written(source: Source) -> str:
    """Return keys and values as a message has them."""
    return ", ".join(f"{key}={value}" for key, value in source)


def _check_tree(packages: int, leaf: int, taper: float, source: Source) -> None:
    """Refuse a fat tree whose leaf switches are not all alike; source: what gives the packages."""
    if leaf < 1 or packages % leaf:
        largest = max(part for part in range(1, max(min(leaf, packages), 1) + 1) if packages % part == 0)
        of_all = f"the {packages} packages ({_written(source)})"
        allowed = f"a divisor of {of_all}, such as system.leaf_radix={largest}"
        raise InputError("system.leaf_radix", leaf, allowed, conflicts=source)
    if not 0.0 < taper < float("inf"):
        raise InputError("system.oversubscription", taper, "a number above 0")


def _sides(key: str, name: str, shape: str, count: int, source: Source) -> list[int]:
    """Return the sides of a network of `count` devices or packages, those of 1 left out.

    source: what the count follows from.
    """
    if name in _ONE_DIMENSION:
        return [count] if count > 1 else []
    if name in LINK_TABLES:
        devices = len(LINK_TABLES[name])
        if count != devices:
            allowed = f"{devices}, the devices of {name}, or system.package.topology=torus"
            raise InputError(PACKAGE, count, allowed, conflicts=[("system.package.topology", name)])
        return _even_sides(devices, 3)
    dimensions = re.fullmatch(r"([123])d", shape)
    if dimensions:
        sides = _even_sides(count, int(dimensions[1]))
    elif re.fullmatch(r"[1-9]\d{0,7}(x[1-9]\d{0,7}){0,2}", shape, re.ASCII):
        sides = [int(side) for side in shape.split("x")]
    else:
        raise InputError(key, shape, "1d, 2d, 3d, or up to three sides such as 16x32")
    if prod(sides) != count:
        product, unit = " x ".join(map(str, sides)), "devices" if PACKAGE in dict(source) else "packages"
        of_all = f"sides whose product is {count} {unit}; {product} is {prod(sides)} ({_written(source)})"
        raise InputError(key, shape, f"1d, 2d, 3d, or {of_all}", conflicts=source)
    return [side for side in sides if side > 1]


def _even_sides(count: int, dimensions: int) -> list[int]:
    """Return the factors of `count` whose longest is shortest, in growing order."""
    if dimensions == 1:
        return [count]
    below = [side for side in range(1, isqrt(count) + 1) if count % side == 0]
    divisors = {*below, *(count // side for side in below)}
    candidates = (sorted([side, *_even_sides(count // side, dimensions - 1)]) for side in divisors)
    return min(candidates, key=lambda sides: sides[::-1])
