"""A dataset: a folder of Parquet parts that `pandas.read_parquet(folder)` reads in one call.

A grid's points are cut into parts of one size, which the number of points alone decides. A part is
there whole or not at all, so a run that is cut short leaves a smaller dataset, and the next run of the
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
from fastflow.engine.dataset.kinds import kind_of_table
from fastflow.engine.dataset.part import read_part
from fastflow.engine.dataset.schema import differs_in, how_to_write, schema_of
from fastflow.engine.grid.grid import Grid

if TYPE_CHECKING:
    from collections.abc import Sequence

_PART = re.compile(r"part-\d{5,}\.parquet")
_LEFT = re.compile(r"_part-\d{5,}\.parquet\.[0-9a-f]+")
PART = "part-00000.parquet"
"""The only part of a small dataset."""
_FEWEST, _MOST = 256, 8192  # points of a part
_PARTS = 16  # of a grid that is neither small nor large: enough to share among jobs


class Parts(NamedTuple):
    """How a grid's points are cut into parts. It follows from their number alone."""

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


def parts_of(points: int) -> Parts:
    """Cut so many points into parts."""
    return Parts(points, min(max(-(-points // _PARTS), _FEWEST), _MOST))


class Store:
    """A dataset being written, or read back. Plain values alone, so that a worker elsewhere can have it."""

    def __init__(self, output: str, grid: Grid) -> None:
        """Take the folder or URL that the dataset goes to, and what it will hold."""
        self.schema = schema_of(grid)
        self.parts = parts_of(grid.points)
        self.folder = folder_at(output)
        self.made: list[Path] = []

    def open(self) -> list[int]:
        """Make the folder and return the parts that are not there yet.

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

    def there(self) -> list[str]:
        """Return the names of the parts that are there."""
        return _parts_among(self.folder.names())

    def missing(self) -> list[int]:
        """Return the parts that are not there."""
        return self._lacking(self.folder.names())

    def _lacking(self, names: Sequence[str]) -> list[int]:
        there = set(_parts_among(names))
        return [number for number in range(self.parts.total) if self.parts.name(number) not in there]

    def _check_content(self, names: Sequence[str]) -> None:
        """Raise InputError where the folder holds anything but parts of this dataset."""
        allowed = "a new or empty folder, or one with a dataset of the same configuration"
        numbers = {self.parts.name(number): number for number in range(self.parts.total)}
        for name in names:
            if _PART.fullmatch(name):
                self._check(name, numbers.get(name), allowed)
            elif not name.startswith((".", "_")):
                raise InputError("output", self.folder.shown, f"{allowed}; this one holds {name}")

    def _check(self, name: str, number: int | None, allowed: str) -> None:
        """Raise InputError for a part of something else, or one that is not what was written."""
        try:
            with self.folder.open(name) as file:
                about = pq.read_metadata(file)
        except Exception as error:  # Arrow raises as many kinds as there are ways to be damaged
            reason = f"{allowed}; its {name} is damaged: remove it and run again"
            raise InputError("output", self.folder.shown, reason) from error
        other = differs_in(about.metadata or {}, self.schema)
        if other:
            reason = f"{allowed}; this one holds a dataset of another {other}"
            raise InputError("output", self.folder.shown, reason)
        start, stop = self.parts.range(number) if number is not None else (0, 0)
        if _points_of(about) != (start, stop, stop - start):
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
        """Remove what runs that were killed have left beside the parts of a dataset that is whole."""
        for name in self.folder.names():
            if _LEFT.fullmatch(name):
                self.folder.remove(name)


def _parts_among(names: Sequence[str]) -> list[str]:
    return [name for name in names if _PART.fullmatch(name)]


def _points_of(about: pq.FileMetaData) -> tuple[int, int, int] | None:
    """Return the first point of a part, the one after its last, and how many rows it has; None for none."""
    points = about.row_group(0).column(0).statistics if about.num_row_groups else None
    if points is None or not isinstance(points.min, int):
        return None
    return points.min, points.max + 1, about.num_rows


def check_table(output: str, kind: str) -> None:
    """Refuse a folder that cannot be written, or holds anything but a table of a kind; raises InputError.

    kind: one of fastflow.engine.dataset.kinds, whose tables `write_table` may replace.
    """
    folder = folder_at(output)
    for name in folder.names():
        if name.startswith((".", "_")):
            continue
        allowed = f"a new or empty folder, or one with {kind}; {folder.shown} holds {name}"
        if name != PART:
            raise InputError("output", output, allowed)
        try:
            with folder.open(name) as file:
                held = kind_of_table(pq.read_schema(file))
        except (pa.ArrowException, OSError, InputError):
            held = ""
        if held != kind:
            raise InputError("output", output, f"{allowed} from something else")
    remove_empty(folder.make())  # what cannot be written is not computed first


def write_table(output: str, table: pa.Table) -> str:
    """Write a table as a dataset of one part, in place of one that is there; returns where it lies."""
    folder = folder_at(output)
    folder.make()

    def into(file: IO[bytes]) -> None:
        pq.write_table(table, file, **how_to_write(table.schema))

    folder.write(PART, into)
    return folder.shown
