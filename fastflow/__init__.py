"""fastflow: predicts the time of one training iteration from technology, for a million points at a time."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import numpy as np
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from fastflow.api.notebook.frames import Chances, Points
    from fastflow.api.notebook.results import (
        Backtest,
        Calibration,
        FleetSearch,
        Search,
        Sensitivity,
        ServerCalibration,
        Validation,
    )
    from fastflow.core.errors import InputError

    __version__: str
    FilePath = str | os.PathLike[str]

__all__ = [
    "Backtest", "Calibration", "Chances", "FleetSearch", "InputError", "Points", "Search", "Sensitivity",
    "ServerCalibration", "Validation",
    "backtest", "calibrate", "clear_cache", "evaluate", "explain_memory", "explain_sharding", "fits",
    "predict_attention", "predict_collective", "predict_experts", "predict_gemm", "probability_better",
    "rank_strategies", "search", "sensitivity", "sweep", "validate",
]  # fmt: skip

__path__ = [*__path__, f"{__path__[0]}/cli/commands"]  # where `python -m fastflow.sweep` is a file


class _Package(ModuleType):
    """The package: `import fastflow.sweep` leaves `fastflow.sweep` the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package

# Everything heavy is imported when it is first used, so that `import fastflow` costs nothing.


def evaluate(*overrides: str, config_dir: FilePath | None = None, **choices: Any) -> pd.DataFrame:
    """Predict every point of a grid; returns one row per point, in the order of the grid.

    overrides: as on the command line, such as `"tech=n7"`, `"mem=hbm2,hbm3"`, `"model.batch=range(1,9)"` or
    `"+sweeps=fig09"`. config_dir: a folder with your own files, which add choices to any group. choices: the
    same as keywords, `evaluate(tech=["n7", "n5"], mem="hbm3", chip__tdp="300 W", sweeps="fig09")`: a list, a
    range or an array is an axis, two underscores are a dot. So do all functions that take overrides.

    The columns are those of `fastflow.schema.RESULTS`, and one for each swept key. Values are in SI units;
    `DataFrame.attrs["units"]` names them. An infeasible point is a row with its `reason`.
    Raises InputError for a key, a choice or a value that is not allowed.

    >>> df = fastflow.evaluate(tech=["n7", "n5"], mem="hbm3")
    >>> df["time_s"].round(2).tolist(), df.attrs["units"]["time_s"]
    ([1.42, 1.27], 's')
    """
    from fastflow.api.notebook.calls import evaluate

    return evaluate(*overrides, config_dir=config_dir, **choices)


def fits(*overrides: str, config_dir: FilePath | None = None, **choices: Any) -> pd.DataFrame:
    """Return on how few devices a model trains or serves, as given and in every way that saves memory.

    overrides, config_dir, choices: as for `evaluate`, of one point. `system.devices` and `parallel.strategy`
    are `auto` unless you set them: numbers of devices are tried from few to many, each with its best layout.

    Returns a row for every way, `as given` first: `overrides` of the way, `devices` (the least number whose
    layout fits), the layout (`strategy`, `zero`, `recompute`, ...), `footprint_B` of a device against
    `dram_offered_B` [B], `tokens_per_s` [1/s], and `relative_time`: the time of a token over that of the
    first way that fits; `relative_device_time` is this times the devices. `fits` says whether a number of
    devices fits, and `reason` why none does, or why a way does not apply. Raises InputError as `evaluate`
    does, and for several points.

    >>> table = fastflow.fits(model="llama3_8b", chip="h100_sxm", model__batch=16)
    >>> table.set_index("way").loc[["as given", "adapters (LoRA rank 16)"], "devices"].tolist()
    [2, 1]
    """
    from fastflow.api.notebook.calls import fits

    return fits(*overrides, config_dir=config_dir, **choices)


def probability_better(
    *overrides: str, objective: str = "time_s", config_dir: FilePath | None = None, **choices: Any
) -> pd.DataFrame:
    """Say how likely each point of a grid is better than each other, by what is uncertain of both.

    overrides: as for `evaluate`, of 2 to 512 points, under `uncertainty=on`. objective: a result column that
    has bands (docs/uncertainty.md). Returns a square frame: the chance that the point of the row is better
    than that of the column, both called as what is swept, or by number where nothing is. NaN on the
    diagonal, and for a point without this result; `DataFrame.attrs["reason"]` says why, a text for each
    point. Parameters that two points share are drawn alike for both. Raises InputError, also where no point
    has the result.

    >>> fastflow.probability_better(tech=["n7", "n5"], mem="hbm3").loc["n5"].round(1).tolist()
    [0.7, nan]
    """
    from fastflow.api.notebook.calls import probability_better

    return probability_better(*overrides, objective=objective, config_dir=config_dir, **choices)


