"""GEMMs: C[m, n] = A[m, k] B[k, n], `batch` of them in one launch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import CsvFile, InputColumn
from fastflow.analysis.measurements.kernel_cache import finds_compiled
from fastflow.analysis.measurements.kind import PRODUCTS, Measurements, Options, TimedRows, register
from fastflow.core.tables import Columns, Floats
from fastflow.physics.timing.device import SCALED
from fastflow.physics.timing.warm_cache import COPIES

_COMPILED, _FOUND, _OTHERS, _BUILDS, _FIRST_ROWS = 1.2, 0.2, 0.02, 0.77, 3841
_FOUR_BITS, _PER_WEIGHT = 0.25, 4.2e-8
"""Rest before a run [s], while the collector (collect_gemm.py) prepares it: it makes weights, and those of
four bits on the host, which takes so long for each number of a weight. DeepGEMM compiles kernels, or finds
them (`kernel_cache.py`). A weight's products go to eight devices, the most rows first: these eight rest until
the weights of the one before are done. Their rows are from 3,841 on. Calibrated on the powers of B200
(ai-dynamo/aiconfigurator@095f58a)."""
TUNED, QUANTIZED = "tiling.tuned", "model.quantized"
_TURNS = 5
"""Copies of a weight that a collector turns through, at most (collect_gemm.py, ai-dynamo/aiconfigurator)."""
_LINEAR = ("linear", "addmm")  # a layer's weights are stored as n x k


@register
class Gemms(Measurements):
    """Matrix products."""

    name = "GEMMs"
    model = "gemm"
    needed = ("m", "n", "k")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {
        "m": "model.m", "n": "model.n", "k": "model.k", "batch": "model.batch", "dtype": "model.dtype",
        "tuned": TUNED, "preshuffled_weights": "tiling.preshuffled", "copies": COPIES,
    }  # fmt: skip
    other_columns = ("op", "trans_a", "trans_b", "lib")
    naming_keys = ("m", "k", "n", "op", "batch", "trans_a", "trans_b", "dtype")
    work = (PRODUCTS,)
    copies_of_a_call = 5  # collect_gemm.py

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read the storage order of operands, too; raises InputError.

        Collectors call a framework's products without its tuner. Where a row names the library (`lib`), it is
        the fastest of a tuner's kernels, which gets its operands quantised (gemm_a8w8_blockscale_tune.py of
        ROCm/aiter).
        """
        super().__init__(rows, options)
        self.inputs["model.transposed"] = _transposed(self.file)
        of_tuner, in_all = self.file.filled("lib"), np.ones(self.rows, dtype=np.bool_)
        is_turned = (self.timed == "kernel") & ("trans_a" not in self.file.frame) & ~of_tuner
        self.assume(COPIES, np.where(is_turned, _TURNS, 0).astype(np.int64), in_all, options)
        self.assume(TUNED, of_tuner, in_all, options)
        self.assume(QUANTIZED, of_tuner, of_tuner, options)

    def pauses(self, inputs: Columns) -> Floats | None:
        """Return the rest before the run of a row [s], by its type, rows and weight, (rows,)."""
        dtype, rows = inputs["model.dtype"], inputs["model.m"]
        pauses = np.full(rows.size, _OTHERS)
        scaled = np.flatnonzero(dtype == SCALED)
        is_compiled = finds_compiled(rows[scaled], inputs["model.n"][scaled])
        pauses[scaled] = np.where(is_compiled, _FOUND, _COMPILED)
        weight = 1.0 * inputs["model.n"] * inputs["model.k"]
        pauses = np.where(dtype == "nvfp4", _FOUR_BITS + _PER_WEIGHT * weight, pauses)
        return np.where(rows >= _FIRST_ROWS, np.maximum(pauses, _BUILDS), pauses)

    @classmethod
    def default_timed(cls, columns: Collection[str]) -> str:
        """Return "call" for operators, which a framework calls."""
        return "call" if "op" in columns else "kernel"


def _transposed(file: CsvFile) -> InputColumn:
    """Return whether both operands of GEMMs are stored along k, as far as a file says so.

    Transpositions are those of BLAS, with column-major matrices: A is along k if it is transposed, B if it is
    not. A framework's linear layer has rows of both along k, its other operators do not.
    """
    trans_a, trans_b = (file.choices(name, ("N", "T"), "") for name in ("trans_a", "trans_b"))
    is_stated = (trans_a != "") & (trans_b != "")
    is_linear = np.zeros(file.rows, dtype=np.bool_)
    if "op" in file.frame:
        is_linear = file.frame["op"].str.lower().isin(_LINEAR).to_numpy(np.bool_)
    is_along_k = np.where(is_stated, (trans_a == "T") & (trans_b == "N"), is_linear)
    return InputColumn(is_along_k, is_stated | file.filled("op"))
