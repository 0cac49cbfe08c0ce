"""Collectives among neighbouring devices of one system."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.kind import (
    Measurements,
    Options,
    QuantityColumn,
    TimedRows,
    register,
)
from fastflow.analysis.measurements.predict import PredictedRows
from fastflow.config.composer import Composer
from fastflow.core.reasons.columns import same_reason
from fastflow.core.reasons.forms import single_rank
from fastflow.core.tables import Bools, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.run import Run
from fastflow.physics.workload.graph import COLLECTIVES

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_MAX_RANKS = 1e12
_MAX_BYTES = 1e18


@register
class Collectives(Measurements):
    """Collectives, which no kernel takes part in; the kind of timing does not matter."""

    name = "collectives"
    needed = ("ranks", "bytes")
    other_columns = ("collective",)
    quantities: ClassVar[Mapping[str, QuantityColumn]] = {}
    naming_keys = ("collective", "ranks", "bytes", "dtype")
    is_of_a_system = True
    not_fitted = "a file of kernels or iterations; the time of a collective depends on the network only"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read sizes and names, too; raises InputError."""
        super().__init__(rows, options)
        file = self.file
        self.ranks = file.whole_numbers("ranks", 1, _MAX_RANKS)
        self.bytes = file.numbers("bytes")
        fits = (self.bytes >= 0.0) & (self.bytes <= _MAX_BYTES)
        file.refuse("bytes", ~fits, f"a number of bytes that is at least 0 and at most {_MAX_BYTES:g}")
        self.collective = file.choices("collective", COLLECTIVES[1:], "all-reduce")
        self.assumed: list[str] = []

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan the system; raises InputError.

        By default it is the machine of the file's device, or as many machines as the ranks need.
        """
        set_keys = {override.key_or_group for override in parsed}
        system_name = None if "system" in set_keys else self._matching_system(composer.choices("system"))
        if system_name is None:
            return super().plan(composer, overrides, parsed)
        system_overrides = (f"system={system_name}", *overrides)
        run = super().plan(composer, system_overrides, parsed)
        inputs, ranks = run.grid.first_inputs(), int(self.ranks.max())
        devices, package = (int(inputs[f"system.{key}"][0]) for key in ("devices", "package.devices"))
        if ranks > devices and "system.devices" not in set_keys:
            devices = -(-ranks // package) * package
            run = super().plan(composer, (*system_overrides, f"system.devices={devices}"), parsed)
        self.assumed.append(
            f"system: {system_name}, {devices} devices (assumed from the file; system=NAME sets it)"
        )
        return run

    def _matching_system(self, systems: Sequence[str]) -> str | None:
        """Return the system dgx_X of the library where X is in the name of every device, None without it."""
        matches = [
            [name for name in systems if name.startswith("dgx_") and _names_chip(device, name[len("dgx_") :])]
            for device in self.devices
        ]
        (system,) = matches[0] if matches and len(matches[0]) == 1 else (None,)
        return system if all(names == [system] for names in matches) else None

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
            selected = self.collective[rows] == name
            number = COLLECTIVES.index(name)
            time[selected] = time_collectives(inputs, number, size[selected], ranks[selected])
            latency[selected] = time_collectives(
                inputs, number, np.zeros(int(selected.sum())), ranks[selected]
            )
        is_single = ranks < 2
        columns: dict[str, NDArray[Any]] = {
            "time_s": np.where(is_single, np.nan, time),
            "latency_s": latency,
            "bound_by": np.where(latency > 0.5 * time, "latency", "network"),
            **same_reason(is_single, single_rank()).columns(),
        }
        yield PredictedRows(rows, columns)

    def includes_call(self, rows: Ints) -> Bools:
        """Return False: times include no framework's call."""
        return np.zeros(rows.size, dtype=np.bool_)

    def notes_of_times(self) -> list[str]:
        """Return the assumed system."""
        return self.assumed


def _names_chip(device: str, chip: str) -> bool:
    """Say whether a device's name contains a chip's as a whole word (GB200 is no B200)."""
    return re.search(rf"(?<![a-z0-9]){re.escape(chip)}(?![0-9])", device.lower()) is not None