def sweep(
    *overrides: str, output: FilePath | None = None, config_dir: FilePath | None = None, **choices: Any
) -> Path | str:
    """Predict every point of a grid and write a Parquet dataset; returns its folder, or its URL.

    The same as `evaluate`, for as many points as fit the disk: `pandas.read_parquet(folder)` reads
    all of them. output: the folder, or any fsspec URL; the default is a folder under `outputs/` with date and
    time. If the folder holds a part of the same dataset, the call resumes it. Raises InputError as
    `evaluate` does, and if the folder holds anything else.

    >>> folder = fastflow.sweep(tech=["n7", "n5"], mem="hbm3", output="results")
    >>> pd.read_parquet(folder)["tech"].tolist()
    ['n7', 'n5']
    """
    from fastflow.api.notebook.calls import sweep

    return sweep(*overrides, output=output, config_dir=config_dir, **choices)


def predict_gemm(
    m: ArrayLike, k: ArrayLike, n: ArrayLike, chip: str = "a100", dtype: str = "fp16", batch: ArrayLike = 1
) -> NDArray[np.float64]:
    """Predict the time of matrix products C[m, n] = A[m, k] B[k, n] on one chip [s].

    m, k, n, batch: whole numbers, or arrays of equal length, shape (products,); batch is the number of
    independent products in one launch. chip: a chip of the library, such as `"a100"`; dtype: a data type
    that it has, such as `"fp16"` or `"fp8"`, whose time includes quantising A
    (docs/model_workloads.md). Returns an array of shape (products,), or a zero-dimensional array for single
    numbers. Raises InputError for an unknown chip or data type, or a size below 1.

    >>> fastflow.predict_gemm([1024, 4096], 4096, 4096, chip="a100").round(6)
    array([0.000181, 0.000584])
    """
    from fastflow.api.functions import predict_gemm

    return predict_gemm(m, k, n, chip, dtype, batch)


def predict_attention(
    batch: ArrayLike, q_len: ArrayLike, kv_len: ArrayLike, heads: ArrayLike, kv_heads: ArrayLike,
    head_dim: ArrayLike = 128, window: ArrayLike = 0, chip: str = "a100", dtype: str = "bf16",
    kv_dtype: str = "operand", phase: str | None = None, causal: bool = True,
) -> NDArray[np.float64]:  # fmt: skip
    """Predict the time of fused attention on one chip, with what a layer runs beside it [s].

    batch: sequences; q_len: queries of each; kv_len: keys, with the queries' own; heads, kv_heads: those
    of queries, and of keys; head_dim: columns of a head; window: keys that a query sees, 0 for all. These are
    whole numbers, or arrays of equal length, shape (kernels,). kv_dtype: the data type of the cache, such as
    `"fp8"`. phase: `"prefill"` or `"decode"`; by default decode where there are at most 16 queries and more
    keys. Returns an array of shape (kernels,), or a zero-dimensional array for single numbers. Raises
    InputError as `predict_gemm` does.

    >>> fastflow.predict_attention(64, 1, [4096, 8192], 32, 8, chip="h100_sxm").round(6)
    array([0.000361, 0.000712])
    """
    from fastflow.api.functions import predict_attention

    return predict_attention(
        batch, q_len, kv_len, heads, kv_heads, head_dim, window, chip, dtype, kv_dtype, phase, causal
    )


def predict_experts(
    tokens: ArrayLike, hidden: ArrayLike, ffn: ArrayLike, experts: ArrayLike, topk: ArrayLike,
    tp: ArrayLike = 1, ep: ArrayLike = 1, power_law: ArrayLike = 0.0, chip: str = "a100", dtype: str = "bf16",
) -> NDArray[np.float64]:  # fmt: skip
    """Predict the time of expert layers on one of the tp x ep chips that share each [s].

    tokens: of all chips; hidden: columns of a token; ffn: of an expert's gate; topk: experts that a token
    chooses; power_law: the exponent of the experts' loads, 0 for even ones. Numbers, or arrays of equal
    length, shape (layers,). What is sent between chips is left out. Returns an array of shape (layers,), or a
    zero-dimensional array for single numbers. Raises InputError as `predict_gemm` does.

    >>> fastflow.predict_experts([64, 4096], 2048, 768, 128, 8, ep=8, chip="h100_sxm").round(6)
    array([7.70e-05, 1.51e-04])
    """
    from fastflow.api.functions import predict_experts

    return predict_experts(tokens, hidden, ffn, experts, topk, tp, ep, power_law, chip, dtype)


