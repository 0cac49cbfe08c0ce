"""Training runs of language models: a row is a transformer, trained on a system with one layout.

What a row leaves unsaid follows from what its framework does by itself, and from the family of its model, by
the tables of conf/training.yaml; docs/validation.md lists the defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fastflow.configuration.composer import Composer
from fastflow.configuration.inputs import Scalar, convert
from fastflow.errors import InputError
from fastflow.grid.grid import Grid
from fastflow.grid.run import Run
from fastflow.measured.csv_file import shown
from fastflow.measured.kind import Options, TimedRows, register
from fastflow.measured.points import PredictedRows, predict_points
from fastflow.measured.system_runs import SystemRuns
from fastflow.parallelism.chunks import BALANCED, divides
from fastflow.parallelism.strategy import TENSOR, Strategy
from fastflow.tables import Bools, Columns, Ints

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_RECOMPUTE = "parallel.recompute"
_RATE = "chip.pinned.inter_Bps"
_ZERO_KEY = "parallel.zero"
_MOST = 1e6  # of a degree, and of devices
_ZERO = {"ddp": 0, "zero0": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp2": 3, "hsdp": 3}
"""What data parallelism of a name shares out: ZeRO's stage."""
_BILLIONS = np.array([0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0])  # of parameters, at least
_REVISION = re.compile(r"@[0-9a-f]{7,}|\s*\([^()]*\)")
_WORD = re.compile(r"[a-z0-9_]+")
_YEAR = re.compile(r"(?<![0-9])20[12][0-9](?![0-9])")


