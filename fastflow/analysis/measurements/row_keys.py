"""Keys of the configuration as columns of a file, whose cells set inputs of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastflow.analysis.measurements.csv_file import CsvFile
from fastflow.config.chiplets import is_choice
from fastflow.config.hydra_composer import related
from fastflow.config.other_chips import KEYS as OTHER_CHIPS
from fastflow.physics.workload import FAMILIES
from fastflow.physics.workload.models.transformer import FAMILY
from fastflow.physics.workload.models.transformer.encoder.vision import PREFIX

SECTIONS_OF_ROWS = (
    "model", "parallel", "precision", "system", "chip", "tech", "mem", "net", "scaling", "tiling", "cost",
)  # fmt: skip
"""Sections whose keys are inputs of any point."""
_REPLACED_KEYS = {
    "model.strategy": "parallel.strategy", "model.devices": "system.devices",
    "chip.flash_attention": "model.fused_attention",
}  # fmt: skip
"""Keys that only other keys refer to, and the keys to use instead."""
_GROUP_OF_KEY = {"model.name": "model", "serve.mode": "serve", **{key: key for key in OTHER_CHIPS}}
"""Keys that a choice of a group sets, and the group."""


def instead_of(key: str, kind: str, sections: Sequence[str]) -> str:
    """Say what is allowed instead of a key as a column of transformers' points; "" if it is allowed.

    kind: of the file, in the plural; sections: those whose keys change its predictions.
    """
    if key in _REPLACED_KEYS:
        return f"{_REPLACED_KEYS[key]}, which says it of a row"
    if key in _GROUP_OF_KEY or is_choice(key):
        return f"no column; {_GROUP_OF_KEY.get(key, key)}=NAME on the command line chooses for all rows"
    if key.startswith(PREFIX):
        return "a key of a language model; a vision tower is a whole, of a model that the column model names"
    section, _, name = key.partition(".")
    if section not in sections:
        return f"a key that {kind} depend on, of the sections {', '.join(sections)}"
    keys_of_families = {
        column.name for family in FAMILIES.values() for column in (*family.sizes, *family.structure)
    }
    keys_of_transformers = {column.name for column in (*FAMILY.sizes, *FAMILY.structure)}
    return (
        f"a key of a transformer; {name} is of other models"
        if key in keys_of_families - keys_of_transformers
        else ""
    )


def refuse_conflicts(file: CsvFile, keys: Sequence[str], keys_of_columns: Mapping[str, str]) -> None:
    """Refuse a row in which two columns set the same input; raises InputError.

    keys: columns that are keys; keys_of_columns: other columns to the key, or section, that they set.
    """
    key_of_column = {**keys_of_columns, **{key: key for key in keys}}
    columns = [name for name in file.columns if name in key_of_column]
    for index, name in enumerate(columns):
        for other in columns[:index]:
            if related(key_of_column[other], key_of_column[name]):
                both_filled = file.filled(other) & file.filled(name)
                file.refuse(name, both_filled, f"an empty cell, since {other} says the same of this row")
