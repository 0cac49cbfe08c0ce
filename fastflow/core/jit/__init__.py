"""Compilation of kernels. Every Numba kernel of fastflow is decorated here and nowhere else.

The flags: no GIL, NumPy's division, and no fast-math at all: NaN and infinity keep their meaning, and
two kernels that add up the same terms agree to the bit, wherever either was inlined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import numba

from fastflow.core.jit.cache import KernelCache
from fastflow.core.jit.dispatcher import Kernel

P = ParamSpec("P")
R = TypeVar("R")


MODEL = ("core", "physics", "schema", "performance")
"""The packages of the model: all code that results depend on, and every kernel."""


def _digest() -> str:
    """Return a hash of the model's sources and Numba's version."""
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).parents[2]
    for source in sorted(source for name in MODEL for source in (package / name).rglob("*.py")):
        digest.update(source.relative_to(package).as_posix().encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


MODEL_DIGEST = _digest()


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on first call and keep the binary in the cache folder."""
    return _compile(function)


def lean_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that makes no arrays and that kernels call often.

    It counts no references to its array arguments, since its caller holds them: counting took longer than the
    arithmetic. A function that makes an array is refused.
    """
    return _compile(function, is_lean=True)


def inlined_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a lean kernel whose code is copied into its callers.

    For functions of large tuples of tables, called in few places: to pass their hundred pointers takes longer
    than the arithmetic.
    """
    return _compile(function, is_lean=True, is_inlined=True)


def _compile(function: Callable[P, R], is_lean: bool = False, is_inlined: bool = False) -> Callable[P, R]:
    options = {
        "nopython": True,
        "nogil": True,
        "error_model": "numpy",
        "boundscheck": None,
        "_nrt": not is_lean,
        "forceinline": is_inlined,
    }
    compiled: Callable[P, R] = Kernel(function, options | {"no_cfunc_wrapper": True}, KernelCache)
    return compiled
