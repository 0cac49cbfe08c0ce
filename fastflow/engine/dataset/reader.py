"""Reader of all datasets that fastflow writes, at a path or a URL; damaged ones are refused."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fastflow.config.renamed_keys import renamed_overrides
from fastflow.core.errors import InputError
from fastflow.engine.dataset import kinds
from fastflow.engine.dataset.folder import LocalFolder, UrlFolder, folder_at, is_url
from fastflow.engine.dataset.part import read_part
from fastflow.engine.dataset.renamed import advise_of, renamed_schema, renamed_table
from fastflow.engine.dataset.schema import TYPES, differs_in
from fastflow.engine.dataset.store import PART, PART_NAME
from fastflow.schema import find_input, find_result

if TYPE_CHECKING:
    import pandas as pd

_ALLOWED = "the folder or URL of a fastflow dataset"
_NUMBERS = ("point", "design")
"""Columns that number the rows of a dataset, each row once."""
_NEVER_NULL = (*_NUMBERS, "feasible", "candidate", "rank", "step")
_NEVER_NULL_OF = {kinds.VALIDATION: ("line", "measured_s"), kinds.ERRORS: ("by", "value", "rows")}
"""And those of a kind."""
_SIGNED = (
    "score", "log_correlation", "difference", "elasticity", "elasticity_minus", "elasticity_plus",
    "sobol_first", "sobol_total",
)  # fmt: skip
"""Columns of fastflow that may be below 0."""


class Dataset(NamedTuple):
    """A dataset at a path or URL."""

    folder: LocalFolder | UrlFolder
    parts: list[str]
    schema: pa.Schema
    """Under today's names, with the kind."""
    stored: Mapping[str, str] = MappingProxyType({})
    """The stored name of each column that has another one today."""
    is_old: bool = False
    """Whether it was written before 0.2.0, when datasets named no kind."""

    @property
    def kind(self) -> str:
        """The kind of the dataset, of `fastflow.engine.dataset.kinds`."""
        return kinds.dataset_kind(self.schema)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.shown.rstrip("/").rpartition("/")[2]

    def about(self, key: str) -> str:
        """Return the metadata under a key of fastflow, "" for none; raises InputError."""
        metadata = self.schema.metadata or {}
        with self.whole(f"the metadata of {self.parts[0]}"):
            return str(metadata.get(f"fastflow.{key}".encode(), b"").decode())

    def texts(self, key: str) -> list[str]:
        """Return the list of texts that its metadata hold under a key; raises InputError."""
        with self.whole(f"the metadata of {self.parts[0]}"):
            texts = json.loads(self.about(key))
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise ValueError(key)
            return texts

    @property
    def user_overrides(self) -> list[str]:
        """Overrides that plan the same grid, by today's names; [] where there are none; raises InputError."""
        texts = next((self.texts(key) for key in ("given", "overrides") if self.about(key)), [])
        return renamed_overrides(texts)

    def mapping(self, key: str) -> dict[str, Any]:
        """Return the mapping that its metadata hold under a key; raises InputError."""
        with self.whole(f"the metadata of {self.parts[0]}"):
            mapping = json.loads(self.about(key))
            if not isinstance(mapping, dict):
                raise ValueError(key)
            return mapping

    @property
    def grid_points(self) -> int:
        """The number of points of the whole grid, 0 for other datasets; raises InputError."""
        with self.whole(f"the metadata of {self.parts[0]}"):
            return int(self.about("points") or 0)

    def axis(self, name: str) -> str:
        """Return the meaning of a column of a search's history, with its unit; raises InputError."""
        with self.whole(f"the metadata of {self.parts[0]}"):
            about = self.schema.field(name).metadata
            return f"{about[b'meaning'].decode()} [{about[b'unit'].decode()}]"

    def read(self, wanted: Collection[str], only: NDArray[np.int64] | None = None) -> pd.DataFrame:
        """Return some columns of all points in point order, texts as categories; raises InputError.

        only: numbers of the points, or designs, that are read; None: all.
        """
        missing = [name for name in wanted if name not in self.schema.names]
        if missing:
            version = self.about("version") or "unknown"
            allowed = (
                f"a dataset with {', '.join(missing)}; this one, of version {version}, has no such column"
            )
            raise InputError("dataset", self.folder.shown, allowed)
        number = next((name for name in _NUMBERS if name in self.schema.names), "")
        names = [name for name in self.schema.names if name in {number, *wanted}]
        for name in names:
            self._check_kind(name)
        table = pa.concat_tables([_filter_rows(self._part(part, names), number, only) for part in self.parts])
        with self.whole("one of its texts"):
            frame: pd.DataFrame = table.to_pandas(strings_to_categorical=True)
        self._check_rows(table, number, only is None)
        if number == "point":
            return frame.sort_values("point", ignore_index=True)
        return frame[[name for name in names if name in wanted]]

    @contextmanager
    def whole(self, what: str) -> Iterator[None]:
        """Raise InputError for any exception inside: the dataset is damaged."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # Arrow raises many types
            raise self._refusal(f"{what} is damaged") from error

    def _refusal(self, reason: str) -> InputError:
        return InputError("dataset", self.folder.shown, f"{_ALLOWED}; {reason}")

    def _check_kind(self, name: str) -> None:
        """Refuse a column of the wrong type; the column of an input may hold names of choices."""
        field = self.schema.field(name)
        # a column of a file of measurements may have empty cells
        is_user_column = b"own" in (field.metadata or {})
        column = None if is_user_column else find_result(name) or find_input(name)
        is_number = bool((field.metadata or {}).get(b"unit"))
        expected = TYPES[column.kind] if column is not None else TYPES["float"] if is_number else field.type
        is_choice = find_result(name) is None and not is_number and field.type == TYPES["str"]
        text_of_input = find_result(name) is None and column is not None and field.type == TYPES["str"]
        if not (field.type == expected or is_choice or text_of_input):
            raise self._refusal(f"its column {name} holds {field.type} instead of {expected}")
        if field.type not in TYPES.values():  # a column of a user's own file
            raise self._refusal(f"its column {name} holds {field.type}, which fastflow never writes")

    def _is_result(self, name: str) -> bool:
        """Say whether a column is a result of fastflow that is never below 0."""
        is_user_column = b"own" in (self.schema.field(name).metadata or {})
        column = None if is_user_column else find_result(name)
        return column is not None and column.kind in ("int", "float") and name not in _SIGNED

    def _part(self, part: str, names: list[str]) -> pa.Table:
        """Read a part; raises InputError where it is damaged, or belongs to another dataset."""
        with self.whole(f"its {part}"), self.folder.open(part) as file:
            table = read_part(file, [self.stored.get(name, name) for name in names])
        if self.is_old:
            table = renamed_table(table, names)
        same_columns = table.schema.remove_metadata().equals(
            pa.schema([self.schema.field(name) for name in names])
        )
        difference = "columns" if not same_columns else differs_in(table.schema.metadata or {}, self.schema)
        if difference:
            raise self._refusal(f"its {part} is of another one, with other {difference}")
        if "point" in names and self.grid_points and _lacks_rows(table["point"]):
            raise self._refusal(f"its {part} lacks some of its rows")
        return table

    def _check_rows(self, table: pa.Table, number: str, is_whole: bool) -> None:
        """Refuse a dataset without rows or with duplicates, and null, infinity or NaN where invalid."""
        if not table.num_rows and self.kind != kinds.FRONT:  # the front of a search may be empty
            raise self._refusal("it holds no rows")
        for name in (*_NEVER_NULL, *_NEVER_NULL_OF.get(self.kind, ())):
            if name in table.column_names and table[name].null_count:
                raise self._refusal(f"its column {name} has empty rows")
        for name in (field.name for field in table.schema if pa.types.is_floating(field.type)):
            if pc.all(pc.is_finite(table[name])).as_py() is False:  # unknown values are null
                raise self._refusal(f"its column {name} holds what is no number")
        for name in filter(self._is_result, table.column_names):
            minimum = pc.min(table[name]).as_py()
            if minimum is not None and minimum < 0:
                raise self._refusal(f"its column {name} holds {minimum:g}, below 0")
        if len(self.parts) > 1 and not (self.grid_points or self.kind == kinds.SEARCH):
            raise self._refusal(f"it has {len(self.parts):,} parts and is written as one")
        if not number or not (self.grid_points or number == "design"):
            return
        values = table[number].to_numpy()
        if not values.size:
            return
        if len(set(values.tolist())) < values.size:
            raise self._refusal(f"a {number} is there twice, as if a part had been copied")
        is_history = is_whole and self.kind == kinds.SEARCH
        last = self.grid_points if number == "point" else values.size if is_history else 0
        if values.min() < 0 or (last and values.max() >= last):
            gap = (
                f"a {number} is there that is none of its {last:,}"
                if number == "point"
                else "a part is missing"
            )
            raise self._refusal(gap)


def _lacks_rows(points: pa.ChunkedArray) -> bool:
    """Say whether points are missing between the first and the last point of a part."""
    first, last = (pc.min_max(points)[end].as_py() for end in ("min", "max"))
    return first is not None and len(points) < last - first + 1


def _filter_rows(table: pa.Table, number: str, only: NDArray[np.int64] | None) -> pa.Table:
    """Return the rows of a part whose numbers are in `only`; all rows for None."""
    return table if only is None else table.filter(pc.is_in(table[number], pa.array(only)))


def find(name: str) -> Dataset:
    """Return the dataset at a path or URL; raises InputError where there is none."""
    try:
        if not is_url(name) and not Path(name).is_dir():
            reason = "this is not a folder" if Path(name).exists() else "there is no such folder"
            raise InputError("dataset", name, f"{_ALLOWED}; {reason}")
        folder = folder_at(name)
        parts = [part for part in folder.names() if PART_NAME.fullmatch(part)]
    except InputError as error:
        raise InputError("dataset", name, error.allowed) from None
    except (OSError, ValueError) as error:  # a name that no folder can have
        raise InputError("dataset", name.replace("\0", "\\0"), f"{_ALLOWED} ({error})") from None
    if not parts:
        raise InputError("dataset", name, f"{_ALLOWED}; this one holds no part of a dataset")
    dataset = Dataset(folder, parts, pa.schema([]))
    with dataset.whole(f"its {parts[0]}"), folder.open(parts[0]) as file:
        schema = _schema(file)
    if b"fastflow.version" not in (schema.metadata or {}):
        kind = kinds.dataset_kind(schema)
        reason = f"this is {kinds.TITLES[kind]} of an older version: run it again" if kind else ""
        raise InputError("dataset", name, f"{_ALLOWED}; {reason or f'fastflow did not write {parts[0]}'}")
    renamed, stored = renamed_schema(schema)
    advise_of(stored, dataset.folder.shown)
    return dataset._replace(schema=renamed, stored=stored, is_old=renamed is not schema)


def written(name: str, table: pa.Table) -> Dataset:
    """Return the dataset of a table that was just written to a path or URL, without reading it."""
    return Dataset(folder_at(name), [PART], table.schema)


def _schema(file: IO[bytes]) -> pa.Schema:
    """Read the schema of a part; raises ValueError for duplicate names."""
    schema = pq.read_schema(file)
    if len(set(schema.names)) < len(schema.names):
        raise ValueError("a column is there twice")
    return schema
