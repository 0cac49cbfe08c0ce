"""A dataset: a folder of Parquet parts that `pandas.read_parquet(folder)` reads in one call.

Parts are written to names that readers skip, and get their own names together at the end, so a
folder holds a whole dataset or none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from fastflow.columns import find_input, find_result
from fastflow.engine.grid import Grid
from fastflow.engine.mistakes import path_of, unwritable
from fastflow.engine.runner import Table, column_order, kind_of
from fastflow.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_TYPES = {"float": pa.float64(), "int": pa.int64(), "bool": pa.bool_(), "str": pa.string()}
_PART = re.compile(r"part-\d{5,}\.parquet")


def schema_of(grid: Grid, version: str) -> pa.Schema:
    """Return the schema of a grid's results: types, and for each column its unit and meaning.

    The schema's own metadata hold fastflow's version, the configuration's fingerprint, the
    overrides, the number of points and the time.
    """
    fields = []
    for name in column_order(grid):
        column = find_result(name) or find_input(name)
        about = {"unit": column.unit if column else "", "meaning": column.meaning if column else ""}
        fields.append(pa.field(name, _TYPES[kind_of(name, grid)], metadata=about))
    return pa.schema(
        fields,
        metadata={
            "fastflow.version": version,
            "fastflow.fingerprint": grid.fingerprint,
            "fastflow.overrides": json.dumps(grid.overrides),
            "fastflow.points": str(grid.points),
            "fastflow.created": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )


def to_arrow(table: Table, schema: pa.Schema) -> pa.Table:
    """Return result columns as an Arrow table; NaN and masked values become null."""
    arrays = [pa.array(table[field.name], type=field.type, from_pandas=True) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


class Store:
    """A dataset being written. A context manager: leaving it by an exception leaves nothing behind."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        """Take the folder that the dataset goes to, which need not exist, and its schema."""
        self.folder = folder
        self.schema = schema
        self._written: list[Path] = []
        self._made: list[Path] = []

    def __enter__(self) -> Store:
        """Make the folder; raises InputError where it cannot be written or holds something else."""
        self._made = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        try:
            with self._refusing_os_errors():
                self.folder.mkdir(parents=True, exist_ok=True)
                self._check_content()
                for left in self.folder.glob("_part-*.parquet"):
                    left.unlink()
                probe = self.folder / "_part-probe.parquet"
                probe.touch()
                probe.unlink()
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give all parts their names, or remove them after an exception."""
        if kind is not None:
            self._discard()
            return
        try:
            with self._refusing_os_errors():
                for old in self._parts()[len(self._written) :]:
                    old.unlink()
                for path in self._written:
                    path.replace(path.with_name(path.name.removeprefix("_")))
                _sync(self.folder)
        except BaseException:
            self._discard()
            raise

    def write(self, table: pa.Table) -> None:
        """Write one part; raises InputError where the disk refuses."""
        path = self.folder / f"_part-{len(self._written):05d}.parquet"
        self._written.append(path)
        with self._refusing_os_errors(), path.open("wb") as file:
            pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())

    def _parts(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if _PART.fullmatch(path.name))

    def _check_content(self) -> None:
        """Refuse a folder that holds something else than this very dataset."""
        allowed = "a new or empty folder, or one with a dataset of the same configuration"
        for path in sorted(self.folder.iterdir()):
            if not path.name.startswith((".", "_")) and not _PART.fullmatch(path.name):
                raise InputError("output", path_of(self.folder), f"{allowed}; this one holds {path.name}")
        for path in self._parts():
            there = _metadata(path)
            for key, what in ((b"fastflow.fingerprint", "configuration"), (b"fastflow.version", "version")):
                if there.get(key) != self.schema.metadata[key]:
                    held = there.get(key, b"unknown").decode()[:16]
                    reason = f"{allowed}; this one holds a dataset of another {what} ({held})"
                    raise InputError("output", path_of(self.folder), reason)

    def _discard(self) -> None:
        for path in self._written:
            path.unlink(missing_ok=True)
        remove_empty(self._made)

    @contextmanager
    def _refusing_os_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unwritable(self.folder, error) from error


def remove_empty(folders: list[Path]) -> None:
    """Remove folders, innermost first, as far as they are empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _metadata(path: Path) -> dict[bytes, bytes]:
    try:
        found: dict[bytes, bytes] | None = pq.read_schema(path).metadata
    except pa.ArrowInvalid:
        return {}
    return found or {}


def _sync(folder: Path) -> None:
    """Make the names of a folder's files last a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def units_of(schema: pa.Schema) -> dict[str, str]:
    """Return the unit of every column that has one."""
    units = {field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in schema}
    return {name: unit for name, unit in units.items() if unit}


def to_frame(tables: list[pa.Table], schema: pa.Schema) -> pd.DataFrame:
    """Return Arrow tables as one DataFrame whose `attrs` hold the units and the schema's metadata."""
    frame: pd.DataFrame = pa.concat_tables(tables).to_pandas()
    about = {key.decode(): value.decode() for key, value in schema.metadata.items()}
    frame.attrs = {"units": units_of(schema), **about}
    return frame
