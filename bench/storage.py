"""What compression, encodings and the size of parts cost: the tables of `docs/storage.md`.

    python bench/storage.py

Rows are those of parts from all over `sweeps/million`, as fastflow writes them.
"""

from __future__ import annotations

import io
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fastflow.config.composer import Composer
from fastflow.engine.dataset.schema import how_to_write, schema_of, to_arrow
from fastflow.engine.dataset.store import parts_of
from fastflow.engine.grid.plan import plan
from fastflow.engine.run.chunks import evaluated

PARTS = range(6, 124, 12)
ROUNDS = 5
COMPRESSIONS: dict[str, dict[str, Any]] = {
    "none": {"compression": "none"},
    "snappy": {"compression": "snappy"},
    "lz4": {"compression": "lz4"},
    **{f"zstd {level}": {"compression": "zstd", "compression_level": level} for level in (1, 3, 6, 9)},
    "gzip 6": {"compression": "gzip", "compression_level": 6},
}


def encodings(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """Return ways to encode the columns of a schema, all of them compressed alike."""
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    wholes = [field.name for field in schema if pa.types.is_integer(field.type)]
    split = {"use_dictionary": texts, "column_encoding": dict.fromkeys(floats, "BYTE_STREAM_SPLIT")}
    delta = {**split["column_encoding"], **dict.fromkeys(wholes, "DELTA_BINARY_PACKED")}  # type: ignore[dict-item]
    return {
        "dictionary for all columns": {},
        "dictionary for strings": {"use_dictionary": texts},
        "dictionary for strings, byte stream split for floats": split,
        "dictionary for strings, byte stream split for floats, delta for whole numbers": {
            "use_dictionary": texts,
            "column_encoding": delta,
        },
        "no dictionary": {"use_dictionary": False},
    }


def row(name: str, tables: list[pa.Table], writing: dict[str, Any]) -> str:
    """Write tables, each a file, and read them back; returns a row of a Markdown table."""
    rows = sum(table.num_rows for table in tables)
    write, read, size = [], [], 0
    for _ in range(ROUNDS):
        files = [io.BytesIO() for _ in tables]
        start = perf_counter()
        for table, file in zip(tables, files, strict=True):
            pq.write_table(table, file, **writing)
        write.append(perf_counter() - start)
        size = sum(file.tell() for file in files)
        start = perf_counter()
        for file in files:
            pq.read_table(file, use_threads=False)
        read.append(perf_counter() - start)
    cost = " | ".join(f"{median(times) / rows * 1e6:.2f}" for times in (write, read))
    return f"| {name} | {size / rows:.0f} | {cost} |"


def main() -> None:
    """Print the tables."""
    study = plan(Composer.of_library(), ["+sweeps=million"])
    schema = schema_of(study.grid)
    ranges = [parts_of(study.grid.points).range(number) for number in PARTS]
    tables = [
        pa.concat_tables(to_arrow(table, schema) for table in evaluated(study.grid, *ends, study.settings))
        for ends in ranges
    ]
    whole = pa.concat_tables(tables)
    texts = encodings(schema)["dictionary for strings"]
    head = "| B a row | write, us a row | read, us a row |\n|---|---|---|---|"
    print(f"{whole.num_rows:,} rows of {len(schema)} columns")
    print(f"\n| compression, with a dictionary for strings {head}")
    for name, writing in COMPRESSIONS.items():
        print(row(name, tables, writing | texts), flush=True)
    print(f"\n| encoding, with zstd 3 {head}")
    for name, writing in encodings(schema).items():
        print(row(name, tables, COMPRESSIONS["zstd 3"] | writing), flush=True)
    print(f"\n| rows of a part {head}")
    for size in (256, 1024, 4096, 8192, 16384):
        pieces = [whole.slice(at, size) for at in range(0, whole.num_rows, size)]
        print(row(f"{size:,}", pieces, how_to_write(schema)), flush=True)


if __name__ == "__main__":
    main()
