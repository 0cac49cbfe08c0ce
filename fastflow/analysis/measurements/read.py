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
from fastflow.analysis.measurements.csv_file import CsvFile, listed, read_csv
from fastflow.analysis.measurements.kind import KINDS, Measurements, Options, TimedRows
from fastflow.config.messages import suggestion
from fastflow.config.model_inputs import SECTIONS, SETS_OTHERS
from fastflow.core.errors import InputError
from fastflow.physics.workload.models.transformer.hf_config import KEY as CONFIG
from fastflow.schema import INPUTS, find_input

assert kinds  # its files register themselves
_GROUP = re.compile(r"[A-Za-z]\w{0,50}", re.ASCII)  # groups are looked up as folders
_OTHER_SECTIONS = ("engine", "hydra", "uncertainty", "sensitivity", "backtest")
"""Sections of the configuration that hold no input of the model."""
_NEAR = 0.75  # of two names, one of which may be meant for the other


def read_measurements(
    path: str,
    is_group: Callable[[str], bool],
    leaves: Mapping[str, Any],
    timed: str | None = None,
    device: str | None = None,
    said: Mapping[str, Any] = MappingProxyType({}),
) -> Measurements:
    """Read a CSV file; raises InputError.

    is_group: says whether a column is a group of the configuration; leaves: of the configuration; timed: how
    all rows were measured, instead of what the file says; device: whose rows count, by default all; said:
    groups and keys that the command line sets.
    """
    file = read_csv(path)
    keys = tuple(
        name
        for name in file.columns
        if (_GROUP.fullmatch(name) and is_group(name)) or name == CONFIG or _is_input(name)
    )
    _check_keys(file, keys)
    kind = _kind_of(file, keys)
    _check_unused_keys(file, keys, kind)
    if device is not None:
        file = _of_device(file, device)
    return kind(_timed_rows(file, kind), Options(leaves, timed, keys, said))


def _is_input(name: str) -> bool:
    """Say whether a column is named by the key of an input from which no other one follows."""
    return find_input(name) is not None and name not in SETS_OTHERS


def naming_columns(name: str, own: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that say what a row of a kind is, in the order of saying.

    Of a kind that has none, or is not known, those of the file's own that are keys, or name a model.
    """
    of_kind = next((kind.naming_keys for kind in KINDS if kind.name == name), ())
    return of_kind or tuple(column for column in own if "." in column or column == "model")


def has_errors_by_part(name: str) -> bool:
    """Say whether the parts of a kind's rows are judged one by one; a kind that is unknown has none."""
    return any(kind.has_errors_by_part for kind in KINDS if kind.name == name)


def _kind_of(file: CsvFile, keys: Collection[str]) -> type[Measurements]:
    """Return the kind of a file by its columns; raises InputError."""
    path, columns = file.path, file.columns
    claim = [kind for kind in KINDS if kind.claims(columns, keys)]
    # a kind whose columns are among another's is not meant, nor is one that needs none
    claim = [kind for kind in claim if not any(set(kind.needed) < set(other.needed) for other in claim)]
    if len(claim) > 1:
        both = " and of ".join(kind.name for kind in claim)
        raise InputError("measurements", path, f"a file of one kind; this one has the columns of {both}")
    if not claim:
        ways = [f"{', '.join(kind.needed)} ({kind.name})" for kind in KINDS if kind.needed]
        others = ", ".join(kind.name for kind in KINDS if not kind.needed)
        allowed = f"a file with the columns {'; '.join(ways)}; or groups and keys of the configuration"
        raise InputError("measurements", path, f"{allowed} ({others}); this one has {listed(columns, 8)}")
    (kind,) = claim
    if not set(kind.times) & set(columns):
        wanted = " or ".join(kind.times)
        by = "" if kind.needed else f", by its columns {listed(sorted(keys), 8)},"
        allowed = f"a file of {kind.name}{by} with times in {wanted}; this one has no such column"
        raise InputError("measurements", path, allowed)
    return kind


def _check_keys(file: CsvFile, keys: Collection[str]) -> None:
    """Refuse a dotted name that is meant as a key of the configuration and is none; raises InputError."""
    known = [column.name for column in INPUTS]
    sections = {*SECTIONS, *_OTHER_SECTIONS, *(kind.section for kind in KINDS if kind.section)}
    for name in file.columns:
        if "." not in name or name in keys:
            continue
        first, _, rest = name.lower().lstrip("+~").partition(".")
        near = difflib.get_close_matches(first, SECTIONS, n=1, cutoff=_NEAR)
        meant = f"{near[0]}.{rest}" if near else ""
        hint = f"; did you mean {meant}?" if meant in known else suggestion(meant, known) if meant else ""
        if first in sections or hint:
            raise file.wrong_column(name, f"an input of the model, or a name without a dot{hint}")


def _check_unused_keys(file: CsvFile, keys: Collection[str], kind: type[Measurements]) -> None:
    """Refuse inputs of the model in a file whose kind does not read them; raises InputError."""
    for name in keys:
        instead = kind.instead_of_key(name) if "." in name else ""
        if instead:
            raise file.wrong_column(name, instead)


def _of_device(file: CsvFile, device: str) -> CsvFile:
    """Return the rows of one device of a file; raises InputError."""
    there = file.each_once("device")
    if device not in there:
        allowed = f"one of {listed(there)}" if there else "null, since the file has no column device"
        raise InputError("device", device, allowed, file.path)
    return file.take((file.frame["device"] == device).to_numpy(np.bool_))


def _timed_rows(file: CsvFile, kind: type[Measurements]) -> TimedRows:
    """Return a row for each time in a file, in its order; raises InputError."""
    columns: Sequence[str] = [name for name in kind.times if name in file.frame]
    there = np.column_stack([file.filled(name) for name in columns])
    if len(kind.times) == 1:
        there[:] = True
    missing = ~there.any(axis=1)
    if missing.any():
        others = f", here or in {' or '.join(columns[1:])}" if columns[1:] else ""
        raise file.mistake(columns[0], int(missing.argmax()), f"a time above 0{others}")
    every = np.column_stack([file.times(name, there[:, place]) for place, name in enumerate(columns)])
    row, place = np.nonzero(there)
    part = np.array([kind.times[name] for name in columns])[place]
    return TimedRows(file.take(row), part, every[row, place])
