"""Energy of training runs: whole nodes, at the plug or behind their power supplies (MLPerf Training Power).

A row is a run of a benchmark to its target: so many samples, in so many seconds. The tables `benchmarks`,
`layouts`, `lengths`, `evaluations` and `examples` of conf/measurement_files.yaml say what a benchmark is: its
model, how it is laid out, how many tokens of a sample are no padding, and how often the model is evaluated on
how many examples. Benchmarks with "lora" in their names train adapters alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import listed
from fastflow.analysis.measurements.kind import Options, QuantityColumn, TimedRows, register
from fastflow.analysis.measurements.predict import PredictedRows, results_of_rows
from fastflow.analysis.measurements.system_runs import SystemRuns
from fastflow.core.tables import Bools, Columns, Floats, Ints
from fastflow.physics.parallelism.strategy import TENSOR, Strategy, parse
from fastflow.physics.workload.models.transformer.published import KEY as DTYPE
from fastflow.schema.quantities import ENERGY, POWER

_ADAPTERS = "lora"  # in the name of a benchmark
_BEHIND = "dc"  # first letters of a kind of power that was measured behind the power supplies
_STRATEGY, _SEQUENCE, _BATCH = "parallel.strategy", "model.sequence", "model.batch"
FROZEN_FORWARDS = 1.5
"""Forward passes of a step of a model with frozen weights, since a device recomputes a part of its
activations, and computes the adapters of its weights. Calibrated: steps on 8 and 64 H100 take 2.35 and 2.1
times as long as a forward pass (training_mlperf.csv, mlcommons/training_results v4.0)."""
FORWARD_SHARE = 1.0 / 3.0
"""Share of a forward pass in an iteration of a pipeline: a backward pass has two products for one."""
FROZEN_BACKWARD = 0.5
"""Share of a backward pass without gradients of weights: one product of two (Hu et al., LoRA,
arXiv:2106.09685, whose own weights take no time beside it)."""
SKIPPED_OF_BATCH, SKIPPED = 0.125, 2.0
"""First evaluations that runs with adapters leave out: a share of the batch, and two more (MLPerf Training
4.0, rules of llama2_70b_lora)."""


def _machine_energy(results: Columns) -> Floats:
    energy: Floats = results["machine_J"]
    return energy


@register
class TrainingEnergy(SystemRuns):
    """Runs of benchmarks, with the power and the energy of their nodes."""

    name = "energy of training runs"
    needed = ("benchmark", "run_s", "samples", "global_batch", "power_kind")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {
        "devices": "system.devices", "global_batch": _BATCH, "seq": _SEQUENCE,
    }  # fmt: skip
    keys_of_columns: ClassVar[Mapping[str, str]] = {"benchmark": _STRATEGY}
    other_columns = ("samples", "power_kind", "nodes", "source", "round", *keys_of_columns)
    times: ClassVar[Mapping[str, str]] = {"run_s": ""}
    quantities: ClassVar[Mapping[str, QuantityColumn]] = {
        "node_power_per_gpu_training_W": QuantityColumn(POWER, lambda results: results["machine_W"]),
        "energy_MJ": QuantityColumn(ENERGY, _machine_energy, scale=1e6),
    }
    naming_keys = ("benchmark", "device", "devices", "strategy", "power_kind")
    error_groups = ("benchmark", "power_kind")
    section = "training"
    alias_tables = ("devices", "benchmarks", "layouts", "lengths", "evaluations", "examples")
    groups = ("model",)
    not_fitted = "a file of kernels; the energy of a training run depends on a whole system"

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read every row; raises InputError for a cell that cannot be read."""
        super().__init__(rows, options)
        self.benchmark = self._match_names("benchmarks", self._cells("benchmark"))
        unknown: Bools = (self.benchmark == "") & ~self.has_model
        self._skip_unknown("benchmark", unknown, "benchmarks", "MODEL", "model")
        self.samples = self.file.numbers("samples")
        self.file.refuse("samples", ~(self.samples > 0.0), "a number of samples above 0")
        self.is_behind: Bools = np.array(
            [cell.lower().startswith(_BEHIND) for cell in self._cells("power_kind")], dtype=np.bool_
        )
        """Whether a row's meter is behind the power supplies."""
        self.is_frozen: Bools = np.array(
            [_ADAPTERS in cell.lower() for cell in self._cells("benchmark")], dtype=np.bool_
        )
        """Whether a row's own weights are adapters, beside frozen weights."""
        self._set_input(DTYPE, np.full(self.rows, "fp8"))
        self._read_lengths()
        self.evaluating: Floats = self._evaluation_passes()
        """Forward passes of a row's batch in all of its evaluations."""
        self._read_layout()

    def _read_lengths(self) -> None:
        """Set the tokens of a sample that are computed, and positions for all of its tokens."""
        stated = self._values(_SEQUENCE)
        known = self._numbers_of_benchmarks("lengths")
        lengths = np.where(known > 0.0, known, stated).astype(np.int64)
        self._set_input(_SEQUENCE, lengths, lengths > 0)
        tokens = np.maximum(self._values(_SEQUENCE), stated)
        self._set_input("model.positions", tokens, tokens > 0)

    def _numbers_of_benchmarks(self, table: str) -> Floats:
        """Return a table's number for every row's benchmark, 0 without one."""
        names = self._match_names(table, self._cells("benchmark"))
        return np.array([float(self.tables[table].get(name, 0)) for name in names])

    def _evaluation_passes(self) -> Floats:
        """Return the forward passes of a row's batch in all of its evaluations, (rows,)."""
        every, examples = self._numbers_of_benchmarks("evaluations"), self._numbers_of_benchmarks("examples")
        batch, evaluations = self._values(_BATCH), np.zeros(self.rows)
        np.divide(self.samples, every, out=evaluations, where=every > 0.0)
        skipped = np.where(self.is_frozen, np.floor(SKIPPED_OF_BATCH * batch + SKIPPED), 0.0)
        passes = np.ceil(examples / np.maximum(batch, 1))
        total: Floats = np.maximum(np.floor(evaluations) - skipped, 0.0) * passes
        return total

    def _read_layout(self) -> None:
        """Set the strategy: the benchmark's degrees, and context parallelism beyond its batch.

        Replicas of frozen weights exchange nothing to speak of: one of them is predicted.
        """
        devices, batch = self._values("system.devices"), self._values(_BATCH)
        names = self._match_names("layouts", self._cells("benchmark"))
        layouts = [parse(self.tables["layouts"].get(name, "TP-1")) for name in names]
        laid_out = [_laid_out(*row) for row in zip(layouts, devices.tolist(), batch.tolist(), strict=True)]
        self._skip_rows(
            np.array([each is None for each in laid_out]), "its layout does not divide its devices", _STRATEGY
        )
        whole = [each or Strategy(TENSOR, dp=1) for each in laid_out]
        self.replicas: Ints = np.where(self.is_frozen, [each.dp for each in whole], 1)
        """Replicas of a row's prediction that the run has."""
        self.is_pipeline: Bools = np.array([each.pp > 1 for each in whole])
        of_row = zip(whole, self.replicas.tolist(), strict=True)
        texts = [str(each._replace(dp=each.dp // replicas)) for each, replicas in of_row]
        self._set_input(_STRATEGY, np.array(texts))
        self._set_input("system.devices", devices // self.replicas)
        self._set_input(_BATCH, np.maximum(batch // self.replicas, 1))

    def _choices(self, row: int) -> dict[str, str]:
        """Return the choice of a row in each group."""
        models = self.tables["benchmarks"]
        return {"model": models.get(self.benchmark[row], ""), **super()._choices(row)}

    def predict_batch(self, rows: Ints, inputs: Columns) -> PredictedRows:
        """Predict rows; raises InputError. Powers are those where a row's meter is."""
        results = results_of_rows(inputs)
        replicas = self.replicas[rows]
        iterations = self.samples[rows] / (replicas * inputs[_BATCH])
        passes = results["time_s"] - results["update_s"]
        in_turn = results["microbatches"] * results["forward_s"]
        forward = np.where(self.is_pipeline[rows], FORWARD_SHARE * passes, in_turn)
        step = FROZEN_FORWARDS * forward + FROZEN_BACKWARD * (passes - forward)
        trained = np.where(self.is_frozen[rows], step, results["time_s"]) * iterations
        seconds = trained + self.evaluating[rows] * forward
        metered = np.where(self.is_behind[rows], inputs["power.conversion_efficiency"], 1.0)
        results |= {
            "time_s": seconds,
            "machine_W": results["machine_W"] * metered,
            "machine_J": replicas * results["machine_J"] * metered * seconds / results["time_s"],
        }
        return PredictedRows(rows, results)

    def notes_of_times(self) -> list[str]:
        """Return a note on what is assumed of benchmarks."""
        frozen = sorted(
            {name for name, is_frozen in zip(self.benchmark, self.is_frozen, strict=True) if is_frozen}
        )
        notes = ["assumed: fp8, and layouts of conf/measurement_files.yaml"]
        return [*notes, *([f"weights are frozen: {listed(frozen)}"] if frozen else [])]


def _laid_out(layout: Strategy, devices: int, batch: int) -> Strategy | None:
    """Return a layout on some devices, None where it does not divide them."""
    of_model = layout.tp * layout.pp
    context = max(1, devices // (of_model * max(batch, 1)))
    ranks, left = divmod(devices, of_model * context)
    return None if left or not ranks else layout._replace(cp=context, dp=ranks)
