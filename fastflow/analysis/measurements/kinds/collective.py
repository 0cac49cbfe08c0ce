"""Collectives among neighbouring devices of one system.

A row whose `library` is a serving library is an all-reduce as that library runs it. A permutation (`collective-permute`)
has `pairs` instead of `ranks`: every rank but the last sends to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.aliases import alias_table, match_name
from fastflow.analysis.measurements.kind import (
    Measurements,
    Options,
    QuantityColumn,
    TimedRows,
    register,
)
from fastflow.analysis.measurements.predict import PredictedRows
from fastflow.config.composer import Composer
from fastflow.config.messages import one_of
from fastflow.core.errors import InputError
from fastflow.core.reasons.columns import same_reason
from fastflow.core.reasons.forms import single_rank
from fastflow.core.tables import Bools, Columns, Ints
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run
from fastflow.physics.network.collectives.server_kernels import SERVERS
from fastflow.physics.workload.graph import ALL_REDUCE, COLLECTIVES, POINT_TO_POINT

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_MAX_RANKS = 1e12
_MAX_BYTES = 1e18
_PERMUTATION, _NCCL = "collective-permute", "nccl"
_LIBRARY = re.compile(r"([a-z]+)(/[\w.+-]+)?", re.ASCII)


@register
class Collectives(Measurements):
    """Collectives, which no kernel takes part in; the kind of timing does not matter."""

    name = "collectives"
    needed = ("ranks", "bytes")
    other_columns = ("collective", "library", "groups", "pairs")
    quantities: ClassVar[Mapping[str, QuantityColumn]] = {}
    naming_keys = ("library", "collective", "ranks", "groups", "pairs", "bytes", "dtype")
    is_of_a_system = True
    section = "collectives"
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
        self.groups = file.whole_numbers_where("groups", 1, _MAX_RANKS, np.zeros(self.rows, dtype=np.bool_), 1)
        self.bytes = file.numbers("bytes")
        fits = (self.bytes >= 0.0) & (self.bytes <= _MAX_BYTES)
        file.refuse("bytes", ~fits, f"a number of bytes that is at least 0 and at most {_MAX_BYTES:g}")
        self.server = self._read_servers()
        machines = alias_table(options.leaves, f"{self.section}.devices")
        cells = file.frame["device"].tolist() if "device" in file.frame else [""] * self.rows
        names = {cell: machines.get(match_name(cell, machines), "") for cell in dict.fromkeys(cells)}
        self.machine = np.array([names[cell] for cell in cells])
        """The system of a row's device, "" if it is unknown."""
        self.combination = np.zeros(self.rows, dtype=np.int64)
        self.assumed: list[str] = []

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

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan the systems; raises InputError.

        By default that of each row's device, with as many machines as its ranks need, if all are known.
        """
        set_keys = {override.key_or_group for override in parsed}
        if "system" in set_keys or not (self.machine != "").all():
            return super().plan(composer, overrides, parsed)
        names, self.combination = np.unique(self.machine, return_inverse=True)
        needed = self.ranks * self.groups
        params = []
        for number, name in enumerate(names.tolist()):
            run = super().plan(composer, (f"system={name}", *overrides), parsed)
            inputs, ranks = run.grid.first_inputs(), int(needed[self.combination == number].max())
            devices, package = (int(inputs[f"system.{key}"][0]) for key in ("devices", "package.devices"))
            params.append({"system": name})
            if ranks > devices and "system.devices" not in set_keys:
                devices = -(-ranks // package) * package
                params[-1]["system.devices"] = str(devices)
            self.assumed.append(
                f"system: {name}, {devices} devices (assumed from the file; system=NAME sets it)"
            )
        return plan(composer, overrides, {"union": [{"params": choices} for choices in params]})

    def _inputs_of(self, grid: Grid, number: int) -> Columns:
        """Return the inputs of the point of one system."""
        columns, row = grid.batches[grid.batch[number]].columns, grid.row[number]
        return {key: values if values.size == 1 else values[[row]] for key, values in columns.items()}

    def predict(self, grid: Grid, rows: Ints) -> Iterator[PredictedRows]:
        """Predict some rows; raises InputError where there are more ranks than devices."""
        for number in np.unique(self.combination[rows]).tolist():
            of_system = rows[self.combination[rows] == number]
            yield self._predict_on(self._inputs_of(grid, number), of_system)

    def _predict_on(self, inputs: Columns, rows: Ints) -> PredictedRows:
        """Predict rows of one system; raises InputError."""
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

    def includes_call(self, rows: Ints) -> Bools:
        """Return False: times include no framework's call."""
        return np.zeros(rows.size, dtype=np.bool_)

    def notes_of_times(self) -> list[str]:
        """Return the assumed system."""
        return self.assumed

