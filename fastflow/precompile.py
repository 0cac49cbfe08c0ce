"""Compilation of kernels before they are called, in several processes at once.

Numba compiles a kernel where it is first called, one after the other: half a minute until the first result.
Which kernels a run calls, and with which types, is known beforehand (`signatures.json`, which
`bench/record_signatures.py` writes). Where none of them lies in the cache yet, this process and one for
each other core take them from one list, the slowest first. A list that is out of date costs time alone.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from fastflow import _jit
from fastflow.tables import Inputs

SIGNATURES = Path(__file__).with_name("signatures.json")
_MOST_PROCESSES = 4
_LONGEST = 300.0  # that the others may take for their last kernels [s]
_LAYERS = ("gemm", "operator", "rnn")
"""The workloads that are one kernel or layer on one device."""

_looked: set[str] = set()
_told: list[Callable[[str, int, int], None]] = []


def tell(whom: Callable[[str, int, int], None]) -> None:
    """Have a function told of every kernel that is compiled: its name, its place in a list, of how many.

    The name is empty once all are there.
    """
    _told[:] = [whom]


def _kind_of(inputs: Inputs) -> str:
    """Return which list of kernels a run needs: of layers or networks, by blocks or searched."""
    what = "layer" if inputs["model.name"][0] in _LAYERS else "network"
    how = "blocks" if inputs["tiling.tiles"][0] == "blocks" else "searched"
    return f"{what}, {how}"


def compile_ahead(inputs: Inputs) -> None:
    """Compile the kernels that runs with such inputs call, if none of them is in the cache."""
    kind = _kind_of(inputs)
    if kind in _looked:
        return
    _looked.add(kind)
    calls = _calls(kind)
    if not calls or not _is_missing(calls):
        return
    with _alone():
        if _is_missing(calls):  # nobody else has compiled them meanwhile
            _compile_all(kind, calls)


def _calls(kind: str) -> list[tuple[str, list[Any]]]:
    """Return the kernels that runs of a kind call from Python, with the types of their arguments."""
    return [(name, signature) for name, signature in json.loads(SIGNATURES.read_text()).get(kind, [])]


def _is_missing(calls: Sequence[tuple[str, list[Any]]]) -> bool:
    """Say whether none of some kernels is in the cache."""
    held = {path.name.rpartition("-")[0] for path in _jit.FOLDER.rglob("*.nbi")}
    return held.isdisjoint(_stem(name) for name, _ in calls)


def _stem(name: str) -> str:
    """Return how the cache's file of a kernel begins: "tiling._search_each"."""
    module, _, function = name.partition(":")
    return f"{module.rpartition('.')[2]}.{function}"


@contextmanager
def _alone() -> Iterator[None]:
    """Let one process at a time compile for one cache; where there are no locks of files, any."""
    with ExitStack() as stack:
        with suppress(OSError, ImportError):
            import fcntl  # not on every system

            fcntl.flock(stack.enter_context((_jit.FOLDER / "lock").open("w")), fcntl.LOCK_EX)
        yield


def _compile_all(kind: str, calls: Sequence[tuple[str, list[Any]]]) -> None:
    """Compile kernels here and in processes beside this one."""
    from joblib import cpu_count  # which knows of containers

    others = min(cpu_count(), _MOST_PROCESSES) - 1 if sys.executable else 0
    with tempfile.TemporaryDirectory(prefix="fastflow-") as folder:
        beside = [
            subprocess.Popen(
                [sys.executable, "-m", "fastflow.precompile", kind, folder],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for _ in range(others)
        ]  # fmt: skip
        try:
            work(calls, Path(folder))
            for process in beside:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LONGEST)
        finally:
            for process in beside:
                process.kill()
                process.wait()
            _say("", len(calls), len(calls))


def _say(name: str, place: int, of: int) -> None:
    for whom in _told:
        whom(name, place, of)


def work(calls: Sequence[tuple[str, list[Any]]], folder: Path) -> None:
    """Compile the kernels of a list that nobody has taken yet; folder: holds a file for each taken one."""
    for place, (name, signature) in enumerate(calls):
        try:
            (folder / str(place)).touch(exist_ok=False)
        except OSError:  # taken, or all is over
            continue
        module, _, function = name.partition(":")
        _say(_stem(name), sum(1 for _ in folder.iterdir()), len(calls))
        with suppress(Exception):  # the kernel takes something else by now: it is compiled when it is called
            _jit.compile_for(getattr(importlib.import_module(module), function), signature)


def clear_cache() -> None:
    """Remove the kernels that are kept on disk, of all versions; see `fastflow.clear_cache`."""
    for other in _jit.other_versions(_jit.FOLDER):
        shutil.rmtree(other, ignore_errors=True)
    for file in _jit.FOLDER.rglob("*.nb?"):  # its folders stay: this process may save more there
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    work(_calls(sys.argv[1]), Path(sys.argv[2]))
