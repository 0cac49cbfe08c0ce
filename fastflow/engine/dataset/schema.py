"""Schema of a dataset: columns with types, units and meanings, and the origin of the results."""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastflow.core import jit
from fastflow.core.tables import Texts, is_broadcast
from fastflow.core.version import version
from fastflow.engine.dataset.kinds import GRID, KEY
from fastflow.engine.grid.grid import Grid
from fastflow.schema import Column, find_input, find_result, result_column, result_order

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import pandas as pd

ResultTable = dict[str, NDArray[Any]]
"""Result columns in the dataset's order, shape (points,); masked where a point has no such column."""


def column_order(grid: Grid) -> list[str]:
    """Return the names of the dataset's columns, in order: choices, swept inputs, results."""
    names = result_order(grid.levels, grid.has_layer_runs, grid.served, grid.uncertainty is not None)
    swept = [key for key in grid.keys if key not in names]
    after = names.index("tiling") + 1
    return [*names[:after], *swept, *names[after:]]


def kind_of(name: str, grid: Grid) -> str:
    """Return the type of a column of the dataset: "float", "int", "bool" or "str"."""
    if name in grid.labels:
        return "str"
    column = _column_of(name)
    assert column is not None, name
    return column.kind


def _column_of(name: str) -> Column | None:
    """Return the registered column of a name; None for a key that is no input."""
    return find_result(name) or find_input(name)


_THREADS_FROM = 10_000  # rows; for fewer, starting threads takes longer
_MAX_DIRECT = 100  # rows that become a DataFrame without Arrow
_TEXTS = "OU"  # dtype kinds of texts
TYPES = {"float": pa.float64(), "int": pa.int64(), "bool": pa.bool_(), "str": pa.string()}
"""The type of a column by its kind."""
_STORED: dict[Any, Any] = {TYPES["float"]: np.float64, TYPES["int"]: np.int64, TYPES["bool"]: np.bool_}
_OF_STORED = {np.dtype(stored): kind for kind, stored in _STORED.items()}

_IDENTITY = {
    b"fastflow.fingerprint": "configuration",
    b"fastflow.version": "version",
    b"fastflow.model": "model",
}
_WRITER = (b"fastflow.version", b"fastflow.model")


def how_to_write(schema: pa.Schema) -> dict[str, Any]:
    """Return compression and encodings, chosen by the tables of docs/storage.md, and checksums of pages."""
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    return {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": texts,
        "write_page_checksum": True,
    }


@cache
def field_of(name: str, kind: str) -> pa.Field:
    """Return the field of a column of a kind ("float", "int", "bool", "str"), with its unit and meaning."""
    column = _column_of(name)
    about = {"unit": column.unit if column else "", "meaning": column.meaning if column else ""}
    return pa.field(name, TYPES[kind], metadata=about)


def result_field(name: str) -> pa.Field:
    """Return the field of a registered result column; raises KeyError for another name."""
    return field_of(name, result_column(name).kind)


def schema_of(grid: Grid) -> pa.Schema:
    """Return the schema of a grid's results: types, and for each column its unit and meaning.

    The schema's own metadata hold fastflow's version and a hash of its model's sources, the
    configuration's fingerprint, the overrides, the number of points and what varies among them.
    """
    return pa.schema(
        [field_of(name, kind_of(name, grid)) for name in column_order(grid)],
        metadata={
            **identity(grid, GRID),
            "fastflow.points": str(grid.points),
            "fastflow.axes": json.dumps(grid.keys),
            **({"fastflow.report": grid.report} if grid.report else {}),
        },
    )


def identity(grid: Grid, kind: str, *extra: object) -> dict[str, str]:
    """Return the metadata that identify results: those of a grid, and extra inputs.

    kind: of the dataset, of `fastflow.engine.dataset.kinds`.
    """
    fingerprint, overrides, user_overrides = grid.provenance
    if extra:
        fingerprint = hashlib.sha256(json.dumps([fingerprint, *extra]).encode()).hexdigest()
    of_user = {"fastflow.given": json.dumps(user_overrides)} if user_overrides else {}
    return origin(kind, fingerprint, overrides) | of_user


