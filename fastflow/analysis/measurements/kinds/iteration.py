"""Whole iterations: every row is a point, its cells as overrides of the command line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastflow.analysis.measurements.kind import (
    Measurements,
    Options,
    TimedRows,
    records,
    register,
    several_values_error,
)
from fastflow.config.composer import Composer
from fastflow.config.messages import one_of
from fastflow.core.errors import InputError
from fastflow.core.tables import Columns, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


@register
class Iterations(Measurements):
    """Iterations of any workload; a file is of them where no other kind claims it."""

    name = "whole iterations"
    batch_size = 256  # their graphs are large
    is_of_a_system = True

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read groups and keys of every row; raises InputError."""
        super().__init__(rows, options)
        self.ignored = [name for name in self.ignored if name not in options.keys]
        self.overrides = [
            {key: text for key, text in row.items() if text} for row in records(self.file, options.keys)
        ]

    @classmethod
    def instead_of_key(cls, key: str) -> str:
        """Allow any key."""
        return ""

    @classmethod
    def claims(cls, columns: Collection[str], keys: Collection[str]) -> bool:
        """Say whether a file has columns that are groups or keys of the configuration."""
        return bool(keys)

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan a point for each row; raises InputError."""
        self._check_syntax(composer)
        union = [{"params": row} for row in self.overrides]
        try:
            run = plan(composer, overrides, {"union": union})
        except InputError as error:
            raise self._with_cell(error, {override.key_or_group for override in parsed}) from None
        for row, block in enumerate(run.grid.blocks):
            if block.axes:
                key = block.axes[0].keys[0]
                if key in self.overrides[row]:
                    raise self.file.cell_error(key, row, "one value")
                raise several_values_error(key)
        return run

    def _check_syntax(self, composer: Composer) -> None:
        """Refuse cells that the command line cannot parse, and lists for a choice; raises InputError."""
        for row, overrides in enumerate(self.overrides):
            for key, text in overrides.items():
                try:
                    (override,) = composer.parse([f"{key}={text}"])
                except InputError:
                    allowed = "a value that the command line can read"
                    raise self.file.cell_error(key, row, allowed) from None
                if isinstance(override.value(), list | dict) and composer.is_group(key):
                    raise self.file.cell_error(key, row, one_of(composer.choices(key)))

    def _with_cell(self, error: InputError, overridden: Collection[str]) -> InputError:
        """Return an error with its cell, if the value is of the file.

        overridden: keys that the overrides set, which have precedence.
        """
        key = next((name for name in self.file.columns if f"{error.key}.".startswith(f"{name}.")), None)
        if key is None or key in overridden:
            return error
        is_same = (self.file.frame[key] == str(error.value)).to_numpy(np.bool_)
        if is_same.any():
            return self.file.cell_error(key, int(is_same.argmax()), error.allowed)
        return error.replaced(origin=self.file.path)

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows whose inputs have the same keys, and the inputs."""
        batch = grid.batch[rows]  # every row is a separate combination
        for number in np.unique(batch).tolist():
            group = rows[batch == number]
            columns = {
                key: np.repeat(values, group.size) if values.size == 1 else values[grid.row[group]]
                for key, values in grid.batches[number].columns.items()
            }
            yield group, columns

    def check_fit(self, origin: str) -> None:
        """Refuse rows that set keys of the fitted chip; raises InputError."""
        super().check_fit(origin)
        for row, overrides in enumerate(self.overrides):
            for key in overrides:
                if key.startswith("chip."):
                    raise self.file.cell_error(key, row, "a key outside the chip, since the chip is fitted")

    def shapes(self) -> list[str]:
        """Return the overrides of every row."""
        return [str(sorted(row.items())) for row in self.overrides]
