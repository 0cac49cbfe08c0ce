"""Which inputs are figures: real numbers of technology, chip and system."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Columns, Floats, Inputs
from fastflow.schema import find_input

SECTIONS = ("tech", "scaling", "mem", "net", "chip", "system", "server")
BUDGETS = ("chip.area.", "chip.power.", "chip.perimeter.")
"""Shares of one whole each."""


class Figure(NamedTuple):
    """A figure and its value."""

    key: str
    value: float
    unit: str
    high: float = inf  # the most that it may be


def figures_of(inputs: Inputs) -> list[Figure]:
    """Return the figures among the inputs of one point, in the order of the registry.

    A figure is a registered real number of one of `SECTIONS`. Counts come in whole numbers, texts and
    switches have no size, and dimensions of a model are what is asked, not what is worth something.
    """
    return list(_figures(inputs))


def _figures(inputs: Inputs) -> Iterator[Figure]:
    for key, column in inputs.items():
        if key.split(".")[0] not in SECTIONS or column.dtype.kind != "f":
            continue
        registered = find_input(key)
        if registered is not None and registered.kind == "float":
            yield Figure(key, float(column[0]), registered.unit, registered.high)


def varied(inputs: Inputs, figures: list[Figure], factors: Floats) -> Columns:
    """Return points whose figures are multiplied by factors, (points, figures); inputs: of one point.

    A figure stays within its bound, and shares of one budget within the whole: where they would sum to more,
    all of them shrink alike.
    """
    points = factors.shape[0]
    columns = {key: np.repeat(column, points) for key, column in inputs.items()}
    for place, figure in enumerate(figures):
        columns[figure.key] = np.minimum(figure.value * factors[:, place], figure.high)
    for budget in BUDGETS:
        shares = [key for key in columns if key.startswith(budget)]
        if shares:
            over = np.maximum(np.sum([columns[key] for key in shares], axis=0), 1.0)
            columns |= {key: columns[key] / over for key in shares}
    return columns
