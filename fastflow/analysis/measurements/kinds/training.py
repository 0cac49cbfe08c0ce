"""Training runs of language models: a row is a transformer, trained on a system with a layout.

Defaults follow from the framework and the family of the model of a row, by the tables of
conf/measurement_files.yaml; docs/validation.md lists them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.flop_conventions import (
    CONVENTIONS,
    HARDWARE,
    counted_flop,
    read_convention,
)
from fastflow.analysis.measurements.kind import Options, TimedRows, register
from fastflow.analysis.measurements.layout_words import (
    RECOMPUTATIONS,
    SCHEDULES,
    ZERO,
    is_hidden,
    noted_modules,
    recomputation,
)
from fastflow.analysis.measurements.predict import PredictedRows, results_of_rows
from fastflow.analysis.measurements.recipes import HIDDEN, OVERLAP, TABLES, RecipeRuns
from fastflow.config.composer import Composer
from fastflow.config.messages import one_of
from fastflow.config.model_inputs import Scalar, convert
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Columns, Floats, Ints, take
from fastflow.engine.grid.run import Run
from fastflow.physics.parallelism.options import AUTO, CP_COMM_TYPES
from fastflow.physics.parallelism.pipeline_layout import KEY as LAYOUT
from fastflow.physics.parallelism.strategy import TENSOR, Strategy, parse
from fastflow.physics.parallelism.virtual_stages import BALANCED, divides
from fastflow.physics.workload.models.transformer.layer_pattern import MAX_LAYERS
from fastflow.physics.workload.models.transformer.published import KEY as DTYPE
from fastflow.schema import find_input

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_RECOMPUTE = "parallel.recompute"
_RATE = "chip.pinned.inter_Bps"
_TFLOPS, _CONVENTION = "tflops_per_gpu", "flops_convention"
_ZERO_KEY, _PATTERN, _SPLIT = "parallel.zero_stage", "model.pattern", "parallel.pipeline_partition"
_MAX_DEGREE = 1e6  # of a degree, and of devices
OF_FILE = ("layers", "hidden", "dtype")
"""Result columns that are columns of a file already."""
STRUCTURE = {
    "head_dim": "model.head_dim", "pattern": "model.pattern", "shared_experts": "model.shared_experts",
    "n_shared_experts": "model.shared_experts", "kv_lora_rank": "model.latent",
    "q_lora_rank": "model.query_latent", "qk_rope_head_dim": "model.rotary",
    "qk_nope_head_dim": "model.head_dim", "v_head_dim": "model.value_dim", "mtp": "model.mtp",
    "num_nextn_predict_layers": "model.mtp",
}  # fmt: skip
"""Columns of a model's structure, those of config.json by its names (Hugging Face's transformers)."""
FIRST_DENSE = ("first_k_dense", "first_k_dense_replace")
"""Columns of the number of dense layers before layers with experts; the second by config.json's name."""
_OF_A_MODEL = ("hidden", "layers", "heads")
"""Columns that may be empty where the command line or a config.json describes the model."""
_LAYERS = "model.layers"
_VIRTUAL = "virtual stages"  # of a strategy: no key, but the meaning of two columns
_BILLIONS = np.array([0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0])  # of parameters, at least
_REVISION = re.compile(r"@[0-9a-f]{7,}|\s*\([^()]*\)")
_WORD = re.compile(r"[a-z0-9_]+")
_YEAR = re.compile(r"(?<![0-9])20[12][0-9](?![0-9])")


