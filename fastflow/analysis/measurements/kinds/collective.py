"""Collectives among neighbouring devices of one system.

A row whose `library` is a serving library is an all-reduce as that library runs it. A permutation
(`collective-permute`) has `pairs` instead of `ranks`: every rank but the last sends to the next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.kind import Options, QuantityColumn, TimedRows, register
from fastflow.analysis.measurements.machines import OnMachines
from fastflow.analysis.measurements.predict import PredictedRows
from fastflow.config.messages import one_of
from fastflow.core.reasons.columns import same_reason
from fastflow.core.reasons.forms import single_rank
from fastflow.core.tables import Columns, Ints
from fastflow.physics.network.collectives.server_kernels import SERVERS
from fastflow.physics.workload.graph import ALL_REDUCE, COLLECTIVES, POINT_TO_POINT

_MAX_RANKS = 1e12
_MAX_BYTES = 1e18
_PERMUTATION, _NCCL = "collective-permute", "nccl"
_LIBRARY = re.compile(r"([a-z]+)(/[\w.+-]+)?", re.ASCII)


@register
class Collectives(OnMachines):
    """Collectives, which no kernel takes part in; the kind of timing does not matter."""

    name = "collectives"
    needed = ("ranks", "bytes")
    other_columns = ("collective", "library", "groups", "pairs")
    quantities: ClassVar[Mapping[str, QuantityColumn]] = {}
    naming_keys = ("library", "collective", "ranks", "groups", "pairs", "bytes", "dtype")
    not_fitted = "a file of kernels or iterations; the time of a collective depends on the network only"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read sizes and names, too; raises InputError."""
        super().__init__(rows, options)
        file = self.file
        named = file.choices("collective", (*COLLECTIVES[1:], _PERMUTATION), COLLECTIVES[ALL_REDUCE])
        is_permutation = np.asarray(named == _PERMUTATION, dtype=np.bool_)
        self.collective = np.where(is_permutation, COLLECTIVES[POINT_TO_POINT], named)
        pairs = file.whole_numbers_where("pairs", 1, _MAX_RANKS, is_permutation, 1)
        ranks = file.whole_numbers_where("ranks", 1, _MAX_RANKS, ~is_permutation, 1)
        self.ranks = np.where(is_permutation, pairs + 1, ranks)
        self.groups = file.whole_numbers_where(
            "groups", 1, _MAX_RANKS, np.zeros(self.rows, dtype=np.bool_), 1
        )
        self.bytes = file.numbers("bytes")
        fits = (self.bytes >= 0.0) & (self.bytes <= _MAX_BYTES)
        file.refuse("bytes", ~fits, f"a number of bytes that is at least 0 and at most {_MAX_BYTES:g}")
        self.server = self._read_servers()

    def _read_servers(self) -> NDArray[Any]:
        """Return the serving library of every row, "" for NCCL; raises InputError."""
        servers = np.full(self.rows, "", dtype=object)
        for row, text in enumerate(self.file.frame.get("library", ())):
            match = _LIBRARY.fullmatch(text.lower())
            if text and (match is None or match[1] not in (_NCCL, *SERVERS)):
                allowed = f"{one_of((_NCCL, *SERVERS))}, with or without /VERSION"
                raise self.file.cell_error("library", row, allowed)
            servers[row] = "" if match is None or match[1] == _NCCL else match[1]
        is_other = (servers != "") & (self.collective != COLLECTIVES[ALL_REDUCE])
        self.file.refuse("collective", is_other, "all-reduce, which serving libraries have kernels for")
        return servers

    def needed_devices(self) -> Ints:
        """Return the devices that a row needs, (rows,)."""
        return np.asarray(self.ranks * self.groups, dtype=np.int64)

    def predict_on(self, inputs: Columns, rows: Ints) -> PredictedRows:
        """Predict rows of one system; raises InputError where there are more ranks than devices."""
        from fastflow.performance.partial_predictions import time_collectives

        devices = int(inputs["system.devices"][0])
        ranks, size = self.ranks[rows], self.bytes[rows]
        allowed = f"at most {devices:,}, the devices of the system"
        self.file.take(rows).refuse("ranks", ranks > devices, allowed)
        time, latency = np.empty(rows.size), np.empty(rows.size)
        names = list(zip(self.collective[rows].tolist(), self.server[rows].tolist(), strict=True))
        for name, server in dict.fromkeys(names):
            selected = np.array([pair == (name, server) for pair in names])
            number, nothing = COLLECTIVES.index(name), np.zeros(int(selected.sum()))
            time[selected] = time_collectives(inputs, number, size[selected], ranks[selected], server)
            latency[selected] = time_collectives(inputs, number, nothing, ranks[selected], server)
        is_single = ranks < 2
        columns: dict[str, NDArray[Any]] = {
            "time_s": np.where(is_single, np.nan, time),
            "latency_s": latency,
            "bound_by": np.where(latency > 0.5 * time, "latency", "network"),
            **same_reason(is_single, single_rank()).columns(),
        }
        return PredictedRows(rows, columns)
