"""Register accesses of a matrix unit for each dataflow (6.3, Equation 5)."""

from __future__ import annotations

from fastflow._jit import kernel

WEIGHT_STATIONARY, ACTIVATION_STATIONARY, OUTPUT_STATIONARY, BEST = 0, 1, 2, 3
DATAFLOW_CODES = {
    "weight": WEIGHT_STATIONARY,
    "activation": ACTIVATION_STATIONARY,
    "output": OUTPUT_STATIONARY,
    "best": BEST,
}


@kernel
def accesses_per_flop(across: float, down: float, reuse: float) -> float:
    """Return register accesses an operation by Equation 5.

    across, down: Nx and Ny, the sides of the stationary operand in the unit; reuse: K, how often
    an element is used before it is read from the registers again, at least once.
    """
    k = max(reuse, 1.0)
    return (across * down + k * across + k * down) / (2.0 * k * across * down)


@kernel
def register_accesses_per_flop(
    dataflow: int, unit_m: int, unit_k: int, unit_n: int, tile_m: int, tile_k: int, tile_n: int
) -> float:
    """Return register accesses an operation for a tile on an m x k x n unit and a dataflow.

    The stationary operand spans two of the unit's dimensions; along the third the others stream
    by, and the tile's extent over the unit's gives the reuse. BEST is the least of the three.
    """
    weight = accesses_per_flop(unit_k, unit_n, tile_m / unit_m)
    activation = accesses_per_flop(unit_m, unit_k, tile_n / unit_n)
    output = accesses_per_flop(unit_m, unit_n, tile_k / unit_k)
    if dataflow == WEIGHT_STATIONARY:
        return weight
    if dataflow == ACTIVATION_STATIONARY:
        return activation
    if dataflow == OUTPUT_STATIONARY:
        return output
    return min(weight, activation, output)
