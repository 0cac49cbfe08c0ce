"""A validation from the overrides to what it leaves: for Python in frames, for the command line in files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fastflow.columns import find_result
from fastflow.configuration.composer import Composer
from fastflow.configuration.library import hydra_rules
from fastflow.configuration.wording import one_of
from fastflow.dataset.folder import ERRORS, folder_at
from fastflow.dataset.schema import field_of, identity, to_frame
from fastflow.dataset.store import PART, write_table
from fastflow.errors import CompositionError, InputError
from fastflow.grid.plan import plan
from fastflow.grid.run import Run, explaining, refuse_others
from fastflow.measured.accuracy import categories_of, errors
from fastflow.measured.measurements import ITERATIONS, LAYERS, TIMED, Measurements, read
from fastflow.measured.predict import Predicted, check_all, predict
from fastflow.measured.recurrent import read_recurrent
from fastflow.units import show

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_MEASURED = ("part", "timed", "measured_s", "predicted_s", "ratio", "error", "bound_by")


class Validation(NamedTuple):
    """Predictions beside measurements; frames hold units in `attrs`, as those of `fastflow.evaluate`."""

    rows: pd.DataFrame
    """Every measurement with what was predicted of it, in the order of the file."""
    errors: pd.DataFrame
    """Errors of all rows, by size, by limiter and by the file's own categories."""


class Planned(NamedTuple):
    """A file that was read, and the points that predict it."""

    measurements: Measurements
    run: Run


class Tables(NamedTuple):
    """What a validation leaves."""

    rows: pa.Table
    errors: pa.Table


def validate(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
) -> Validation:
    """Predict the rows of a file of measurements; see `fastflow.validate`."""
    with hydra_rules():
        composer = Composer.of_library(config_dir, config_name="validate")
        planned = prepare(composer, overrides)
        given = any(text.lstrip("+").startswith("output=") for text in overrides)
        where = str(output) if output is not None else planned.run.output if given else None
        if where is not None:
            check_validation_output(where)
        with explaining(composer, planned.run):
            tables = predicted_tables(planned)
        if where is not None:
            write_tables(where, tables)
    return Validation(to_frame([tables.rows]), to_frame([tables.errors]))


def prepare(composer: Composer, overrides: Sequence[str]) -> Planned:
    """Read the file that a configuration names, and plan the points of its rows; raises InputError."""
    parsed = composer.parse(overrides)
    composition = composer.compose(_of_validation(parsed))
    leaves = composition.leaves
    path, timed, device = (leaves[name] for name in ("measurements", "timed", "device"))
    origin = composer.origin_of_overrides
    if not isinstance(path, str) or not path:
        raise InputError("measurements", "null" if path is None else path, "a CSV file", origin)
    if timed is not None and timed not in TIMED:
        raise InputError("timed", timed, f"{one_of(TIMED)}, or null", origin)
    with composer.naming_origins(composition):
        recurrent = read_recurrent(leaves)
    device = None if device is None else str(device)
    measurements = read(path, composer.is_group, timed, device, recurrent)
    kind = measurements.kind
    chosen = [override for override in parsed if override.key_or_group == "model"]
    if kind.model:
        if chosen:
            allowed = f"{kind.model} for a file of {kind.name}, or no model at all"
            raise InputError("model", chosen[-1].get_value_string(), allowed, origin)
        overrides = (f"model={kind.model}", *overrides)
    run = _plan_rows(composer, overrides, measurements) if kind is ITERATIONS else plan(composer, overrides)
    refuse_others(run, "validate")
    if kind is not ITERATIONS and run.grid.keys:
        raise _several(run.grid.keys[0])
    return Planned(measurements, run)


def _of_validation(parsed: Sequence[Override]) -> list[str]:
    """Return the overrides of what only a validation has."""
    own = ("measurements", "timed", "device", "recurrent")
    return [override.input_line or "" for override in parsed if override.key_or_group.split(".")[0] in own]


def _plan_rows(composer: Composer, overrides: Sequence[str], measurements: Measurements) -> Run:
    """Plan a point for each row of a file of whole iterations; raises InputError."""
    union = [{"params": row} for row in measurements.overrides]
    try:
        run = plan(composer, overrides, {"union": union})
    except InputError as error:
        frame = measurements.frame
        if error.key in frame:
            same = (frame[error.key] == str(error.value)).to_numpy(np.bool_)
            if same.any():
                raise measurements.mistake(error.key, int(same.argmax()), error.allowed) from None
        raise
    for row, block in enumerate(run.grid.blocks):
        if block.axes:
            key = block.axes[0].keys[0]
            if key in measurements.overrides[row]:
                raise measurements.mistake(key, row, "one value")
            raise _several(key)
    return run


def _several(key: str) -> InputError:
    return CompositionError(f"{key}: one value only; measurements are compared with one configuration")


