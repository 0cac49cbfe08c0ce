"""Reader of all datasets that fastflow writes, at a path or a URL."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fastflow.dataset.folder import LocalFolder, UrlFolder, folder_at, is_url
from fastflow.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_PART = re.compile(r"part-\d{5,}\.parquet")

_ALLOWED = "the folder or URL of a fastflow dataset"


class Dataset(NamedTuple):
    """A dataset that was found."""

    folder: LocalFolder | UrlFolder
    parts: list[str]
    schema: pa.Schema

    def about(self, key: str) -> str:
        """Return what its metadata hold under a key of fastflow's, "" for nothing."""
        held = self.schema.metadata or {}
        return str(held.get(f"fastflow.{key}".encode(), b"").decode())

    def axis(self, name: str) -> str:
        """Return what a column of a search's history measures, with its unit."""
        about = self.schema.field(name).metadata
        return f"{about[b'meaning'].decode()} [{about[b'unit'].decode()}]"

    def read(self, wanted: Collection[str]) -> pd.DataFrame:
        """Return some columns of all points in point order, texts as categories; raises InputError."""
        lacks = [name for name in wanted if name not in self.schema.names]
        if lacks:
            version = self.about("version") or "unknown"
            allowed = f"a dataset with {', '.join(lacks)}; this one, of version {version}, has no such column"
            raise InputError("dataset", self.folder.shown, allowed)
        names = [name for name in self.schema.names if name in {"point", *wanted}]
        tables = []
        for part in self.parts:
            try:
                with self.folder.open(part) as file:
                    tables.append(pq.read_table(file, columns=names))
            except (pa.ArrowInvalid, OSError) as error:
                raise _damaged(self.folder.shown, part) from error
        frame: pd.DataFrame = pa.concat_tables(tables).to_pandas(strings_to_categorical=True)
        return frame.sort_values("point", ignore_index=True) if "point" in names else frame


def find(name: str) -> Dataset:
    """Return the dataset at a path or URL; raises InputError where there is none."""
    if not is_url(name) and not Path(name).is_dir():
        reason = "this is not a folder" if Path(name).exists() else "there is no such folder"
        raise InputError("dataset", name, f"{_ALLOWED}; {reason}")
    try:
        folder = folder_at(name)
        parts = [part for part in folder.names() if _PART.fullmatch(part)]
    except InputError as error:
        raise InputError("dataset", name, error.allowed) from None
    if not parts:
        raise InputError("dataset", name, f"{_ALLOWED}; this one holds no part of a dataset")
    try:
        with folder.open(parts[0]) as file:
            schema = pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(name, parts[0]) from error
    if b"fastflow.version" not in (schema.metadata or {}):
        raise InputError("dataset", name, f"{_ALLOWED}; fastflow did not write {parts[0]}")
    return Dataset(folder, parts, schema)


def _damaged(name: str, part: str) -> InputError:
    return InputError("dataset", name, f"{_ALLOWED}; its {part} is damaged")
