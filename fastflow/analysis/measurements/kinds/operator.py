"""Pointwise and normalisation operators over rows x cols elements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.analysis.measurements.host_overhead import operator_call
from fastflow.analysis.measurements.kind import Measurements, register
from fastflow.analysis.measurements.predict import replaced
from fastflow.core.tables import Columns, Floats, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.physics.workload.precision import precision
from fastflow.schema import find_input

_TENSORS = "model.tensors"


@register
class Operators(Measurements):
    """Operators, which a framework calls while the one before still runs."""

    name = "pointwise and normalisation operators"
    model = "operator"
    needed = ("rows", "cols")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {
        "rows": "model.rows", "cols": "model.cols", "op": "model.op", "dtype": "model.dtype",
    }  # fmt: skip
    other_columns = ("min_bytes",)
    naming_keys = ("op", "rows", "cols", "dtype")
    has_products = False

    @classmethod
    def default_timed(cls, columns: Collection[str]) -> str:
        """A framework calls them."""
        return "call"

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows and their inputs, of which the number of tensors follows from the bytes moved."""
        for some, inputs in super().points(grid, rows):
            tensors = self._tensors(inputs, some)
            every = np.arange(some.size, dtype=np.int64)
            yield some, replaced(inputs, {_TENSORS: tensors} if tensors is not None else {}, every)

    def _tensors(self, inputs: Columns, rows: Ints) -> InputColumn | None:
        """Return how many tensors some rows move, by their `min_bytes`; raises InputError."""
        if "min_bytes" not in self.file.frame:
            return None
        file = self.file.take(rows)
        there = file.filled("min_bytes")
        elements = inputs["model.rows"].astype(np.float64) * inputs["model.cols"].astype(np.float64)
        size = precision(inputs).activation
        moved = file.numbers("min_bytes") / (elements * size)
        column = find_input(_TENSORS)
        most = column.high if column is not None else np.inf
        allowed = f"the bytes of 1 to {most:g} tensors of rows x cols"
        file.refuse("min_bytes", there & ~((np.round(moved) >= 1) & (moved <= most)), allowed)
        return InputColumn(np.where(there, np.round(moved), 1).astype(np.int64), there)

    def add_host_time(self, rows: Ints, inputs: Columns, time: Floats) -> Floats:
        """Return the time that the host saw [s]."""
        overhead, launch = (inputs[f"chip.{name}_overhead"].astype(np.float64) for name in ("call", "launch"))
        op, tensors = inputs["model.op"].astype(np.str_), inputs["model.tensors"].astype(np.int64)
        includes_call = operator_call(time, overhead, launch, op, tensors)
        return np.where(self.includes_call(rows), includes_call, time)
