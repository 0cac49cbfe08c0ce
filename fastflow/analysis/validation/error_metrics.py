"""Errors of predictions against measurements: metrics of one set of rows, and of the groups of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fastflow.core import units
from fastflow.core.tables import Floats
from fastflow.schema.quantities import QUANTITIES, TIME, Quantity

QUARTERS = 4
_CATEGORIES = range(2, 9)  # values of a column by which errors are shown
_NO_RANGES: Mapping[str, Sequence[int]] = MappingProxyType({})
ALL, LIMITER = "all", "bound_by"
ERROR_OF_TIME, NEAR = "error of time", 0.2
"""Group of the rows whose time is predicted within this error: what is wrong there is the quantity itself."""


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
    """Return the error metrics of rows; measured, predicted: above 0, shape (rows,), not empty."""
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


def errors(
    rows: pd.DataFrame,
    categories: Sequence[str],
    quantity: Quantity = TIME,
    range_ends: Mapping[str, Sequence[int]] = _NO_RANGES,
) -> pd.DataFrame:
    """Return error metrics of a quantity: of all rows, by size, by limiter and by category; a row a group.

    Those of what a meter shows are also of the rows whose time is right. rows: with the quantity's columns
    (NaN: neither measured nor predicted, left out), `error`, `bound_by` and the categories; range_ends: of a
    category with many numbers, the last number of each range. Columns: `by`, `value`, and those of
    `Accuracy`.
    """
    rows = rows[is_compared(rows, quantity)]
    measured, predicted = (
        rows[name].to_numpy(np.float64) for name in (quantity.measured, quantity.predicted)
    )
    metrics = [
        (by, value, *accuracy(measured[in_group], predicted[in_group]))
        for by, value, in_group in _groups(rows, measured, categories, quantity, range_ends)
    ]
    return pd.DataFrame(metrics, columns=["by", "value", *Accuracy._fields])


def is_compared(rows: pd.DataFrame, quantity: Quantity) -> pd.Series[bool]:
    """Return which rows the errors of a quantity include."""
    is_known = rows[quantity.measured].notna() & rows[quantity.predicted].notna()
    return is_known & (rows[TIME.measured] > quantity.shortest)


def measured_quantities(rows: pd.DataFrame) -> list[Quantity]:
    """Return the quantities that the rows of a validation have, the time first."""
    return [quantity for quantity in QUANTITIES if quantity.measured in rows]


def errors_of(errors: pd.DataFrame, quantity: Quantity, part: str = "") -> pd.DataFrame:
    """Return the errors of one quantity; a table without the column `quantity` has those of times.

    part: of the workload, "" for all parts together.
    """
    if "part" in errors:
        errors = errors[errors["part"] == part]
    if "quantity" in errors:
        return errors[errors["quantity"] == quantity.name]
    return errors if quantity == TIME else errors.iloc[:0]


def is_of_file(by: str) -> bool:
    """Say whether rows are grouped by a column of the file, and not by size, limiter or error of the time."""
    sizes = (_size_of(quantity) for quantity in QUANTITIES)
    return by not in (ALL, ERROR_OF_TIME, LIMITER, *sizes)


def _size_of(quantity: Quantity) -> str:
    return f"measured {quantity.name}"


def errors_by_part(
    rows: pd.DataFrame, categories: Sequence[str], range_ends: Mapping[str, Sequence[int]] = _NO_RANGES
) -> pd.DataFrame:
    """Return the errors of times: of all parts of the workload together, then of each alone.

    The column `part` comes first, "" for all. See `errors`.
    """
    within = [name for name in categories if name != "part"]
    tables = [errors(rows, categories, TIME, range_ends)]
    parts = ["", *rows["part"].unique().tolist()]
    tables += [errors(rows[rows["part"] == part], within, TIME, range_ends) for part in parts[1:]]
    for part, table in zip(parts, tables, strict=True):
        table.insert(0, "part", part)
    return pd.concat([table for table in tables if len(table)], ignore_index=True)


def _groups(
    rows: pd.DataFrame,
    measured: Floats,
    categories: Sequence[str],
    quantity: Quantity,
    range_ends: Mapping[str, Sequence[int]],
) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Yield the column of a group, its value, and its rows; empty groups are left out."""
    if measured.size == 0:
        return
    yield ALL, "", np.ones(measured.size, dtype=np.bool_)
    if quantity != TIME and quantity.is_metered:
        is_near = (rows[TIME.error] <= NEAR).to_numpy(np.bool_)
        if is_near.any():
            yield ERROR_OF_TIME, f"within {NEAR:.0%}", is_near
    if measured.size >= 2 * QUARTERS:
        edges = np.quantile(measured, np.linspace(0.0, 1.0, QUARTERS + 1))
        quarter = np.searchsorted(edges[1:-1], measured, side="left")
        for number in np.unique(quarter).tolist():
            low, high = (units.show(float(edge), quantity.unit) for edge in edges[number : number + 2])
            yield _size_of(quantity), f"{low} to {high}", quarter == number
    for name in (LIMITER, *categories):
        if name in range_ends and rows[name].dtype.kind in "if" and rows[name].nunique() > _CATEGORIES[-1]:
            yield from _ranges(rows[name], range_ends[name])
            continue
        column = rows[name].astype(object)
        values = [value for value in column.unique() if not pd.isna(value) and value != ""]
        for value in sorted(values, key=lambda value: (isinstance(value, str), value)):
            yield name, _text_of(value), (column == value).to_numpy(np.bool_)


def _ranges(column: pd.Series[Any], ends: Sequence[int]) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Yield a column of numbers, the name of a range of them, and its rows; empty ranges are left out.

    ends: the last number of each range but the highest, ascending.
    """
    names = [f"{low + 1}-{high}" for low, high in pairwise((0, *ends))] + [f"above {ends[-1]}"]
    index = np.searchsorted(np.asarray(ends), column.to_numpy(np.float64), side="left")
    for number, name in enumerate(names):
        in_range = (index == number) & column.notna().to_numpy()
        if in_range.any():
            yield str(column.name), name, in_range


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
