"""Whole iterations: every row is a point, as if its cells stood on the command line."""

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
    several_values,
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
        """Read what every row says of groups and keys; raises InputError."""
        super().__init__(rows, options)
        self.ignored = [name for name in self.ignored if name not in options.keys]
        self.overrides = [
            {key: text for key, text in row.items() if text} for row in records(self.file, options.keys)
        ]

    @classmethod
    def instead_of_key(cls, key: str) -> str:
        """Take any key."""
        return ""

    @classmethod
    def claims(cls, columns: Collection[str], keys: Collection[str]) -> bool:
        """Any file says something of an iteration that has groups or keys of the configuration."""
        return bool(keys)

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan a point for each row; raises InputError."""
        self._check_syntax(composer)
        union = [{"params": row} for row in self.overrides]
        try:
            run = plan(composer, overrides, {"union": union})
        except InputError as error:
            raise self._with_place(error, {override.key_or_group for override in parsed}) from None
        for row, block in enumerate(run.grid.blocks):
            if block.axes:
                key = block.axes[0].keys[0]
                if key in self.overrides[row]:
                    raise self.file.mistake(key, row, "one value")
                raise several_values(key)
        return run

    def _check_syntax(self, composer: Composer) -> None:
        """Refuse cells that the command line could not read, and lists for a choice; raises InputError."""
        for row, said in enumerate(self.overrides):
            for key, text in said.items():
                try:
                    (override,) = composer.parse([f"{key}={text}"])
                except InputError:
                    allowed = "a value that the command line can read"
                    raise self.file.mistake(key, row, allowed) from None
                if isinstance(override.value(), list | dict) and composer.is_group(key):
                    raise self.file.mistake(key, row, one_of(composer.choices(key)))

    def _with_place(self, error: InputError, said_before: Collection[str]) -> InputError:
        """Return a mistake with the place of its cell, if it is one of the file's.

        said_before: keys that the overrides set, which go before the file's.
        """
        key = next((name for name in self.file.columns if f"{error.key}.".startswith(f"{name}.")), None)
        if key is None or key in said_before:
            return error
        same = (self.file.frame[key] == str(error.value)).to_numpy(np.bool_)
        if same.any():
            return self.file.mistake(key, int(same.argmax()), error.allowed)
        return InputError(error.key, error.value, error.allowed, self.file.path)

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows whose inputs have the same keys, and the inputs."""
        batch = grid.batch[rows]  # every row is a combination of its own
        for number in np.unique(batch).tolist():
            some = rows[batch == number]
            columns = {
                key: np.repeat(values, some.size) if values.size == 1 else values[grid.row[some]]
                for key, values in grid.batches[number].columns.items()
            }
            yield some, columns

    def check_fit(self, origin: str) -> None:
        """Refuse rows that set what is fitted; raises InputError."""
        super().check_fit(origin)
        for row, said in enumerate(self.overrides):
            for key in said:
                if key.startswith("chip."):
                    raise self.file.mistake(key, row, "a key outside the chip, since the chip is fitted")

    def shapes(self) -> list[str]:
        """Return what every row says."""
        return [str(sorted(row.items())) for row in self.overrides]
