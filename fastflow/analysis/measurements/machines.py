"""Rows measured on a machine: without `system=`, the machine of each row's device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastflow.analysis.measurements.aliases import alias_table, match_name
from fastflow.analysis.measurements.kind import Measurements, Options, TimedRows
from fastflow.analysis.measurements.predict import PredictedRows
from fastflow.config.composer import Composer
from fastflow.core.tables import Bools, Columns, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


class OnMachines(Measurements):
    """Rows with a system each, which the table `collectives.devices` of the configuration has by device."""

    is_of_a_system = True
    section = "collectives"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Look up the machines; raises InputError."""
        super().__init__(rows, options)
        machines = alias_table(options.leaves, f"{self.section}.devices")
        cells = self.file.frame["device"].tolist() if "device" in self.file.frame else [""] * self.rows
        names = {cell: machines.get(match_name(cell, machines), "") for cell in dict.fromkeys(cells)}
        self.machine = np.array([names[cell] for cell in cells])
        """The system of a row's device, or chip/system; "" if it is unknown."""
        self.combination = np.zeros(self.rows, dtype=np.int64)
        """The planned system of every row."""
        self.assumed: list[str] = []

    def needed_devices(self) -> Ints:
        """Return the devices that a row needs, (rows,)."""
        return np.ones(self.rows, dtype=np.int64)

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan the systems; raises InputError.

        By default that of each row's device, with as many machines as its rows need, if all are known.
        """
        set_keys = {override.key_or_group for override in parsed}
        if "system" in set_keys or not (self.machine != "").all():
            return super().plan(composer, overrides, parsed)
        names, self.combination = np.unique(self.machine, return_inverse=True)
        params = []
        for number, machine in enumerate(names.tolist()):
            chip, _, name = machine.rpartition("/")
            params.append({"system": name})
            if chip and "chip" not in set_keys:
                params[-1]["chip"] = chip
            chosen = [f"{group}={choice}" for group, choice in params[-1].items()]
            inputs = super().plan(composer, (*chosen, *overrides), parsed).grid.first_inputs()
            needed = int(self.needed_devices()[self.combination == number].max())
            devices, package = (int(inputs[f"system.{key}"][0]) for key in ("devices", "package.devices"))
            if needed > devices and "system.devices" not in set_keys:
                devices = -(-needed // package) * package
                params[-1]["system.devices"] = str(devices)
            self.assumed.append(
                f"system: {name}, {devices} devices (assumed from the file; system=NAME sets it)"
            )
        return plan(composer, overrides, {"union": [{"params": choices} for choices in params]})

    def predict(self, grid: Grid, rows: Ints) -> Iterator[PredictedRows]:
        """Predict some rows, system by system; raises InputError."""
        for number in np.unique(self.combination[rows]).tolist():
            of_system = rows[self.combination[rows] == number]
            yield self.predict_on(self._inputs_of_system(grid, number), of_system)

    def predict_on(self, inputs: Columns, rows: Ints) -> PredictedRows:
        """Predict rows of one system, whose inputs are of one point; raises InputError."""
        raise NotImplementedError

    def _inputs_of_system(self, grid: Grid, number: int) -> Columns:
        """Return the inputs of the point of one planned system."""
        columns, row = grid.batches[grid.batch[number]].columns, grid.row[number]
        return {key: values if values.size == 1 else values[[row]] for key, values in columns.items()}

    def includes_call(self, rows: Ints) -> Bools:
        """Return False: times include no framework's call."""
        return np.zeros(rows.size, dtype=np.bool_)

    def notes_of_times(self) -> list[str]:
        """Return the assumed systems."""
        return self.assumed
