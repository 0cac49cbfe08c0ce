"""What is said where no layout fits: the least memory that any needs, and how many devices would do.

`parallel.strategy=auto` keeps to layouts that fit. Where there is none, the reason names the layout with the
least need, which is the one shown of transformers and of servers; of other models the fastest is. How
many devices would do is found by trying more of them, whole machines and powers of two, until a layout fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from fastflow.core.tables import Inputs
from fastflow.physics.hardware.packages import DEVICES, PACKAGE
from fastflow.physics.parallelism.memory import Footprint

LEAST = "least"
"""Beside inputs whose strategy is settled: why nothing fits; "" where something does."""
MOST_DEVICES = 2**16
MOST_COUNTS = 24  # of devices that are tried


def least_text(layout: str, needed: float, there: float, parts: Mapping[str, float]) -> str:
    """Say what the layout needs that needs least; needed, there, parts: bytes of a device."""
    of = ", ".join(f"{name} {_gigabytes(size)}" for name, size in parts.items() if size > 0.0)
    return (
        f"needs at least {_gigabytes(needed)} of memory a device, has {_gigabytes(there)}: no layout fits,"
        f" and the least is {layout} ({of})"
    )


def _gigabytes(size: float) -> str:
    """Write bytes with four digits, more of them where it takes as many."""
    number = size / 1e9
    return f"{number:.4g} GB" if number < 1e4 else f"{number:,.0f} GB"


def least_of(layout: str, footprint: Footprint, row: int, there: float) -> str:
    """Say what a layout in training needs, from a row of footprints; there: memory of a device [B]."""
    names = ("weights", "gradients", "optimizer", "activations", "buffers")
    parts = {name: float(getattr(footprint, name)[row]) for name in names}
    return least_text(layout, float(footprint.total[row]), there, parts)


def with_devices(inputs: Inputs, text: str, fits: Callable[[Inputs], bool]) -> str:
    """Say after why nothing fits on how many devices something does; inputs: of one point, (1,).

    fits: whether some layout of such a point does.
    """
    for devices in _more(int(inputs[DEVICES][0]), int(inputs[PACKAGE][0])):
        if fits(dict(inputs) | {DEVICES: np.array([devices])}):
            return f"{text}; {DEVICES}={devices} has one that fits"
    return f"{text}; no number of devices that was tried has one that fits"


def _more(devices: int, package: int) -> Iterator[int]:
    """Yield larger numbers of devices: parts of a package, whole ones, one and a half times as many."""
    parts = (2**power for power in range(package.bit_length()) if 2**power < package)
    wholes = (package * 2**power * half // 2 for power in range(17) for half in (2, 3) if power or half == 2)
    every = (count for counts in (parts, wholes) for count in counts if devices < count <= MOST_DEVICES)
    for _, count in zip(range(MOST_COUNTS), every, strict=False):
        yield count
