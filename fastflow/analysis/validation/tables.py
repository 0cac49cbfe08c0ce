"""Tables of a validation: every row with its prediction, and errors by group."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fastflow.analysis.measurements.kind import Measurements
from fastflow.analysis.measurements.plan import PlannedFile
from fastflow.analysis.measurements.predict import PredictedRows
from fastflow.analysis.validation.error_metrics import (
    categories_of,
    errors,
    errors_by_part,
    measured_quantities,
)
from fastflow.core.errors import CompositionError
from fastflow.core.tables import Floats
from fastflow.engine.dataset import kinds
from fastflow.engine.dataset.folder import ERRORS
from fastflow.engine.dataset.renamed import MEASURED
from fastflow.engine.dataset.schema import identity, result_field
from fastflow.engine.dataset.store import check_table, write_table

_NUMBERS = (pa.float64(), pa.int64())
_MEASURED_COLUMNS = ("part", "timed", "measured_s", "predicted_s", "ratio", "error", "bound_by")


class ValidationTables(NamedTuple):
    """Tables of a validation."""

    rows: pa.Table
    errors: pa.Table


def predicted_tables(
    planned: PlannedFile, advance: Callable[[int], None] = lambda rows: None
) -> ValidationTables:
    """Predict all rows of a file, and compute the errors; raises InputError.

    advance: called with the number of finished rows.
    """
    measurements, run = planned
    table = _join_columns(measurements, _concat_results(measurements.predict_all(run.grid, advance)))
    frame: pd.DataFrame = table.to_pandas()
    if frame["predicted_s"].isna().all():
        raise CompositionError(f"no row can be predicted; the first one: {frame['reason'].iloc[0]}")
    file_columns = [name for name in frame if _is_file_column(table.schema.field(name))]
    row_columns = [name for name in ("part", "timed") if name in frame]
    metadata = {
        **identity(run.grid, kinds.VALIDATION, measurements.file.digest, measurements.read_with()),
        "fastflow.measurements": measurements.file.path,
        MEASURED: measurements.name,
        "fastflow.where": planned.where,
        "fastflow.said": json.dumps(measurements.notes()),
    }
    categories = [name for name in measurements.error_groups if name in frame]
    categories = categories or categories_of(frame[[*file_columns, *row_columns]])
    metrics = _errors_of_all(frame, categories, measurements)
    fields = [result_field(name) for name in map(str, metrics)]
    error_table = pa.Table.from_pandas(metrics, pa.schema(fields), preserve_index=False)
    return ValidationTables(
        table.replace_schema_metadata(metadata),
        error_table.replace_schema_metadata(metadata | {kinds.KEY: kinds.ERRORS}),
    )


def _errors_of_all(
    frame: pd.DataFrame, categories: Sequence[str], measurements: Measurements
) -> pd.DataFrame:
    """Return the errors of every quantity of some rows, with its name where there are several."""
    time, *further = measured_quantities(frame)
    ends, by_part = measurements.range_ends, measurements.has_errors_by_part
    of_times = errors_by_part(frame, categories, ends) if by_part else errors(frame, categories, time, ends)
    if not further:
        return of_times
    within = [name for name in categories if not (by_part and name == "part")]
    tables = [of_times, *(errors(frame, within, quantity, ends) for quantity in further)]
    if by_part:
        for table in tables[1:]:
            table.insert(0, "part", "")
    for quantity, table in zip((time, *further), tables, strict=True):
        table.insert(0, "quantity", quantity.name)
    return pd.concat([table for table in tables if len(table)], ignore_index=True)


def _concat_results(parts: Iterable[PredictedRows]) -> pa.Table:
    """Put the result columns of all rows into one table, in the order of rows."""
    order, tables = [], []
    for part in parts:
        fields = [result_field(name) for name in part.columns]
        arrays = [pa.array(part.columns[field.name], type=field.type, from_pandas=True) for field in fields]
        tables.append(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
        order.append(part.rows)
    table = pa.concat_tables(tables, promote_options="default")
    return table.take(np.argsort(np.concatenate(order)))


def _join_columns(measurements: Measurements, results: pa.Table) -> pa.Table:
    """Join measurements and results, the file's columns first."""
    predicted = results["time_s"].to_numpy()
    ratio = predicted / measurements.measured
    columns: dict[str, Any] = {
        "part": measurements.part,
        "timed": measurements.timed,
        "measured_s": measurements.measured,
        "predicted_s": predicted,
        "ratio": ratio,
        "error": np.abs(ratio - 1.0),
        "bound_by": results["bound_by"],
    }
    table = pa.table(
        [pa.array(measurements.file.line, type=pa.int64())], schema=pa.schema([result_field("line")])
    )
    further = _further_quantities(measurements, results)
    taken = {*measurements.times, *measurements.measured_quantities}
    file_columns = [name for name in measurements.file.columns if name not in taken]
    result_names = {"line", *columns, *further, *results.schema.names}
    for name, stored in zip(file_columns, _unique_names(file_columns, result_names), strict=True):
        metadata = {"unit": "", "meaning": "of the file of measurements", "own": "yes"}
        values, type_ = _arrow_values(measurements.file.frame[name])
        array = pa.array(values, type=type_, from_pandas=True)
        table = table.append_column(pa.field(stored, array.type, metadata=metadata), array)
    for name in _MEASURED_COLUMNS:
        values = columns[name]
        if not (isinstance(values, np.ndarray) and values.dtype.kind == "U" and (values == "").all()):
            field = result_field(name)
            array = (
                values
                if isinstance(values, pa.ChunkedArray)
                else pa.array(values, type=field.type, from_pandas=True)
            )
            table = table.append_column(field, array)
    for name, values in further.items():
        field = result_field(name)
        table = table.append_column(field, pa.array(values, type=field.type, from_pandas=True))
    for field in results.schema:
        if field.name not in {"time_s", "bound_by"} | taken:  # already there: time_s as predicted_s
            table = table.append_column(field, results[field.name])
    return table


