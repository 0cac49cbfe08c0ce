"""Served operating points: a row is a model on a server at some concurrency.

Both of its times, to the first token and per token after it, are of the same point of the model. Defaults
are in the tables of conf/measurement_files.yaml; docs/validation.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.choices import SERVED_CHOICES
from fastflow.analysis.measurements.closed_loop import TPOT, TTFT
from fastflow.analysis.measurements.kind import Options, TimedRows, register
from fastflow.analysis.measurements.predict import PredictedRows
from fastflow.analysis.measurements.served_runs import CACHE, DTYPE, EXPERTS, OUTPUT_RATES, ServedRuns
from fastflow.core.tables import Bools, Columns, Floats, Ints

_MILLI = 1e-3
_THOUSAND = 1000
_BATCH, _LENGTH_RANGE, _PROMPTS = "serve.batch", "serve.length_range_ratio", "serve.num_unique_prompts"
_MAX_LENGTH = 1e9  # tokens


@register
class ServedPoints(ServedRuns):
    """Operating points of a server in a closed loop."""

    name = "served points"
    needed = ("isl", "osl", "concurrency", "tp")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {"concurrency": "serve.concurrency"}
    keys_of_columns: ClassVar[Mapping[str, str]] = {
        "isl": "serve.isl", "osl": "serve.osl", "gemm_quant_mode": DTYPE, "moe_quant_mode": EXPERTS,
    }  # fmt: skip
    other_columns = (
        "system", "model", "precision", "mode", "tp", "pp", "attention_dp", "moe_tp", "moe_ep", "backend",
        "backend_version", *keys_of_columns,
    )  # fmt: skip
    times: ClassVar[Mapping[str, str]] = {
        "silicon_ttft_ms": TTFT, "ttft_ms": TTFT, "silicon_tpot_ms": TPOT, "tpot_ms": TPOT,
    }  # fmt: skip
    quantities = OUTPUT_RATES
    naming_keys = (
        "part", "model", "system", "backend", "strategy", "isl", "osl", "concurrency", "dtype",
    )  # fmt: skip
    error_groups = ("part", "system", "model", "backend", "concurrency", "mode")
    choices = SERVED_CHOICES
    range_ends: ClassVar[Mapping[str, tuple[int, ...]]] = {"concurrency": (8, 32, 128, 512)}
    alias_tables = (
        "devices", "servers", "models", "dtypes", "experts", "caches", "spreads", "prompts", "connections",
    )  # fmt: skip
    device_column = "system"
    has_errors_by_part = True

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read every row; raises InputError for a cell that cannot be read."""
        super().__init__(rows._replace(measured=_MILLI * rows.measured), options)
        names = self._cells("model")
        servers = self._read_names(names, self._cells("backend"), "backend")
        self._read_layout()
        self._read_types(names, servers)
        self._read_lengths(names)
        texts = [" ".join(words) for words in zip(servers, names, strict=True)]
        self._set_input(
            _BATCH, self._converted("connections", _BATCH, self._match_names("connections", texts))
        )
        self._set_input("serve.simulate", np.ones(self.rows, np.bool_))
        self._add_throughput()

    def _read_layout(self) -> None:
        """Read the strategy: experts are sharded over expert-parallel ranks, or by tensor parallelism."""
        tensor, stages, expert_ranks = (
            self._whole_numbers("tp"),
            self._whole_numbers("pp"),
            self._whole_numbers("moe_ep"),
        )
        moe_devices = self._whole_numbers("moe_tp") * expert_ranks  # devices of a stage, of a mixture
        ranks = self._whole_numbers("attention_dp", 0)
        ranks = np.where(ranks > 0, ranks, np.maximum(moe_devices // tensor, 1))
        devices = tensor * ranks
        experts = np.where((ranks > 1) | ((expert_ranks > 1) & (expert_ranks == devices)), devices, 1)
        experts = np.where(moe_devices > 1, experts, 1)
        self._set_layouts(tensor, experts, ranks, stages)

    def _read_types(self, names: list[str], servers: list[str]) -> None:
        """Read the types of products, experts and caches."""
        types = self._set_types(names, self._cells("gemm_quant_mode"), self._cells("moe_quant_mode"))
        queries = [" ".join(words) for words in zip(servers, names, types, strict=True)]
        caches = [self.tables["caches"].get(name, "operand") for name in self._match_names("caches", queries)]
        self._set_input(CACHE, np.array(caches))

    def _read_lengths(self, names: list[str]) -> None:
        """Read the lengths of requests, the range of lengths, and the number of distinct prompts."""
        isl, osl = (self._lengths(name) for name in ("isl", "osl"))
        self._set_input(
            _LENGTH_RANGE, self._converted("spreads", _LENGTH_RANGE, self._match_names("spreads", names))
        )
        length_range = self._values(_LENGTH_RANGE)
        for key, longest in (("serve.isl", isl), ("serve.osl", osl)):
            self._set_input(key, np.maximum(longest * (1.0 - length_range / 2.0), 1.0))
        cached_prompts = self._converted("prompts", _PROMPTS, self.server)
        self._set_input(_PROMPTS, np.where(isl % _THOUSAND == 0, cached_prompts, 0))

    def _lengths(self, name: str) -> Floats:
        """Return lengths of requests [tokens], 1 for empty cells; raises InputError."""
        is_filled, lengths = self.file.filled(name), self.file.numbers(name)
        self.file.refuse(
            name,
            is_filled & ~((lengths >= 1.0) & (lengths <= _MAX_LENGTH)),
            "tokens, at least 1, as a number",
        )
        key = self.keys_of_columns[name]
        missing = f"{name} is not said: expected a cell, or {key}=VALUE for all rows"
        self._skip_rows(~is_filled, missing, key, "serve.lengths")
        return np.where(is_filled, lengths, 1.0)

    def predict_batch(self, rows: Ints, inputs: Columns) -> PredictedRows:
        """Predict rows, both times of a line by the same point; raises InputError."""
        columns = self._points_of_lines(rows, inputs)
        if "ttft_s" in columns:
            is_first = self.part[rows] == TTFT
            columns["time_s"] = np.where(is_first, columns["ttft_s"], columns["tpot_s"])
            limits = columns["prefill_bound_by"], columns["decode_bound_by"]
            columns["bound_by"] = np.where(is_first, *limits)
        return PredictedRows(rows, columns)

    def notes_of_times(self) -> list[str]:
        """Return a note on defaults."""
        defaulted: dict[str, Bools] = {
            "attention_dp": self._whole_numbers("attention_dp", 0) == 0,
            "types of products": np.array(self._cells("gemm_quant_mode")) == "",
        }
        counts = [f"{name} of {rows.sum():,}" for name, rows in defaulted.items() if rows.any()]
        return [f"unsaid, by default (docs/validation.md): {', '.join(counts)} rows"] if counts else []
