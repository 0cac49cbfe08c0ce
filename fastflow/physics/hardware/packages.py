"""How many devices of each package a job uses: all of them, or a part where it is smaller, or uneven.

A package is what a system's inner network joins: a machine of eight GPUs, a rack of 72. A job that is smaller
than one uses that part of it. A larger one that whole packages do not make up uses as many of each as divide
it, as people run 64 GPUs of each rack of 72. At least half of a package and two of its devices are used:
otherwise a job of a prime number of devices would be one of single devices.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fastflow.core.tables import Inputs, Ints, broadcast_column, is_broadcast

DEVICES, PACKAGE = "system.devices", "system.package.devices"
MOST_DEVICES = 2**20  # routing lays out every link of a system


@lru_cache(maxsize=4096)
def devices_per_package(devices: int, package: int) -> int:
    """Return how many devices of each package of `package` a job of `devices` uses; 0: they do not suit."""
    if devices <= package:
        return devices
    if package < 1 or devices > MOST_DEVICES:
        return 0
    if devices % package == 0:
        return package
    least = max(2, -(-package // 2))
    return next((part for part in range(package - 1, least - 1, -1) if devices % part == 0), 0)


def per_package(inputs: Inputs) -> Ints:
    """Return how many devices every point uses of each package, (points,); the package's where none suit."""
    devices, package = inputs[DEVICES], inputs[PACKAGE]
    if is_broadcast(devices) and is_broadcast(package):
        return broadcast_column(per_package({DEVICES: devices[:1], PACKAGE: package[:1]}), devices.size)
    found: Ints = np.minimum(devices, package)
    uneven = devices % np.maximum(found, 1) != 0
    for i in np.flatnonzero(uneven).tolist():
        found[i] = devices_per_package(int(devices[i]), int(package[i])) or found[i]
    return found