def predict_collective(
    collective: str, size: ArrayLike, ranks: ArrayLike, *overrides: str
) -> NDArray[np.float64]:
    """Predict the time of collectives among neighbouring devices of one system [s].

    collective: `"all-reduce"`, `"reduce-scatter"`, `"all-gather"`, `"all-to-all"`, `"broadcast"` or
    `"point-to-point"`. size: bytes of the whole tensor, or for an all-to-all the bytes that one device sends;
    ranks: number of devices; both are single numbers or arrays of one shape. overrides: the system, such as
    `"system=dgx_a100"`, or `"system=torus"` with `"tech=n7"`. Returns an array of that shape.
    Raises InputError for an unknown collective or system, or a value that is not allowed.

    >>> fastflow.predict_collective("all-reduce", [1e6, 1e9], 8, "system=dgx_a100").round(6)
    array([4.000e-05, 7.692e-03])
    """
    from fastflow.api.functions import predict_collective

    return predict_collective(collective, size, ranks, overrides)


def explain_sharding(
    *overrides: str, config_dir: str | os.PathLike[str] | None = None, **choices: Any
) -> pd.DataFrame:
    """Return how one point's kernels are laid out over its devices; one row per kernel, in order.

    `reads`, `weights` and `makes` are layouts along each axis of the mesh that has several devices, in the
    notation of OneFlow and GSPMD, such as `"kp2: S(cols), dp: S(batch)"`. S: split in a dimension, which is a
    side of the kernel (rows, inner, cols) unless the network names it. B: every device has all of it. P: each
    device has a partial sum. `makes` is the result before the exchange. A weight gradient reads
    `"input | gradient of the output"`.

    `exchange` says in words what follows. Its numbers are in groups of columns: `sync` (after every launch,
    and waited for; `sync2` where a kernel has two), `relayout` (the same, to a layer with another cut),
    `gradient` (of the weights, once an iteration) and `send` (to the neighbouring stage, after every launch).
    Each group has `_B`, the bytes of the whole tensor as a device holds it before or after the exchange [B];
    `_ranks`, the number of devices that exchange; and `_group`, their axes. `type` is product, batched
    product, lookup, elementwise, rowwise or update; `repeat` is the number of launches in an iteration;
    `layer` and `stage` count from 0.

    Raises InputError as `evaluate` does, if the overrides make several points, and if the point has no time.

    >>> layout = fastflow.explain_sharding("parallel.strategy=RC-2-8-d32")
    >>> layout.loc[1, ["kernel", "weights"]].tolist()
    ['lstm cell', 'kp1: B, kp2: S(gates), dp: B']
    """
    from fastflow.api.functions import explain_sharding

    return explain_sharding(*overrides, config_dir=config_dir, **choices)


def explain_memory(*overrides: str, config_dir: FilePath | None = None, **choices: Any) -> pd.DataFrame:
    """Return what one device has allocated over an iteration of a point; one row per step, in order.

    The device is one of the pipeline stage with the largest footprint (`attrs["stage"]`). Each number is the
    most during the step [B]: `weight_B`, `gradient_B`, `optimizer_B`, `activation_B`, `recomputed_B` (the
    largest recomputed layer), `loss_B` (logits, or their gradients), `buffer_B` (full copies of sharded
    tensors, gradients before their sum; at the peak, the three are `buffer_B` of `evaluate`), `workspace_B`,
    and the sum `allocated_B`. Its largest value is that of `evaluate`: in the row with `is_peak`, which
    `attrs["peak"]` names. `step` says in words what `phase`, `microbatch` and `chunk` say; all count from 0,
    and -1 is none. `start_s` and `end_s` are times [s], NaN for models without layer runs, such as LSTMs.

    A point that serves has three rows without times: at rest, with the mean KV cache, and with a full one.
    Columns: `weight_B`, `workspace_B`, `library_B`, `graph_B`, `communicator_B`, `context_B`, `kv_B`, and
    their sum `footprint_B`. Raises InputError as `explain_sharding` does.

    >>> steps = fastflow.explain_memory("model=llama3_8b", "system=dgx_h100", "parallel.strategy=d8")
    >>> steps.loc[steps.is_peak, "step"].tolist()
    ['backward pass of micro-batch 0, layers 31 to 0']
    """
    from fastflow.api.functions import explain_memory

    return explain_memory(*overrides, config_dir=config_dir, **choices)


