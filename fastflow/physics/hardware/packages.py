"""The number of devices that a job uses in each package.

A package is the domain of a system's inner network: a machine of eight GPUs, a rack of 72. A job with fewer
devices uses a part of one package. A larger job whose devices are no multiple of a package uses a divisor in
each package, such as 64 GPUs of each rack of 72. This is at least half of the package and at least two
devices: otherwise a job of a prime number of devices would use one device per package.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fastflow.core.tables import Inputs, Ints, broadcast_column, is_broadcast

DEVICES, PACKAGE = "system.devices", "system.package.devices"
MAX_DEVICES = 2**20  # routing lays out every link of a system


@lru_cache(maxsize=4096)
def devices_per_package(devices: int, package: int) -> int:
    """Return how many devices a job of `devices` uses in each package of `package`; 0: no divisor fits."""
    if devices <= package:
        return devices
    if package < 1 or devices > MAX_DEVICES:
        return 0
    if devices % package == 0:
        return package
    least = max(2, -(-package // 2))
    return next((part for part in range(package - 1, least - 1, -1) if devices % part == 0), 0)


def per_package(inputs: Inputs) -> Ints:
    """Return how many devices each point uses per package, (points,); all of it where no divisor fits."""
    devices, package = inputs[DEVICES], inputs[PACKAGE]
    if is_broadcast(devices) and is_broadcast(package):
        return broadcast_column(per_package({DEVICES: devices[:1], PACKAGE: package[:1]}), devices.size)
    counts: Ints = np.minimum(devices, package)
    uneven = devices % np.maximum(counts, 1) != 0
    for i in np.flatnonzero(uneven).tolist():
        counts[i] = devices_per_package(int(devices[i]), int(package[i])) or counts[i]
    return counts
