"""The errors of every class of validation, as `bench/validation_table.py` has written them.

A class is a kind of work, of model and of data type, on a measured chip, on chips of its architecture, on
chips of its maker that nothing was calibrated to, or on chips that are generated from their budgets.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PATH = Path(__file__).with_name("table.csv")
MIN_ROWS = 5
"""Least number of measured rows of a class: for fewer, the next coarser class is used."""
MEASURED, RELATIVE, UNMEASURED, GENERATED = "measured", "relative", "unmeasured", "generated"


class Key(NamedTuple):
    """Key of a class; "" stands for any."""

    work: str
    kind: str  # of model, or of a kernel's work
    dtype: str  # of products
    standing: str  # of the chip, as above
    chip: str  # MEASURED: its `chip.name`; RELATIVE: `chip.architecture`; UNMEASURED: `chip.maker`; else ""


class Errors(NamedTuple):
    """Errors of a class; p is predicted, t measured."""

    rows: int
    mean_error: float  # of |p - t| / t
    median_error: float
    bias: float  # median of p / t


class ChipStanding(NamedTuple):
    """Properties of a chip that determine its classes."""

    name: str
    architecture: str  # "" for none
    maker: str  # "" where it is unknown
    is_generated: bool  # from its budgets
    is_stock: bool  # an unchanged chip of the library

    def classes(self) -> Iterator[tuple[str, str]]:
        """Yield standings and chips of its classes, the finest first."""
        if self.is_generated:
            yield GENERATED, ""
            return
        if self.is_stock:
            yield MEASURED, self.name
        if self.architecture:
            yield RELATIVE, self.architecture
        if self.maker:
            yield UNMEASURED, self.maker


@cache
def table() -> dict[Key, Errors]:
    """Return the errors of every class."""
    return read_table(PATH.read_text(encoding="utf-8"))


@cache
def digest() -> str:
    """Return a hash of the table."""
    return hashlib.sha256(PATH.read_bytes()).hexdigest()[:16]


def read_table(text: str) -> dict[Key, Errors]:
    """Return the errors of a table's classes."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {
        Key(*(row[name] for name in Key._fields)): Errors(
            int(row["rows"]), *(float(row[name]) for name in Errors._fields[1:])
        )
        for row in csv.DictReader(lines)
    }


def find(work: str, kind: str, dtype: str, chip: ChipStanding) -> tuple[Key, Errors] | None:
    """Return the finest class of some work on a chip, and its errors; None where there is none.

    A class of a data type is finer than the class of all types on the same chip.
    """
    for standing, chip_key in chip.classes():
        for class_dtype in dict.fromkeys((dtype, "")):
            key = Key(work, kind, class_dtype, standing, chip_key)
            errors = table().get(key)
            if errors is not None and errors.rows >= MIN_ROWS:
                return key, errors
    return None
