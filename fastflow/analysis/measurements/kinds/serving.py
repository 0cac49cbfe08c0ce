"""Served operating points: a row is a model on a server at some concurrency.

Both of its times, to the first token and per token after it, are of the same point of the model. Defaults
are in the tables of conf/measurement_files.yaml; docs/validation.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.choices import SERVED_CHOICES
from fastflow.analysis.measurements.closed_loop import TPOT, TTFT
from fastflow.analysis.measurements.csv_file import InputColumn, merge_columns, scalar_of
from fastflow.analysis.measurements.kind import Options, TimedRows, register
from fastflow.analysis.measurements.predict import PredictedRows
from fastflow.analysis.measurements.served_recipes import (
    BUDGETS,
    DATA,
    EXPERT,
    GRAPHS,
    OF_BATCH,
    RANKED,
    ROUNDS,
    TENSOR,
    UNRANKED,
    UNVERSIONED,
    WAITING,
    budget_of,
    recipes_of,
    settings_of,
    words_of,
)
from fastflow.analysis.measurements.served_runs import CACHE, DTYPE, EXPERTS, OUTPUT_RATES, ServedRuns
from fastflow.config.model_inputs import convert, to_column
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
    other_columns: ClassVar[tuple[str, ...]] = (
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
    alias_tables: ClassVar[tuple[str, ...]] = (
        "devices", "servers", "models", "dtypes", "experts", "caches", "spreads", "prompts", "connections",
        "recipes",
    )  # fmt: skip
    device_column = "system"
    has_errors_by_part = True

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read every row; raises InputError for a cell that cannot be read."""
        super().__init__(rows._replace(measured=_MILLI * rows.measured), options)
        names = self._cells("model")
        servers = self._read_names(names, self._cells("backend"), "backend")
        texts = [" ".join(words) for words in zip(servers, names, strict=True)]
        self._set_input(
            _BATCH, self._converted("connections", _BATCH, self._match_names("connections", texts))
        )
        self.isl, self.osl = self._lengths("isl"), self._lengths("osl")
        self.settings = self._read_recipes(names, servers)
        self._read_layout()
        self._read_types(names, servers)
        self._read_lengths(names)
        self._apply_recipes()
        self._set_input("serve.simulate", np.ones(self.rows, np.bool_))
        self._add_throughput()

    def _read_recipes(self, names: list[str], servers: list[str]) -> list[dict[str, str]]:
        """Return the settings of each row's recipe."""
        recipes = recipes_of(self.tables["recipes"], f"{self.section}.recipes")
        versions = [text or UNVERSIONED for text in self._cells("backend_version")]
        cells = (self._cells(name) for name in (self.device_column, "precision", "mode"))
        texts = zip(names, servers, versions, *cells, self._unranked(), strict=True)
        columns: dict[str, Floats | Ints] = {"isl": self.isl, "osl": self.osl}
        columns |= {"tp": self._whole_numbers("tp"), "dp": self._whole_numbers("attention_dp")}
        columns["c"] = self._whole_numbers("concurrency") * columns["dp"]
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        words = [words_of(*row) for row in zip(texts, rows, strict=True)]
        return [settings_of(recipes, row) for row in words]

    def _unranked(self) -> list[str]:
        """Return the word of rows that do not say their attention ranks, "" for others."""
        return ["" if text else UNRANKED for text in self._cells("attention_dp")]

    def _read_layout(self) -> None:
        """Read the strategy: experts are sharded over expert-parallel ranks, or by tensor parallelism.

        Files count the requests of an attention rank. Some have the product of `tp` and `ep` for the devices,
        where both are the same devices: then `moe_tp` repeats `moe_ep`, or `attention_dp` repeats `tp`.
        """
        tensor, stages, expert_ranks, moe_tensor = (
            self._whole_numbers(name) for name in ("tp", "pp", "moe_ep", "moe_tp")
        )
        stated = self._whole_numbers("attention_dp", 0)
        ranks = np.where(stated > 0, stated, np.maximum(moe_tensor * expert_ranks // tensor, 1))
        per_rank = np.where(stated > 1, stated, 1)
        world = tensor * ranks
        doubled = (moe_tensor > 1) & (moe_tensor == expert_ranks) & (world == moe_tensor * expert_ranks)
        squared = (tensor > 1) & (tensor == stated) & (expert_ranks == world)
        tensor = np.where(doubled & (ranks == 1), expert_ranks, tensor)
        ranks = np.where(doubled, world // expert_ranks // tensor, np.where(squared, 1, ranks))
        ranks = np.where(doubled & (stated > 1), expert_ranks, ranks)
        expert_ranks = np.where(squared, tensor, expert_ranks)
        devices = tensor * ranks
        experts = np.where((ranks > 1) | ((expert_ranks > 1) & (expert_ranks == devices)), devices, 1)
        experts = np.where(moe_tensor * expert_ranks > 1, experts, 1)
        chosen = np.array([settings.get("experts", "") for settings in self.settings])
        tensor, ranks = np.where(chosen == DATA, 1, tensor), np.where(chosen == DATA, devices, ranks)
        experts = np.where((chosen == DATA) | (chosen == EXPERT), devices, experts)
        experts = np.where((chosen == TENSOR) & (ranks == 1), 1, experts)
        self.ranks = ranks
        at_once = self._whole_numbers("concurrency") * per_rank
        self._set_input("serve.concurrency", at_once)
        self._set_layouts(tensor, experts, ranks, stages)

    def _apply_recipes(self) -> None:
        """Set the inputs of each row's recipe."""
        keys = dict.fromkeys(key for settings in self.settings for key in settings if "." in key)
        for key in keys:
            texts = [settings.get(key, "") for settings in self.settings]
            known = {text: convert(key, scalar_of(key, text)) for text in dict.fromkeys(texts) if text}
            has = np.array([text != "" for text in texts])
            filler = next(iter(known.values()))
            self._replace_input(key, np.array([known.get(text, filler) for text in texts]), has)
        rules = np.array([settings.get("budget", "") for settings in self.settings])
        longest = np.ceil(self.isl).astype(np.int64)
        requests = -(-self._values("serve.concurrency") // self.ranks)
        drafts = self._values("serve.num_speculative_tokens") + 1
        budget = np.ones(self.rows, dtype=np.int64)
        for rule in BUDGETS:
            budget = np.where(rules == rule, budget_of(rule, longest, requests, drafts), budget)
        self._replace_input("server.max_num_batched_tokens", budget, rules != "")
        bounded = np.array([settings.get(GRAPHS) == OF_BATCH for settings in self.settings])
        self._replace_input("server.cuda_graph_max_bs", requests, bounded)
        in_flight = self._values("serve.concurrency")
        rounds, waiting = (
            np.array([int(settings.get(name, 0)) for settings in self.settings]) for name in (ROUNDS, WAITING)
        )
        self._replace_input("serve.num_requests", rounds * in_flight, rounds > 0)
        self._replace_input(_BATCH, np.maximum(in_flight - waiting, 1), waiting > 0)

    def _replace_input(self, key: str, values: NDArray[Any], rows: Bools) -> None:
        """Set an input of some rows, unless it is overridden; others keep theirs."""
        column = merge_columns(self.inputs.get(key), InputColumn(to_column(key, values), rows))
        self.inputs[key] = merge_columns(column, self.overriding[key]) if key in self.overriding else column

    def _read_types(self, names: list[str], servers: list[str]) -> None:
        """Read the types of products, experts and caches."""
        products = [
            mode or (precision if precision == "bf16" else "")
            for mode, precision in zip(self._cells("gemm_quant_mode"), self._cells("precision"), strict=True)
        ]
        types = self._set_types(names, products, self._cells("moe_quant_mode"))
        queries = [" ".join(words) for words in zip(servers, names, types, strict=True)]
        caches = [self.tables["caches"].get(name, "operand") for name in self._match_names("caches", queries)]
        self._set_input(CACHE, np.array(caches))

    def _read_lengths(self, names: list[str]) -> None:
        """Read the lengths of requests, the range of lengths, and the number of distinct prompts."""
        said = ("" if word else RANKED for word in self._unranked())
        texts = [" ".join(words) for words in zip(names, said, strict=True)]
        self._set_input(
            _LENGTH_RANGE, self._converted("spreads", _LENGTH_RANGE, self._match_names("spreads", texts))
        )
        length_range = self._values(_LENGTH_RANGE)
        for key, longest in (("serve.isl", self.isl), ("serve.osl", self.osl)):
            self._set_input(key, np.maximum(longest * (1.0 - length_range / 2.0), 1.0))
        cached_prompts = self._converted("prompts", _PROMPTS, self.server)
        self._set_input(_PROMPTS, np.where(self.isl % _THOUSAND == 0, cached_prompts, 0))

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
