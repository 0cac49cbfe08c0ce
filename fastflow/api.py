"""What `fastflow.evaluate` and `fastflow.sweep` do, and what the command line shares with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastflow.configuration.composer import Composer
from fastflow.configuration.library import hydra_rules
from fastflow.errors import CompositionError, InputError
from fastflow.grid.grid import Share
from fastflow.grid.plan import plan
from fastflow.grid.run import explaining, refuse_others

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray


def evaluate(*overrides: str, config_dir: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Predict the points that overrides span; see `fastflow.evaluate`."""
    from fastflow.dataset.schema import to_frame
    from fastflow.evaluation.execute import collect

    with hydra_rules():
        composer = Composer.of_library(config_dir)
        run = plan(composer, overrides)
        refuse_others(run)
        with explaining(composer, run):
            return to_frame(collect(run))


def sweep(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
) -> Path | str:
    """Predict the points that overrides span into a Parquet dataset; see `fastflow.sweep`."""
    from fastflow.dataset.folder import is_url
    from fastflow.evaluation.execute import store

    with hydra_rules():
        composer = Composer.of_library(config_dir)
        run = plan(composer, overrides)
        refuse_others(run)
        target = run.output if output is None else output
        with explaining(composer, run):
            store(run, target)
    return str(target) if is_url(target) else Path(target)


def rank_strategies(*overrides: str, config_dir: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Predict a point under every strategy; see `fastflow.rank_strategies`."""
    from fastflow.dataset.schema import to_frame
    from fastflow.evaluation.execute import collect
    from fastflow.evaluation.ranking import ranking_of

    with hydra_rules():
        composer = Composer.of_library(config_dir)
        run = plan(composer, overrides)
        refuse_others(run)
        with explaining(composer, run):
            return to_frame(collect(ranking_of(composer, overrides, run)))


def predict_collective(
    collective: str, size: ArrayLike, ranks: ArrayLike, overrides: tuple[str, ...]
) -> NDArray[np.float64]:
    """Predict collectives on one system; see `fastflow.predict_collective`."""
    from fastflow import crossflow
    from fastflow.workload.graph import COLLECTIVES

    if collective not in COLLECTIVES[1:]:
        raise InputError("collective", collective, "one of " + ", ".join(COLLECTIVES[1:]))
    try:
        sizes, among = np.broadcast_arrays(np.asarray(size, dtype=np.float64), np.asarray(ranks))
    except ValueError:
        shapes = f"{np.shape(size)} and {np.shape(ranks)}"
        raise InputError("size and ranks", shapes, "numbers, or arrays of one shape") from None
    with hydra_rules():
        run = plan(Composer.of_library(), overrides)
    inputs = run.grid.first_inputs()
    most = int(inputs["system.devices"][0])
    for key, column, wrong, allowed in (
        ("size", sizes, ~(sizes >= 0.0), "a number of bytes that is at least 0"),
        (
            "ranks",
            among,
            (among < 1) | (among > most) | (among != np.floor(among)),
            f"a number of devices from 1 to {most}",
        ),
    ):
        if wrong.any():
            raise InputError(key, column[wrong][0], allowed)
    time = crossflow.time_collectives(
        inputs, COLLECTIVES.index(collective), sizes.ravel(), among.astype(np.int64).ravel()
    )
    return time.reshape(sizes.shape)


def predict_gemm(
    m: ArrayLike, k: ArrayLike, n: ArrayLike, chip: str, dtype: str, batch: ArrayLike
) -> NDArray[np.float64]:
    """Predict matrix products on one chip; see `fastflow.predict_gemm`."""
    from fastflow import crossflow

    given = {"model.m": m, "model.k": k, "model.n": n, "model.batch": batch}
    sizes = dict(zip(given, np.broadcast_arrays(*map(np.asarray, given.values())), strict=True))
    for key, column in sizes.items():
        if column.ndim > 1:
            raise InputError(
                key, f"an array of {column.ndim} dimensions", "a number or a one-dimensional array"
            )
        wrong = column[(column < 1) | (column != np.floor(column))]
        if wrong.size:
            raise InputError(key, wrong[0], "a whole number at least 1")
    with hydra_rules():
        run = plan(Composer.of_library(), ("model=gemm", f"chip={chip}", f"model.dtype={dtype}"))
    if sizes["model.m"].size == 0:
        return np.zeros(0)
    first = Share(run.grid.blocks[0], 0, np.zeros(sizes["model.m"].size, dtype=np.int64))
    inputs = run.grid.inputs(first) | {
        key: np.array(column, dtype=np.int64).ravel() for key, column in sizes.items()
    }
    prediction = crossflow.predict(inputs)
    if prediction.timed.size < first.points.size:
        raise CompositionError(f"no time can be predicted: {prediction.reason[0]}")
    return prediction.timeline.total.reshape(sizes["model.m"].shape)
