"""Kinds of measurement of which an input is inferred: main memory is too slow for the file's default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.analysis.measurements.kind import Measurements
from fastflow.core.tables import Columns, Floats, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.performance.partial_predictions import memory_bandwidth

_MANY = 0.01
"""Share of rows that may be mistakes."""


class LimitedByMemory(Measurements):
    """A file that may lack an input, which has another value where rows are faster than main memory."""

    inferred_key: ClassVar[str]
    inferred_value: ClassVar[Any]
    inferred_note: ClassVar[str]
    """What is inferred, for a person."""
    peak_share: ClassVar[float]
    """Share of main memory's peak that no device exceeds."""
    is_inferred = False
    """Whether the rows have the inferred value."""

    def bytes_moved(self, inputs: Columns) -> Floats:
        """Return the bytes that each row moves through main memory by default, 0 where it is unknown."""
        raise NotImplementedError

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows and their inputs; infers the input, unless the file says it."""
        if self.inferred_key not in self.inputs:
            (_, inputs), *_ = super().points(grid, np.arange(self.rows, dtype=np.int64))
            possible = self.peak_share * memory_bandwidth(inputs) * self.measured
            self.is_inferred = bool(np.mean(self.bytes_moved(inputs) > possible) > _MANY)
            self.inputs[self.inferred_key] = InputColumn(
                np.full(self.rows, self.inferred_value), np.full(self.rows, self.is_inferred)
            )
        yield from super().points(grid, rows)

    def notes_of_times(self) -> list[str]:
        """Return how times were measured, and the inference from them."""
        return [*super().notes_of_times(), *([self.inferred_note] if self.is_inferred else [])]
