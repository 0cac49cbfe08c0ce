"""From a user's CSV file to measurements of one kind, by its columns.

The columns of every kind are in docs/measurements.md.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fastflow.analysis.measurements import kinds
from fastflow.analysis.measurements.choices import Choice
from fastflow.analysis.measurements.csv_file import CsvFile, listed, read_csv
from fastflow.analysis.measurements.kind import KINDS, Measurements, Options, TimedRows
from fastflow.config.messages import suggestion
from fastflow.config.model_inputs import SECTIONS, SETS_OTHERS
from fastflow.config.renamed_keys import renamed_key, renamed_value
from fastflow.core.errors import InputError
from fastflow.physics.workload.models.transformer.config_json.read import KEY as CONFIG
from fastflow.schema import INPUTS, find_input, split_prefix
from fastflow.schema.renamed import KEYS, VALUES

assert kinds  # its modules register their kinds
_GROUP = re.compile(r"[A-Za-z]\w{0,50}", re.ASCII)  # groups are looked up as folders
_OTHER_SECTIONS = ("engine", "hydra", "uncertainty", "sensitivity", "backtest")
"""Sections of the configuration that hold no input of the model."""
_SIMILAR = 0.75  # similarity of a name to the intended one


def read_measurements(
    path: str,
    is_group: Callable[[str], bool],
    leaves: Mapping[str, Any],
    timed: str | None = None,
    device: str | None = None,
    command_line: Mapping[str, Any] = MappingProxyType({}),
) -> Measurements:
    """Read a CSV file; raises InputError.

    is_group: says whether a column is a group of the configuration; leaves: of the configuration; timed: how
    all rows were measured, instead of the file's column; device: selects its rows, by default all;
    command_line: groups and keys that the command line sets.
    """
    file = _with_new_names(read_csv(path), is_group)
    keys = tuple(
        name
        for name in file.columns
        if (_GROUP.fullmatch(name) and is_group(name)) or name == CONFIG or _is_settable_input(name)
    )
    _check_keys(file, keys)
    kind = _kind_of(file, keys)
    _check_unused_keys(file, keys, kind)
    if device is not None:
        file = _of_device(file, device)
    return kind(_timed_rows(file, kind), Options(leaves, timed, keys, command_line))


def _with_new_names(file: CsvFile, is_group: Callable[[str], bool]) -> CsvFile:
    """Return a file whose columns of keys and groups have the names of today, and their cells the values."""
    renamed = {
        name: renamed_key(name)
        for name in file.columns
        if split_prefix(name)[1] in KEYS and ("." in name or is_group(KEYS[name]))
    }
    twice = next((old for old, new in renamed.items() if new in file.frame), None)
    if twice is not None:
        raise file.column_error(twice, f"{renamed[twice]}, its new name, once; both are columns")
    frame = file.frame.rename(columns=renamed)
    for name in VALUES.keys() & set(frame):
        frame[name] = [renamed_value(name, text) for text in frame[name]]
    return file._replace(frame=frame)


def _is_settable_input(name: str) -> bool:
    """Say whether a column is the key of an input from which no other input follows."""
    return find_input(name) is not None and name not in SETS_OTHERS


def naming_columns(name: str, file_columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that name a row of a kind, in order.

    For kinds without naming columns, and unknown kinds: columns of the file that are keys, or name a model.
    """
    of_kind = KINDS[name].naming_keys if name in KINDS else ()
    return of_kind or tuple(column for column in file_columns if "." in column or column == "model")


def job_columns(name: str) -> tuple[str, ...]:
    """Return the columns in which rows of the same job agree, of a kind; () for others."""
    return KINDS[name].job_columns if name in KINDS else ()


def choices(name: str) -> tuple[Choice, ...]:
    """Return the choices by throughput among the rows of a kind; () for others."""
    return KINDS[name].choices if name in KINDS else ()


def has_errors_by_part(name: str) -> bool:
    """Say whether a kind has separate errors for the parts of its rows; False for unknown kinds."""
    return name in KINDS and KINDS[name].has_errors_by_part


