"""Register accesses of a matrix unit for each dataflow (6.3, Equation 5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Ints

WEIGHT_STATIONARY, ACTIVATION_STATIONARY, OUTPUT_STATIONARY, BEST = 0, 1, 2, 3
DATAFLOW_CODES = {
    "weight": WEIGHT_STATIONARY,
    "activation": ACTIVATION_STATIONARY,
    "output": OUTPUT_STATIONARY,
    "best": BEST,
}


class Units(NamedTuple):
    """The matrix unit of each point: m x k x n multiply-adds; shape (points,)."""

    m: Ints
    k: Ints
    n: Ints
    dataflow: Ints  # of `DATAFLOW_CODES`


class Unit(NamedTuple):
    """A matrix unit of m x k x n multiply-adds, and the costs of its dataflows independent of the tile."""

    m: float
    k: float
    n: float
    weight: float  # register accesses per operation with infinite reuse; infinite without this dataflow
    activation: float
    output: float


@kernel
def make_unit(units: Units, p: int) -> Unit:
    """Return the matrix unit of point p, with its dataflow or with all of them (BEST).

    Equation 5, (Nx Ny + K Nx + K Ny) / (2 K Nx Ny), is half the sum of 1 / K, 1 / Ny and 1 / Nx, where Nx and
    Ny are the sides of the stationary operand in the unit. With infinite reuse K the last two are left, of
    the streamed operands.
    """
    m, k, n, dataflow = float(units.m[p]), float(units.k[p]), float(units.n[p]), units.dataflow[p]
    every = dataflow == BEST
    return Unit(
        m=m,
        k=k,
        n=n,
        weight=0.5 * (1.0 / n + 1.0 / k) if every or dataflow == WEIGHT_STATIONARY else np.inf,
        activation=0.5 * (1.0 / k + 1.0 / m) if every or dataflow == ACTIVATION_STATIONARY else np.inf,
        output=0.5 * (1.0 / n + 1.0 / m) if every or dataflow == OUTPUT_STATIONARY else np.inf,
    )


@kernel
def register_accesses_per_flop(unit: Unit, per_m: float, per_k: float, per_n: float) -> float:
    """Return register accesses per operation for a tile on a matrix unit (Equation 5).

    per_m, per_k, per_n: 1 / side of the tile. The stationary operand spans two of the unit's
    dimensions; along the third the others are streamed, and the tile's side over the unit's is the
    reuse K, at least 1. Of several dataflows the best is taken.
    """
    weight = unit.weight + 0.5 * min(unit.m * per_m, 1.0)
    activation = unit.activation + 0.5 * min(unit.n * per_n, 1.0)
    output = unit.output + 0.5 * min(unit.k * per_k, 1.0)
    return min(weight, min(activation, output))
