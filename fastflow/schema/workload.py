"""Inputs of workloads: those of all families, and what every family has."""

from __future__ import annotations

from collections.abc import Iterable

from fastflow.core.field import Column, count, text
from fastflow.physics.workload import FAMILIES
from fastflow.physics.workload.models.transformer.distillation import TEACHERS
from fastflow.physics.workload.models.transformer.encoder.vision import VISION
from fastflow.physics.workload.models.transformer.lora import LORA
from fastflow.physics.workload.models.transformer.packing import DOCUMENT
from fastflow.physics.workload.models.transformer.preference import METHOD
from fastflow.physics.workload.optimizers import OPTIMIZERS
from fastflow.physics.workload.precision import FORMATS


def _family_columns() -> Iterable[Column]:
    """Return the inputs of workloads, each column once, with the meanings of all families.

    Its lower bound is the lowest of all families, and its choices are those of any;
    `workload.invalid_model_dims` checks those of each.
    """
    columns: dict[str, Column] = {}
    meanings: dict[str, list[str]] = {}
    for family in FAMILIES.built_ins():
        for column in family.structure + family.sizes:
            merged = columns.setdefault(column.name, column)
            choices = tuple(dict.fromkeys((*merged.choices, *column.choices)))
            columns[column.name] = merged._replace(low=min(merged.low, column.low), choices=choices)
            meanings.setdefault(column.name, []).append(column.meaning)
    return [column._replace(meaning=_merged(meanings[name])) for name, column in columns.items()]


def _merged(meanings: Iterable[str]) -> str:
    """Return different meanings in one text; a meaning that another one begins with is left out."""
    different = dict.fromkeys(meanings)
    return ", or ".join(
        meaning
        for meaning in different
        if not any(other != meaning and other.startswith(meaning) for other in different)
    )


WORKLOAD: tuple[Column, ...] = (
    text("model.name", "family of models", FAMILIES.built_in),
    text(
        "model.dtype",
        "data type of the operands of GEMMs, those of experts too; auto: that of model.published,"
        " or another that the chip has",
        tuple(FORMATS),
    ),
    Column(
        "model.training",
        "bool",
        "",
        "true: forward, backward and update, of a single kernel its gradients too; false: forward alone",
    ),
    text(
        "model.optimizer",
        "optimizer, which sets the bytes of its state, and what the update of a weight computes and moves",
        OPTIMIZERS.built_in,
    ),
    count("model.devices", "devices of the published study, the default of system.devices"),
    text("model.strategy", "strategy of the published study, the default of parallel.strategy"),
    *_family_columns(),
    *VISION,
    *LORA,
    DOCUMENT,
    METHOD,
    *TEACHERS,
)
