"""Kinds of tables that are datasets of one part, recognised by their schema."""

from __future__ import annotations

import pyarrow as pa

SENSITIVITY, VALIDATION = "a sensitivity", "a validation"
BACKTEST, GAINS, FILES = "a back-test", "the gains of a back-test", "the errors of a back-test"
_COLUMNS = {
    SENSITIVITY: {"figure", "figure_value", "elasticity"},
    BACKTEST: {"chip", "quantity", "real", "generated"},
    GAINS: {"workload", "before", "after", "real_gain"},
    FILES: {"file", "chip", "real_error"},
}
"""Columns that identify a kind of table: no grid has all columns of a kind."""


def kind_of_table(schema: pa.Schema) -> str:
    """Return the kind of a table, "" for another dataset or none of fastflow's."""
    metadata = schema.metadata or {}
    if b"fastflow.measurements" in metadata:
        return VALIDATION
    if b"fastflow.points" in metadata:
        return ""
    return next((kind for kind, names in _COLUMNS.items() if names <= set(schema.names)), "")
