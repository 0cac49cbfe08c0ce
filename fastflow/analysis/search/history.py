"""History of a search: every scored design, as a Parquet dataset from which the search resumes.

Searches are deterministic: the next designs follow from the scores so far. So a search that restarts repeats
the designs of its history in the same order, and takes their scores from there until the history ends.
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
from fastflow.engine.dataset.schema import ResultTable, differs_in, how_to_write, other_writer, to_arrow

PART_ROWS = 8192  # a part is written as soon as it holds as many designs
_PART = re.compile(r"part-\d{5}\.parquet")
_ALLOWED = "a new or empty folder, or one with the history of the same search"


class History:
    """Designs in the order in which they were scored; kept in memory alone where there is no folder."""

    def __init__(self, output: str | None, schema: pa.Schema) -> None:
        """Open the folder or URL of the history, and read its parts; raises InputError."""
        self.schema = schema
        self.folder = folder_at(output) if output is not None else None
        self.written: list[pa.Table] = []
        self.pending: list[pa.Table] = []
        self.num_consumed = 0
        if self.folder is not None:
            self.new_folders = self.folder.make()
            try:
                self._read()
            except BaseException:
                remove_empty(self.new_folders)
                raise
        self.num_recorded = sum(table.num_rows for table in self.written)
        self._recorded = pa.concat_tables([schema.empty_table(), *self.written])

    def _read(self) -> None:
        """Read the existing parts; raises InputError for anything else."""
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
            if name != _name(len(self.written)):
                gap = f"{_ALLOWED}; this one lacks {_name(len(self.written))}: remove the parts after it"
                raise InputError("output", self.folder.shown, gap)
            self.written.append(table)

    def _others(self, table: pa.Table, other: str) -> str:
        """Say which other search, or which other fastflow, a part belongs to."""
        metadata, expected = table.schema.metadata or {}, self.schema.metadata
        written = other_writer(metadata, self.schema)
        if written:
            return written
        for key in (b"fastflow.overrides", b"fastflow.search"):
            if key in metadata and metadata[key] != expected[key]:
                return f"this one belongs to {metadata[key].decode(errors='replace')}"
        return f"this one belongs to another {other}"

    def recall(self, designs: ResultTable) -> pa.Table | None:
        """Return the recorded results of the next designs, or None where the history ends before them."""
        rows = designs["candidate"].size
        if self.num_consumed + rows > self.num_recorded:
            return None
        table = self._recorded.slice(self.num_consumed, rows)
        for name, column in designs.items():
            if not np.array_equal(table[name].to_numpy(), column):
                assert self.folder is not None
                raise InputError("output", self.folder.shown, f"{_ALLOWED}; this one holds other designs")
        self.num_consumed += rows
        return table

    def add(self, table: ResultTable) -> pa.Table:
        """Add scored designs, and write a part once there are enough; returns their rows."""
        added = to_arrow(table, self.schema)
        self.pending.append(added)
        self.num_consumed += added.num_rows
        if self.folder is not None and sum(part.num_rows for part in self.pending) >= PART_ROWS:
            self.flush()
        return added

    def flush(self) -> None:
        """Write the pending rows as a part."""
        if self.folder is None or not self.pending:
            return
        table = pa.concat_tables(self.pending)

        def into(file: IO[bytes]) -> None:
            pq.write_table(table, file, **how_to_write(self.schema))

        self.folder.write(_name(len(self.written)), into)
        self.written.append(table)
        self.pending = []

    def discard(self) -> None:
        """Remove the new folders, as far as they are empty."""
        if self.folder is not None:
            remove_empty(self.new_folders)

    def table(self) -> pa.Table:
        """Return the whole history."""
        return pa.concat_tables([self.schema.empty_table(), *self.written, *self.pending])


def _name(number: int) -> str:
    return f"part-{number:05d}.parquet"
