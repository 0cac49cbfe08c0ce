"""Keys of the configuration as columns of a file, whose cells are inputs of one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastflow.analysis.measurements.csv_file import CsvFile
from fastflow.config.chiplets import is_choice
from fastflow.config.hydra_composer import related
from fastflow.config.prefill_chip import KEY as PREFILL_CHIP
from fastflow.physics.workload import FAMILIES
from fastflow.physics.workload.models.transformer import FAMILY

SECTIONS_OF_ROWS = (
    "model", "parallel", "precision", "system", "chip", "tech", "mem", "net", "scaling", "tiling", "cost",
)  # fmt: skip
"""Sections whose keys are inputs of any point."""
_READ_ELSEWHERE = {
    "model.strategy": "parallel.strategy", "model.devices": "system.devices",
    "chip.flash_attention": "model.fused_attention",
}  # fmt: skip
"""Keys that only others refer to, and these."""
_CHOSEN = {"model.name": "model", "serve.mode": "serve", PREFILL_CHIP: PREFILL_CHIP}
"""Keys that a choice sets, and the group, or what chooses."""


def instead_of(key: str, kind: str, sections: Sequence[str]) -> str:
    """Say what is allowed instead of a key as a column of transformers' points; "" where it may be one.

    kind: of the file, in the plural; sections: those whose keys change what is predicted of it.
    """
    if key in _READ_ELSEWHERE:
        return f"{_READ_ELSEWHERE[key]}, which says it of a row"
    if key in _CHOSEN or is_choice(key):
        return f"no column; {_CHOSEN.get(key, key)}=NAME on the command line chooses for all rows"
    section, _, name = key.partition(".")
    if section not in sections:
        return f"a key that {kind} depend on, of the sections {', '.join(sections)}"
    others = {column.name for family in FAMILIES.values() for column in (*family.sizes, *family.structure)}
    own = {column.name for column in (*FAMILY.sizes, *FAMILY.structure)}
    return f"a key of a transformer; {name} is of other models" if key in others - own else ""


def check_once(file: CsvFile, keys: Sequence[str], keys_of_columns: Mapping[str, str]) -> None:
    """Refuse a row of which two columns say the same input; raises InputError.

    keys: columns that are named by a key; keys_of_columns: the key, or section, that other columns set.
    """
    known = {**keys_of_columns, **{key: key for key in keys}}
    there = [name for name in file.columns if name in known]
    for place, name in enumerate(there):
        for other in there[:place]:
            if related(known[other], known[name]):
                both = file.filled(other) & file.filled(name)
                file.refuse(name, both, f"an empty cell, since {other} says the same of this row")