def _further_quantities(measurements: Measurements, results: pa.Table) -> dict[str, Floats]:
    """Return the columns of the quantities that a file has besides times, NaN where there is no value."""
    columns: dict[str, Floats] = {}
    if not measurements.measured_quantities:
        return columns
    by_name = {
        field.name: results[field.name].to_numpy() for field in results.schema if field.type in _NUMBERS
    }
    for name, measured in measurements.measured_quantities.items():
        quantity, predict, _ = measurements.quantities[name]
        try:
            predicted = np.asarray(predict(by_name), dtype=np.float64)
        except KeyError:  # these points have no such result
            predicted = np.full(measured.size, np.nan)
        predicted = np.where(predicted > 0.0, predicted, np.nan)
        ratio = predicted / measured
        columns |= {
            quantity.measured: measured,
            quantity.predicted: predicted,
            quantity.ratio: ratio,
            quantity.error: np.abs(ratio - 1.0),
        }
    return columns


def _unique_names(names: Sequence[str], result_names: Collection[str]) -> list[str]:
    """Return unique names for the columns of a file, different from those of results."""
    used, stored_names = {*result_names, *names}, []
    for name in names:
        stored = name
        if name in result_names:
            while stored in used:
                stored = f"file.{stored}"
            used.add(stored)
        stored_names.append(stored)
    return stored_names


def _is_file_column(field: pa.Field) -> bool:
    """Say whether a column is of the file."""
    return b"own" in (field.metadata or {})


def _arrow_values(column: pd.Series[Any]) -> tuple[Any, pa.DataType]:
    """Return a column of texts, as numbers if all filled cells are numbers, and its type.

    With a number beyond the range of floats the whole column is text.
    """
    cells = column.reset_index(drop=True)
    numbers = pd.to_numeric(cells.where(cells != ""), errors="coerce")
    if numbers.dtype.kind == "i":
        return numbers.to_numpy(), pa.int64()
    if numbers.isna().equals(cells == "") and np.isfinite(numbers.astype(np.float64)).any():
        values = numbers.to_numpy(np.float64)
        if not np.isinf(values).any():
            return values, pa.float64()
    return cells.where(cells != "", None), pa.string()


def check_validation_output(output: str) -> None:
    """Refuse a folder that cannot be written, or holds anything but an earlier validation; InputError."""
    for suffix, kind in zip(("", ERRORS), kinds.OF_VALIDATION, strict=True):
        check_table(output + suffix, kind)


def write_tables(output: str, tables: ValidationTables) -> list[str]:
    """Write the tables of a validation; returns their folders."""
    return [write_table(output + suffix, table) for suffix, table in zip(("", ERRORS), tables, strict=True)]
