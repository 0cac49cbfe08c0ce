"""Which inputs are parameters: real numbers of technology, chip and system."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from fastflow.core.tables import Inputs
from fastflow.schema import find_input

SECTIONS = ("tech", "scaling", "mem", "net", "chip", "system", "server")


class Parameter(NamedTuple):
    """A parameter and its value."""

    key: str
    value: float
    unit: str
    high: float = inf  # upper bound


def parameters_of(inputs: Inputs) -> list[Parameter]:
    """Return the parameters among the inputs of one point, in the order of the registry.

    A parameter is a registered real number of one of `SECTIONS`. Counts come in whole numbers, texts and
    switches have no size, and dimensions of a model define the workload.
    """
    return list(_figures(inputs))


def _figures(inputs: Inputs) -> Iterator[Parameter]:
    for key, column in inputs.items():
        if key.split(".")[0] not in SECTIONS or column.dtype.kind != "f":
            continue
        registered = find_input(key)
        if registered is not None and registered.kind == "float":
            yield Parameter(key, float(column[0]), registered.unit, registered.high)
