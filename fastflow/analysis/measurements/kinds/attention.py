"""Fused attention, of heads with keys of their own or shared by some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.analysis.measurements.kind import Measurements, register
from fastflow.core.tables import Columns, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.performance.partial_predictions import memory_bandwidth
from fastflow.physics.workload.precision import precision

SIZES = {
    "phase": "model.phase", "batch": "model.batch", "q_len": "model.q_len", "kv_len": "model.kv_len",
    "heads": "model.heads", "dtype": "model.dtype", "kv_dtype": "precision.cache",
}  # fmt: skip
_SHARED = "model.shared"
_TOO_FAST, _MANY = 1.05, 0.01
"""Of main memory's peak, and of the rows: no device reads so fast, but for some rows that are mistakes."""


@register
class Attentions(Measurements):
    """Attention, with what a layer does beside it."""

    name = "attention"
    model = "attention"
    needed = ("q_len", "kv_len", "heads", "kv_heads")
    inputs_of_columns: ClassVar[Mapping[str, str]] = SIZES | {
        "kv_heads": "model.kv_heads", "head_dim": "model.head_dim", "window": "model.window",
        "causal": "model.causal", "shared": _SHARED,
    }  # fmt: skip
    naming_keys = ("phase", "batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "window", "kv_dtype")

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows and their inputs; says itself whether values lie where keys do, if the file does not."""
        if _SHARED not in self.inputs:
            every = np.arange(self.rows, dtype=np.int64)
            (_, inputs), *_ = super().points(grid, every)
            shared = self._reads_too_fast(inputs)
            self.inputs[_SHARED] = InputColumn(np.full(self.rows, shared), np.full(self.rows, shared))
        yield from super().points(grid, rows)

    def _reads_too_fast(self, inputs: Columns) -> bool:
        """Say whether decoding took less than main memory takes to read keys and values apart.

        Benchmarks may keep both in the same pages (ai-dynamo/aiconfigurator@095f58a).
        """
        window, kv_len = inputs["model.window"], inputs["model.kv_len"]
        seen = np.where(window > 0, np.minimum(window, kv_len), kv_len)
        tokens = 1.0 * inputs["model.batch"] * seen * inputs["model.kv_heads"]
        moved = 2.0 * tokens * inputs["model.head_dim"] * precision(inputs).cache
        too_fast = moved > _TOO_FAST * memory_bandwidth(inputs) * self.measured
        return bool(np.mean(too_fast & (inputs["model.phase"] == "decode")) > _MANY)

    def notes_of_times(self) -> list[str]:
        """Return how they were measured, and what follows from the times themselves."""
        found = self.inputs.get(_SHARED)
        said = "values lie where the keys do: main memory is too slow to read both (model.shared=true)"
        inferred = found is not None and "shared" not in self.file.frame and found.there.any()
        return [*super().notes_of_times(), *([said] if inferred else [])]
