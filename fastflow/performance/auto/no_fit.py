"""Reasons where no layout fits: the least memory that any layout needs, and how many devices suffice.

`parallel.strategy=auto` chooses among layouts that fit. Where there is none, the reason names the layout that
needs least memory, which is the shown layout of transformers and of servers; of other models the fastest is
shown. Larger numbers of devices, whole machines and powers of two, are tried until a layout fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.reasons.codes import Reason
from fastflow.core.reasons.forms import no_layout_fits
from fastflow.core.tables import Inputs
from fastflow.physics.hardware.packages import DEVICES, PACKAGE
from fastflow.physics.parallelism.bounds import KEY as BOUNDS
from fastflow.physics.parallelism.memory.footprint import Footprint

LEAST = "least"
"""Key of the reason why no strategy fits, next to resolved inputs; None where some strategy fits."""
MAX_DEVICES = 2**16
MAX_COUNTS = 24  # of devices that are tried
_PROCESS = ("workspace", "communicators", "context")


def least_training_memory(layout: str, footprint: Footprint, row: int, capacity: float) -> Reason:
    """Return that a training layout does not fit, from a row of footprints; capacity: of a device [B]."""
    names = ("weights", "gradients", "optimizer", "activations", "buffers", "fragments")
    parts = {name: float(getattr(footprint, name)[row]) for name in names}
    parts |= {name: float(getattr(footprint.process, name)[row]) for name in _PROCESS}
    needed = float(footprint.total[row])
    return no_layout_fits(needed=needed, capacity=capacity, layout=layout, parts=parts)


def with_devices(inputs: Inputs, reason: Reason, fits: Callable[[Inputs], bool]) -> Reason:
    """Return `no_layout_fits` with the number of devices on which a layout fits; inputs: of a point, (1,).

    fits: whether some layout of a point fits.
    """
    for devices in device_counts(int(inputs[DEVICES][0]), int(inputs[PACKAGE][0])):
        try:
            is_enough = fits(dict(inputs) | {DEVICES: np.array([devices])})
        except InputError as error:
            if error.key != BOUNDS:  # which may exclude all layouts of a number of devices
                raise
            continue
        if is_enough:
            return reason.with_fields(devices=devices)
    return reason.with_fields(devices=0)


def device_counts(devices: int, package: int) -> Iterator[int]:
    """Yield larger numbers of devices: parts of a package, 2**n packages, 3 * 2**n packages.

    devices: 0 for all of them, 1 the first; package: devices of a package. `MAX_COUNTS` at most.
    """
    parts = (2**power for power in range(package.bit_length()) if 2**power < package)
    factors = (2**power * halves for power in range(17) for halves in (2, 3) if power or halves == 2)
    packages = (package * factor // 2 for factor in factors)
    larger = (count for counts in (parts, packages) for count in counts if devices < count <= MAX_DEVICES)
    for _, count in zip(range(MAX_COUNTS), larger, strict=False):
        yield count
