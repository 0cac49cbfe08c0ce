"""Fused attention: multi-head, grouped-query or multi-query."""

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
"""Share of main memory's peak that no device exceeds, and share of rows that may be mistakes."""


@register
class Attentions(Measurements):
    """Attention, with the passes of a layer around it."""

    name = "attention"
    model = "attention"
    needed = ("q_len", "kv_len", "heads", "kv_heads")
    inputs_of_columns: ClassVar[Mapping[str, str]] = SIZES | {
        "kv_heads": "model.kv_heads", "head_dim": "model.head_dim", "window": "model.window",
        "causal": "model.causal", "shared": _SHARED,
    }  # fmt: skip
    naming_keys = ("phase", "batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "window", "kv_dtype")

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows and their inputs; infers whether values share keys' storage, unless the file says it."""
        if _SHARED not in self.inputs:
            all_rows = np.arange(self.rows, dtype=np.int64)
            (_, inputs), *_ = super().points(grid, all_rows)
            is_shared = self._reads_too_fast(inputs)
            self.inputs[_SHARED] = InputColumn(np.full(self.rows, is_shared), np.full(self.rows, is_shared))
        yield from super().points(grid, rows)

    def _reads_too_fast(self, inputs: Columns) -> bool:
        """Say whether decoding was faster than main memory reads separate keys and values.

        Benchmarks may keep both in the same pages (ai-dynamo/aiconfigurator@095f58a).
        """
        window, kv_len = inputs["model.window"], inputs["model.kv_len"]
        visible = np.where(window > 0, np.minimum(window, kv_len), kv_len)
        tokens = 1.0 * inputs["model.batch"] * visible * inputs["model.kv_heads"]
        bytes_moved = 2.0 * tokens * inputs["model.head_dim"] * precision(inputs).cache
        too_fast = bytes_moved > _TOO_FAST * memory_bandwidth(inputs) * self.measured
        return bool(np.mean(too_fast & (inputs["model.phase"] == "decode")) > _MANY)

    def notes_of_times(self) -> list[str]:
        """Return how times were measured, and the inference from them."""
        shared = self.inputs.get(_SHARED)
        note = "values lie where the keys do: main memory is too slow to read both (model.shared=true)"
        is_inferred = shared is not None and "shared" not in self.file.frame and shared.is_set.any()
        return [*super().notes_of_times(), *([note] if is_inferred else [])]
