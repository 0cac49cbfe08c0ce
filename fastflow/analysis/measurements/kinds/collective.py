"""Collectives among neighbouring devices of one system."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.kind import Measurements, Options, TimedRows, register
from fastflow.analysis.measurements.predict import PredictedRows
from fastflow.config.composer import Composer
from fastflow.core.tables import Bools, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.run import Run
from fastflow.physics.workload.graph import COLLECTIVES

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_MOST_RANKS = 1e12
_MOST_BYTES = 1e18


@register
class Collectives(Measurements):
    """Collectives, which the network takes and no kernel; how they were timed does not matter."""

    name = "collectives"
    needed = ("ranks", "bytes")
    other_columns = ("collective",)
    naming_keys = ("collective", "ranks", "bytes", "dtype")
    is_of_a_system = True
    not_fitted = "a file of kernels or iterations; the time of a collective depends on the network only"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read sizes and names too; raises InputError."""
        super().__init__(rows, options)
        file = self.file
        self.ranks = file.whole_numbers("ranks", 1, _MOST_RANKS)
        self.bytes = file.numbers("bytes")
        fits = (self.bytes >= 0.0) & (self.bytes <= _MOST_BYTES)
        file.refuse("bytes", ~fits, f"a number of bytes that is at least 0 and at most {_MOST_BYTES:g}")
        self.collective = file.choices("collective", COLLECTIVES[1:], "all-reduce")
        self.assumed: list[str] = []

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan the system; raises InputError.

        Where none is chosen, it is the machine of the file's device, or as many of it as ranks need.
        """
        said = {override.key_or_group for override in parsed}
        machine = None if "system" in said else self._machine(composer.choices("system"))
        if machine is None:
            return super().plan(composer, overrides, parsed)
        chosen = (f"system={machine}", *overrides)
        run = super().plan(composer, chosen, parsed)
        inputs, ranks = run.grid.first_inputs(), int(self.ranks.max())
        devices, package = (int(inputs[f"system.{key}"][0]) for key in ("devices", "package.devices"))
        if ranks > devices and "system.devices" not in said:
            devices = -(-ranks // package) * package
            run = super().plan(composer, (*chosen, f"system.devices={devices}"), parsed)
        self.assumed.append(
            f"system: {machine}, {devices} devices (assumed from the file; system=NAME sets it)"
        )
        return run

    def _machine(self, systems: Sequence[str]) -> str | None:
        """Return the machine dgx_X where X is in the name of every device, if that is one of the library."""
        found = [
            [name for name in systems if name.startswith("dgx_") and _names(device, name[len("dgx_") :])]
            for device in self.devices
        ]
        (one,) = found[0] if found and len(found[0]) == 1 else (None,)
        return one if all(names == [one] for names in found) else None

    def predict(self, grid: Grid, rows: Ints) -> Iterator[PredictedRows]:
        """Predict some rows; raises InputError where there are more ranks than devices."""
        from fastflow.performance.partial_predictions import time_collectives

        inputs = grid.first_inputs()
        devices = int(inputs["system.devices"][0])
        ranks, size = self.ranks[rows], self.bytes[rows]
        allowed = f"at most {devices:,}, the devices of the system"
        self.file.take(rows).refuse("ranks", ranks > devices, allowed)
        time, latency = np.empty(rows.size), np.empty(rows.size)
        for name in np.unique(self.collective[rows]).tolist():
            some = self.collective[rows] == name
            number = COLLECTIVES.index(name)
            time[some] = time_collectives(inputs, number, size[some], ranks[some])
            latency[some] = time_collectives(inputs, number, np.zeros(int(some.sum())), ranks[some])
        alone = ranks < 2
        columns: dict[str, NDArray[Any]] = {
            "time_s": np.where(alone, np.nan, time),
            "latency_s": latency,
            "bound_by": np.where(latency > 0.5 * time, "latency", "network"),
            "reason": np.where(alone, "a single rank exchanges nothing", "").astype(object),
        }
        yield PredictedRows(rows, columns)

    def includes_call(self, rows: Ints) -> Bools:
        """No framework's call is in the time."""
        return np.zeros(rows.size, dtype=np.bool_)

    def notes_of_times(self) -> list[str]:
        """How they were timed does not matter; what system was taken does."""
        return self.assumed


def _names(device: str, chip: str) -> bool:
    """Say whether a device's name holds a chip's, and not as a part of another (GB200 is no B200)."""
    return re.search(rf"(?<![a-z0-9]){re.escape(chip)}(?![0-9])", device.lower()) is not None
