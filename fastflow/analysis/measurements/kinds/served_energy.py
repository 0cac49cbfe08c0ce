"""Energy of servers: a row is the steady state of a server with some requests in its batch.

Its time is that per token; the power is of a device, the energy of an output token. Files have no lengths of
prompts: the table `prompt_lengths` of conf/measurement_files.yaml assumes them by the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import listed
from fastflow.analysis.measurements.kind import Options, QuantityColumn, TimedRows, register
from fastflow.analysis.measurements.predict import PredictedRows
from fastflow.analysis.measurements.served_runs import DTYPE, ServedRuns
from fastflow.core.tables import Columns, Floats, Ints
from fastflow.schema.quantities import ENERGY, POWER
from fastflow.schema.serving import GREEDY

_MEMORY_SHARE = "server.gpu_memory_utilization"
_CONCURRENCY, _ISL, _OSL, _SAMPLING = "serve.concurrency", "serve.isl", "serve.osl", "serve.sampling"
_MAX_REQUESTS, _MAX_LENGTH = 1e6, 1e9  # of a batch; tokens of an answer


@register
class ServedEnergy(ServedRuns):
    """Steady states of servers, with the energy of a token and the power of a device."""

    name = "energy of served points"
    needed = ("avg_batch", "osl_mean", "tpot_median_s", "tp", "task")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {"max_num_seqs": "server.max_num_seqs"}
    keys_of_columns: ClassVar[Mapping[str, str]] = {
        "avg_batch": _CONCURRENCY, "osl_mean": _OSL, "task": _ISL, "dtype": DTYPE,
    }  # fmt: skip
    other_columns = ("model", "framework", "dp", "pp", "ep", "devices", *keys_of_columns)
    times: ClassVar[Mapping[str, str]] = {"tpot_median_s": ""}
    quantities: ClassVar[Mapping[str, QuantityColumn]] = {
        "power_per_device_W": QuantityColumn(POWER, lambda results: results["power_W"]),
        "energy_per_token_J": QuantityColumn(ENERGY, lambda results: results["joules_per_token"]),
    }
    naming_keys = ("model", "device", "strategy", "task", "avg_batch", "osl_mean", "dtype")
    error_groups = ("device", "model", "task")
    alias_tables = (
        "devices", "servers", "models", "dtypes", "experts", "prompt_lengths", "memory_shares", "sampling",
    )  # fmt: skip

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read every row; raises InputError for a cell that cannot be read."""
        super().__init__(rows, options)
        names = self._cells("model")
        self._read_names(names, self._cells("framework"), "framework")
        self._read_layout()
        self._set_types(names, self._cells("dtype"), [""] * self.rows)
        self._set_input(_CONCURRENCY, np.maximum(np.round(self._means("avg_batch", _MAX_REQUESTS)), 1.0))
        self._set_input(_OSL, np.maximum(np.round(self._means("osl_mean", _MAX_LENGTH)), 1.0))
        self._read_task()
        self._set_input("serve.simulate", np.zeros(self.rows, np.bool_))  # no start and no end

    def _read_layout(self) -> None:
        """Read the strategy.

        vLLM distributes experts over tensor-parallel devices and attention's ranks; a row with ep has no tp,
        which is then ep / dp (--tensor-parallel-size and --enable-expert-parallel of ml-energy/benchmark).
        """
        tensor, stages, experts, ranks = (self._whole_numbers(name) for name in ("tp", "pp", "ep", "dp"))
        tensor = np.where((experts > 1) & (tensor == 1), np.maximum(experts // ranks, 1), tensor)
        self._set_layouts(tensor, experts, ranks, stages)
        devices = self._values("system.devices")
        stated = self._whole_numbers("devices", 0)
        differs = (stated > 0) & (stated != devices)
        reason = "devices is not what tp, ep, dp and pp make: expected parallel.strategy=NAME for all rows"
        self._skip_rows(differs, reason, "parallel.strategy")
        self._set_input("system.devices", np.where(differs, stated, devices))

    def _means(self, name: str, highest: float) -> Floats:
        """Return the means of a column, 1 for empty cells, whose rows are skipped; raises InputError."""
        is_filled, means = self.file.filled(name), self.file.numbers(name)
        fits = (means > 0.0) & (means <= highest)
        self.file.refuse(name, is_filled & ~fits, f"a mean above 0 and at most {highest:g}")
        key = self.keys_of_columns[name]
        self._skip_rows(~is_filled, f"{name} is not said: expected a cell, or {key}=VALUE for all rows", key)
        return np.where(is_filled, means, 1.0)

    def _read_task(self) -> None:
        """Read prompts' length, the share of memory of a server, and how clients sample, by the task."""
        self.task = self._match_names("prompt_lengths", self._cells("task"))
        known = listed(list(self.tables["prompt_lengths"]))
        reason = f"its task is unknown: expected a name with one of {known}; or {_ISL}=VALUE for all rows"
        self._skip_rows(self.task == "", reason, _ISL)
        lengths = self._converted("prompt_lengths", _ISL, self.task)
        self._set_input(_ISL, np.maximum(lengths, 1.0))
        of_task = self._match_names("memory_shares", self._cells("task"))
        shares = self._converted("memory_shares", _MEMORY_SHARE, of_task)
        self._set_input(_MEMORY_SHARE, shares, shares > 0.0)
        drawn = self._match_names("sampling", self._cells("task"))
        self._set_input(_SAMPLING, self._converted("sampling", _SAMPLING, drawn, GREEDY), drawn != "")

    def predict_batch(self, rows: Ints, inputs: Columns) -> PredictedRows:
        """Predict rows; raises InputError."""
        columns = self._points_of_lines(rows, inputs)
        if "tpot_s" in columns:
            columns |= {"time_s": columns["tpot_s"], "bound_by": columns["decode_bound_by"]}
        return PredictedRows(rows, columns)

    def notes_of_times(self) -> list[str]:
        """Return a note on lengths of prompts, and on models that the library lacks."""
        table, tasks = self.tables["prompt_lengths"], sorted({*self.task.tolist()} - {""})
        notes = []
        if tasks and not self._is_overridden(_ISL).all():
            lengths = ", ".join(f"{name} {table[name]}" for name in tasks)
            notes.append(f"assumed: tokens of a prompt by the task: {lengths} (serve.isl sets them)")
        models = np.array(self._cells("model"), dtype=object)[self.is_unknown_model]
        if models.size:
            unknown = dict.fromkeys(models.tolist())
            notes.append(
                f"skipped, for {len(unknown)} models that the library lacks: {listed([*unknown], 100)}"
            )
        return notes
