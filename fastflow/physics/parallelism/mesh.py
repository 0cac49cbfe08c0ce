"""The mesh of devices: its named axes, along which work is sharded, and sets of them."""

from __future__ import annotations

from functools import cache

import numpy as np

from fastflow.core.tables import Ints

AXES = ("kp1", "kp2", "tp", "cp", "ep", "dp", "pp")
"""Parallel dimensions, each a column of degrees: kernel parallelism twice, tensor, context, expert, data,
pipeline."""
MESHES = (
    ("kp1", "kp2", "dp", "pp"), ("tp", "dp", "pp"), ("tp", "cp", "dp", "pp"), ("tp", "ep", "dp", "pp"),
    ("tp", "cp", "ep", "dp", "pp"), ("kp1", "kp2", "tp", "dp", "pp"),
)  # fmt: skip
"""Axes of the possible meshes: a point has the first mesh with all axes whose degree is above 1."""

PIPELINE = AXES.index("pp")
DATA = AXES.index("dp")
SHARDS, REPLICAS = 1 << len(AXES), (1 << len(AXES) + 1) + (1 << DATA)
"""The bit of a set of axes whose dp has only the shards of one replica; and the set of all replicas that have
the same shards."""


def axes(*names: str) -> int:
    """Return a set of axes, as the bits of a whole number (a "mask")."""
    return sum(1 << AXES.index(name) for name in set(names))


@cache
def members(mask: int) -> tuple[int, ...]:
    """Return the axes of a set, by number."""
    return tuple(axis for axis in range(len(AXES)) if mask >> axis & 1)


def devices_along(degrees: Ints, mask: int) -> Ints:
    """Return the product of the degrees of a set of axes; degrees: (..., axes), result: (...)."""
    if not mask:
        return np.ones(degrees.shape[:-1], dtype=np.int64)
    first, *others = members(mask)
    devices = degrees[..., first].copy()
    for axis in others:
        devices *= degrees[..., axis]
    return devices
