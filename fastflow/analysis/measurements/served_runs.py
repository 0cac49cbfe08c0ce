"""Rows measured on servers: names of models and servers, layouts and data types, and points that serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.closed_loop import TPOT, TTFT, closed_loop_throughput, time_of_line
from fastflow.analysis.measurements.csv_file import shown
from fastflow.analysis.measurements.kind import QuantityColumn
from fastflow.analysis.measurements.predict import results_of_rows
from fastflow.analysis.measurements.row_keys import SECTIONS_OF_ROWS
from fastflow.analysis.measurements.system_runs import SystemRuns
from fastflow.config.composer import Composer
from fastflow.config.hub_names import library_model
from fastflow.config.messages import one_of
from fastflow.config.model_inputs import Scalar, convert
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Ints, Texts, take
from fastflow.engine.grid.run import Run
from fastflow.physics.parallelism.strategy import TENSOR, Strategy
from fastflow.physics.workload.data_types import OF_WEIGHTS_ALONE
from fastflow.schema import find_input
from fastflow.schema.quantities import THROUGHPUT

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

DTYPE, EXPERTS, CACHE = "model.dtype", "precision.experts", "precision.cache"
_OUTPUT_RATE = "output_tokens_per_s_per_device"
OUTPUT_RATES: Mapping[str, QuantityColumn] = MappingProxyType(
    {_OUTPUT_RATE: QuantityColumn(THROUGHPUT, lambda results: results["tokens_per_s_per_device"])}
)
"""The quantity of kinds that call `_add_throughput`."""
_MODES = ("continuous", "disaggregated")
_MAX_DEGREE = 1e6


class ServedRuns(SystemRuns):
    """Rows of the section `serving`, whose tables name devices, servers, models and their data types."""

    sections = (*SECTIONS_OF_ROWS, "serve", "server")
    section = "serving"
    groups = ("serve", "server", "model")
    batch_size = 4096
    not_fitted = "a file of kernels; what a server's requests see depends on a whole system"

    def _read_names(self, names: list[str], servers: list[str], server_column: str) -> list[str]:
        """Look up the models and the servers of rows; returns the servers, those of the command line first.

        server_column: the column of the servers.
        """
        if "server" in self.command_line:  # overrides the file
            servers = [str(self.command_line["server"])] * self.rows
        self.server, self.family = self._match_names("servers", servers), self._match_names("models", names)
        if "server" not in self.command_line:
            self._skip_unknown(server_column, self.server == "", "servers", "NAME", "server")
        self.hub_model = np.array([library_model(name) for name in names], dtype=object)
        self.is_unknown_model: Bools = (self.family == "") & (self.hub_model == "") & ~self.has_model
        self._skip_unknown("model", self.is_unknown_model, "models", "NAME", "model")
        return servers

    def _whole_numbers(self, name: str, default: int = 1) -> Ints:
        """Return whole numbers of a column, a default for empty cells and 0."""
        numbers = np.full(self.rows, default, dtype=np.int64)
        if name in self.file.frame:
            is_filled = self.file.filled(name)
            cells = self.file.take(is_filled).whole_numbers(name, 0, _MAX_DEGREE)
            numbers[is_filled] = np.where(cells > 0, cells, default)
        return numbers

    def _set_layouts(self, tensor: Ints, experts: Ints, ranks: Ints, stages: Ints) -> None:
        """Set the strategy and the devices: tensor x ranks of each pipeline stage."""
        layouts = zip(tensor.tolist(), experts.tolist(), ranks.tolist(), stages.tolist(), strict=True)
        self._set_input("parallel.strategy", np.array([_strategy_text(*layout) for layout in layouts]))
        self._set_input("system.devices", tensor * ranks * stages)

    def _set_types(self, names: list[str], products: list[str], experts: list[str]) -> list[str]:
        """Set the types of products and experts, "" for what the model's name says; returns the weights'."""
        published = [self.tables["dtypes"].get(name, "bf16") for name in self._match_names("dtypes", names)]
        quantized_families = self._match_names("experts", names)
        types = [_weight_type(*pair) for pair in zip(products, published, strict=True)]
        experts_only = [self.tables["experts"].get(name, "") for name in quantized_families]
        product_types = ["bf16" if only else text for only, text in zip(experts_only, types, strict=True)]
        self._set_input(DTYPE, self._data_types(DTYPE, product_types))
        expert_types = [
            _weight_type(*pair) if pair[0] else "operand" for pair in zip(experts, published, strict=True)
        ]
        stored_types = [only or text for only, text in zip(experts_only, expert_types, strict=True)]
        self._set_input(EXPERTS, self._data_types(EXPERTS, stored_types))
        return types

    def _data_types(self, key: str, texts: list[str]) -> Texts:
        """Return data types for an input; rows with unknown types are skipped."""
        known: dict[str, str] = {}
        types = getattr(find_input(EXPERTS), "choices", ())
        for text in dict.fromkeys(texts):
            try:
                known[text] = str(convert(EXPERTS, text))
            except InputError:
                unknown = np.array(texts) == text
                allowed = f"expected {one_of(types)}; or {key}=VALUE for all rows"
                self._skip_rows(unknown, f"a data type {shown(text)} is unknown: {allowed}", key)
        return np.array([known.get(text, "bf16") for text in texts])

    def _converted(self, table: str, key: str, names: NDArray[Any], default: Scalar = 0) -> NDArray[Any]:
        """Return the values of a table for names; raises InputError for other values.

        key: the input that the values are for; default: of missing names.
        """
        entries = self.tables[table].items()
        known = {name: self._convert_entry(table, name, key, text) for name, text in entries}
        return np.array([known.get(name, default) for name in names])

    def _add_throughput(self) -> None:
        """Add the measured throughput [1/s] of lines that do not state it, to the last row of each line.

        It follows from both times of a closed loop, for lines that are predicted.
        """
        line = self.file.line
        ttft, tpot = (time_of_line(line, self.part, self.measured, name) for name in (TTFT, TPOT))
        concurrency = self._values("serve.concurrency")
        rates = closed_loop_throughput(
            concurrency, self._values("serve.osl"), ttft, tpot, self._values("system.devices")
        )
        rates = np.where((self.reason == "") & (concurrency > 0), rates, np.nan)
        stated = self.measured_quantities.get(_OUTPUT_RATE, rates)
        rates = np.where(np.isnan(stated), rates, stated)
        rates[:-1][line[1:] == line[:-1]] = np.nan
        if not np.isnan(rates).all():
            self.measured_quantities[_OUTPUT_RATE] = rates

    # --- prediction

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan as for systems; raises InputError, also for modes without requests."""
        serve = self.command_line.get("serve", _MODES[0])
        if serve in composer.choices("serve") and serve not in _MODES:
            allowed = f"{one_of(_MODES)}, which serve the requests of a file of {self.name}"
            raise InputError("serve", serve, allowed, composer.origin_of_overrides)
        return super().plan(composer, overrides, parsed)

    def _choices(self, row: int) -> dict[str, str]:
        """Return the choice of a row in each group."""
        model = self.hub_model[row] or self.tables["models"].get(self.family[row], "")
        return {
            "serve": _MODES[0], "server": self.tables["servers"].get(self.server[row], ""), "model": model,
            **super()._choices(row),
        }  # fmt: skip

    def adjust_inputs(self, rows: Ints, inputs: Columns, composed: Columns) -> Columns:
        """Return inputs of rows; data types of operands that a chip does not multiply in become bf16.

        A type that the command line or a column of its key sets is kept.
        """
        dtype = inputs[DTYPE]
        is_supported = np.isin(dtype, OF_WEIGHTS_ALONE)
        for name in np.unique(dtype).tolist():
            is_supported |= (dtype == name) & (inputs.get(f"chip.rate.{name}", np.zeros(dtype.size)) > 0.0)
        is_kept = is_supported | self._is_overridden(DTYPE)[rows] | (DTYPE in self.command_line)
        return dict(inputs) | {DTYPE: np.where(is_kept, dtype, "bf16")}

    def _points_of_lines(self, rows: Ints, inputs: Columns) -> Columns:
        """Return result columns of rows, all rows of a line by the same point; raises InputError.

        Without a point that has a time, `time_s` and `bound_by` are empty, and no column is of a server.
        """
        _, first, inverse = np.unique(self.file.line[rows], return_index=True, return_inverse=True)
        points = results_of_rows(take(inputs, first))
        columns = {name: column[inverse] for name, column in points.items()}
        if "tpot_s" in columns:
            return columns
        return columns | {"time_s": np.full(rows.size, np.nan), "bound_by": np.full(rows.size, "")}


def _weight_type(width: str, published: str) -> str:
    """Return the type of weights: the published one, with its scales, where a file has only the width."""
    return published if not width or published.startswith(f"{width}_") else width


def _strategy_text(tensor: int, experts: int, ranks: int, stages: int) -> str:
    """Write a layout in the notation of strategies."""
    return str(Strategy(TENSOR, tp=tensor, ep=experts, dp=ranks, pp=stages))
