"""Sparse attention as a module of a serving library: projections, indexer, selection, attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.analysis.measurements.host_overhead import EAGER_KERNEL, eager_module
from fastflow.analysis.measurements.kind import Measurements, Options, TimedRows, register
from fastflow.analysis.measurements.kinds.attention import SIZES
from fastflow.core.tables import Columns, Floats, Ints
from fastflow.core.units import show
from fastflow.physics.workload import count_kernels
from fastflow.physics.workload.models.attention import PHASE, PREFILL
from fastflow.physics.workload.precision import wide_type

_COLUMNS = (
    "hidden", "query_latent", "latent", "rotary", "head_dim", "value_dim", "index_heads", "index_dim",
    "index_topk",
)  # fmt: skip
_MODULES = {
    "deepseek-ai/DeepSeek-V3.2": (7168, 1536, 512, 64, 128, 128, 64, 128, 2048),
    "zai-org/GLM-5": (6144, 2048, 512, 64, 192, 256, 32, 128, 2048),
}
"""Sizes of the modules of models, in the order of `_COLUMNS`, from their config.json."""


@register
class SparseAttentions(Measurements):
    """Sparse attention with its projections and its indexer, whose heads are those of a device."""

    name = "sparse attention"
    model = "sparse_attention"
    needed = ("q_len", "kv_len", "heads", "gemm_dtype")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {
        **{column: key for column, key in SIZES.items() if column != "dtype"},
        **{name: f"model.{name}" for name in _COLUMNS},
        "gemm_dtype": "model.dtype",
    }
    other_columns = ("model", "kernel", "dtype")
    naming_keys = ("model", "phase", "batch", "q_len", "kv_len", "heads", "kv_dtype", "gemm_dtype")

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read the sizes of each row's model, too; raises InputError."""
        super().__init__(rows, options)
        names = self.file.choices("model", tuple(_MODULES), "")
        for position, column in enumerate(_COLUMNS):
            values = np.array([_MODULES[name][position] if name else 0 for name in names.tolist()])
            self.inputs.setdefault(f"model.{column}", InputColumn(values, names != ""))

    def notes_of_times(self) -> list[str]:
        """Return how times were measured, and what the host adds."""
        kernel = show(EAGER_KERNEL, "s")
        return [*super().notes_of_times(), f"host of prefill: {kernel} or more a kernel; of decode: none"]

    def add_host_time(self, rows: Ints, inputs: Columns, time: Floats) -> Floats:
        """Return times as measured [s]: prefill launched kernel by kernel, decode from a captured graph."""
        kernels, plain = (
            count_kernels({**inputs, "model.dtype": dtype})
            for dtype in (inputs["model.dtype"], wide_type(inputs))
        )
        launched = eager_module(
            time, kernels.astype(np.float64), (kernels - plain).astype(np.float64), inputs["model.dtype"]
        )
        return super().add_host_time(rows, inputs, np.where(inputs[PHASE.name] == PREFILL, launched, time))
