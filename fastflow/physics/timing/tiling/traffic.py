"""Bytes that a tiling moves, and the distribution of its tiles: the terms of every search (6.1, 6.2).

A GEMM C[m, n] = A[m, k] B[k, n] is partitioned into tiles for the outermost on-chip memory, each of these
into tiles for the next level inside, down to the registers; no tile is larger than the tile around it. V
*visits* along a dimension are the number of a level's tiles along it, over the whole GEMM. Tiles
divide each other, so V = ceil(dimension / side) whatever the GEMM's size.

Between a level and the level outside it, with V visits and U visits of the tile outside, one operand is
stationary while the tiles of the others are streamed. The level's instances then load over the whole GEMM

    A, m k elements,   U_n times if A is stationary,  V_n if not
    B, k n elements,   U_m times if B is stationary,  V_m if not
    C, m n elements,   U_k times if C is stationary,  V_k if not; all but the first read the
                       partial sums back; all but the last write them in 4 bytes.

The outer level's bandwidth serves these bytes. The traffic of the registers is that of Equation 5.

Tiles of the private level, the outermost level that is not shared by the chip, are distributed over its
instances (bundles) in waves of a tile each; the last wave leaves some instances idle. The inner dimension
can be split into parts on different instances (split-K); with C stationary, every part but one then adds a
pass over its partial sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.physics.timing.tiling.tile_sets import PARTIAL_SUM_BYTES

A_STATIONARY, B_STATIONARY, C_STATIONARY = 0, 1, 2
OPERANDS = ("A", "B", "C")


class Operands(NamedTuple):
    """Bytes of a GEMM's operands, all products of its batch."""

    a: float
    b: float
    c: float
    pass_c: float  # a further pass over the partial sums: write and read


@kernel
def operands(
    m: float, k: float, n: float, batch: float, element_bytes: float, weight_bytes: float
) -> Operands:
    """Return the bytes of a GEMM's operands; weight_bytes: of an element of B."""
    return Operands(
        a=batch * m * k * element_bytes,
        b=batch * k * n * weight_bytes,
        c=batch * m * n * element_bytes,
        pass_c=batch * m * n * 2.0 * PARTIAL_SUM_BYTES,
    )


@kernel
def served(
    stationary: int, whole: Operands, out_m: float, out_k: float, out_n: float, m: float, k: float, n: float
) -> float:
    """Return the bytes loaded and stored at a level over the whole GEMM with a stationary operand.

    out_m, out_k, out_n: visits of the tile outside, U; m, k, n: of this level's, V.
    """
    a = whole.a * (out_n if stationary == A_STATIONARY else n)
    b = whole.b * (out_m if stationary == B_STATIONARY else m)
    passes = out_k if stationary == C_STATIONARY else k
    return a + b + whole.pass_c * (passes - 1.0) + whole.c


@kernel
def fewest_served(
    whole: Operands, out_m: float, out_k: float, out_n: float, m: float, k: float, n: float
) -> float:
    """Return the fewest bytes of the three choices of the stationary operand."""
    a, b, c = whole.a * n, whole.b * m, whole.pass_c * (k - 1.0)
    a_stationary = whole.a * out_n + b + c + whole.c
    b_stationary = a + whole.b * out_m + c + whole.c
    c_stationary = a + b + whole.pass_c * (out_k - 1.0) + whole.c
    return min(a_stationary, min(b_stationary, c_stationary))


@kernel
def filled(side: float, unit: float) -> float:
    """Return a side rounded up to whole matrix units."""
    return float(np.ceil(side / unit) * unit)


@kernel
def stationary_of(
    whole: Operands, out_m: float, out_k: float, out_n: float, m: float, k: float, n: float
) -> int:
    """Return the stationary operand of the fewest bytes, the first of several."""
    fewest = fewest_served(whole, out_m, out_k, out_n, m, k, n)
    for stationary in (A_STATIONARY, B_STATIONARY):
        if served(stationary, whole, out_m, out_k, out_n, m, k, n) == fewest:
            return stationary
    return C_STATIONARY
