"""Pointwise and normalisation operators over rows x cols elements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.analysis.measurements.host_overhead import operator_call
from fastflow.analysis.measurements.kind import PASSES, Measurements, register
from fastflow.analysis.measurements.predict import with_rows
from fastflow.core.tables import Columns, Floats, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.physics.workload.precision import precision
from fastflow.schema import find_input

_TENSORS = "model.tensors"


@register
class Operators(Measurements):
    """Operators, which a framework calls while the previous operator still runs."""

    name = "pointwise and normalisation operators"
    model = "operator"
    needed = ("rows", "cols")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {
        "rows": "model.rows", "cols": "model.cols", "op": "model.op", "dtype": "model.dtype",
    }  # fmt: skip
    other_columns = ("min_bytes",)
    naming_keys = ("op", "rows", "cols", "dtype")
    work = (PASSES,)

    @classmethod
    def default_timed(cls, columns: Collection[str]) -> str:
        """Return "call": a framework calls operators."""
        return "call"

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows and their inputs, with the number of tensors from the moved bytes."""
        for batch, inputs in super().points(grid, rows):
            tensors = self._tensors(inputs, batch)
            all_rows = np.arange(batch.size, dtype=np.int64)
            yield batch, with_rows(inputs, {_TENSORS: tensors} if tensors is not None else {}, all_rows)

    def _tensors(self, inputs: Columns, rows: Ints) -> InputColumn | None:
        """Return the number of tensors that rows move, from their `min_bytes`; raises InputError."""
        if "min_bytes" not in self.file.frame:
            return None
        file = self.file.take(rows)
        is_filled = file.filled("min_bytes")
        elements = inputs["model.rows"].astype(np.float64) * inputs["model.cols"].astype(np.float64)
        size = precision(inputs).activation
        num_tensors = file.numbers("min_bytes") / (elements * size)
        column = find_input(_TENSORS)
        most_tensors = column.high if column is not None else np.inf
        allowed = f"the bytes of 1 to {most_tensors:g} tensors of rows x cols"
        file.refuse(
            "min_bytes", is_filled & ~((np.round(num_tensors) >= 1) & (num_tensors <= most_tensors)), allowed
        )
        return InputColumn(np.where(is_filled, np.round(num_tensors), 1).astype(np.int64), is_filled)

    def add_host_time(self, rows: Ints, inputs: Columns, time: Floats) -> Floats:
        """Return times as measured on the host [s]."""
        overhead, launch = (inputs[f"chip.{name}_overhead"].astype(np.float64) for name in ("call", "launch"))
        op, tensors = inputs["model.op"].astype(np.str_), inputs["model.tensors"].astype(np.int64)
        call_time = operator_call(time, overhead, launch, op, tensors)
        return np.where(self.includes_call(rows), call_time, time)