def _kind_of(file: CsvFile, keys: Collection[str]) -> type[Measurements]:
    """Return the kind of a file by its columns; raises InputError."""
    path, columns = file.path, file.columns
    claiming = _claiming(file, keys)
    if len(claiming) > 1:
        names = " and of ".join(kind.name for kind in claiming)
        raise InputError("measurements", path, f"a file of one kind; this one has the columns of {names}")
    if not claiming:
        kinds = [*KINDS.values()]
        columns_of_kinds = [f"{', '.join(kind.needed)} ({kind.name})" for kind in kinds if kind.needed]
        others = ", ".join(kind.name for kind in kinds if not kind.needed)
        allowed = (
            f"a file with the columns {'; '.join(columns_of_kinds)}; or groups and keys of the configuration"
        )
        raise InputError("measurements", path, f"{allowed} ({others}); this one has {listed(columns, 8)}")
    (kind,) = claiming
    if not {*kind.times, *kind.rates} & set(columns):
        time_columns = " or ".join((*kind.times, *kind.rates))
        hint = "" if kind.needed else f", by its columns {listed(sorted(keys), 8)},"
        allowed = f"a file of {kind.name}{hint} with times in {time_columns}; this one has no such column"
        raise InputError("measurements", path, allowed)
    return kind


def _claiming(file: CsvFile, keys: Collection[str]) -> list[type[Measurements]]:
    """Return the kinds that a file may be of; those of packages are asked about files of no other kind.

    A kind whose columns are a subset of another's, or that needs none, gives way.
    """

    def claims(kind: type[Measurements]) -> bool:
        return kind.claims(file.columns, keys)

    claiming = [*filter(claims, KINDS.built_ins())] or KINDS.added(claims)
    return [kind for kind in claiming if not any(set(kind.needed) < set(other.needed) for other in claiming)]


def _check_keys(file: CsvFile, keys: Collection[str]) -> None:
    """Refuse a dotted name that looks like a key of the configuration and is no key; raises InputError."""
    known = [column.name for column in INPUTS]
    sections = {*SECTIONS, *_OTHER_SECTIONS, *(kind.section for kind in KINDS.built_ins() if kind.section)}
    for name in file.columns:
        if "." not in name or name in keys:
            continue
        first, _, rest = name.lower().lstrip("+~").partition(".")
        similar = difflib.get_close_matches(first, SECTIONS, n=1, cutoff=_SIMILAR)
        corrected = f"{similar[0]}.{rest}" if similar else ""
        hint = (
            f"; did you mean {corrected}?"
            if corrected in known
            else suggestion(corrected, known)
            if corrected
            else ""
        )
        if first in sections or hint:
            raise file.column_error(name, f"an input of the model, or a name without a dot{hint}")


def _check_unused_keys(file: CsvFile, keys: Collection[str], kind: type[Measurements]) -> None:
    """Refuse inputs of the model in a file whose kind does not read them; raises InputError."""
    for name in keys:
        instead = kind.instead_of_key(name) if "." in name else ""
        if instead:
            raise file.column_error(name, instead)


def _of_device(file: CsvFile, device: str) -> CsvFile:
    """Return the rows of one device of a file; raises InputError."""
    devices = file.each_once("device")
    if device not in devices:
        allowed = f"one of {listed(devices)}" if devices else "null, since the file has no column device"
        raise InputError("device", device, allowed, file.path)
    return file.take((file.frame["device"] == device).to_numpy(np.bool_))


def _timed_rows(file: CsvFile, kind: type[Measurements]) -> TimedRows:
    """Return a row for each time in a file, in its order; raises InputError."""
    columns: Sequence[str] = [name for name in kind.times if name in file.frame]
    rates = [name for name in kind.rates if name in file.frame]
    is_filled = np.column_stack([file.filled(name) for name in (*columns, *rates)])
    if len(kind.times) == 1:
        is_filled[:] = True
    missing = ~is_filled.any(axis=1)
    if missing.any():
        first, *others = *columns, *rates
        here = f", here or in {' or '.join(others)}" if others else ""
        raise file.cell_error(first, int(missing.argmax()), f"a time above 0{here}")
    if rates:  # which count where no time is said
        by_rate = ~is_filled[:, : len(columns)].any(axis=1)
        is_filled = np.column_stack([is_filled[:, : len(columns)], by_rate])
        columns = [*columns, rates[0]]
    times = np.full(is_filled.shape, np.nan)
    for number, name in enumerate(columns):
        if name not in rates:
            times[:, number] = file.times(name, is_filled[:, number])
    row, column = np.nonzero(is_filled)
    part = np.array([kind.times.get(name, "") for name in columns])[column]
    return TimedRows(file.take(row), part, times[row, column])
