"""Compilation of kernels before they are called, in several processes at once.

Numba compiles a kernel where it is first called, one after the other: 20 s until the first result.
Which kernels a run calls, and with which types, is known beforehand (`signatures.json`, which
`bench/record_signatures.py` writes). Those of them that are not in the cache are taken from one list by this
process and one for each other core, the slowest first. A list that is out of date costs time alone.
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

from fastflow.core.jit import cache
from fastflow.core.jit.dispatcher import gc_disabled
from fastflow.core.jit.signatures import compile_for
from fastflow.core.tables import Inputs
from fastflow.physics.workload import family_of, has_layer_runs
from fastflow.physics.workload.request_lengths import SERVES

Call = tuple[str, list[Any]]
"""A kernel's name, and the types of its arguments."""

SIGNATURES = Path(__file__).with_name("signatures.json")
_MOST_PROCESSES = 4
_FEWEST = 3  # kernels that are worth a process of their own
_LONGEST = 300.0  # that the others may take for their last kernels [s]
SEARCH = "search"

_looked: set[str] = set()
_looking = threading.Lock()  # other threads wait for the kernels
_told: list[Callable[[str, int, int], None]] = []


def tell(whom: Callable[[str, int, int], None]) -> None:
    """Have a function told of every kernel that is compiled: its name, its place in a list, of how many.

    The name is empty once all are there.
    """
    _told[:] = [whom]


def _kind_of(inputs: Inputs) -> str:
    """Return which list of kernels a run needs, such as those of transformers, of blocks or searched."""
    what = "transformer" if has_layer_runs(inputs) else "network" if family_of(inputs).layers else "layer"
    what = "server" if SERVES in inputs else what
    how = "blocks" if inputs["tiling.tiles"][0] == "blocks" else "searched"
    return f"{what}, {how}"


def compile_ahead(inputs: Inputs, kind: str = "") -> None:
    """Compile the kernels that runs with such inputs call, if several of them are not in the cache.

    kind: SEARCH for what a search of designs calls.
    """
    kind = kind or _kind_of(inputs)
    with _looking:
        if kind in _looked:
            return
        _looked.add(kind)
        calls = _calls(kind)
        if len(_missing(calls)) < _FEWEST:
            return
        with _alone():
            if missing := _missing(calls):  # nobody else has compiled them meanwhile
                _compile_all(missing)


def _calls(kind: str) -> list[Call]:
    """Return the kernels that runs of a kind call from Python, with the types of their arguments."""
    return [(name, signature) for name, signature in json.loads(SIGNATURES.read_text()).get(kind, [])]


def _missing(calls: Sequence[Call]) -> list[Call]:
    """Return those of some kernels that are not in the cache."""
    held = cache.cached_stems()
    return [(name, signature) for name, signature in calls if _stem(name) not in held | {None}]


def _stem(name: str) -> str | None:
    """Return how the cache's files of a kernel begin; None if there is no such kernel any more."""
    with suppress(ImportError, AttributeError):
        return str(_kernel(name)._cache.stem())
    return None


def _kernel(name: str) -> Any:
    """Return the kernel of a name: "fastflow.physics.timing.tiling.search:_search_each"."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


@contextmanager
def _alone() -> Iterator[None]:
    """Let one process at a time compile for one cache; where there are no locks of files, any."""
    with ExitStack() as stack:
        with suppress(OSError, ImportError):
            import fcntl  # not on every system

            folder = cache.FOLDERS[0]
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context((folder / "lock").open("w")), fcntl.LOCK_EX)
        yield


def _compile_all(calls: Sequence[Call]) -> None:
    """Compile kernels here and in processes beside this one."""
    from joblib import cpu_count  # which knows of containers

    others = min(cpu_count(), _MOST_PROCESSES) - 1 if sys.executable else 0
    with tempfile.TemporaryDirectory(prefix="fastflow-") as folder:
        (Path(folder) / "list").write_text(json.dumps(calls))
        beside = [
            subprocess.Popen(
                [sys.executable, "-m", "fastflow.performance.precompile", folder],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for _ in range(others)
        ]  # fmt: skip
        try:
            with gc_disabled():
                work(calls, Path(folder))
            gc.collect()  # while the others end, and not while a first run is timed
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


def work(calls: Sequence[Call], folder: Path) -> None:
    """Compile the kernels of a list that nobody has taken yet; folder: holds a file for each taken one."""
    for place, (name, signature) in enumerate(calls):
        try:
            (folder / f"{place}.taken").touch(exist_ok=False)
        except OSError:  # taken, or all is over
            continue
        module, _, function = name.partition(":")
        shown = f"{module.rpartition('.')[2]}.{function}"
        _say(shown, sum(1 for _ in folder.glob("*.taken")), len(calls))
        with suppress(Exception):  # the kernel takes something else by now: it is compiled when it is called
            compile_for(_kernel(name), signature)


if __name__ == "__main__":
    taken = Path(sys.argv[1])
    with gc_disabled():
        work(json.loads((taken / "list").read_text()), taken)