def rank_strategies(*overrides: str, config_dir: FilePath | None = None, **choices: Any) -> pd.DataFrame:
    """Predict one point under every strategy for its devices; returns one row per strategy, the best first.

    Strategies that fit the memory come first; both groups are sorted by time. The columns are those of
    `evaluate`. Raises InputError as `evaluate` does, and if the overrides make several points.

    >>> fastflow.rank_strategies(tech="n7", mem="hbm3")["strategy"].head(2).tolist()
    ['RC-1-16-d32', 'RC-2-16-d16']
    """
    from fastflow.api.notebook.calls import rank_strategies

    return rank_strategies(*overrides, config_dir=config_dir, **choices)


def search(
    *overrides: str, output: FilePath | None = None, config_dir: FilePath | None = None, **choices: Any
) -> Search | FleetSearch:
    """Search for the best breakdown of area, power and die edge for the points of a grid (section 7).

    With `"serve.trace=FILE"` on chips that exist, the search is for the best fleet among the points of a grid
    (docs/fleets.md): `"objective=usd_per_h"`, `"constraints=ttft_p99_s<1 s, tpot_p50_s<50 ms"`,
    `"pareto=ttft_p99_s"`, `"plan=1 h"`. It returns a `FleetSearch`.

    overrides: as for `evaluate`, and `"method=gradient"`, `"starts=10"`, `"steps=100"`, `"seed=0"`,
    `"objective=energy"`, `"pareto=energy"`, `"compare=all"`, `"tolerance=0.01"`. With
    `"parallel.strategy=auto"` all strategies compete by successive halving. output: a folder for the history;
    the same call with the same folder resumes the search.

    Returns the best design, the ranking of candidates, the history, the chips, and the ranges of shares
    within the tolerance of the best objective. Raises InputError as `evaluate` does.

    >>> found = fastflow.search(tech="n7", mem="hbm3", parallel__strategy="RC-1-16-d32", steps=5)
    >>> print(round(found.best["gain"], 2))  # times as fast as the chip was
    1.28
    """
    from fastflow.api.notebook.calls import search

    return search(*overrides, output=output, config_dir=config_dir, **choices)


def validate(
    *overrides: str, output: FilePath | None = None, config_dir: FilePath | None = None, **choices: Any
) -> Validation:
    """Predict every row of a CSV file of measurements, and compute the errors of the predictions.

    overrides: `"measurements=FILE.csv"`, the measured chip or system, such as `"chip=a100"`, and all
    overrides of `evaluate`. The columns of the file decide its kind: GEMMs, attention, latent attention,
    expert layers, recurrent layers, operators, collectives or whole iterations (docs/measurements.md).
    output: a folder for the rows; a second folder beside it holds the errors.

    Returns the rows with their predictions, and the errors by size, limiter and category.
    Raises InputError as `evaluate` does, and for a wrong value in the file, with its line.

    >>> sizes = {"m": [1024, 4096], "k": 4096, "n": 4096, "time_s": [0.00015, 0.0006]}
    >>> pd.DataFrame(sizes).to_csv("measured.csv", index=False)
    >>> found = fastflow.validate(measurements="measured.csv", chip="a100")
    >>> found.errors["mean_error"].head(1).round(3).tolist()
    [0.116]
    """
    from fastflow.api.notebook.calls import validate

    return validate(*overrides, output=output, config_dir=config_dir, **choices)


