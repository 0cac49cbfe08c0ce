"""The description of a column: name, type, unit, meaning, bounds."""

from __future__ import annotations

from math import inf
from typing import Literal, NamedTuple

ColumnType = Literal["float", "int", "bool", "str"]


class Column(NamedTuple):
    """One input or result column."""

    name: str
    kind: ColumnType
    unit: str
    meaning: str
    low: float = -inf
    high: float = inf
    above_low: bool = False  # the lower bound itself is not allowed
    choices: tuple[str, ...] = ()
    auto: float | None = None  # the number that the word auto stands for; None: auto is not allowed
    absent: str = ""  # the meaning of a missing input; "": the input is required where it is read

    def allowed(self) -> str:
        """Return the allowed values in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        unit = f" {self.unit}" if self.unit else ""
        noun = {"int": "a whole number", "bool": "true or false", "str": "a text"}.get(
            self.kind, f"a number in {self.unit}" if self.unit else "a number"
        )
        bounds = []
        if self.low > -inf:
            bounds.append(f"{'above' if self.above_low else 'at least'} {self.low:g}{unit}")
        if self.high < inf:
            bounds.append(f"at most {self.high:g}{unit}")
        or_auto = "" if self.auto is None else ", or auto"
        return f"{noun} {' and '.join(bounds)}".strip() + or_auto


def count(name: str, meaning: str, low: int = 1, high: float = 1e12) -> Column:
    """Return a column of whole numbers."""
    return Column(name, "int", "", meaning, low=float(low), high=high)


def text(name: str, meaning: str, choices: tuple[str, ...] = ()) -> Column:
    """Return a column of texts."""
    return Column(name, "str", "", meaning, choices=choices)


def positive(name: str, unit: str, meaning: str) -> Column:
    """Return a column of numbers above 0."""
    return Column(name, "float", unit, meaning, low=0.0, above_low=True)


def nonnegative(name: str, unit: str, meaning: str) -> Column:
    """Return a column of numbers from 0."""
    return Column(name, "float", unit, meaning, low=0.0)


def fraction(name: str, meaning: str) -> Column:
    """Return a column of numbers from 0 to 1."""
    return Column(name, "float", "", meaning, low=0.0, high=1.0)


def share(name: str, meaning: str) -> Column:
    """Return a column of numbers above 0, up to 1."""
    return Column(name, "float", "", meaning, low=0.0, high=1.0, above_low=True)


MAX_FIGURE = 1e12
"""Of any price, emission, density or time: beyond it a cost, or a mass of carbon, may overflow."""


def bounded(column: Column) -> Column:
    """Return a column with bounds within which costs and emissions are finite."""
    if column.kind != "float":
        return column
    low = 1.0 / MAX_FIGURE if column.above_low else column.low
    return column._replace(low=low, high=MAX_FIGURE if column.high == inf else column.high, above_low=False)
