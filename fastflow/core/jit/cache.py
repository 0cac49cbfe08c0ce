"""The cache of compiled kernels on disk.

A binary is a file whose name has a hash of all that it depends on: the sources of the kernel (`fingerprint`),
the types of its arguments, the processor, Numba and Python. Other versions and other machines have other
names: their files are kept and never loaded. The oldest files are removed when the cache is too large.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding as llvm
from numba.core import types
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from fastflow.core.jit.fingerprint import fingerprint

MAX_BYTES = 100_000_000  # of binaries in a folder: those of a dozen versions
_SUFFIX = ".kernel"


def _folders() -> tuple[Path, Path]:
    """Return the folders of binaries: this user's cache, and a fallback where that cannot be written.

    The first is in FASTFLOW_CACHE, or else in the user's cache folder.
    """
    user = os.getuid() if hasattr(os, "getuid") else ""
    spare = Path(tempfile.gettempdir()) / f"fastflow-{user}"
    root: str | Path | None = os.environ.get("FASTFLOW_CACHE") or os.environ.get("XDG_CACHE_HOME")
    try:
        root = root or Path.home() / ".cache"
    except RuntimeError:  # in a container a user may have no home
        root = spare
    return Path(root) / "fastflow" / "kernels", spare / "kernels"


FOLDERS = _folders()


def _is_trusted(folder: Path) -> bool:
    """Return whether binaries of a folder may be run: other users can write to the shared fallback."""
    try:
        return folder == FOLDERS[0] or not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
    except OSError:
        return False


@functools.cache
def _environment() -> str:
    """Return what all binaries depend on: this folder's code and the versions."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    versions = numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag
    return f"{digest.hexdigest()} {versions}"


def _describe(numba_type: Any) -> str:
    """Return a text for a type, with the fields of named tuples: the order of fields matters."""
    if isinstance(numba_type, types.BaseNamedTuple):
        cls = numba_type.instance_class
        fields = zip(numba_type.fields, numba_type.types, strict=True)
        return f"{cls.__module__}.{cls.__qualname__}({[(name, _describe(field)) for name, field in fields]})"
    if isinstance(numba_type, types.BaseTuple):
        return f"({[_describe(item) for item in numba_type]})"
    return str(numba_type)


class KernelCache:
    """The cached binaries of one kernel, with the methods that Numba's dispatchers expect."""

    def __init__(self, kernel: Any) -> None:
        """Take the kernel."""
        self._function, self._options = kernel.py_func, kernel.targetoptions

    @property
    def cache_path(self) -> str:
        """Return the folder of binaries."""
        return str(FOLDERS[0])

    def stem(self) -> str:
        """Return the prefix of the names of this kernel's files: "search._search_each-..."."""
        key = f"{fingerprint(self._function)} {sorted(self._options.items())} {_environment()}"
        name = f"{self._function.__module__.rpartition('.')[2]}.{self._function.__name__}"
        return f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"

    def _name(self, arguments: Any, processor: Any) -> str:
        key = f"{[_describe(argument) for argument in arguments]} {processor}"
        return f"{self.stem()}-{hashlib.sha256(key.encode()).hexdigest()[:16]}{_SUFFIX}"

    def load_overload(self, sig: Any, context: Any) -> Any:
        """Return the cached binary for some types, None where there is none.

        Numba itself would first prepare to compile: it imports all that it can compile, and SciPy.
        """
        rtsys.initialize(context)  # it allocates and counts a kernel's arrays
        name = self._name(sig, context.codegen().magic_tuple())
        for folder in filter(_is_trusted, FOLDERS):
            with suppress(Exception):  # a torn file is compiled anew
                file = folder / name
                compiled = CompileResult._rebuild(context, *pickle.loads(file.read_bytes()))
                with suppress(OSError):
                    os.utime(file)  # in use
                return compiled
        return None

    def save_overload(self, sig: Any, compiled: Any) -> None:
        """Save a binary; where no folder can be written, the kernel is compiled anew next time."""
        name = self._name(sig, compiled.codegen.magic_tuple())
        binary = dumps(_reduced(compiled))
        for folder in FOLDERS:
            with suppress(OSError):
                _write(folder, name, binary)
                return

    def flush(self) -> None:
        """Remove the files of this kernel."""
        for file in binaries(self.stem()):
            file.unlink(missing_ok=True)


def _reduced(compiled: Any) -> Any:
    """Return the saved state of a compiled kernel, without LLVM IR, which only other kernels link.

    Of the IR, Numba reads the name of the function that Python calls.
    """
    (name, kind, (code, _)), *rest = compiled._reduce()
    named = llvm.parse_assembly(
        f'define void @"{compiled.fndesc.llvm_cpython_wrapper_name}"() {{ ret void }}'
    )
    return (name, kind, (code, named.as_bitcode())), *rest


def _write(folder: Path, name: str, binary: bytes) -> None:
    """Write a file atomically; raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_trusted(folder):
        raise PermissionError(folder)
    part = tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False)  # noqa: SIM115
    try:
        with part:
            part.write(binary)
        Path(part.name).replace(folder / name)
    except OSError:
        Path(part.name).unlink(missing_ok=True)
        raise
    _evict_oldest(folder)


def cached_stems() -> set[str]:
    """Return the stems of the kernels that have a binary."""
    return {file.name.rpartition("-")[0] for file in binaries()}


def binaries(stem: str = "") -> Iterator[Path]:
    """Yield the files whose names begin with a stem."""
    for folder in filter(_is_trusted, FOLDERS):
        yield from folder.glob(f"{stem}*{_SUFFIX}")


@functools.cache
def _evict_oldest(folder: Path) -> None:
    """Remove the oldest binaries, once a process, if all take too much room."""
    with suppress(OSError):  # another process does the same
        files = sorted(
            (file.stat().st_mtime, file.stat().st_size, file) for file in folder.glob(f"*{_SUFFIX}")
        )
        excess = sum(size for _, size, _ in files) - MAX_BYTES
        for _, size, file in files:
            if excess <= 0:
                return
            file.unlink()
            excess -= size


def clear() -> None:
    """Remove all binaries, of every version."""
    for file in binaries():
        with suppress(OSError):
            file.unlink()
