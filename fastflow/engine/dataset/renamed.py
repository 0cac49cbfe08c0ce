"""Datasets of before 0.2.0 under today's names: columns, cells that name columns, metadata, and a kind."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from fastflow.core.advice import advise
from fastflow.engine.dataset import kinds
from fastflow.engine.dataset.folder import SUFFIXES
from fastflow.schema.renamed import VALUES, new_column

MEASURED = "fastflow.measured"
"""Key of the kind of measurement in the metadata of a validation."""
_PLACEMENTS = ("placement", "placement_requested")
_SIBLING = re.compile(f"({'|'.join(SUFFIXES)})$")
_AXES = b"fastflow.axes"
_QUOTED = re.compile(r'"([\w.]+)"', re.ASCII)
_MAX_NAMED = 3  # new names that the line names


def renamed_schema(schema: pa.Schema) -> tuple[pa.Schema, dict[str, str]]:
    """Return the schema of a dataset with today's names, and the stored name of each renamed column.

    A column of a user's own file keeps its name.
    """
    kind = kinds.dataset_kind(schema)
    if kinds.says_kind(schema) or not kind:
        return schema, {}
    fields, stored = [], {}
    for field in schema:
        name = field.name if b"own" in (field.metadata or {}) else new_column(field.name)
        if name in schema.names:
            name = field.name
        if name != field.name:
            stored[name] = field.name
        fields.append(field.with_name(name))
    return pa.schema(fields, metadata=_metadata(schema, kind)), stored


def _metadata(schema: pa.Schema, kind: str) -> dict[bytes, bytes]:
    """Return the metadata of a dataset with its kind, and a new name where they name a column."""
    metadata = dict(schema.metadata or {})
    key = kinds.KEY.encode()
    if key in metadata:  # of a validation it was the kind of measurement
        metadata[MEASURED.encode()] = metadata[key]
    if b"fastflow.objective" in metadata:
        objective = metadata[b"fastflow.objective"].decode(errors="replace")
        metadata[b"fastflow.objective"] = new_column(objective).encode()
    if _AXES in metadata:
        axes = metadata[_AXES].decode(errors="replace")
        metadata[_AXES] = _QUOTED.sub(lambda match: f'"{new_column(match[1])}"', axes).encode()
    return metadata | {key: kind.encode()}


def renamed_table(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return a table of a dataset of before 0.2.0 with today's names: those of its columns, and in cells.

    The pipeline's axis was `lp`; errors of a validation name the column that they are grouped by.
    """
    fields = [field.with_name(name) for field, name in zip(table.schema, names, strict=True)]
    table = pa.Table.from_arrays(table.columns, schema=pa.schema(fields, metadata=table.schema.metadata))
    for index, field in enumerate(table.schema):
        if not pa.types.is_string(field.type) or b"own" in (field.metadata or {}):
            continue
        if field.name in _PLACEMENTS:
            cells = pc.replace_substring_regex(table.column(index), r"\blp\b", "pp")
            table = table.set_column(index, field, cells)
        elif field.name == "by" or field.name in VALUES:
            values = VALUES.get(field.name, {})
            texts = [
                values.get(text, text) if values or text is None else new_column(text)
                for text in table.column(index).to_pylist()
            ]
            table = table.set_column(index, field, pa.array(texts, pa.string()))
    return table


def current_column(name: str) -> str:
    """Return today's name of a result column that a user named, and say it where it has changed."""
    current = new_column(name)
    if current != name:
        advise(f"the column {name} is now {current}")
    return current


def advise_of(stored: dict[str, str], shown: str) -> None:
    """Say once that columns of a dataset have new names; shown: the path of the dataset."""
    if stored:
        pairs = [f"{old} is {new}" for new, old in stored.items()]
        more = f" and {len(pairs) - _MAX_NAMED} more (docs/columns.md)" if len(pairs) > _MAX_NAMED else ""
        line = f"{shown}: its columns have new names: {', '.join(pairs[:_MAX_NAMED])}{more}"
        advise(line, about=_SIBLING.sub("", shown.rstrip("/")))
