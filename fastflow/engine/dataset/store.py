"""A dataset: a folder of Parquet parts that `pandas.read_parquet(folder)` reads in one call.

A grid's points are split into parts of one size, which the grid alone decides. Parts are
written atomically, so an interrupted run leaves a smaller dataset, and the next run of the
same grid adds what is missing. Every part names the configuration and the version that it comes from.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fastflow.core.errors import InputError
from fastflow.engine.dataset.folder import folder_at, remove_empty
from fastflow.engine.dataset.kinds import TITLES, dataset_kind
from fastflow.engine.dataset.part import read_part
from fastflow.engine.dataset.schema import differs_in, how_to_write, other_writer, schema_of
from fastflow.engine.grid.grid import Grid
from fastflow.physics.workload.request_trace import KEY as TRACE

if TYPE_CHECKING:
    from collections.abc import Sequence

PART_NAME = re.compile(r"part-\d{5,}\.parquet")
_TEMPORARY = re.compile(r"_part-\d{5,}\.parquet\.[0-9a-f]+")
PART = "part-00000.parquet"
"""The only part of a small dataset."""
_MIN_POINTS, _MAX_POINTS = 256, 8192  # points of a part
_MIN_FLEETS = 2  # of a part, with serve.trace
_TARGET_PARTS = 16  # of a medium grid: enough to share among jobs


class Parts(NamedTuple):
    """The partition of a grid's points into parts. It follows from the grid alone."""

    points: int
    size: int
    """Points of each part but the last."""

    @property
    def total(self) -> int:
        """The number of parts."""
        return -(-self.points // self.size)

    def range(self, number: int) -> tuple[int, int]:
        """Return the first point of a part, and the first one after it."""
        return number * self.size, min((number + 1) * self.size, self.points)

    def name(self, number: int) -> str:
        """Return the file name of a part; names are in the order of points."""
        return f"part-{number:0{max(5, len(str(self.total - 1)))}d}.parquet"


def parts_of(points: int, least: int = _MIN_POINTS) -> Parts:
    """Split points into parts of at least some."""
    return Parts(points, min(max(-(-points // _TARGET_PARTS), least), _MAX_POINTS))


def parts_of_grid(grid: Grid) -> Parts:
    """Split the points of a grid into parts: small ones where each point simulates a trace of requests."""
    has_traces = grid.served and TRACE in grid.inputs(next(grid.shares(0, 1)), (TRACE,))
    return parts_of(grid.points, _MIN_FLEETS if has_traces else _MIN_POINTS)


class Store:
    """A dataset being written, or read back: plain values alone, so that it can be sent to a worker."""

    def __init__(self, output: str, grid: Grid) -> None:
        """Take the folder or URL of the dataset, and its grid."""
        self.schema = schema_of(grid)
        self.parts = parts_of_grid(grid)
        self.folder = folder_at(output)
        self.made: list[Path] = []

    def open(self) -> list[int]:
        """Make the folder and return the numbers of the missing parts.

        Raises InputError where it cannot be written, or holds anything but parts of this dataset.
        """
        self.made = self.folder.make()
        try:
            names = self.folder.names()
            self._check_content(names)
            return self._lacking(names)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the folders that `open` made, as far as they are empty."""
        remove_empty(self.made)

    def existing(self) -> list[str]:
        """Return the names of the existing parts."""
        return _parts_among(self.folder.names())

    def missing(self) -> list[int]:
        """Return the numbers of the missing parts."""
        return self._lacking(self.folder.names())

    def _lacking(self, names: Sequence[str]) -> list[int]:
        existing = set(_parts_among(names))
        return [number for number in range(self.parts.total) if self.parts.name(number) not in existing]

    def _check_content(self, names: Sequence[str]) -> None:
        """Raise InputError where the folder holds anything but parts of this dataset."""
        allowed = "a new or empty folder, or one with a dataset of the same configuration"
        numbers = {self.parts.name(number): number for number in range(self.parts.total)}
        for name in names:
            if PART_NAME.fullmatch(name):
                self._check(name, numbers.get(name), allowed)
            elif not name.startswith((".", "_")):
                raise InputError("output", self.folder.shown, f"{allowed}; this one holds {name}")

    def _check(self, name: str, number: int | None, allowed: str) -> None:
        """Raise InputError for a part of another dataset, or a damaged part."""
        try:
            with self.folder.open(name) as file:
                metadata = pq.read_metadata(file)
        except Exception as error:  # Arrow raises many types
            reason = f"{allowed}; its {name} is damaged: remove it and run again"
            raise InputError("output", self.folder.shown, reason) from error
        about = metadata.metadata or {}
        difference = differs_in(about, self.schema)
        if difference:
            written = other_writer(about, self.schema)
            reason = written or f"this one holds a dataset of another {difference}"
            raise InputError("output", self.folder.shown, f"{allowed}; {reason}")
        start, stop = self.parts.range(number) if number is not None else (0, 0)
        if _points_of(metadata) != (start, stop, stop - start):
            reason = f"{allowed}; its {name} holds other points: remove it and run again"
            raise InputError("output", self.folder.shown, reason)

    def write(self, number: int, tables: Sequence[pa.Table]) -> None:
        """Write one part, whose tables are in the order of points; raises InputError where that fails."""
        table = pa.concat_tables(tables)

        def into(file: IO[bytes]) -> None:
            pq.write_table(table, file, row_group_size=self.parts.size, **how_to_write(self.schema))

        self.folder.write(self.parts.name(number), into)

    def read(self, number: int, columns: Sequence[str]) -> pa.Table:
        """Return some columns of one part."""
        with self.folder.open(self.parts.name(number)) as file:
            return read_part(file, columns)

    def tidy(self) -> None:
        """Remove the temporary files of killed runs from a complete dataset."""
        for name in self.folder.names():
            if _TEMPORARY.fullmatch(name):
                self.folder.remove(name)


def _parts_among(names: Sequence[str]) -> list[str]:
    return [name for name in names if PART_NAME.fullmatch(name)]


def _points_of(metadata: pq.FileMetaData) -> tuple[int, int, int] | None:
    """Return first point, end of points, and number of rows of a part; None without points."""
    points = metadata.row_group(0).column(0).statistics if metadata.num_row_groups else None
    if points is None or not isinstance(points.min, int):
        return None
    return points.min, points.max + 1, metadata.num_rows


def check_table(output: str, kind: str) -> None:
    """Refuse a folder that cannot be written, or holds anything but a table of a kind; raises InputError.

    kind: one of fastflow.engine.dataset.kinds, whose tables `write_table` may replace.
    """
    folder = folder_at(output)
    for name in folder.names():
        if name.startswith((".", "_")):
            continue
        allowed = f"a new or empty folder, or one with {TITLES[kind]}; {folder.shown} holds {name}"
        if name != PART:
            raise InputError("output", output, allowed)
        try:
            with folder.open(name) as file:
                existing_kind = dataset_kind(pq.read_schema(file))
        except (pa.ArrowException, OSError, InputError):
            existing_kind = ""
        if existing_kind != kind:
            raise InputError("output", output, f"{allowed} from something else")
    remove_empty(folder.make())  # fail before anything is computed


def write_table(output: str, table: pa.Table) -> str:
    """Write a table as a dataset of one part, replacing an existing one; returns its folder."""
    folder = folder_at(output)
    folder.make()

    def into(file: IO[bytes]) -> None:
        pq.write_table(table, file, **how_to_write(table.schema))

    folder.write(PART, into)
    return folder.shown
