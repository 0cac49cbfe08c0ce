"""What `fastflow.evaluate` and `fastflow.sweep` do, and what the command line shares with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

import fastflow
from fastflow.engine.config import Composer
from fastflow.engine.library import hydra_rules
from fastflow.engine.plan import Study, plan
from fastflow.engine.runner import Table, run
from fastflow.errors import CompositionError, InputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray


class Watcher(Protocol):
    """Somebody who wants to see results as they come."""

    def __call__(self, table: Table) -> None:
        """Take the next chunk of results, in point order."""


def evaluate(*overrides: str, config_dir: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Predict the points that overrides span; see `fastflow.evaluate`."""
    from fastflow.engine.store import schema_of, to_arrow, to_frame

    with hydra_rules():
        composer = Composer.of_library(config_dir)
        study = plan(composer, overrides)
        schema = schema_of(study.grid, fastflow.__version__)
        with explaining(composer, study):
            return to_frame([to_arrow(table, schema) for table in run(study.grid, study.settings)], schema)


def sweep(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
) -> Path:
    """Predict the points that overrides span into a Parquet dataset; see `fastflow.sweep`."""
    with hydra_rules():
        composer = Composer.of_library(config_dir)
        study = plan(composer, overrides)
        folder = Path(study.output if output is None else output)
        with explaining(composer, study):
            return write(study, folder, lambda table: None)


def write(study: Study, folder: Path, watcher: Watcher) -> Path:
    """Evaluate a study into a dataset at a folder, which is returned; raises InputError."""
    from fastflow.engine.store import Store, schema_of, to_arrow

    schema = schema_of(study.grid, fastflow.__version__)
    with Store(folder.absolute(), schema) as store:
        for table in run(study.grid, study.settings):
            store.write(to_arrow(table, schema))
            watcher(table)
    return folder


@contextmanager
def explaining(composer: Composer, study: Study) -> Iterator[None]:
    """Add to an InputError of the model where its key's value came from."""
    try:
        yield
    except InputError as error:
        if error.origin or not error.key or error.key == "output":
            raise
        swept = error.key in study.grid.columns
        origin = composer.origin_of_overrides if swept else composer.origin(error.key, study.first)
        raise InputError(error.key, error.value, error.allowed, origin) from None


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
        study = plan(Composer.of_library(), ("model=gemm", f"chip={chip}", f"model.dtype={dtype}"))
    if sizes["model.m"].size == 0:
        return np.zeros(0)
    first = np.zeros(sizes["model.m"].size, dtype=np.int64)
    inputs = study.grid.inputs(0, first) | {
        key: np.array(column, dtype=np.int64).ravel() for key, column in sizes.items()
    }
    prediction = crossflow.predict(inputs)
    if prediction.timed.size < first.size:
        raise CompositionError(f"no time can be predicted: {prediction.reason[0]}")
    return prediction.timeline.total.reshape(sizes["model.m"].shape)
