"""How a kernel compiles. Every Numba kernel of fastflow is decorated here and nowhere else.

The flags: no GIL, NumPy's division, and no fast-math at all: NaN and infinity keep their meaning, and
two kernels that add up the same terms agree to the bit, wherever either was inlined.

The cache: Numba notices an edit of the file that holds a kernel, but not of another file whose
kernel or constant it inlined. The cache folder is therefore named by a hash of all sources of the
model's rooms (`MODEL`), and of no other: what is said on screen compiles nothing anew.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba
from numba.core import config
from numba.core import types as numba_types

types: Any = numba_types  # Numba's stubs know few of its types, and not every flag
njit: Any = numba.njit
P = ParamSpec("P")
R = TypeVar("R")


MODEL = (
    "_jit.py", "columns", "crossflow.py", "distinct.py", "errors.py", "hardware", "limits.py", "network",
    "optimize", "parallelism", "results.py", "tables.py", "timing", "workload",
)  # fmt: skip
"""The rooms of the model: all that a result may follow from besides its inputs, and every kernel."""
_MOST_VERSIONS = 8  # whose kernels are kept beside the newest: some 10 MB each


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
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _forget_old(folder)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"fastflow-{os.getuid()}" / name
    return folder


def other_versions(folder: Path) -> list[Path]:
    """Return the cache folders of other versions beside one."""
    return [other for other in folder.parent.glob("kernels-*") if other != folder]


def _forget_old(folder: Path) -> None:
    """Remove the kernels of all but the latest versions, so that they take a bounded room."""
    with suppress(OSError):  # another process does the same
        for old in sorted(other_versions(folder), key=lambda other: other.stat().st_mtime)[:-_MOST_VERSIONS]:
            shutil.rmtree(old, ignore_errors=True)


FOLDER = _cache_folder()


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on first call and keep the binary in the cache folder."""
    return _compile(function)


def lean_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that makes no arrays and that only kernels call, for what runs often.

    It counts no references to the arrays that it takes, since its caller holds them: counting took longer
    than the arithmetic. One that makes an array is refused. A call from Python would crash: it has no
    wrapper for that, which takes a third of the time to compile.
    """
    return _compile(function, is_lean=True)


def _compile(function: Callable[P, R], is_lean: bool = False) -> Callable[P, R]:
    before = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = str(FOLDER)  # type: ignore[attr-defined]
    try:
        compiled: Callable[P, R] = njit(
            cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True,
            no_cpython_wrapper=is_lean, _nrt=not is_lean,
        )(function)  # fmt: skip
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]
    return compiled


def compile_for(function: Any, signature: Sequence[Any]) -> None:
    """Compile a kernel for arguments of some types, each as `write_type` writes it, before any call."""
    function.compile(tuple(map(read_type, signature)))


def read_type(written: Any) -> Any:
    """Return a Numba type from how `write_type` writes it."""
    if isinstance(written, str):
        name, _, shape = written.partition(" ")
        scalar = types.UnicodeCharSeq(int(name[1:])) if name[0] == "U" else getattr(types, name)
        return types.Array(scalar, int(shape[0]), shape[1], readonly="r" in shape) if shape else scalar
    name, *parts = written
    module, _, cls = name.partition(":")
    made = getattr(importlib.import_module(module), cls) if cls else None
    return types.BaseTuple.from_types(tuple(map(read_type, parts)), made)


def write_type(given: Any) -> Any:
    """Write a Numba type as texts and lists; raises ValueError for one that kernels do not take."""
    if isinstance(given, types.Array):
        flags = f"{given.ndim}{given.layout}{'' if given.mutable else 'r'}"
        return f"{write_type(given.dtype)} {flags}"
    if isinstance(given, types.BaseNamedTuple):
        cls = given.instance_class
        return [f"{cls.__module__}:{cls.__qualname__}", *map(write_type, given.types)]
    if isinstance(given, types.BaseAnonymousTuple):
        return ["tuple", *map(write_type, given.types)]
    if isinstance(given, types.Number | types.Boolean):
        return str(given) if str(given) != "bool" else "boolean"
    if isinstance(given, types.UnicodeCharSeq):
        return f"U{given.count}"
    raise ValueError(f"{given}: no type of a kernel's argument")