@register
class TrainingRuns(RecipeRuns):
    """Published iteration times, each with the layout of its run."""

    name = "training runs"
    needed = ("hidden", "layers", "heads", "seq", "global_batch", "tp", "pp")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {
        "hidden": "model.hidden", "layers": "model.layers", "heads": "model.heads", "seq": "model.sequence",
        "global_batch": "model.batch", "gpus": "system.devices", "n_gpus": "system.devices",
        "kv_heads": "model.kv_heads", "ffn": "model.ffn", "vocab": "model.vocabulary",
        "experts": "model.experts", "topk": "model.topk", "micro_batch": "parallel.microbatch",
        "microbatch": "parallel.microbatch", "seq_parallel": "parallel.sequence_parallel",
        "shards": "parallel.hybrid_shard_size", "pipeline_layout": LAYOUT, "pp_layout": LAYOUT, **STRUCTURE,
    }  # fmt: skip
    keys_of_columns: ClassVar[Mapping[str, str]] = {
        "dtype": "model.dtype", "dp_kind": _ZERO_KEY, "recompute": _RECOMPUTE,
        "attention_kernel": "model.attention_kernel", "overlap": OVERLAP,
        "cp_comm_type": "parallel.cp_comm_type", "schedule": "parallel.schedule",
        "vp": _VIRTUAL, "interleave": _VIRTUAL, **dict.fromkeys(FIRST_DENSE, _PATTERN),
    }  # fmt: skip
    other_columns = (
        "model", "framework", "year", "source", "interconnect_note", "tp", "pp", "cp", "ep", _CONVENTION,
        "notes",
        *keys_of_columns,
    )  # fmt: skip
    times: ClassVar[Mapping[str, str]] = {"time_s": "", "iter_time_s": ""}
    rates = (_TFLOPS,)
    naming_keys = ("model", "device", "devices", "strategy", "global_batch", "seq", "recompute", "dtype")
    error_groups = ("device", "origin", "library", "family", "parameters_billions", "dtype", "complete")
    job_columns = (
        "source", "device", "gpus", "model", "hidden", "layers", "heads", "ffn", "global_batch", "seq",
        "dtype", "framework", "year",
    )  # fmt: skip
    section = "training"
    alias_tables = ("devices", "networks", "frameworks", "families", "selective", *TABLES)
    groups = ("framework", "model")
    not_fitted = "a file of kernels; the time of a training run depends on a whole system"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read every row; raises InputError for a cell that cannot be read."""
        super().__init__(rows, options)
        for name in (*self.needed[:-2], "gpus"):
            key = self.inputs_of_columns[name]
            missing = ~self._is_set(key)
            missing &= ~self.has_model | (name not in _OF_A_MODEL)
            self._skip_rows(missing, f"{name} is not said: expected a cell, or {key}=VALUE for all rows")
        self._read_names()
        self._read_model()
        self._read_layout()
        self._read_rates()

    def _read_rates(self) -> None:
        """Read published operations a second of rows without a time, and what they count."""
        self.is_by_rate: Bools = np.isnan(self.measured)
        self.conventions = np.array(self._cells(_CONVENTION))
        self.tflops: Floats = np.full(self.rows, np.nan)
        if not self.is_by_rate.any():
            return
        file, read = self.file, self.is_by_rate
        self.tflops = file.numbers(_TFLOPS)
        file.refuse(
            _TFLOPS, read & ~(self.tflops > 0.0), "operations a second of one device, in TFLOP/s above 0"
        )
        for text in dict.fromkeys(self.conventions[read].tolist()):
            try:
                read_convention(text)
            except KeyError:
                unknown = read & (self.conventions == text)
                file.refuse(_CONVENTION, unknown, CONVENTIONS)

    def _keys_of_columns(self) -> dict[str, str]:
        """Return the key that each column sets, except for `ffn`, which is an expert's width in mixtures."""
        return {name: key for name, key in super()._keys_of_columns().items() if name != "ffn"}

    def _degree(self, *names: str) -> Ints:
        """Return the degrees in columns of the same meaning, 0 for empty cells."""
        degrees = np.zeros(self.rows, dtype=np.int64)
        for name in filter(self.file.columns.__contains__, names):
            is_filled = self.file.filled(name)
            degrees[is_filled] = self.file.take(is_filled).whole_numbers(name, 1, _MAX_DEGREE)
        return degrees

    def _read_layout(self) -> None:
        """Read the strategy and related inputs; raises InputError."""
        experts = (self._values("model.experts") > 1) | (self.has_model & ~self._is_set("model.experts"))
        degrees = {name: self._degree(name) for name in ("tp", "pp", "cp", "ep")}
        degrees["vp"] = self._degree("vp", "interleave")
        tp, pp, cp = (np.maximum(degrees[name], 1) for name in ("tp", "pp", "cp"))
        unsaid = np.array([int(text or 1) for text in self._of_source("chunks", _LAYERS)])
        vp = np.where(pp > 1, np.where(degrees["vp"] > 0, degrees["vp"], unsaid), 1)
        degrees["ep"] = np.where(degrees["ep"] > 0, degrees["ep"], self._expert_degrees())
        ep = np.where(experts, np.maximum(degrees["ep"], 1), 1)
        gpus = self._values("system.devices")
        dp = np.maximum(gpus // (tp * pp * cp), 1)
        self._skip_rows(gpus != tp * pp * cp * dp, "tp x pp x cp does not divide gpus", "parallel.strategy")
        self._set_input("parallel.strategy", np.array(list(map(_strategy, tp, cp, ep, dp, pp, vp))))
        # more experts' ranks than data parallelism has: TP's are among them (expert_tensor_parallel_size 1)
        self._set_input("parallel.expert_tensor_parallel", np.zeros(self.rows, np.bool_), (cp * dp) % ep > 0)
        self._read_pipelines(pp * vp)
        self._read_word("dp_kind", _ZERO_KEY, ZERO)
        self._read_word("schedule", "parallel.schedule", SCHEDULES, whole=True)
        self._read_word(
            "cp_comm_type", "parallel.cp_comm_type", {name: name for name in CP_COMM_TYPES}, whole=True
        )
        self._read_overlap()
        self._read_dispatcher()
        self._read_recomputation()
        has_chunks, has_expert_degree = (pp == 1) | (degrees["vp"] > 0), ~experts | (degrees["ep"] > 0)
        self.complete: Bools = (
            (degrees["tp"] > 0) & (degrees["pp"] > 0) & has_chunks & has_expert_degree
            & self._is_set("parallel.microbatch") & self._is_set(_RECOMPUTE)
        )  # fmt: skip
        """Whether a row sets the most important parts of its layout."""

    def _read_recomputation(self) -> None:
        """Read the recomputation, whose words differ between libraries.

        Parts of layers by Megatron's names go before the word: in its cell, or in a note.
        """
        self._read_words("recompute", _RECOMPUTE, recomputation, RECOMPUTATIONS)
        words, is_set = self.inputs[_RECOMPUTE]
        if "notes" in self.file.columns:
            noted = np.array([noted_modules(note) for note in self._cells("notes")])
            has_note = (noted != "") & (~is_set | (words == "selective"))
            has_note &= ~self._is_overridden(_RECOMPUTE)
            words, is_set = np.where(has_note, noted, words), is_set | has_note
        selective = self.tables["selective"]
        meanings = np.array(
            [
                selective.get(name, "selective")
                for name in self._match_names("selective", self.framework.tolist())
            ]
        )
        is_selective = (words == "selective") & ~self._is_overridden(_RECOMPUTE)
        self.recomputes_half: Bools = is_selective & (meanings == "half")
        """Whether half of the layers of a row are recomputed."""
        resolved = np.where(self.recomputes_half, "selective", meanings)  # until the layers are known
        self._set_input(_RECOMPUTE, np.where(is_selective, resolved, words.astype(np.str_)), is_set)

    def _read_overlap(self) -> None:
        """Read which exchanges overlap with kernels: those of a list, none or all."""
        known = f"none, all, or some of {' '.join(HIDDEN)}"
        for name in HIDDEN:
            key = f"{OVERLAP}.{name}"
            self._read_words("overlap", key, partial(is_hidden, name), known)
        self._read_hidden()

    def _read_model(self) -> None:
        """Read inputs of the model that its family does not set; raises InputError."""
        experts, ffn = self._values("model.experts") > 1, self.own_inputs.get("model.ffn")
        width = np.where(ffn.is_set, ffn.values, 0) if ffn is not None else np.zeros(self.rows, np.int64)
        self.has_ungated_ffn = width == 4 * self._values("model.hidden")
        # 0 stands for the default; the value of a chosen model is kept
        is_set = ~self.has_model | self._is_set("model.kv_heads")
        self._set_input("model.kv_heads", self._values("model.kv_heads"), is_set)
        self.inputs.pop("model.ffn", None)
        self._set_input("model.ffn", width, ~experts & (~self.has_model | (width > 0)))
        self._set_input("model.expert_ffn", width, experts & (width > 0))
        self._set_input("model.positions", self._values("model.sequence"), self._is_set("model.sequence"))
        self._read_first_dense()
        self._read_types()
        self._read_adapters()
        self._read_word("attention_kernel", "model.attention_kernel")

    def _read_types(self) -> None:
        """Read the type of products; where a row says nothing, that of its source, if it has one."""
        self._read_word("dtype", DTYPE)
        types = np.array(self._of_source("types", DTYPE))
        self._set_default(DTYPE, types, (types != "") & ~self.file.filled("dtype"))

    def _read_first_dense(self) -> None:
        """Read the number of dense layers before layers with experts; -1 for empty cells."""
        self.first_dense = np.full(self.rows, -1, dtype=np.int64)
        for name in filter(self.file.columns.__contains__, FIRST_DENSE):
            is_filled = self.file.filled(name)
            self.first_dense[is_filled] = self.file.take(is_filled).whole_numbers(name, 0, MAX_LAYERS)

    def _read_word(
        self, column: str, key: str, meanings: Mapping[str, Scalar] | None = None, whole: bool = False
    ) -> None:
        """Set an input by the first word of a cell, or its whole text; rows of unknown words are skipped."""

        def read(text: str) -> Scalar:
            (word, *_) = (text.lower(),) if whole else (*_WORD.findall(text.lower()), "")
            return convert(key, meanings[word] if meanings else word)

        known = find_input(key)
        assert known is not None, key
        self._read_words(column, key, read, one_of(meanings) if meanings else known.allowed())

    def _read_names(self) -> None:
        """Look up the names in the texts of a row."""
        texts = {
            name: self._cells(name) for name in ("framework", "year", "source", "model", "interconnect_note")
        }
        dated = [
            f"{framework or source} {year or ' '.join(_YEAR.findall(source))}"
            for framework, year, source in zip(
                texts["framework"], texts["year"], texts["source"], strict=True
            )
        ]
        self.framework = self._match_names("frameworks", dated)
        self.family = self._match_names("families", texts["model"])
        self.source = np.array([_REVISION.sub("", source)[:60] for source in texts["source"]], dtype=object)
        rates_of_networks = self.tables["networks"]
        networks = self._match_names("networks", texts["interconnect_note"])
        rates = [convert(_RATE, rates_of_networks[name]) if name else 0.0 for name in networks]
        self._set_input(_RATE, np.array(rates), networks != "")

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan as for systems, and keep the chosen framework of each row; raises InputError."""
        rows = (
            str(self.command_line.get("framework", self._choices(row)["framework"]))
            for row in range(self.rows)
        )
        self.library = np.array(list(rows), dtype=object)
        return super().plan(composer, overrides, parsed)

    def _choices(self, row: int) -> dict[str, str]:
        """Return the choice of a row in each group."""
        frameworks, families = self.tables["frameworks"], self.tables["families"]
        unknown = "gpt3_175b" if self.has_ungated_ffn[row] else "transformer"
        return {
            "model": families.get(self.family[row], unknown), **super()._choices(row),
            "framework": frameworks.get(self.framework[row], "none"),
        }  # fmt: skip

    def adjust_inputs(self, rows: Ints, inputs: Columns, composed: Columns) -> Columns:
        """Return inputs of rows, adjusted by the family and the layers."""
        layers, experts = inputs["model.layers"], inputs["model.experts"]
        pattern = np.where((experts > 1) & (composed["model.experts"] == 0), "experts", inputs[_PATTERN])
        layers_of_rows = zip(self.first_dense[rows].tolist(), layers.tolist(), pattern, strict=True)
        pattern = np.array([_pattern(*row_layers) for row_layers in layers_of_rows])
        chunks = _chunks_of(inputs["parallel.strategy"])
        is_uneven = ~divides(chunks.of_all, layers) & (inputs[LAYOUT] == AUTO)
        half = np.maximum(-(-layers // chunks.of_all) // 2, 1).astype(np.str_)
        adjusted = {
            _PATTERN: np.where(self._is_set(_PATTERN)[rows], inputs[_PATTERN], pattern),
            _SPLIT: np.where(is_uneven, BALANCED, inputs[_SPLIT]),
            _RECOMPUTE: np.where(self.recomputes_half[rows], half, inputs[_RECOMPUTE]),
        }
        is_overridden = {key: self._is_overridden(key)[rows] | (key in self.command_line) for key in adjusted}
        return {**inputs, **{
            key: np.where(is_overridden[key], inputs[key], values) for key, values in adjusted.items()
        }}  # fmt: skip

    def predict_batch(self, rows: Ints, inputs: Columns) -> PredictedRows:
        """Predict rows in one call of the model; raises InputError."""
        results = results_of_rows(inputs)
        timed = self.is_by_rate[rows] & ~np.isnan(results["time_s"])
        if timed.any():
            which, of_rows = rows[timed], take(inputs, np.flatnonzero(timed))
            rate = 1e12 * self.tflops[which] * of_rows["system.devices"]
            conventions, recomputed = self.conventions[which], np.ones(rate.size)
            if any(HARDWARE in read_convention(text) for text in set(conventions.tolist())):
                plain = {**of_rows, _RECOMPUTE: np.full(rate.size, "none")}
                recomputed = _device_flop(results)[timed] / _device_flop(results_of_rows(plain))
            self.measured[which] = counted_flop(of_rows, conventions, recomputed) / rate
        num_weights = results.get("parameters", np.full(rows.size, np.nan))  # of no row that has no time
        size_class = _BILLIONS[np.searchsorted(_BILLIONS, num_weights / 1e9, side="right") - 1]
        billions = {"parameters_billions": np.where(np.isnan(num_weights), np.nan, size_class)}
        result_columns = {name: column for name, column in results.items() if name not in OF_FILE}
        return PredictedRows(rows, result_columns | billions | self.row_columns(rows))

    def row_columns(self, rows: Ints) -> Columns:
        """Return the interpretation of rows."""
        return {
            "complete": self.complete[rows], "library": self.library[rows], "family": self.family[rows],
            "origin": self.source[rows],
        }  # fmt: skip

    def notes_of_times(self) -> list[str]:
        """Return notes on defaults."""
        defaulted = {
            "micro-batch": ~self._is_set("parallel.microbatch"),
            "recomputation": ~self._is_set(_RECOMPUTE),
            "data parallelism": ~self._is_set("parallel.zero_stage"),
            "framework": self.framework == "", "family": self.family == "",
        }  # fmt: skip
        counts = [f"{name} of {rows.sum():,}" for name, rows in defaulted.items() if rows.any()]
        complete = f"complete layouts: {self.complete.sum():,} of {self.rows:,} rows"
        return [
            complete,
            *(
                [f"times by {_TFLOPS} and {_CONVENTION}: {self.is_by_rate.sum():,} rows"]
                if self.is_by_rate.any()
                else []
            ),
            *([f"unsaid, by default (docs/validation.md): {', '.join(counts)} rows"] if counts else []),
        ]


def _device_flop(results: Columns) -> Floats:
    """Return the operations of a device in an iteration [flop], (rows,)."""
    flop: Floats = results["hardware_flops_per_device"] * results["time_s"]
    return flop


def _strategy(tp: int, cp: int, ep: int, dp: int, pp: int, vp: int) -> str:
    """Write a layout in the notation of strategies."""
    return str(Strategy(TENSOR, tp=tp, cp=cp, ep=ep, dp=dp, pp=pp, chunks=vp))


def _pattern(first_dense: int, layers: int, default: str) -> str:
    """Return the pattern of a model by its number of dense layers, before those with experts."""
    if first_dense < 0:
        return default
    rest = layers - first_dense
    return "experts" if first_dense == 0 else f"{first_dense}*dense, {rest}*experts" if rest > 0 else "dense"


class _Chunks(NamedTuple):
    """Numbers of chunks of layers of strategies; shape (rows,)."""

    of_all: Ints
    of_stage: Ints


def _chunks_of(strategies: NDArray[Any]) -> _Chunks:
    """Return the chunks of strategies, 1 for `auto` and invalid texts."""
    known: dict[str, tuple[int, int]] = {}
    for text in dict.fromkeys(strategies.tolist()):
        try:
            read = parse(text)
            known[text] = read.pp * read.chunks, read.chunks
        except InputError:
            known[text] = 1, 1
    of_all, of_stage = zip(*(known[text] for text in strategies.tolist()), strict=True)
    return _Chunks(np.array(of_all), np.array(of_stage))
