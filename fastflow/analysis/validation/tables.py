"""What a validation leaves: every row with what was predicted of it, and the table of errors."""

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
from fastflow.analysis.validation.error_metrics import categories_of, errors
from fastflow.core.errors import CompositionError
from fastflow.engine.dataset.folder import ERRORS
from fastflow.engine.dataset.kinds import VALIDATION
from fastflow.engine.dataset.schema import field_of, identity
from fastflow.engine.dataset.store import check_table, write_table
from fastflow.schema import find_result

_MEASURED = ("part", "timed", "measured_s", "predicted_s", "ratio", "error", "bound_by")


class ValidationTables(NamedTuple):
    """What a validation leaves."""

    rows: pa.Table
    errors: pa.Table


def predicted_tables(
    planned: PlannedFile, advance: Callable[[int], None] = lambda rows: None
) -> ValidationTables:
    """Predict all rows of a file, and reckon the errors; raises InputError.

    advance: told how many rows are done.
    """
    measurements, run = planned
    table = _beside(measurements, _joined(measurements.predict_all(run.grid, advance)))
    frame: pd.DataFrame = table.to_pandas()
    if frame["predicted_s"].isna().all():
        raise CompositionError(f"no row can be predicted; the first one: {frame['reason'].iloc[0]}")
    own = [name for name in frame if _is_own(table.schema.field(name))]
    also = [name for name in ("part", "timed") if name in frame]
    about = {
        **identity(run.grid, measurements.file.digest, measurements.read_with()),
        "fastflow.measurements": measurements.file.path,
        "fastflow.kind": measurements.name,
        "fastflow.where": planned.where,
        "fastflow.said": json.dumps(measurements.notes()),
    }
    categories = [name for name in measurements.by if name in frame]
    found = errors(frame, categories or categories_of(frame[[*own, *also]]))
    fields = [field_of(name, _type_of(name)) for name in map(str, found)]
    of_errors = pa.Table.from_pandas(found, pa.schema(fields), preserve_index=False)
    return ValidationTables(table.replace_schema_metadata(about), of_errors.replace_schema_metadata(about))


def _type_of(name: str) -> str:
    """Return the type of a result column."""
    column = find_result(name)
    assert column is not None, name
    return column.kind


def _joined(parts: Iterable[PredictedRows]) -> pa.Table:
    """Put the result columns of all rows into one table, in the order of rows."""
    order, tables = [], []
    for part in parts:
        fields = [field_of(name, _type_of(name)) for name in part.columns]
        arrays = [pa.array(part.columns[field.name], type=field.type, from_pandas=True) for field in fields]
        tables.append(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
        order.append(part.rows)
    table = pa.concat_tables(tables, promote_options="default")
    return table.take(np.argsort(np.concatenate(order)))


def _beside(measurements: Measurements, results: pa.Table) -> pa.Table:
    """Put measurements and results side by side: the file's own columns first."""
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
        [pa.array(measurements.file.line, type=pa.int64())], schema=pa.schema([field_of("line", "int")])
    )
    own = [name for name in measurements.file.columns if name not in measurements.times]
    taken = {"line", *columns, *results.schema.names}
    for name, stored in zip(own, _stored(own, taken), strict=True):
        about = {"unit": "", "meaning": "of the file of measurements", "own": "yes"}
        values, type_ = _typed(measurements.file.frame[name])
        array = pa.array(values, type=type_, from_pandas=True)
        table = table.append_column(pa.field(stored, array.type, metadata=about), array)
    for name in _MEASURED:
        values = columns[name]
        if not (isinstance(values, np.ndarray) and values.dtype.kind == "U" and (values == "").all()):
            field = field_of(name, _type_of(name))
            array = (
                values
                if isinstance(values, pa.ChunkedArray)
                else pa.array(values, type=field.type, from_pandas=True)
            )
            table = table.append_column(field, array)
    for field in results.schema:
        if field.name not in ("time_s", "bound_by"):  # predicted_s is the one, and the other is above
            table = table.append_column(field, results[field.name])
    return table


def _stored(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Return the names that a file's own columns are stored under: none is twice, or that of a result."""
    used, found = {*taken, *names}, []
    for name in names:
        stored = name
        if name in taken:
            while stored in used:
                stored = f"file.{stored}"
            used.add(stored)
        found.append(stored)
    return found


def _is_own(field: pa.Field) -> bool:
    """Say whether a column is the file's own."""
    return b"own" in (field.metadata or {})


def _typed(column: pd.Series[Any]) -> tuple[Any, pa.DataType]:
    """Return a column of texts as numbers where all of its cells are, empty ones aside, and its type.

    A number that is too large to be one stays a text, and so do all others of the column.
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
    for suffix in ("", ERRORS):
        check_table(output + suffix, VALIDATION)


def write_tables(output: str, tables: ValidationTables) -> list[str]:
    """Write what a validation leaves; returns where it lies."""
    return [write_table(output + suffix, table) for suffix, table in zip(("", ERRORS), tables, strict=True)]