@register
class TrainingRuns(SystemRuns):
    """Published iteration times, each with the layout of its run."""

    name = "training runs"
    needed = ("hidden", "layers", "heads", "seq", "global_batch", "tp", "pp")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {
        "hidden": "model.hidden", "layers": "model.layers", "heads": "model.heads", "seq": "model.sequence",
        "global_batch": "model.batch", "gpus": "system.devices", "n_gpus": "system.devices",
        "kv_heads": "model.kv_heads", "ffn": "model.ffn", "vocab": "model.vocabulary",
        "experts": "model.experts", "topk": "model.topk", "micro_batch": "parallel.microbatch",
        "microbatch": "parallel.microbatch", "seq_parallel": "parallel.sequence",
        "shards": "parallel.shards",
    }  # fmt: skip
    other_columns = (
        "model", "framework", "year", "source", "interconnect_note", "dtype", "dp_kind", "recompute", "tp",
        "pp", "cp", "vp", "interleave", "ep", "attention_kernel",
    )  # fmt: skip
    times: ClassVar[Mapping[str, str]] = {"time_s": "", "iter_time_s": ""}
    named_by = ("model", "device", "devices", "strategy", "global_batch", "seq", "recompute", "dtype")
    by = ("device", "origin", "library", "family", "billions", "dtype", "complete")
    section = "training"
    tabled = ("devices", "networks", "frameworks", "families", "selective")
    groups = ("framework", "model")
    not_fitted = "a file of kernels; the time of a training run depends on a whole system"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read what every row says; raises InputError for a cell that cannot be read."""
        super().__init__(rows, options)
        for name in self.needed[:-2]:
            self._leave(~self.file.filled(name), f"{name} is not said")
        self._leave(~self._there("system.devices"), "gpus is not said")
        self._read_names()
        self._read_model()
        self._read_layout()

    def _degree(self, *names: str) -> Ints:
        """Return the degrees in the first of some columns that is there, 0 where it says nothing."""
        found = np.zeros(self.rows, dtype=np.int64)
        name = next((name for name in names if name in self.file.frame), None)
        if name is not None:
            there = self.file.filled(name)
            found[there] = self.file.take(there).whole_numbers(name, 1, _MOST)
        return found

    def _read_layout(self) -> None:
        """Read the strategy and what goes with it; raises InputError."""
        experts = self._values("model.experts") > 1
        said = {name: self._degree(name) for name in ("tp", "pp", "cp", "ep")}
        said["vp"] = self._degree("vp", "interleave")
        tp, pp, cp = (np.maximum(said[name], 1) for name in ("tp", "pp", "cp"))
        vp = np.where(pp > 1, np.maximum(said["vp"], 1), 1)
        ep = np.where(experts, np.maximum(said["ep"], 1), 1)
        gpus = self._values("system.devices")
        dp = np.maximum(gpus // (tp * pp * cp), 1)
        self._leave(gpus != tp * pp * cp * dp, "tp x pp x cp does not divide gpus")
        self._set("parallel.strategy", np.array(list(map(_strategy, tp, cp, ep, dp, pp, vp))))
        # more experts' ranks than data parallelism has: TP's are among them (expert_tensor_parallel_size 1)
        self._set("parallel.expert_tensor", np.zeros(self.rows, np.bool_), (cp * dp) % ep > 0)
        layers = self._values("model.layers")
        uneven = ~divides(pp * vp, layers) & (vp == 1)
        self._set("parallel.split", np.full(self.rows, BALANCED), uneven)
        self._read_word("dp_kind", "parallel.zero", _ZERO)
        self._read_recomputation(-(-layers // (pp * vp)))
        said_of_chunks, said_of_experts = (pp == 1) | (said["vp"] > 0), ~experts | (said["ep"] > 0)
        self.complete: Bools = (
            (said["tp"] > 0) & (said["pp"] > 0) & said_of_chunks & said_of_experts
            & self._there("parallel.microbatch") & self._there(_RECOMPUTE)
        )  # fmt: skip
        """Whether a row says all of its layout that matters most."""

    def _read_recomputation(self, chunk: Ints) -> None:
        """Read what is computed again, which libraries mean differently; chunk: the most layers of one."""
        self._read_word("recompute", _RECOMPUTE)
        said, there = self.inputs[_RECOMPUTE]
        means = np.array([self.tables["selective"].get(name, "selective") for name in self.framework])
        half = np.maximum(chunk // 2, 1).astype(np.str_)
        own = np.where(means == "half", half, means)
        self._set(_RECOMPUTE, np.where(said == "selective", own, said.astype(np.str_)), there)

    def _read_model(self) -> None:
        """Read what the family of a model does not say; raises InputError."""
        experts, ffn = self._values("model.experts") > 1, self.inputs.get("model.ffn")
        self.ungated = self._values("model.ffn") == 4 * self._values("model.hidden")
        # 0 stands for what is usual
        self._set("model.kv_heads", self._values("model.kv_heads"))
        self._set("model.ffn", self._values("model.ffn"), ~experts)
        if ffn is not None:
            self._set("model.expert_ffn", ffn.values, experts & ffn.there)
        self._set("model.positions", self._values("model.sequence"))
        self._read_word("dtype", "model.dtype")
        self._read_word("attention_kernel", "model.attention_kernel")

    def _read_word(self, column: str, key: str, meanings: Mapping[str, Scalar] | None = None) -> None:
        """Let the first word of a cell set an input; a row whose word is unknown is left out."""
        there, texts = self.file.filled(column), self.file.frame.get(column, [""] * self.rows)
        read: dict[str, Scalar] = {}
        for text in filter(None, self.file.each_once(column)):
            (word, *_) = (*_WORD.findall(text.lower()), "")
            try:
                read[text] = convert(key, meanings[word] if meanings else word)
            except (InputError, KeyError):
                unknown = there & np.array([text == one for one in texts])
                self._leave(unknown, f"{column}={shown(text)} is unknown")
                there = there & ~unknown
        otherwise = next(iter(read.values()), 0)
        self._set(key, np.array([read.get(text, otherwise) for text in texts]), there)

    def _read_names(self) -> None:
        """Look up what the texts of a row stand for."""
        texts = {
            name: self._texts(name) for name in ("framework", "year", "source", "model", "interconnect_note")
        }
        dated = [
            f"{framework or source} {year or ' '.join(_YEAR.findall(source))}"
            for framework, year, source in zip(
                texts["framework"], texts["year"], texts["source"], strict=True
            )
        ]
        self.framework = self._named("frameworks", dated)
        self.family = self._named("families", texts["model"])
        self.origin = np.array([_REVISION.sub("", source)[:60] for source in texts["source"]], dtype=object)
        known = self.tables["networks"]
        networks = self._named("networks", texts["interconnect_note"])
        rates = [convert(_RATE, known[name]) if name else 0.0 for name in networks]
        self._set(_RATE, np.array(rates), networks != "")

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan as systems are, and say for which framework each row was taken; raises InputError."""
        said = {override.key_or_group: override.get_value_string() for override in parsed}
        rows = (said.get("framework", self._choices(row)["framework"]) for row in range(self.rows))
        self.library = np.array(list(rows), dtype=object)
        return super().plan(composer, overrides, parsed)

    def _choices(self, row: int) -> dict[str, str]:
        """Return the choice in each group that a row stands for."""
        frameworks, families = self.tables["frameworks"], self.tables["families"]
        unknown = "gpt3_175b" if self.ungated[row] else "transformer"
        return {
            "model": families.get(self.family[row], unknown), **super()._choices(row),
            "framework": frameworks.get(self.framework[row], "none"),
        }  # fmt: skip

    def adjusted(self, inputs: Columns, composed: Columns) -> Columns:
        """Return inputs of rows with what follows from the family and the job."""
        found = {_ZERO_KEY: np.ones(inputs["model.experts"].size, np.int64)} | inputs
        if "model.pattern" not in self.said:
            mixed = (inputs["model.experts"] > 1) & (composed["model.experts"] == 0)
            found["model.pattern"] = np.where(mixed, "experts", inputs["model.pattern"])
        return found

    def predict(self, grid: Grid, rows: Ints) -> Iterator[PredictedRows]:
        """Predict some rows; raises InputError."""
        yield from self.left_out(rows)
        for some, inputs in self.points(grid, rows[self.reason[rows] == ""]):
            _, results, _ = predict_points(inputs)
            weights = results.get("parameters", np.full(some.size, np.nan))  # of no row that has no time
            size = _BILLIONS[np.searchsorted(_BILLIONS, weights / 1e9, side="right") - 1]
            own = {"billions": np.where(np.isnan(weights), np.nan, size)}
            yield PredictedRows(some, results | own | self.about(some))

    def about(self, rows: Ints) -> Columns:
        """Return what rows were taken for."""
        return {
            "complete": self.complete[rows], "library": self.library[rows], "family": self.family[rows],
            "origin": self.origin[rows],
        }  # fmt: skip

    def notes_of_times(self) -> list[str]:
        """Say what was assumed."""
        unsaid = {
            "micro-batch": ~self._there("parallel.microbatch"),
            "recomputation": ~self._there(_RECOMPUTE),
            "data parallelism": ~self._there("parallel.zero"),
            "framework": self.framework == "", "family": self.family == "",
        }  # fmt: skip
        said = [f"{name} of {rows.sum():,}" for name, rows in unsaid.items() if rows.any()]
        whole = f"complete layouts: {self.complete.sum():,} of {self.rows:,} rows"
        return [
            whole,
            *([f"unsaid, by default (docs/validation.md): {', '.join(said)} rows"] if said else []),
        ]


def _strategy(tp: int, cp: int, ep: int, dp: int, pp: int, vp: int) -> str:
    """Write a layout in the notation of strategies."""
    return str(Strategy(TENSOR, tp=tp, cp=cp, ep=ep, dp=dp, lp=pp, chunks=vp))
