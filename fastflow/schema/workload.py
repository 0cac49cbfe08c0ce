"""Inputs of workloads: those of all families, and what every family has."""

from __future__ import annotations

from collections.abc import Iterable

from fastflow.core.field import Column, count, text
from fastflow.physics.workload import FAMILIES
from fastflow.physics.workload.precision import FORMATS, STATES


def _family_columns() -> Iterable[Column]:
    """Return the inputs of workloads, each column once, with the meanings of all families.

    Its lower bound is the lowest of all families; `workload.invalid_model_dims` checks the bound of each.
    """
    columns: dict[str, Column] = {}
    for family in FAMILIES.built_ins():
        for column in family.structure + family.sizes:
            merged = columns.setdefault(column.name, column)
            low, meaning = min(merged.low, column.low), merged.meaning
            if column.meaning not in meaning.split(", or "):
                meaning = f"{meaning}, or {column.meaning}"
            columns[column.name] = merged._replace(low=low, meaning=meaning)
    return columns.values()


WORKLOAD: tuple[Column, ...] = (
    text("model.name", "workload", FAMILIES.built_in),
    text("model.dtype", "data type of the operands", tuple(FORMATS)),
    Column("model.training", "bool", "", "true: forward, backward and update; false: forward only"),
    text("model.optimizer", "optimizer", tuple(STATES)),
    count("model.devices", "number of accelerators in the published study"),
    text("model.strategy", "strategy of the published study"),
    *_family_columns(),
)
