"""Expert layers of one device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import CsvFile, InputColumn
from fastflow.analysis.measurements.kind import Measurements, Options, TimedRows, register
from fastflow.config.messages import one_of
from fastflow.core.tables import Bools, Columns, Floats, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.physics.timing.device import SCALED
from fastflow.physics.workload.models.moe_layer import (
    AITER,
    BACKEND,
    CUTLASS,
    DEEPGEMM,
    GATE,
    LEFTOVER,
    ONE_STAGE,
    RELEASE,
    REPEATED,
    SUMMED,
    TRITON,
    TRTLLM,
    TUNED,
)
from fastflow.physics.workload.ops.grouped_gemm import RANDOM

_FIRST_PAUSE, _PAUSE = 0.9, 0.35
"""Rest before the runs of a layer's first numbers of tokens, and before others [s]. A layer's weights are
made, then its numbers of tokens run, fewest first, each after a search of the fastest kernel
(collect_moe.py)."""
_FIRST_TOKENS, _FIRST_COMPILED = 16, 64
"""The last of the first numbers of tokens, and where kernels are compiled (DeepGEMM, fp8_block). These and
the rests are calibrated on the powers of B200 (ai-dynamo/aiconfigurator@095f58a)."""
_TYPE_COLUMNS = ("dtype_a", "dtype_w", "quant")
_OPERANDS = {
    "bfloat16": "bf16", "float16": "fp16", "float8_e4m3fnuz": "fp8", "float8_e4m3fn": "fp8", "int8": "int8",
    "float4_e2m1fn_x2": "fp4", "fp4x2": "fp4", "int4": "int4", "uint32": "int4",
}  # fmt: skip
"""Types of PyTorch; aiter's tuner stores eight weights of int4 in a uint32."""
_SCALES = {
    "no": "none", "per_tensor": "row", "per_token": "row", "per_1x128": "block", "per_128x128": "block",
    "per_1x32": "fine",
}  # fmt: skip
_TYPES = {
    ("bf16", "bf16", "none"): "bf16", ("fp16", "fp16", "none"): "fp16", ("fp8", "fp8", "row"): "fp8",
    ("int8", "int8", "row"): "int8", ("fp8", "fp8", "block"): "fp8_block", ("fp8", "int4", "row"): "w4afp8",
    ("int8", "int4", "row"): "w4a8", ("fp4", "fp4", "fine"): "mxfp4", ("fp8", "fp4", "fine"): "mxfp4_w4a8",
    ("bf16", "fp4", "fine"): "mxfp4_w4a16",
}  # fmt: skip
"""Types of activations, weights and scales, to the data type."""
_OF_MXFP4 = ("mxfp4_w4a16", "mxfp4_w4a8")
_MIN_LATENCY = "min_latency"
_MOST_OF_MIN_LATENCY = 256
"""Experts of a mixture that the collector also runs where latency is least (collect_moe.py)."""
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
        "gated": "model.gated", "one_stage": ONE_STAGE.name,
    }  # fmt: skip
    other_columns = ("balance", "kernel", "act", *_TYPE_COLUMNS)
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
        self._tuned = self._find_tuned()
        self._read_tuned(options)

    def _find_tuned(self) -> Bools:
        """Return which rows of nvfp4 on CUTLASS certainly have the kernels that a tuner chose, (rows,).

        The collector stores these under a name of the type, the sizes and the experts of a device, and tunes
        only where no stored name begins with its own (collect_moe.py). Layers on trtllm's kernels share
        names with layers on CUTLASS's: what is stored may be the other's, and default kernels run.
        """
        tuned = np.zeros(self.file.rows, dtype=np.bool_)
        if self._kernel is None or "model.dtype" not in self.inputs:
            return tuned

        def column(name: str) -> Ints:
            given = self.inputs.get(f"model.{name}")
            values: Ints = np.ones(tuned.size, dtype=np.int64) if given is None else given.values
            return np.maximum(1, values)

        ffn, experts = column("ffn") // column("tp"), column("experts") // column("ep")
        names = [f"{k}_{n}_{e}" for k, n, e in zip(column("hidden"), ffn, experts, strict=True)]
        kernels, is_nvfp4 = np.asarray(self._kernel), self.inputs["model.dtype"].values == "nvfp4"
        # the collector runs the same sizes in all types
        count = column("experts")
        has_both = (kernels != "nongated") & (count <= _MOST_OF_MIN_LATENCY)
        shared = {names[row] for row in np.flatnonzero(has_both)}
        for row in np.flatnonzero(is_nvfp4 & (kernels != _MIN_LATENCY)).tolist():
            tuned[row] = not any(name.startswith(names[row]) for name in shared)
        return tuned

    def _read_tuned(self, options: Options) -> None:
        """Read the columns of a file of aiter's tuner; raises InputError.

        Its rows say the types of both operands and of the scales. They are times of the products alone, of
        tokens that choose at random, with all experts on the device (gemm_moe_tune.py of ROCm/aiter).
        """
        file = self.file
        if not set(_TYPE_COLUMNS) <= set(file.columns):
            return
        is_tuned = np.logical_or.reduce([file.filled(name) for name in _TYPE_COLUMNS])
        dtypes = np.full(file.rows, "bf16", dtype=np.dtype("<U12"))
        for row in np.flatnonzero(is_tuned).tolist():
            dtypes[row] = _tuned_type(file, row)
        unshared = np.ones(file.rows, dtype=np.int64)
        for key, values in (
            ("model.dtype", dtypes), (BACKEND.name, np.where(is_tuned, AITER, CUTLASS)),
            (RANDOM.name, is_tuned), ("model.tp", unshared), ("model.ep", unshared),
        ):  # fmt: skip
            self.assume(key, values, is_tuned, options)

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
            is_triton = (dtype == "mxfp4_w4a16") & ~has_mxfp4 & (inputs[BACKEND.name] != AITER)
            backend = np.where(is_triton, TRITON, inputs[BACKEND.name])
            if self._kernel is not None:
                names = np.asarray(self._kernel)[batch]
                is_trtllm = (names == _MIN_LATENCY) | (np.isin(dtype, _OF_MXFP4) & has_mxfp4)
                backend = np.where(is_trtllm, TRTLLM, np.where(names == DEEPGEMM, DEEPGEMM, backend))
                chosen[REPEATED.name] = np.ones(dtype.size, dtype=np.bool_)
                chosen[RELEASE.name] = np.full(dtype.size, "1.3")
                # the collector gives these the gate of DeepSeek-V3, and leaves out the sum (do_finalize)
                chosen[GATE.name] = np.where(names == _MIN_LATENCY, "groups", "topk")
                chosen[SUMMED.name] = names != _MIN_LATENCY
                chosen[TUNED.name] = self._tuned[batch]
                chosen[LEFTOVER.name] = np.full(dtype.size, "any")
            chosen[BACKEND.name] = backend
            yield batch, inputs | {name: v for name, v in chosen.items() if name not in self._chosen}


def _tuned_type(file: CsvFile, row: int) -> str:
    """Return the data type of a row of aiter's tuner; raises InputError."""
    known = dict(zip(_TYPE_COLUMNS, (_OPERANDS, _OPERANDS, _SCALES), strict=True))
    meant = []
    for name, meanings in known.items():
        text = file.frame[name].iloc[row].lower().rpartition(".")[2]
        if text not in meanings:
            raise file.cell_error(name, row, one_of(tuple(meanings)))
        meant.append(meanings[text])
    activations, weights, scales = meant
    allowed = [name for name, meaning in _SCALES.items() if (activations, weights, meaning) in _TYPES]
    if not allowed:
        pairs = {pair[:2] for pair in _TYPES}
        partners = [text for text, meaning in _OPERANDS.items() if (activations, meaning) in pairs]
        raise file.cell_error("dtype_w", row, one_of(tuple(partners)))
    if (activations, weights, scales) not in _TYPES:
        raise file.cell_error("quant", row, one_of(tuple(allowed)))
    return _TYPES[activations, weights, scales]
