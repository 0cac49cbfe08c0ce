"""fastflow: from a technology to the time of one training iteration, a million points at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import numpy as np
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from fastflow.explore.api import Search
    from fastflow.measured.calibrate import Calibration
    from fastflow.measured.validate import Validation

__all__ = [
    "InputError", "calibrate", "evaluate", "predict_collective", "predict_gemm", "rank_strategies", "search",
    "sweep", "validate",
]  # fmt: skip

# Everything heavy is imported when it is first used, so that `import fastflow` costs nothing.


def evaluate(*overrides: str, config_dir: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Predict every point that the overrides span; one row a point, in written order.

    overrides: as on the command line, `"tech=n7"`, `"mem=hbm2,hbm3"`, `"model.batch=range(1,9)"`,
    `"+sweeps=fig09"`. config_dir: a folder of your own files, which add to any group.

    Columns are those of `fastflow.columns.RESULTS`, in SI units, which `DataFrame.attrs["units"]`
    names, and one for each swept leaf. An infeasible point is a row with its `reason`.
    Raises InputError for a key, a choice or a value that is not allowed.
    """
    from fastflow.configuration.given import check_call

    check_call(overrides, None, config_dir)
    from fastflow.api import evaluate

    return evaluate(*overrides, config_dir=config_dir)


def sweep(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
) -> Path | str:
    """Predict every point that the overrides span into a Parquet dataset; returns its folder, or its URL.

    The same as `evaluate`, for as many points as fit the disk: `pandas.read_parquet(folder)` reads
    all of them. output: the folder, by default one named by date and time under `outputs/`, or any fsspec
    URL. One that holds part of this very dataset is completed; one that holds anything else is refused with
    InputError.
    """
    from fastflow.configuration.given import check_call

    check_call(overrides, output, config_dir)
    from fastflow.api import sweep

    return sweep(*overrides, output=output, config_dir=config_dir)


def predict_gemm(
    m: ArrayLike, k: ArrayLike, n: ArrayLike, chip: str = "a100", dtype: str = "fp16", batch: ArrayLike = 1
) -> NDArray[np.float64]:
    """Predict the time of matrix products C[m, n] = A[m, k] B[k, n] on one chip [s].

    m, k, n, batch: whole numbers, or arrays of one length, shape (products,); batch counts independent
    products in one launch. chip: of the library, as `"a100"`; dtype: `"fp16"`, `"bf16"` or `"fp32"`.
    Returns an array of shape (products,), or of no dimension for single numbers.
    Raises InputError for a chip or data type that is not there, or a size below 1.
    """
    from fastflow.api import predict_gemm

    return predict_gemm(m, k, n, chip, dtype, batch)


def predict_collective(
    collective: str, size: ArrayLike, ranks: ArrayLike, *overrides: str
) -> NDArray[np.float64]:
    """Predict the time of collectives among neighbouring devices of one system [s].

    collective: `"all-reduce"`, `"reduce-scatter"`, `"all-gather"`, `"all-to-all"`, `"broadcast"` or
    `"point-to-point"`. size: bytes of the whole tensor, of an all-to-all those that one device deals out;
    ranks: how many devices take part; single numbers or arrays of one shape. overrides: the system, as
    `"system=dgx_a100"` or `"system=torus"`, `"tech=n7"`. Returns an array of that shape.
    Raises InputError for what is not there or cannot be.
    """
    from fastflow.api import predict_collective

    return predict_collective(collective, size, ranks, overrides)


def rank_strategies(*overrides: str, config_dir: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Predict one point under every strategy for its devices; a row a strategy, the best first.

    Those that fit the memory come before those that do not, each by time. Columns are those of
    `evaluate`. Raises InputError as `evaluate` does, and where the overrides span several points.
    """
    from fastflow.configuration.given import check_call

    check_call(overrides, None, config_dir)
    from fastflow.api import rank_strategies

    return rank_strategies(*overrides, config_dir=config_dir)


def search(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
) -> Search:
    """Search the best breakdown of area, power and die edge for the points that overrides span (section 7).

    overrides: as for `evaluate`, and `"method=gradient"`, `"starts=10"`, `"steps=100"`, `"seed=0"`,
    `"objective=energy"`, `"pareto=energy"`, `"compete=all"`. With `"parallel.strategy=auto"` all strategies
    compete by successive halving. output: a folder for the history; the same call with the same folder goes
    on from there.

    Returns the best design, the ranking of candidates, the history and the chips.
    Raises InputError as `evaluate` does.
    """
    from fastflow.configuration.given import check_call

    check_call(overrides, output, config_dir)
    from fastflow.explore.api import search

    return search(*overrides, output=output, config_dir=config_dir)


def validate(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
) -> Validation:
    """Predict every row of a CSV file of measurements, and say how far off the predictions are.

    overrides: `"measurements=FILE.csv"`, the chip or the system that was measured, as `"chip=a100"`, and
    whatever else `evaluate` takes. The columns of the file say what it holds: GEMMs, recurrent layers,
    operators, collectives or whole iterations (docs/validation.md). output: a folder for the rows; beside it
    lies one with the errors.

    Returns the rows with what was predicted of each, and the errors of all, by size, limiter and category.
    Raises InputError as `evaluate` does, and for what the file may not say, with its line.
    """
    from fastflow.configuration.given import check_call

    check_call(overrides, output, config_dir)
    from fastflow.measured.validate import validate

    return validate(*overrides, output=output, config_dir=config_dir)


def calibrate(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
) -> Calibration:
    """Fit the few physical scalars of a chip to a CSV file of measurements, by robust least squares.

    overrides: `"measurements=FILE.csv"`, or several as `"measurements=A.csv,B.csv"`, the chip that was
    measured, as `"chip=a100"`, and whatever else `validate` takes; `"fit=utilization,dram_utilization"` says
    which scalars (docs/calibration.md), by default those that the rows depend on, six at most. output: a chip
    file to write, `"mine.yaml"`, which `"chip=mine.yaml"` then accepts.

    A fifth of the rows is held back. Returns the scalars before and after with their standard errors, the
    mean relative errors on both sets of rows, and the chip file as a text.
    Raises InputError as `validate` does, for a scalar that is none, and for fewer than five rows a scalar.
    """
    from fastflow.configuration.given import check_call

    check_call(overrides, output, config_dir)
    from fastflow.measured.calibrate import calibrate

    return calibrate(*overrides, output=output, config_dir=config_dir)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from fastflow.version import version

        return version()
    if name == "InputError":
        from fastflow.errors import InputError

        return InputError
    raise AttributeError(f"module 'fastflow' has no attribute {name!r}")
