"""Inputs of devices with another chip: those that only prefill, and those of attention."""

from __future__ import annotations

from functools import cache
from operator import methodcaller
from typing import Any

from fastflow.core.tables import Columns, Inputs
from fastflow.schema import SECTIONS_OF_CHIP


@cache
def _is_of(prefix: str) -> Any:
    """Return what says whether a key is of the chip with a prefix; in C, as every point asks."""
    return methodcaller("startswith", tuple(prefix + section for section in SECTIONS_OF_CHIP))


def has_chip(inputs: Inputs, prefix: str) -> bool:
    """Say whether the inputs have a separate chip, whose keys have a prefix (`schema.OTHER_CHIPS`)."""
    return any(map(_is_of(prefix), inputs))


def with_chip(inputs: Inputs, prefix: str) -> Columns:
    """Return inputs with the chip of a prefix, where there is one, in place of the first chip."""
    is_of = _is_of(prefix)
    of_chip = {key.removeprefix(prefix): column for key, column in inputs.items() if is_of(key)}
    if not of_chip:
        return dict(inputs)
    return {key: column for key, column in inputs.items() if not key.startswith(SECTIONS_OF_CHIP)} | of_chip
