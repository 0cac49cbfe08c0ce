"""Exchanges of experts by DeepEP within a machine: a dispatch and a combine in a row of the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.kind import Options, QuantityColumn, TimedRows, register
from fastflow.analysis.measurements.machines import OnMachines
from fastflow.analysis.measurements.predict import PredictedRows
from fastflow.core.reasons.columns import Reasons
from fastflow.core.tables import Columns, Ints
from fastflow.physics.network.deepep import COMBINE, DISPATCH, MODES, NORMAL

_MAX = {"tokens": 1e9, "hidden": 1e6, "topk": 1e4, "experts": 1e5, "ranks": 1e5}
_RANKS = 8
_PARTS = ("dispatch", "combine")


@register
class ExpertExchanges(OnMachines):
    """Tokens that go to their experts, and their sums back; a rank's tokens of each row."""

    name = "exchanges of experts"
    needed = ("tokens", "hidden", "topk", "experts", "mode")
    other_columns = ("sms", "nodes", "ranks")
    times: ClassVar[Mapping[str, str]] = {f"{part}_s": part for part in _PARTS}
    quantities: ClassVar[Mapping[str, QuantityColumn]] = {}
    naming_keys = ("mode", "tokens", "hidden", "topk", "experts", "sms", "part")
    not_fitted = "a file of kernels or iterations; the time of an exchange depends on the network only"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read sizes and modes, too; raises InputError."""
        super().__init__(rows, options)
        file, none = self.file, np.zeros(self.rows, dtype=np.bool_)
        self.sizes = {name: file.whole_numbers(name, 1, _MAX[name]) for name in self.needed[:-1]}
        self.sizes["ranks"] = file.whole_numbers_where("ranks", 2, _MAX["ranks"], none, _RANKS)
        self.mode = file.choices("mode", MODES, MODES[NORMAL])
        file.refuse("mode", ~file.filled("mode"), f"one of {', '.join(MODES)}")
        is_normal = np.asarray(self.mode == MODES[NORMAL], dtype=np.bool_)
        self.sms = file.whole_numbers_where("sms", 0, 1e4, is_normal, 0)
        file.refuse("sms", is_normal & (self.sms < 2), "at least 2: SMs that send, and SMs that receive")
        nodes = file.whole_numbers_where("nodes", 1, 1e6, none, 1)
        file.refuse("nodes", nodes > 1, "1: exchanges between machines are not predicted by these kernels")
        experts, topk = self.sizes["experts"], self.sizes["topk"]
        file.refuse("topk", topk > experts, "at most the experts")
        is_uneven = experts % self.sizes["ranks"] != 0
        file.refuse("experts", is_uneven, "a multiple of the ranks (column ranks, by default 8)")

    def needed_devices(self) -> Ints:
        """Return the devices that a row needs, (rows,)."""
        return self.sizes["ranks"]

    def predict_on(self, inputs: Columns, rows: Ints) -> PredictedRows:
        """Predict rows of one system; raises InputError where there are more ranks than a machine has."""
        from fastflow.performance.partial_predictions import time_expert_exchanges

        devices = int(inputs["system.package.devices"][0])
        too_many = self.sizes["ranks"][rows] > devices
        allowed = f"as many ranks as a machine has devices, {devices:,}"
        column = "ranks" if "ranks" in self.file.frame else "experts"
        self.file.take(rows).refuse(column, too_many, allowed)
        sizes = {name: values[rows] for name, values in self.sizes.items()}
        parts = np.where(self.part[rows] == _PARTS[COMBINE], COMBINE, DISPATCH)
        modes = np.array([MODES.index(mode) for mode in self.mode[rows].tolist()])
        time = time_expert_exchanges(inputs, modes, parts, self.sms[rows], sizes)
        none = np.full(rows.size, 1, dtype=np.int64)
        latency = time_expert_exchanges(inputs, modes, parts, self.sms[rows], sizes | {"tokens": none})
        return PredictedRows(
            rows,
            {
                "time_s": time,
                "latency_s": latency,
                "bound_by": np.where(latency > 0.5 * time, "latency", "network"),
                **Reasons(rows.size).column().columns(),
            },
        )
