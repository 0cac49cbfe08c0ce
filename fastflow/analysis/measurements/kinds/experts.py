"""Expert layers of one device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.analysis.measurements.kind import Measurements, Options, TimedRows, register
from fastflow.core.tables import Columns, Floats, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.physics.timing.device import SCALED
from fastflow.physics.workload.models.moe_layer import (
    BACKEND,
    DEEPGEMM,
    GATE,
    LEFTOVER,
    RELEASE,
    REPEATED,
    TRITON,
    TRTLLM,
)

_FIRST_PAUSE, _PAUSE = 0.9, 0.35
"""Rest before the runs of a layer's first numbers of tokens, and before others [s]. A layer's weights are
made, then its numbers of tokens run, fewest first, each after a search of the fastest kernel
(collect_moe.py)."""
_FIRST_TOKENS, _FIRST_COMPILED = 16, 64
"""The last of the first numbers of tokens, and where kernels are compiled (DeepGEMM, fp8_block). These and
the rests are calibrated on the powers of B200 (ai-dynamo/aiconfigurator@095f58a)."""
_OF_MXFP4 = ("mxfp4_w4a16", "mxfp4_w4a8")
_POWER_LAW = re.compile(r"power_law_([0-9]+(?:\.[0-9]*)?)")


@register
class ExpertLayers(Measurements):
    """The expert layer of a mixture, on one device of its group."""

    name = "expert layers"
    model = "experts"
    needed = ("tokens", "hidden", "ffn", "experts", "topk")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {
        "tokens": "model.tokens", "hidden": "model.hidden", "ffn": "model.ffn", "experts": "model.experts",
        "topk": "model.topk", "tp": "model.tp", "ep": "model.ep", "dtype": "model.dtype",
        "gated": "model.gated",
    }  # fmt: skip
    other_columns = ("balance", "kernel")
    naming_keys = ("tokens", "hidden", "ffn", "experts", "topk", "tp", "ep", "balance", "dtype", "gated")

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read the distribution of tokens over experts, too; raises InputError."""
        super().__init__(rows, options)
        file, exponents = self.file, np.zeros(self.file.rows)
        for row, text in enumerate(file.frame.get("balance", ())):
            law = _POWER_LAW.fullmatch(text.lower())
            if law is None and text.lower() not in ("", "equal", "balanced"):
                raise file.cell_error("balance", row, "equal, or power_law_EXPONENT")
            exponents[row] = float(law[1]) if law else 0.0
        self.inputs["model.power_law"] = InputColumn(exponents, file.filled("balance"))
        self._chosen = options.command_line
        self._kernel = file.frame.get("kernel")

    def pauses(self, inputs: Columns) -> Floats | None:
        """Return the rest before the run of a row [s], by its type and tokens, (rows,)."""
        last = np.where(inputs["model.dtype"] == SCALED, _FIRST_COMPILED, _FIRST_TOKENS)
        return np.where(inputs["model.tokens"] <= last, _FIRST_PAUSE, _PAUSE)

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield as for all kinds, with the backend that TensorRT-LLM chooses; raises InputError.

        Weights of mxfp4 with activations of 16 bits run on triton_kernels where the chip does not multiply in
        mxfp4, and weights of mxfp4 on trtllm's kernels where it does (create_moe.py of NVIDIA/TensorRT-LLM).
        Files that name the kernels are of release 1.3: they are trtllm's where latency is least, and
        DeepGEMM's (collect_moe.py). There tokens that a power law leaves over go to experts of any device.
        Their layers run again and again with the same weights.
        """
        for batch, inputs in super().points(grid, rows):
            dtype = inputs["model.dtype"]
            has_mxfp4 = inputs.get("chip.rate.mxfp4", np.zeros(dtype.size)) > 0.0
            chosen = {}
            is_triton = (dtype == "mxfp4_w4a16") & ~has_mxfp4
            backend = np.where(is_triton, TRITON, inputs[BACKEND.name])
            if self._kernel is not None:
                names = np.asarray(self._kernel)[batch]
                is_trtllm = (names == "min_latency") | (np.isin(dtype, _OF_MXFP4) & has_mxfp4)
                backend = np.where(is_trtllm, TRTLLM, np.where(names == DEEPGEMM, DEEPGEMM, backend))
                chosen[REPEATED.name] = np.ones(dtype.size, dtype=np.bool_)
                chosen[RELEASE.name] = np.full(dtype.size, "1.3")
                # the collector gives these the gate of DeepSeek-V3
                chosen[GATE.name] = np.where(names == "min_latency", "groups", "topk")
                chosen[LEFTOVER.name] = np.full(dtype.size, "any")
            chosen[BACKEND.name] = backend
            yield batch, inputs | {name: v for name, v in chosen.items() if name not in self._chosen}
