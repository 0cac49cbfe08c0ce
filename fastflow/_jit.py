"""How a kernel compiles. Every Numba kernel of fastflow is decorated here and nowhere else.

The flags: no GIL, NumPy's division, and no fast-math at all: NaN and infinity keep their meaning, and
two kernels that add up the same terms agree to the bit, wherever either was inlined.

The cache: Numba notices an edit of the file that holds a kernel, but not of another file whose
kernel or constant it inlined. The cache folder is therefore named by a hash of all sources of the
model's rooms (`MODEL`), and of no other: what is said on screen compiles nothing anew.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

import numba
from numba.core import config

P = ParamSpec("P")
R = TypeVar("R")


MODEL = (
    "_jit.py", "columns", "crossflow.py", "distinct.py", "errors.py", "hardware", "limits.py", "network",
    "optimize", "parallelism", "results.py", "tables.py", "timing", "workload",
)  # fmt: skip
"""The rooms of the model: all that a result may follow from besides its inputs, and every kernel."""


def _digest() -> str:
    """Return a hash of the model's sources and Numba's version."""
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).parent
    rooms = (package / room for room in MODEL)
    sources = [source for room in rooms for source in ([room] if room.suffix else room.rglob("*.py"))]
    for source in sorted(sources):
        digest.update(source.relative_to(package).as_posix().encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


MODEL_DIGEST = _digest()


def _cache_folder() -> Path:
    """Return the cache folder of exactly these sources, this Numba and this user.

    FASTFLOW_CACHE, or else the user's cache folder; a temporary one where that cannot be written.
    """
    name = f"kernels-{MODEL_DIGEST}"
    root = os.environ.get("FASTFLOW_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "fastflow" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"fastflow-{os.getuid()}" / name
    return folder


_FOLDER = _cache_folder()


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on first call and keep the binary in the cache folder."""
    return _compile(function, "never")


def inline_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function into each kernel that calls it.

    For what takes arrays and is called once a tile: a call counts references to each of them.
    """
    return _compile(function, "always")


def _compile(function: Callable[P, R], inline: Literal["never", "always"]) -> Callable[P, R]:
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined]
    try:
        compiled: Callable[P, R] = numba.njit(cache=True, nogil=True, error_model="numpy", inline=inline)(
            function
        )
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]
    return compiled
