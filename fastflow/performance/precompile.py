"""Compilation of kernels before they are called, in several processes at once.

Numba compiles a kernel at its first call, one after the other: 20 s until the first result. The kernels that
a run calls, and their types, are known beforehand (`signatures.json`, which `bench/record_signatures.py`
writes). This process and a process for each other core compile the kernels that are not in the cache from a
shared list, the slowest first. An outdated list only costs time.
"""

from __future__ import annotations

import gc
import importlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from fastflow.core.collector import paused_collector
from fastflow.core.jit import cache
from fastflow.core.jit.signatures import compile_for
from fastflow.core.tables import Inputs
from fastflow.physics.workload import family_of, has_layer_runs
from fastflow.physics.workload.request_lengths import SERVES
from fastflow.physics.workload.request_trace import KEY as TRACE

Call = tuple[str, list[Any]]
"""A kernel's name, and the types of its arguments."""

SIGNATURES = Path(__file__).with_name("signatures.json")
_MAX_PROCESSES = 4
_MIN_KERNELS = 3  # kernels for which further processes are worthwhile
_MAX_WAIT_S = 300.0  # for the last kernels of the other processes [s]
SEARCH = "search"

_checked_kinds: set[str] = set()
_lock = threading.Lock()  # other threads wait for the kernels
_listeners: list[Callable[[str, int, int], None]] = []


def on_compile(listener: Callable[[str, int, int], None]) -> None:
    """Call a function for every compiled kernel: its name, its number in a list, and the list's length.

    The name is empty once all kernels are compiled.
    """
    _listeners[:] = [listener]


def _kernel_list(inputs: Inputs) -> str:
    """Return the key of the list of kernels that a run needs, such as "transformer, blocks"."""
    model = "transformer" if has_layer_runs(inputs) else "network" if family_of(inputs).layers else "layer"
    model = "fleet" if TRACE in inputs else "server" if SERVES in inputs else model
    tiling = "blocks" if inputs["tiling.tiles"][0] == "blocks" else "searched"
    return f"{model}, {tiling}"


def compile_ahead(inputs: Inputs, kind: str = "") -> None:
    """Compile the kernels that runs with these inputs call, if several of them are not in the cache.

    kind: SEARCH for the kernels of a search of designs.
    """
    kind = kind or _kernel_list(inputs)
    with _lock:
        if kind in _checked_kinds:
            return
        _checked_kinds.add(kind)
        _compile_missing(_calls(kind))


def compile_every_kind() -> None:
    """Compile the kernels of all kinds of run together, which takes less than one kind after the other."""
    lists = json.loads(SIGNATURES.read_text())
    with _lock:
        _checked_kinds.update(lists)
        calls = {json.dumps(call): (call[0], call[1]) for kind in lists.values() for call in kind}
        _compile_missing([*calls.values()])


def _compile_missing(calls: Sequence[Call]) -> None:
    """Compile the kernels that are not in the cache, if they are several."""
    if len(_missing(calls)) < _MIN_KERNELS:
        return
    with _cache_lock():
        if missing := _missing(calls):  # another process may have compiled them meanwhile
            _compile_all(missing)


def _calls(kind: str) -> list[Call]:
    """Return the kernels that runs of a kind call from Python, with the types of their arguments."""
    return [(name, signature) for name, signature in json.loads(SIGNATURES.read_text()).get(kind, [])]


def _missing(calls: Sequence[Call]) -> list[Call]:
    """Return the kernels that are not in the cache."""
    cached = cache.cached_stems()
    return [(name, signature) for name, signature in calls if _cache_stem(name) not in cached | {None}]


def _cache_stem(name: str) -> str | None:
    """Return the prefix of a kernel's files in the cache; None if the kernel no longer exists."""
    with suppress(ImportError, AttributeError):
        return str(_kernel(name)._cache.stem())
    return None


def _kernel(name: str) -> Any:
    """Return the kernel of a name: "fastflow.physics.timing.tiling.search:_search_each"."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


@contextmanager
def _cache_lock() -> Iterator[None]:
    """Let a single process at a time compile for a cache; any, where files cannot be locked."""
    with ExitStack() as stack:
        with suppress(OSError, ImportError):
            import fcntl  # not on every system

            folder = cache.FOLDERS[0]
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context((folder / "lock").open("w")), fcntl.LOCK_EX)
        yield


def _compile_all(calls: Sequence[Call]) -> None:
    """Compile kernels here and in further processes."""
    from joblib import cpu_count  # which reads the limits of containers

    others = min(cpu_count(), _MAX_PROCESSES) - 1 if sys.executable else 0
    with tempfile.TemporaryDirectory(prefix="fastflow-") as folder:
        (Path(folder) / "list").write_text(json.dumps(calls))
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "fastflow.performance.precompile", folder],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for _ in range(others)
        ]  # fmt: skip
        try:
            with paused_collector():
                work(calls, Path(folder))
            gc.collect()  # while the others end, so that it does not slow the first run
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_MAX_WAIT_S)
        finally:
            for process in processes:
                process.kill()
                process.wait()
            _notify("", len(calls), len(calls))


def _notify(name: str, index: int, total: int) -> None:
    for listener in _listeners:
        listener(name, index, total)


def work(calls: Sequence[Call], folder: Path) -> None:
    """Compile the kernels of a list that no process has claimed; folder: a file for each claimed kernel."""
    for index, (name, signature) in enumerate(calls):
        try:
            (folder / f"{index}.taken").touch(exist_ok=False)
        except OSError:  # claimed, or the folder is gone
            continue
        module, _, function = name.partition(":")
        shown = f"{module.rpartition('.')[2]}.{function}"
        _notify(shown, sum(1 for _ in folder.glob("*.taken")), len(calls))
        with suppress(Exception):  # the kernel has other types by now: it is compiled when it is called
            compile_for(_kernel(name), signature)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with paused_collector():
        work(json.loads((folder / "list").read_text()), folder)
