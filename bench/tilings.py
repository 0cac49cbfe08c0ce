"""GEMMs to search tilings for, and the loop of the brute force in Numba and in C."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Inputs, take
from fastflow.physics.hardware.chip import generate
from fastflow.physics.timing.device import device
from fastflow.physics.timing.roofline import TilingOptions, unique_hierarchies
from fastflow.physics.timing.tiling import brute_force
from fastflow.physics.timing.tiling.candidates import list_candidates
from fastflow.physics.timing.tiling.search_space import (
    TIME,
    Gemms,
    Hierarchies,
    Layout,
    Problem,
    Rates,
    make_problem,
    new_layout,
)
from fastflow.physics.timing.tiling.tile_sets import TileSets

SIDES = (4096, 8192, 16384, 32768)
LEVELS = 3


def shapes_64() -> Gemms:
    """Return {4K, 8K, 16K, 32K}^3, on the first hierarchy."""
    m, k, n = (axis.ravel().astype(np.int64) for axis in np.meshgrid(SIDES, SIDES, SIDES, indexing="ij"))
    return Gemms(np.zeros(64, np.int64), m, k, n, np.ones(64, np.int64))


def hierarchy(inputs: Inputs, samples: int, thinned: bool) -> tuple[Hierarchies, TileSets]:
    """Return the hierarchy of one point's chip with random tile sets, or all powers of two for 0."""
    one = take(dict(inputs), np.zeros(1, np.int64))
    options = TilingOptions(
        element_bytes=np.array([2.0]),
        weight_bytes=np.array([2.0]),
        conversion=np.array([0.0]),
        output_bytes=np.array([2.0]),
        samples=np.array([samples]),
        seed=np.array([0]),
        brute=np.array([False]),
        blocks=np.array([False]),
        overlap=np.array([0.0]),
        parts=np.array([1]),
    )
    hierarchies, sets, *_ = unique_hierarchies(device(one, generate(one), lasts=False), options, thinned)
    return hierarchies, sets


class _Problem(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in (
            "a", "b", "c", "pass_c", "unit_m", "unit_k", "unit_n", "weight", "activation", "output",
            "batch", "flops", "floor", "access", "instances",
        )),
        *((name, ctypes.c_int64) for name in ("top_k", "levels", "dealt", "exponents", "rows")),
    ]  # fmt: skip


@kernel
def _lay_first(gemms: Gemms, hierarchies: Hierarchies, sets: TileSets, layout: Layout) -> Problem:
    """Lay out the first GEMM on the first hierarchy with all of its tiles."""
    problem = make_problem(gemms, hierarchies, sets, LEVELS, 0, layout)
    for level in range(LEVELS):
        list_candidates(problem, sets, hierarchies.tiles[level], 0, level, False, layout)
    return problem


def both_loops(
    hierarchies: Hierarchies, sets: TileSets, gemms: Gemms, folder: Path
) -> tuple[Callable[[], int], Callable[[], int] | None, np.ndarray]:
    """Return the brute-force loop over the first GEMM in Numba, and in C where there is a compiler.

    Both return the number of tilings and leave the best one in the table that is returned too.
    """
    layout, turn = new_layout(gemms, hierarchies, sets, LEVELS), np.empty((LEVELS, 2), dtype=np.int64)
    problem = _lay_first(gemms, hierarchies, sets, layout)
    rates = Rates(hierarchies.bandwidth[: LEVELS + 1], hierarchies.driven[: LEVELS + 1])

    def in_numba() -> int:
        layout.best.column[0, TIME] = np.inf
        return int(brute_force._try_all(problem, rates, layout, turn))

    compiler = shutil.which("cc")
    if compiler is None:
        return in_numba, None, layout.best.column
    library = folder / "brute.so"
    source = Path(__file__).with_name("brute.c")
    flags = ["-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(library), str(source), "-lm"], check=True)
    try_all = ctypes.CDLL(str(library)).try_all
    try_all.restype = ctypes.c_int64
    candidates = layout.candidates
    given = _Problem(
        *problem.whole, *problem.unit, problem.batch, problem.flops, problem.floor, problem.access,
        problem.instances, problem.top_k, LEVELS, problem.private,
        layout.sides.shape[2], candidates.exponent.shape[2],
    )  # fmt: skip
    tables = (
        *rates, layout.sides, candidates.counts, candidates.exponent, candidates.column, turn, *layout.path,
        *layout.best,
    )  # fmt: skip
    pointers = [ctypes.c_void_p(table.ctypes.data) for table in tables]

    def in_c() -> int:
        layout.best.column[0, TIME] = np.inf
        return int(try_all(ctypes.byref(given), *pointers))

    return in_numba, in_c, layout.best.column
