"""Kinds of datasets: what writes one names its kind in the metadata, and here it is read.

Datasets of versions before 0.2.0 name none; theirs is guessed from metadata and columns.
"""

from __future__ import annotations

import pyarrow as pa

GRID = "grid"
SEARCH, RANKING, FRONT = "search", "search_ranking", "search_front"
FLEETS, PLAN = "search_fleets", "search_plan"
VALIDATION, ERRORS = "validation", "validation_errors"
SENSITIVITY = "sensitivity"
BACKTEST, GAINS, FILES = "backtest", "backtest_gains", "backtest_files"

TITLES = {
    GRID: "a grid",
    SEARCH: "the history of a search",
    RANKING: "the ranking of a search",
    FRONT: "the front of a search",
    FLEETS: "the configurations of a search over fleets",
    PLAN: "the capacity plan of a search over fleets",
    VALIDATION: "a validation",
    ERRORS: "the errors of a validation",
    SENSITIVITY: "a sensitivity",
    BACKTEST: "a back-test",
    GAINS: "the gains of a back-test",
    FILES: "the errors of a back-test",
}
"""The kinds, as messages name them."""
OF_SEARCH = (SEARCH, RANKING, FRONT)
OF_FLEETS = (FLEETS, PLAN)
OF_VALIDATION = (VALIDATION, ERRORS)
OF_BACKTEST = (BACKTEST, GAINS, FILES)
KEY = "fastflow.kind"
"""Key of the kind in the metadata of a dataset."""

_OLD_COLUMNS = {
    SENSITIVITY: {"figure", "figure_value", "elasticity"},
    BACKTEST: {"chip", "quantity", "real", "generated"},
    GAINS: {"workload", "before", "after", "real_gain"},
    FILES: {"file", "chip", "real_error"},
}
"""Columns that identify a kind of datasets without one: no grid has all columns of a kind."""


def with_kind(schema: pa.Schema, kind: str) -> pa.Schema:
    """Return a schema whose metadata name another kind."""
    return schema.with_metadata({**(schema.metadata or {}), KEY.encode(): kind.encode()})


def says_kind(schema: pa.Schema) -> bool:
    """Say whether the metadata of a dataset name its kind; those of before 0.2.0 do not."""
    return (schema.metadata or {}).get(KEY.encode(), b"").decode(errors="replace") in TITLES


def dataset_kind(schema: pa.Schema) -> str:
    """Return the kind of a dataset, one of `TITLES`; "" for a table that fastflow did not write."""
    return str(schema.metadata[KEY.encode()].decode()) if says_kind(schema) else _guessed_kind(schema)


def _guessed_kind(schema: pa.Schema) -> str:
    """Return the kind of a dataset of before 0.2.0, by its metadata and columns."""
    metadata, names = schema.metadata or {}, set(schema.names)
    if b"fastflow.measurements" in metadata:
        return ERRORS if "mean_error" in names else VALIDATION
    if b"fastflow.points" not in metadata:
        for kind, columns in _OLD_COLUMNS.items():
            if columns <= names:
                return kind
    if b"fastflow.version" not in metadata:
        return ""
    if "score" in names:
        return RANKING if "rank" in names else SEARCH if "step" in names else FRONT
    return GRID
