"""Served operating points: a row is a model on a server at some concurrency.

Both of its times, to the first token and per token after it, are of the same point of the model. Defaults
are in the tables of conf/measurement_files.yaml; docs/validation.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.csv_file import scalar_of, shown
from fastflow.analysis.measurements.kind import Options, TimedRows, register
from fastflow.analysis.measurements.predict import PredictedRows, results_of_rows
from fastflow.analysis.measurements.row_keys import SECTIONS_OF_ROWS
from fastflow.analysis.measurements.system_runs import SystemRuns
from fastflow.config.composer import Composer
from fastflow.config.hub_names import library_model
from fastflow.config.messages import one_of
from fastflow.config.model_inputs import convert
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Floats, Ints, Texts, take
from fastflow.engine.grid.run import Run
from fastflow.physics.parallelism.strategy import TENSOR, Strategy
from fastflow.physics.workload.data_types import OF_WEIGHTS_ALONE
from fastflow.schema import find_input

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

TTFT, TPOT = "ttft", "tpot"
_MILLI = 1e-3
_THOUSAND = 1000
_DTYPE, _EXPERTS, _CACHE = "model.dtype", "precision.experts", "precision.cache"
_BATCH, _LENGTH_RANGE, _PROMPTS = "serve.batch", "serve.length_range_ratio", "serve.num_unique_prompts"
_MODES = ("continuous", "disaggregated")
_MAX_DEGREE, _MAX_LENGTH = 1e6, 1e9  # of a degree; of tokens


@register
class ServedPoints(SystemRuns):
    """Operating points of a server in a closed loop."""

    name = "served points"
    needed = ("isl", "osl", "concurrency", "tp")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {"concurrency": "serve.concurrency"}
    keys_of_columns: ClassVar[Mapping[str, str]] = {
        "isl": "serve.isl", "osl": "serve.osl", "gemm_quant_mode": _DTYPE, "moe_quant_mode": _EXPERTS,
    }  # fmt: skip
    other_columns = (
        "system", "model", "precision", "mode", "tp", "pp", "attention_dp", "moe_tp", "moe_ep", "backend",
        "backend_version", *keys_of_columns,
    )  # fmt: skip
    sections = (*SECTIONS_OF_ROWS, "serve", "server")
    times: ClassVar[Mapping[str, str]] = {
        "silicon_ttft_ms": TTFT, "ttft_ms": TTFT, "silicon_tpot_ms": TPOT, "tpot_ms": TPOT,
    }  # fmt: skip
    naming_keys = (
        "part", "model", "system", "backend", "strategy", "isl", "osl", "concurrency", "dtype",
    )  # fmt: skip
    error_groups = ("part", "system", "model", "backend", "concurrency")
    section = "serving"
    alias_tables = (
        "devices", "servers", "models", "dtypes", "experts", "caches", "spreads", "prompts", "connections",
    )  # fmt: skip
    device_column = "system"
    groups = ("serve", "server", "model")
    batch_size = 4096
    has_errors_by_part = True
    not_fitted = "a file of kernels; what a server's requests see depends on a whole system"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read every row; raises InputError for a cell that cannot be read."""
        super().__init__(rows._replace(measured=_MILLI * rows.measured), options)
        names, servers = self._cells("model"), self._cells("backend")
        if "server" in self.command_line:  # overrides the file
            servers = [str(self.command_line["server"])] * self.rows
        self.server, self.family = self._match_names("servers", servers), self._match_names("models", names)
        if "server" not in self.command_line:
            self._skip_unknown("backend", self.server == "", "servers", "NAME", "server")
        self.hub_model = np.array([library_model(name) for name in names], dtype=object)
        is_unknown = (self.family == "") & (self.hub_model == "")
        self._skip_unknown("model", is_unknown & ~self.has_model, "models", "NAME", "model")
        self._read_layout()
        self._read_types(names, servers)
        self._read_lengths(names)
        texts = [" ".join(words) for words in zip(servers, names, strict=True)]
        self._set_input(_BATCH, self._numbers("connections", _BATCH, self._match_names("connections", texts)))
        self._set_input("serve.simulate", np.ones(self.rows, np.bool_))

    def _whole_numbers(self, name: str, default: int = 1) -> Ints:
        """Return whole numbers of a column, a default for empty cells and 0."""
        numbers = np.full(self.rows, default, dtype=np.int64)
        if name in self.file.frame:
            is_filled = self.file.filled(name)
            cells = self.file.take(is_filled).whole_numbers(name, 0, _MAX_DEGREE)
            numbers[is_filled] = np.where(cells > 0, cells, default)
        return numbers

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
        layouts = zip(tensor.tolist(), experts.tolist(), ranks.tolist(), stages.tolist(), strict=True)
        self._set_input("parallel.strategy", np.array([_strategy_text(*layout) for layout in layouts]))
        self._set_input("system.devices", devices * stages)

    def _read_types(self, names: list[str], servers: list[str]) -> None:
        """Read the types of products, experts and caches."""
        products, experts = self._cells("gemm_quant_mode"), self._cells("moe_quant_mode")
        published = [self.tables["dtypes"].get(name, "bf16") for name in self._match_names("dtypes", names)]
        quantized_families = self._match_names("experts", names)
        types = [_weight_type(*pair) for pair in zip(products, published, strict=True)]
        experts_only = [self.tables["experts"].get(name, "") for name in quantized_families]
        product_types = ["bf16" if only else text for only, text in zip(experts_only, types, strict=True)]
        self._set_input(_DTYPE, self._data_types(_DTYPE, product_types))
        expert_types = [
            _weight_type(*pair) if pair[0] else "operand" for pair in zip(experts, published, strict=True)
        ]
        stored_types = [only or text for only, text in zip(experts_only, expert_types, strict=True)]
        self._set_input(_EXPERTS, self._data_types(_EXPERTS, stored_types))
        queries = [" ".join(words) for words in zip(servers, names, types, strict=True)]
        caches = [self.tables["caches"].get(name, "operand") for name in self._match_names("caches", queries)]
        self._set_input(_CACHE, np.array(caches))

    def _data_types(self, key: str, texts: list[str]) -> Texts:
        """Return data types for an input; rows with unknown types are skipped."""
        known: dict[str, str] = {}
        types = getattr(find_input(_EXPERTS), "choices", ())
        for text in dict.fromkeys(texts):
            try:
                known[text] = str(convert(_EXPERTS, text))
            except InputError:
                unknown = np.array(texts) == text
                allowed = f"expected {one_of(types)}; or {key}=VALUE for all rows"
                self._skip_rows(unknown, f"a data type {shown(text)} is unknown: {allowed}", key)
        return np.array([known.get(text, "bf16") for text in texts])

    def _read_lengths(self, names: list[str]) -> None:
        """Read the lengths of requests, the range of lengths, and the number of distinct prompts."""
        isl, osl = (self._lengths(name) for name in ("isl", "osl"))
        self._set_input(
            _LENGTH_RANGE, self._numbers("spreads", _LENGTH_RANGE, self._match_names("spreads", names))
        )
        length_range = self._values(_LENGTH_RANGE)
        for key, longest in (("serve.isl", isl), ("serve.osl", osl)):
            self._set_input(key, np.maximum(longest * (1.0 - length_range / 2.0), 1.0))
        cached_prompts = self._numbers("prompts", _PROMPTS, self.server)
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

    def _numbers(self, table: str, key: str, names: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of a table for names, 0 for missing names; raises InputError for other values.

        key: the input that the numbers are for.
        """
        known: dict[str, Any] = {}
        for name, text in self.tables[table].items():
            try:
                known[name] = convert(key, scalar_of(key, text))
            except InputError as error:
                raise InputError(f"{self.section}.{table}.{name}", text, error.allowed) from None
        return np.array([known.get(name, 0) for name in names])

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
        dtype = inputs[_DTYPE]
        is_supported = np.isin(dtype, OF_WEIGHTS_ALONE)
        for name in np.unique(dtype).tolist():
            is_supported |= (dtype == name) & (inputs.get(f"chip.rate.{name}", np.zeros(dtype.size)) > 0.0)
        is_kept = is_supported | self._is_overridden(_DTYPE)[rows] | (_DTYPE in self.command_line)
        return dict(inputs) | {_DTYPE: np.where(is_kept, dtype, "bf16")}

    def predict_batch(self, rows: Ints, inputs: Columns) -> PredictedRows:
        """Predict rows, both times of a line by the same point; raises InputError."""
        _, first, inverse = np.unique(self.file.line[rows], return_index=True, return_inverse=True)
        points = results_of_rows(take(inputs, first))
        columns = {name: column[inverse] for name, column in points.items()}
        is_first = self.part[rows] == TTFT
        if "ttft_s" not in columns:  # none of these points has a time
            no_results = {"time_s": np.full(rows.size, np.nan), "bound_by": np.full(rows.size, "")}
            return PredictedRows(rows, columns | no_results)
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


def _weight_type(width: str, published: str) -> str:
    """Return the type of weights: the published one, with its scales, where a file has only the width."""
    return published if not width or published.startswith(f"{width}_") else width


def _strategy_text(tensor: int, experts: int, ranks: int, stages: int) -> str:
    """Write a layout in the notation of strategies."""
    return str(Strategy(TENSOR, tp=tensor, ep=experts, dp=ranks, pp=stages))
