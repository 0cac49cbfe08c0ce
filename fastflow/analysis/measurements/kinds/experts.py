"""Expert layers of one device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.analysis.measurements.kind import Measurements, Options, TimedRows, register

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
    }  # fmt: skip
    other_columns = ("balance",)
    naming_keys = ("tokens", "hidden", "ffn", "experts", "topk", "tp", "ep", "balance", "dtype")

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
