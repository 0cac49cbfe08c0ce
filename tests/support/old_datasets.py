"""Datasets as fastflow wrote them before version 0.2.0: other names of columns, and no kind."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fastflow.schema.renamed import old_column


def with_old_names(table: pa.Table) -> pa.Table:
    """Return a table of a dataset with the names that its columns and cells had, and without a kind."""
    names = []
    for index, field in enumerate(table.schema):
        is_users = b"own" in (field.metadata or {})
        names.append(field.name if is_users else old_column(field.name))
        cells = table.column(index).to_pylist()
        if field.name.startswith("placement") and not is_users:
            cells = [cell if cell is None else re.sub(r"\bpp\b", "lp", cell) for cell in cells]
        elif field.name == "by":
            cells = list(map(old_column, cells))
        else:
            continue
        table = table.set_column(index, field, pa.array(cells, field.type))
    metadata = dict(table.schema.metadata)
    del metadata[b"fastflow.kind"]
    if b"fastflow.measured" in metadata:
        metadata[b"fastflow.kind"] = metadata.pop(b"fastflow.measured")
    return table.rename_columns(names).replace_schema_metadata(metadata)


def make_old(folder: Path) -> None:
    """Give the parts of a dataset their old names."""
    for path in sorted(folder.glob("part-*.parquet")):
        with pq.ParquetFile(path) as part:
            table = part.read(use_threads=False)
        pq.write_table(with_old_names(table), path)