def sensitivity(
    *overrides: str, output: FilePath | None = None, config_dir: FilePath | None = None, **choices: Any
) -> Sensitivity:
    """Say which parameters of technology, chip and system a result of one point hangs on.

    overrides: those of `evaluate`, for one point; `"objective=energy_J"`, any numeric result column;
    `"sensitivity.step=0.05"`, `"sensitivity.strategy=fixed"`; `"sensitivity.samples=65536"` for Sobol's
    indices. output: a folder for the rows.

    Returns a row for every parameter, ranked by its elasticity: the relative change of the result for one of
    the parameter, for less and for more of it, and why both differ (docs/sensitivity.md).
    Raises InputError as `evaluate` does, and where the point has no such result.

    >>> found = fastflow.sensitivity(tech="n7", mem="hbm3", output="ranked")
    >>> pd.read_parquet("ranked")["elasticity"].head(2).round(2).tolist()
    [-1.34, 1.33]
    """
    from fastflow.api.notebook.calls import sensitivity

    return sensitivity(*overrides, output=output, config_dir=config_dir, **choices)


def backtest(
    *overrides: str, output: FilePath | None = None, config_dir: FilePath | None = None, **choices: Any
) -> Backtest:
    """Try the generator on chips that exist: make each from its budgets, and hold it against the real one.

    overrides: those of `evaluate`, which hold for every chip, and keys of conf/backtest.yaml, such as
    `"backtest.measurements=FOLDER"`. output: a folder for the chips; two more beside it hold gains and files.

    Returns the chips' quantities, the gains of generations, and errors and gains on files of measurements.
    Raises InputError as `evaluate` does, and for a chip or folder that is not there.

    >>> found = fastflow.backtest()
    >>> found.gains["workload"].nunique()
    5
    """
    from fastflow.api.notebook.calls import backtest

    return backtest(*overrides, output=output, config_dir=config_dir, **choices)


def calibrate(
    *overrides: str, output: FilePath | None = None, config_dir: FilePath | None = None, **choices: Any
) -> Calibration | ServerCalibration:
    """Fit a chip to CSV files of measurements, or a server to outputs of benchmarks, by robust least squares.

    overrides: `"measurements=FILE.csv"`, or several files as `"measurements=A.csv,B.csv"`, the measured chip,
    such as `"chip=a100"`, and all overrides of `validate`. `"fit=utilization,dram_utilization"` selects the
    scalars (docs/calibration.md); the default is those that the rows depend on, six at most. output: the chip
    file to write, such as `"mine.yaml"`, for use as `"chip=mine.yaml"`.

    A fifth of the rows is held back. Returns the scalars before and after with their standard errors, the
    mean relative errors on both sets of rows, and the chip file as a text.

    `"requests=RESULT.json"` (or several files, each of `vllm bench serve` or `sglang.bench_serving`) and
    `"server=vllm"` fit the host of a server instead (docs/serving.md#your-own-server). The same requests are
    sent to the simulated server before and after. Returns a `ServerCalibration`, with the server's file.

    Raises InputError as `validate` does, for an unknown scalar, for fewer than five rows per scalar, and for
    a file that no benchmark writes.

    >>> gemms = pd.DataFrame({"m": [512, 1024, 2048, 4096, 8192, 16384], "k": 4096, "n": 4096})
    >>> gemms["time_s"] = 1.1 * fastflow.predict_gemm(gemms["m"], 4096, 4096, chip="a100")
    >>> gemms.to_csv("gemms.csv", index=False)
    >>> fitted = fastflow.calibrate(measurements="gemms.csv", chip="a100", fit="utilization")
    >>> fitted.errors["after"].lt(fitted.errors["before"]).tolist()
    [True, True]
    """
    from fastflow.api.notebook.calls import calibrate

    return calibrate(*overrides, output=output, config_dir=config_dir, **choices)


def clear_cache() -> None:
    """Remove the compiled kernels that are kept on disk, of all versions of fastflow; the next call compiles.

    They lie in the folder that the variable FASTFLOW_CACHE names, else in the user's cache folder.

    >>> fastflow.clear_cache()
    """
    from fastflow.core.jit import cache

    cache.clear()


def load_ipython_extension(shell: Any) -> None:
    """Have IPython complete arguments of these functions: `%load_ext fastflow`, or an import in IPython."""
    from fastflow.api.notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Have IPython complete them no more, as `%unload_ext fastflow` does."""
    from fastflow.api.notebook.extension import unload

    unload(shell)


def _attribute(name: str) -> Any:
    from fastflow.api.attributes import attribute

    return attribute(name, globals())


if not TYPE_CHECKING:  # a type checker knows these from above, and that there are no others
    __getattr__ = _attribute


def _meet_ipython() -> None:
    """Load the extension where IPython runs this."""
    if (shell := getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()) is not None:
        load_ipython_extension(shell)


_meet_ipython()