def predicted_tables(planned: Planned, advance: Callable[[int], None] = lambda rows: None) -> Tables:
    """Predict all rows of a file, and reckon the errors; raises InputError."""
    measurements, run = planned
    table = _beside(measurements, _joined(predict(run.grid, measurements, advance)))
    frame: pd.DataFrame = table.to_pandas()
    check_all(frame["reason"].to_numpy(), frame["predicted_s"].to_numpy(np.float64))
    own = [name for name in frame if _own(table.schema.field(name))]
    also = [name for name in ("part", "timed") if name in frame]
    how = [
        *set_of(measurements.timed),
        *measurements.devices,
        *(measurements.recurrent if measurements.kind is LAYERS else ()),
    ]
    about = {
        **identity(run.grid, measurements.digest, how),
        "fastflow.measurements": measurements.path,
        "fastflow.kind": measurements.kind.name,
        "fastflow.where": _where(planned),
        "fastflow.said": json.dumps(said(measurements)),
    }
    found = errors(frame, categories_of(frame[[*own, *also]]))
    fields = [field_of(name, _result_kind(name)) for name in map(str, found)]
    of_errors = pa.Table.from_pandas(found, pa.schema(fields), preserve_index=False)
    return Tables(table.replace_schema_metadata(about), of_errors.replace_schema_metadata(about))


def _where(planned: Planned) -> str:
    """Say what the measurements are held against: a chip, or a system of them."""
    chip, system = (planned.run.grid.labels[group] for group in ("chip", "system"))
    chips, systems = ", ".join(set_of(chip)), ", ".join(set_of(system))
    return chips if planned.measurements.kind.model else f"{systems} of {chips}"


def set_of(column: Any) -> list[str]:
    """Return the values of a column, each once."""
    return list(map(str, np.unique(column)))


def said(measurements: Measurements) -> list[str]:
    """Return what a person should know of how a file was read, a line each."""
    lines = []
    if len(measurements.devices) > 1:
        lines.append(f"devices: {', '.join(measurements.devices)}; device=NAME selects one of them")
    if measurements.kind is LAYERS:
        lines += _said_of_layers(measurements)
    elif measurements.kind.model or measurements.kind is ITERATIONS:
        timed = ", ".join(set_of(measurements.timed))
        how = " (assumed; timed=kernel or timed=call sets it)" if measurements.assumed else ""
        lines.append(f"timed: {timed}{how}")
    if measurements.ignored:
        lines.append(f"not used: {', '.join(measurements.ignored)}")
    return lines


def _said_of_layers(measurements: Measurements) -> list[str]:
    """Say what the host adds to recurrent layers, and which passes run alone."""
    host, alone = measurements.recurrent, int(measurements.forward_only.sum())
    call, gap = show(host.call, "s"), show(host.gap, "s")
    lines = [f"host: {call} a call, {gap} in each of the first {host.gap_steps:,} steps (recurrent.*)"]
    if alone:
        lines.append(
            f"of batches above {host.forward_only_above:,}, {alone:,} forward without backward: "
            f"recurrent.forward_only_blocks, {gap} more a step"
        )
    return lines


def _result_kind(name: str) -> str:
    column = find_result(name)
    assert column is not None, name
    return column.kind


def _joined(parts: Iterable[Predicted]) -> pa.Table:
    """Put the result columns of all rows into one table, in the order of rows."""
    order, tables = [], []
    for part in parts:
        fields = [field_of(name, _result_kind(name)) for name in part.columns]
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
        [pa.array(measurements.line, type=pa.int64())], schema=pa.schema([field_of("line", "int")])
    )
    taken = {"line", *columns, *results.schema.names}
    for name in map(str, measurements.frame.drop(columns=list(measurements.kind.times), errors="ignore")):
        stored = f"file.{name}" if name in taken else name
        about = {"unit": "", "meaning": "of the file of measurements", "own": "yes"}
        values, type_ = _typed(measurements.frame[name])
        array = pa.array(values, type=type_, from_pandas=True)
        table = table.append_column(pa.field(stored, array.type, metadata=about), array)
    for name in _MEASURED:
        values = columns[name]
        if not (isinstance(values, np.ndarray) and values.dtype.kind == "U" and (values == "").all()):
            field = field_of(name, _result_kind(name))
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


def _own(field: pa.Field) -> bool:
    """Say whether a column is the file's own."""
    return b"own" in (field.metadata or {})


def _typed(column: pd.Series[Any]) -> tuple[Any, pa.DataType]:
    """Return a column of texts as numbers where all of its cells are, empty ones aside, and its type."""
    cells = column.reset_index(drop=True)
    numbers = pd.to_numeric(cells.where(cells != ""), errors="coerce")
    if numbers.isna().equals(cells == "") and not numbers.isna().all():
        return numbers.to_numpy(), pa.int64() if numbers.dtype.kind == "i" else pa.float64()
    return cells.where(cells != "", None), pa.string()


def check_validation_output(output: str) -> None:
    """Refuse a folder that holds anything but an earlier validation; raises InputError."""
    for suffix in ("", ERRORS):
        folder = folder_at(output + suffix)
        for name in folder.names():
            if name.startswith(("_", ".")):
                continue
            allowed = f"a new or empty folder, or one with a validation; {folder.shown} holds {name}"
            if name != PART:
                raise InputError("output", output, allowed)
            try:
                with folder.open(name) as file:
                    held = pq.read_schema(file).metadata or {}
            except (pa.ArrowInvalid, OSError):
                held = {}
            if b"fastflow.measurements" not in held:
                raise InputError("output", output, f"{allowed} from something else")


def write_tables(output: str, tables: Tables) -> list[str]:
    """Write what a validation leaves; returns where it lies."""
    return [write_table(output + suffix, table) for suffix, table in zip(("", ERRORS), tables, strict=True)]
