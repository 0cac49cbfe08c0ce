"""Reasons where no layout fits: the least memory that any layout needs, and how many devices suffice.

`parallel.strategy=auto` chooses among layouts that fit. Where there is none, the reason names the layout that
needs least memory, which is the shown layout of transformers and of servers; of other models the fastest is
shown. Larger numbers of devices, whole machines and powers of two, are tried until a layout fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from fastflow.core.tables import Inputs
from fastflow.physics.hardware.packages import DEVICES, PACKAGE
from fastflow.physics.parallelism.memory import Footprint

LEAST = "least"
"""Key of the reason why no strategy fits, next to resolved inputs; "" where some strategy fits."""
MAX_DEVICES = 2**16
MAX_COUNTS = 24  # of devices that are tried


def least_memory_text(layout: str, needed: float, capacity: float, parts: Mapping[str, float]) -> str:
    """Describe the layout that needs least memory; needed, capacity, parts: bytes of a device."""
    shares = ", ".join(f"{name} {_format_size(size)}" for name, size in parts.items() if size > 0.0)
    return (
        f"needs at least {_format_size(needed)} of memory a device, has {_format_size(capacity)}: no layout"
        f" fits, and the least is {layout} ({shares})"
    )


def _format_size(size: float) -> str:
    """Format bytes with four digits, or all digits of a larger number."""
    number = size / 1e9
    return f"{number:.4g} GB" if number < 1e4 else f"{number:,.0f} GB"


def least_training_text(layout: str, footprint: Footprint, row: int, capacity: float) -> str:
    """Describe the memory of a training layout, from a row of footprints; capacity: of a device [B]."""
    names = ("weights", "gradients", "optimizer", "activations", "buffers")
    parts = {name: float(getattr(footprint, name)[row]) for name in names}
    return least_memory_text(layout, float(footprint.total[row]), capacity, parts)


def with_devices(inputs: Inputs, text: str, fits: Callable[[Inputs], bool]) -> str:
    """Append to a reason on how many devices a layout fits; inputs: of a point, (1,).

    fits: whether some layout of a point fits.
    """
    for devices in _larger_counts(int(inputs[DEVICES][0]), int(inputs[PACKAGE][0])):
        if fits(dict(inputs) | {DEVICES: np.array([devices])}):
            return f"{text}; {DEVICES}={devices} has one that fits"
    return f"{text}; no number of devices that was tried has one that fits"


def _larger_counts(devices: int, package: int) -> Iterator[int]:
    """Yield larger numbers of devices: parts of a package, 2**n packages, 3 * 2**n packages."""
    parts = (2**power for power in range(package.bit_length()) if 2**power < package)
    factors = (2**power * halves for power in range(17) for halves in (2, 3) if power or halves == 2)
    packages = (package * factor // 2 for factor in factors)
    larger = (count for counts in (parts, packages) for count in counts if devices < count <= MAX_DEVICES)
    for _, count in zip(range(MAX_COUNTS), larger, strict=False):
        yield count