def origin(kind: str, fingerprint: str, overrides: Sequence[str]) -> dict[str, str]:
    """Return the metadata of every dataset: kind, versions, a fingerprint of all inputs, overrides."""
    return {
        KEY: kind,
        "fastflow.version": version(),
        "fastflow.model": jit.MODEL_DIGEST,
        "fastflow.fingerprint": fingerprint,
        "fastflow.overrides": json.dumps(overrides),
    }


def to_arrow(table: ResultTable, schema: pa.Schema) -> pa.Table:
    """Return result columns as an Arrow table; NaN and masked values become null."""
    arrays = [array_of(table[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


_LAST_OF_ASCII = 127
_PANDAS_FROM = 2000  # rows from which importing pandas pays off


def array_of(column: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return a column as an Arrow array of one of TYPES; NaN, None and masked values become null.

    Raises TypeError for values of another kind.
    """
    is_quicker = column.size >= _PANDAS_FROM or "pandas" in sys.modules
    if not is_quicker or isinstance(column, np.ma.MaskedArray):  # Arrow would keep NaN in it
        return _array_of_buffers(column, kind)
    if is_broadcast(column):
        return pa.repeat(pa.array(column[:1], type=kind, from_pandas=True)[0], column.size)
    if column.dtype.kind == "U":
        return _array_of_column(column)
    return pa.array(column, type=kind, from_pandas=True)


def _array_of_column(column: Texts) -> pa.Array:
    """Return a column of texts as an Arrow array: it takes bytes faster than NumPy's four a letter."""
    letters = np.ascontiguousarray(column).view(np.uint32)
    if letters.max(initial=0) > _LAST_OF_ASCII:
        return pa.array(column, type=TYPES["str"])
    texts = letters.astype(np.uint8).view(f"S{column.itemsize // letters.itemsize}")
    return pa.array(texts, type=pa.binary()).cast(TYPES["str"])


def _array_of_buffers(column: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return the same array without `pa.array`, which imports pandas to see whether its argument is a Series.

    The import takes a quarter of a second, and writing a dataset needs no pandas.
    """
    if kind == TYPES["str"]:
        return _array_of_texts(column.tolist())  # None where masked
    values = np.ma.getdata(column).astype(_STORED[kind], casting="same_kind", copy=False)
    is_null = np.ma.getmaskarray(column)
    if kind == TYPES["float"]:
        is_null = is_null | np.isnan(values)
    buffer = _packed(values) if kind == TYPES["bool"] else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, column.size, [_validity(is_null), pa.py_buffer(buffer)])


def _array_of_texts(texts: list[str | None]) -> pa.Array:
    """Return texts as an Arrow array, None as null: joined bytes and offsets."""
    is_null = np.array([text is None for text in texts], dtype=bool)
    strings = [text or "" for text in texts]
    joined = "".join(strings)
    sizes = map(len, strings if joined.isascii() else map(str.encode, strings))
    ends = np.zeros(len(texts) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(sizes, np.int32, len(texts)), out=ends[1:])
    buffers = [_validity(is_null), pa.py_buffer(ends), pa.py_buffer(joined.encode())]
    return pa.Array.from_buffers(TYPES["str"], len(texts), buffers)


def _packed(flags: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return a bit for each flag, as Arrow has them."""
    return np.packbits(flags, bitorder="little")


def _validity(is_null: NDArray[np.bool_]) -> pa.Buffer | None:
    """Return Arrow's validity bitmap, None where no value is null."""
    return pa.py_buffer(_packed(~is_null)) if is_null.any() else None


def differs_in(metadata: Mapping[bytes, bytes], schema: pa.Schema) -> str:
    """Return how the metadata of a part differ from those of a schema; "" for the same dataset."""
    for key, name in _IDENTITY.items():
        if metadata.get(key) != (schema.metadata or {}).get(key):
            return f"{name} ({metadata.get(key, b'unknown').decode(errors='replace')[:16]})"
    return ""


def other_writer(metadata: Mapping[bytes, bytes], schema: pa.Schema) -> str:
    """Say that another fastflow wrote a part, and what to do; "" where it was written by this one.

    Asked before the configuration, whose fingerprint may change with fastflow.
    """
    if all(metadata.get(key) == (schema.metadata or {}).get(key) for key in _WRITER):
        return ""
    version, model = (metadata.get(key, b"unknown").decode(errors="replace") for key in _WRITER)
    return (
        f"this one was written by another fastflow (version {version}, model {model}): "
        "fastflow report reads it, no run can add to it; choose a new folder"
    )


def units_of(schema: pa.Schema) -> dict[str, str]:
    """Return the unit of every column that has one."""
    units = {field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in schema}
    return {name: unit for name, unit in units.items() if unit}


def to_frame(tables: list[pa.Table]) -> pd.DataFrame:
    """Return Arrow tables as one DataFrame whose `attrs` hold the units and the schema's metadata."""
    table = pa.concat_tables(tables)
    frame: pd.DataFrame = table.to_pandas(use_threads=table.num_rows > _THREADS_FROM)
    frame.attrs = _about(table.schema, units_of(table.schema))
    return frame


def frame_of(tables: list[ResultTable], schema: pa.Schema) -> pd.DataFrame:
    """Return result columns as the DataFrame that `to_frame` makes of them as Arrow tables.

    A few rows, with gaps only in whole numbers, become blocks of one type each, which pandas takes since
    version 3. That takes a quarter of the time of separate columns.
    """
    import pandas as pd

    internals = getattr(pd.api, "internals", None)
    first, rows, names = tables[0], tables[0]["point"].size, schema.names
    columns = [first[name] for name in names]
    if (
        internals is None
        or len(tables) > 1
        or rows > _MAX_DIRECT
        or not all(map(_is_whole, columns, schema.types))
    ):
        return to_frame([to_arrow(table, schema) for table in tables])
    columns = [_as_pandas(column) for column in columns]
    indices: dict[Any, list[int]] = {}
    for i, column in enumerate(columns):
        indices.setdefault("text" if column.dtype.kind in _TEXTS else column.dtype, []).append(i)
    text_indices = indices.pop("text")
    blocks: list[tuple[Any, NDArray[np.int64]]] = [
        (np.array([columns[i] for i in group]), np.array(group)) for group in indices.values()
    ]
    texts = pd.Series(np.concatenate([columns[i].astype(object) for i in text_indices])).array
    for number, i in enumerate(text_indices):  # slicing an array of texts is faster than making one
        blocks.append((texts[number * rows : (number + 1) * rows], np.array([i])))
    frame: pd.DataFrame = internals.create_dataframe_from_blocks(blocks, pd.RangeIndex(rows), pd.Index(names))
    registered = ((name, _column_of(name)) for name in names)  # the source of the schema's units
    frame.attrs = _about(schema, {name: column.unit for name, column in registered if column and column.unit})
    return frame


def _is_whole(column: NDArray[Any], kind: pa.DataType) -> bool:
    """Say whether a column has a value of its type in every row, or whole numbers in some."""
    if isinstance(column, np.ma.MaskedArray) and column.dtype.kind != "i":
        return False
    if column.dtype.kind in _TEXTS:
        is_filled = column.dtype.kind == "U" or all(isinstance(text, str) for text in column)
        return is_filled and bool(kind == TYPES["str"])
    return bool(_OF_STORED.get(column.dtype) == kind)


def _as_pandas(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column as pandas has it: whole numbers with gaps are floats."""
    if not isinstance(column, np.ma.MaskedArray):
        return column
    plain: NDArray[Any] = column.data
    return np.where(column.mask, np.nan, plain) if np.any(column.mask) else plain


def _about(schema: pa.Schema, units: dict[str, str]) -> dict[Hashable | None, Any]:
    about = {key.decode(): value.decode() for key, value in schema.metadata.items()}
    return {"units": units, **about}
