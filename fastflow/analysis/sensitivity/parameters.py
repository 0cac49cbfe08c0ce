"""Which inputs are parameters: real numbers of technology, chip and system."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from fastflow.core.tables import Inputs
from fastflow.schema import find_input
from fastflow.schema.carbon import is_carbon, is_emission

SECTIONS = ("tech", "scaling", "mem", "net", "chip", "system", "server")


class Parameter(NamedTuple):
    """A parameter and its value."""

    key: str
    value: float
    unit: str
    high: float = inf  # upper bound


def parameters_of(inputs: Inputs, objective: str = "") -> list[Parameter]:
    """Return the parameters among the inputs of one point, in the order of the registry.

    A parameter is a registered real number of one of `SECTIONS`. Counts come in whole numbers, texts and
    switches have no size, and dimensions of a model define the workload. Emissions are parameters of masses
    of carbon alone. objective: the result column.
    """
    return list(_figures(inputs, is_carbon(objective)))


def _figures(inputs: Inputs, of_carbon: bool) -> Iterator[Parameter]:
    for key, column in inputs.items():
        if column.dtype.kind != "f":
            continue
        if not of_carbon if is_emission(key) else key.split(".")[0] not in SECTIONS:
            continue
        registered = find_input(key)
        if registered is not None and registered.kind == "float":
            yield Parameter(key, float(column[0]), registered.unit, registered.high)
