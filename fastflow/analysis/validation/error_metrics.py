"""Errors of predictions against measurements: metrics of one set of rows, and of the groups of a table."""

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
    """Error metrics of a set of rows; p is predicted, t measured."""

    rows: int
    mean_error: float
    """Of |p - t| / t."""
    median_error: float
    p90_error: float
    """The error that nine rows in ten do not exceed."""
    bias: float
    """Median of p / t."""
    log_correlation: float
    """Pearson's, of log p and log t; NaN of fewer than three rows, and where p or t does not vary."""


def accuracy(measured: Floats, predicted: Floats) -> Accuracy:
    """Return the error metrics of rows; measured, predicted [s]: above 0, shape (rows,), not empty."""
    error = np.abs(predicted - measured) / measured
    log_p, log_t = np.log(predicted), np.log(measured)
    both_vary = measured.size > 2 and min(np.ptp(log_p), np.ptp(log_t)) > 0.0
    return Accuracy(
        rows=measured.size,
        mean_error=float(error.mean()),
        median_error=float(np.median(error)),
        p90_error=float(np.quantile(error, 0.9)),
        bias=float(np.median(predicted / measured)),
        log_correlation=float(np.corrcoef(log_p, log_t)[0, 1]) if both_vary else float("nan"),
    )


def errors(rows: pd.DataFrame, categories: Sequence[str]) -> pd.DataFrame:
    """Return error metrics of all rows, by size, by limiter and by category; a row a group.

    rows: with `measured_s`, `predicted_s` (NaN: not predicted, left out), `bound_by` and the categories.
    Columns: `by`, `value`, and those of `Accuracy`.
    """
    rows = rows[rows["predicted_s"].notna()]
    measured, predicted = (rows[name].to_numpy(np.float64) for name in ("measured_s", "predicted_s"))
    metrics = [
        (by, value, *accuracy(measured[in_group], predicted[in_group]))
        for by, value, in_group in _groups(rows, measured, categories)
    ]
    return pd.DataFrame(metrics, columns=["by", "value", *Accuracy._fields])


def _groups(
    rows: pd.DataFrame, measured: Floats, categories: Sequence[str]
) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Yield the column of a group, its value, and its rows; empty groups are left out."""
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
            yield name, _text_of(value), (column == value).to_numpy(np.bool_)


def _text_of(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def categories_of(frame: pd.DataFrame) -> list[str]:
    """Return columns of texts or whole numbers with 2 to 8 values; of equal groupings the first column."""
    by_codes: dict[bytes, str] = {}
    for name in map(str, frame.columns):
        column = frame[name].replace("", np.nan) if frame[name].dtype == object else frame[name]
        if column.dtype.kind == "f" and not (column.dropna() % 1.0 == 0.0).all():
            continue
        codes, values = pd.factorize(column)
        if len(values) in _CATEGORIES and 2 * len(values) <= (codes >= 0).sum():
            by_codes.setdefault(codes.tobytes(), name)
    return list(by_codes.values())
