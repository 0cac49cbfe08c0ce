"""History of a search: every scored design, as a Parquet dataset from which the search resumes.

Searches are deterministic: what is asked next follows from the scores so far. So a search that restarts
asks for what its history holds already, in the same order, and is answered from there until the history ends.
"""

from __future__ import annotations

import re
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastflow.core.errors import InputError
from fastflow.engine.dataset.folder import folder_at, remove_empty
from fastflow.engine.dataset.part import read_part
from fastflow.engine.dataset.schema import ResultTable, differs_in, how_to_write, to_arrow

PART_ROWS = 8192  # a part is written as soon as it holds as many designs
_PART = re.compile(r"part-\d{5}\.parquet")
_ALLOWED = "a new or empty folder, or one with the history of the same search"


class History:
    """Designs in the order in which they were scored; kept in memory alone where there is no folder."""

    def __init__(self, output: str | None, schema: pa.Schema) -> None:
        """Take the folder or URL that the history lies in, and what it holds; raises InputError."""
        self.schema = schema
        self.folder = folder_at(output) if output is not None else None
        self.stored: list[pa.Table] = []
        self.fresh: list[pa.Table] = []
        self.told = 0
        if self.folder is not None:
            self.made = self.folder.make()
            try:
                self._read()
            except BaseException:
                remove_empty(self.made)
                raise
        self.there = sum(table.num_rows for table in self.stored)
        self._kept = pa.concat_tables([schema.empty_table(), *self.stored])

    def _read(self) -> None:
        """Read the parts that are there; raises InputError for anything else."""
        assert self.folder is not None
        for name in self.folder.names():
            if name.startswith((".", "_")):
                continue
            if not _PART.fullmatch(name):
                raise InputError("output", self.folder.shown, f"{_ALLOWED}; this one holds {name}")
            try:
                with self.folder.open(name) as file:
                    table = read_part(file)
            except Exception as error:  # Arrow raises as many kinds as there are ways to be damaged
                damaged = f"{_ALLOWED}; its {name} is damaged: remove it and the parts after it"
                raise InputError("output", self.folder.shown, damaged) from error
            other = differs_in(table.schema.metadata or {}, self.schema)
            if not other and not table.schema.equals(self.schema):
                other = "kind, with other columns"
            if other:
                raise InputError("output", self.folder.shown, f"{_ALLOWED}; {self._others(table, other)}")
            if name != _name(len(self.stored)):
                gap = f"{_ALLOWED}; this one lacks {_name(len(self.stored))}: remove the parts after it"
                raise InputError("output", self.folder.shown, gap)
            self.stored.append(table)

    def _others(self, table: pa.Table, other: str) -> str:
        """Say whose history a part is of."""
        held, own = table.schema.metadata or {}, self.schema.metadata
        for key in (b"fastflow.overrides", b"fastflow.search"):
            if key in held and held[key] != own[key]:
                return f"this one belongs to {held[key].decode(errors='replace')}"
        return f"this one belongs to another {other}"

    def recall(self, asked: ResultTable) -> pa.Table | None:
        """Return what the history knows of designs that are asked for, or None where it ends before them."""
        rows = asked["candidate"].size
        if self.told + rows > self.there:
            return None
        table = self._kept.slice(self.told, rows)
        for name, column in asked.items():
            if not np.array_equal(table[name].to_numpy(), column):
                assert self.folder is not None
                raise InputError("output", self.folder.shown, f"{_ALLOWED}; this one holds other designs")
        self.told += rows
        return table

    def add(self, table: ResultTable) -> pa.Table:
        """Take designs that have been scored, and write them down once there are enough; returns them."""
        added = to_arrow(table, self.schema)
        self.fresh.append(added)
        self.told += added.num_rows
        if self.folder is not None and sum(one.num_rows for one in self.fresh) >= PART_ROWS:
            self.flush()
        return added

    def flush(self) -> None:
        """Write down what has not been written yet."""
        if self.folder is None or not self.fresh:
            return
        table = pa.concat_tables(self.fresh)

        def into(file: IO[bytes]) -> None:
            pq.write_table(table, file, **how_to_write(self.schema))

        self.folder.write(_name(len(self.stored)), into)
        self.stored.append(table)
        self.fresh = []

    def discard(self) -> None:
        """Remove the folders that were made for it, as far as they are empty."""
        if self.folder is not None:
            remove_empty(self.made)

    def table(self) -> pa.Table:
        """Return the whole history."""
        return pa.concat_tables([self.schema.empty_table(), *self.stored, *self.fresh])


def _name(number: int) -> str:
    return f"part-{number:05d}.parquet"
