"""How far predictions are from measurements: figures of one set of rows, and of the groups of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fastflow.core import units
from fastflow.core.tables import Floats

QUARTERS = 4
_CATEGORIES = range(2, 9)  # values of a column by which errors are shown
ALL = "all"
SIZE = "measured time"


class Accuracy(NamedTuple):
    """Figures of a set of rows; p is predicted, t measured."""

    rows: int
    mean_error: float
    """Of |p - t| / t."""
    median_error: float
    p90_error: float
    """The error that nine rows in ten do not exceed."""
    bias: float
    """Median of p / t."""
    log_correlation: float
    """Pearson's, of log p and log t; NaN of two rows or one, and where one of them does not vary."""


def accuracy(measured: Floats, predicted: Floats) -> Accuracy:
    """Return the figures of rows; measured, predicted [s]: above 0, shape (rows,), at least one."""
    error = np.abs(predicted - measured) / measured
    log_p, log_t = np.log(predicted), np.log(measured)
    vary = measured.size > 2 and min(np.ptp(log_p), np.ptp(log_t)) > 0.0
    return Accuracy(
        rows=measured.size,
        mean_error=float(error.mean()),
        median_error=float(np.median(error)),
        p90_error=float(np.quantile(error, 0.9)),
        bias=float(np.median(predicted / measured)),
        log_correlation=float(np.corrcoef(log_p, log_t)[0, 1]) if vary else float("nan"),
    )


def errors(rows: pd.DataFrame, categories: Sequence[str]) -> pd.DataFrame:
    """Return the figures of all rows, by size, by limiter and by category; a row a group.

    rows: with `measured_s`, `predicted_s` (NaN: not predicted, left out), `bound_by` and the categories.
    Columns: `by`, `value`, and those of `Accuracy`.
    """
    rows = rows[rows["predicted_s"].notna()]
    measured, predicted = (rows[name].to_numpy(np.float64) for name in ("measured_s", "predicted_s"))
    found = [
        (by, value, *accuracy(measured[inside], predicted[inside]))
        for by, value, inside in _groups(rows, measured, categories)
    ]
    return pd.DataFrame(found, columns=["by", "value", *Accuracy._fields])


def _groups(
    rows: pd.DataFrame, measured: Floats, categories: Sequence[str]
) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Yield what groups are by, the value of each, and its rows; empty ones are left out."""
    if measured.size == 0:
        return
    yield ALL, "", np.ones(measured.size, dtype=np.bool_)
    if measured.size >= 2 * QUARTERS:
        edges = np.quantile(measured, np.linspace(0.0, 1.0, QUARTERS + 1))
        quarter = np.searchsorted(edges[1:-1], measured, side="left")
        for number in np.unique(quarter).tolist():
            low, high = (units.show(float(edge), "s") for edge in edges[number : number + 2])
            yield SIZE, f"{low} to {high}", quarter == number
    for name in ("bound_by", *categories):
        column = rows[name].astype(object)
        values = [value for value in column.unique() if not pd.isna(value) and value != ""]
        for value in sorted(values, key=lambda value: (isinstance(value, str), value)):
            yield name, _written(value), (column == value).to_numpy(np.bool_)


def _written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def categories_of(frame: pd.DataFrame) -> list[str]:
    """Return the columns of texts or whole numbers with 2 to 8 values; of those that cut alike the first."""
    kept: dict[bytes, str] = {}
    for name in map(str, frame.columns):
        column = frame[name].replace("", np.nan) if frame[name].dtype == object else frame[name]
        if column.dtype.kind == "f" and not (column.dropna() % 1.0 == 0.0).all():
            continue
        place, values = pd.factorize(column)
        if len(values) in _CATEGORIES and 2 * len(values) <= (place >= 0).sum():
            kept.setdefault(place.tobytes(), name)
    return list(kept.values())
