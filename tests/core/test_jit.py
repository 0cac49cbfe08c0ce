"""Kernels: whole for Python, parts for kernels, and kept by the names of what they follow from."""

import os
import pickle
import sys
from typing import NamedTuple

import numpy as np
import pytest
from numba.core import event, types

import fastflow
from fastflow.core import jit
from fastflow.core.jit import cache
from fastflow.core.jit.cache import KernelCache
from fastflow.core.jit.dispatcher import Kernel
from fastflow.core.jit.fingerprint import fingerprint

FACTOR = 3.0


class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "FOLDERS", (tmp_path / "kernels", tmp_path / "spare"))
    return tmp_path / "kernels"


@jit.kernel
def scaled(value):
    return FACTOR * value


@jit.kernel
def summed(values):
    total = 0.0
    for value in values:
        total += scaled(value)
    return total


@jit.kernel
def copied(values):
    """An allocation, which Numba compiles as a function of its own."""
    out = np.empty(values.size)
    out[:] = values
    return out


@jit.kernel
def difference(pair):
    return pair.first[0] - pair.second[0]


def compiled(call):
    """Return the names of the functions of ours that a call compiles."""
    names = []

    class Listener(event.Listener):
        def on_start(self, found):
            function = found.data["dispatcher"].py_func
            if function.__module__ == __name__:
                names.append(function.__name__)

        def on_end(self, found):
            pass

    listener = Listener()
    event.register("numba:compile", listener)
    try:
        call()
    finally:
        event.unregister("numba:compile", listener)
    return names


def again(kernel):
    """Return a kernel as another process would make it."""
    return Kernel(kernel.py_func, dict(kernel.targetoptions), KernelCache)


def test_a_kernel_is_whole_for_python_and_a_part_for_kernels(folder):
    one = again(summed)
    assert compiled(lambda: one(np.arange(4.0))) == ["summed", "scaled"]
    assert one(np.arange(4.0)) == 18.0
    assert scaled.overloads == {}  # nobody can call it from Python, and no file holds it
    assert [path.name.rpartition("-")[0] for path in folder.glob("*.kernel")] == [one._cache.stem()]
    assert scaled(2.0) == 6.0  # it is compiled for Python now
    assert len(list(folder.glob("*.kernel"))) == 2


def test_memory_of_a_kernel_is_its_callers():
    array = again(copied)(np.arange(3.0))
    assert array.tolist() == [0.0, 1.0, 2.0]
    array[0] = 7.0
    assert array[0] == 7.0


def test_what_is_kept_is_loaded_and_not_compiled():
    again(summed)(np.arange(4.0))
    other = again(summed)
    results = []
    assert compiled(lambda: results.append(other(np.arange(4.0)))) == []
    assert results == [18.0]
    other(np.arange(4))  # of other types
    assert len(other.overloads) == 2


def test_a_kernel_that_was_loaded_is_a_part_of_others():
    scaled(1.0)
    other = again(scaled)
    other(1.0)
    namespace = {"other": other}
    exec("def caller(value):\n    return other(value) + 1.0", namespace)
    import numba

    assert numba.njit(namespace["caller"])(2.0) == 7.0


@jit.lean_kernel
def first(values):
    return values[0]


@jit.lean_kernel
def made_lean(size):
    return np.zeros(size).sum()


@jit.kernel
def calls_first(values):
    return first(values) + first(values[1:])


@jit.kernel
def calls_made_lean(size):
    return made_lean(size)


def test_a_lean_kernel_counts_no_references():
    values = np.arange(1.0, 4.0)
    before = sys.getrefcount(values)
    assert again(calls_first)(values) == 3.0
    assert first(values) == 1.0  # from Python too
    assert sys.getrefcount(values) == before


def test_a_lean_kernel_cannot_make_an_array():
    """Nothing would ever free it."""
    with pytest.raises(Exception, match="passed into the function as argument"):
        again(calls_made_lean)(3)


def test_garbage_is_collected_after_a_compilation():
    import gc

    again(summed)(np.arange(2.0))
    assert gc.isenabled()


def test_kernels_are_sent_by_name():
    assert pickle.loads(pickle.dumps(_jit_kernel())) is _jit_kernel()


def _jit_kernel():
    from fastflow.core import dedupe

    return dedupe.distinct_rows


@pytest.mark.parametrize("torn", [b"", b"no pickle", pickle.dumps(("a", "foreign", "thing"))])
def test_a_file_that_is_torn_is_compiled_anew(folder, torn):
    again(summed)(np.arange(4.0))
    (file,) = folder.glob("*.kernel")
    whole = file.read_bytes()
    file.write_bytes(torn)
    assert again(summed)(np.arange(4.0)) == 18.0
    assert len(file.read_bytes()) > len(whole) / 2


def test_another_processor_or_version_has_files_of_its_own(folder, monkeypatch):
    again(summed)(np.arange(4.0))
    kernel = again(summed)
    monkeypatch.setattr(cache, "_environment", lambda: "another version")
    assert compiled(lambda: kernel(np.arange(4.0))) == ["summed"]
    context = kernel.targetctx.codegen()
    monkeypatch.setattr(context, "magic_tuple", lambda: ("another", "processor", ""))
    assert "summed" in compiled(lambda: again(summed)(np.arange(4.0)))
    assert len(list(folder.glob("*.kernel"))) == 3


def test_fields_that_change_places_make_another_binary(folder):
    one, other = np.array([5.0]), np.array([3.0])
    assert again(difference)(Pair(one, other)) == 2.0

    class Swapped(NamedTuple):
        second: np.ndarray
        first: np.ndarray

    Swapped.__qualname__ = Pair.__qualname__  # as after an edit
    one, other = (cache._describe(types.NamedUniTuple(types.float64[::1], 2, cls)) for cls in (Pair, Swapped))
    assert one.partition("(")[0] == other.partition("(")[0]
    assert one != other


def test_where_the_folder_cannot_be_written_another_one_serves(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(cache, "FOLDERS", (tmp_path / "file" / "kernels", tmp_path / "spare"))
    again(summed)(np.arange(4.0))
    assert len(list((tmp_path / "spare").glob("*.kernel"))) == 1
    assert compiled(lambda: again(summed)(np.arange(4.0))) == []
    monkeypatch.setattr(cache, "FOLDERS", (tmp_path / "file" / "kernels",))
    assert again(summed)(np.arange(4.0)) == 18.0  # compiled, and kept nowhere


def test_where_binaries_are_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("FASTFLOW_CACHE", str(tmp_path))
    assert cache._folders()[0] == tmp_path / "fastflow" / "kernels"
    monkeypatch.delenv("FASTFLOW_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache._folders()[0] == tmp_path / "home" / ".cache" / "fastflow" / "kernels"

    def homeless():
        raise RuntimeError("no home")

    monkeypatch.setattr(cache.Path, "home", homeless)
    assert cache._folders()[0].is_relative_to(cache._folders()[1].parent)


def test_what_somebody_else_left_in_the_folder_that_all_share_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(cache, "FOLDERS", (tmp_path / "file" / "kernels", tmp_path / "spare"))
    again(summed)(np.arange(4.0))
    own = os.getuid()
    monkeypatch.setattr(cache.os, "getuid", lambda: own + 1)
    assert compiled(lambda: again(summed)(np.arange(4.0))) == ["summed"]
    assert len(list((tmp_path / "spare").iterdir())) == 1  # nor is anything put there


def test_the_oldest_files_make_room(folder, monkeypatch):
    folder.mkdir()
    for number in range(5):
        (folder / f"old-{number}.kernel").write_bytes(bytes(100))
        os.utime(folder / f"old-{number}.kernel", (number, number))
    monkeypatch.setattr(cache, "MAX_BYTES", 250)
    cache._evict_oldest.__wrapped__(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["old-3.kernel", "old-4.kernel"]


def test_the_cache_is_cleared(folder):
    again(summed)(np.arange(4.0))
    (folder / "else").write_text("kept")
    fastflow.clear_cache()
    assert [path.name for path in folder.iterdir()] == ["else"]


def made(text, **names):
    """Return a function of some source."""
    exec(text, names)
    return names["function"]


def test_a_fingerprint_says_what_code_follows_from():
    text = "def function(a):\n    return a + {}"
    first = fingerprint(made(text.format(1), __name__="m"))
    assert fingerprint(made("# a comment\n\n" + text.format(1), __name__="m")) == first
    assert fingerprint(made(text.format(1) + "  # a comment", __name__="m")) == first
    assert fingerprint(made("def function(a):\n    'What it does.'\n    return a + 1", __name__="m")) == first
    assert fingerprint(made(text.format(2), __name__="m")) != first
    assert fingerprint(made(text.format("1.0"), __name__="m")) != first
    assert fingerprint(made(text.format("B"), B=1, __name__="m")) != fingerprint(
        made(text.format("B"), B=2, __name__="m")
    )
    assert fingerprint(made(text.format("B[0]"), B=np.ones(2), __name__="m")) != fingerprint(
        made(text.format("B[0]"), B=np.zeros(2), __name__="m")
    )
    with pytest.raises(TypeError, match="what it follows from is not known"):
        fingerprint(made(text.format("B"), B=object(), __name__="m"))


def test_a_fingerprint_follows_what_is_called():
    def caller(kernel):
        return fingerprint(made("def function(a):\n    return inner(a)", inner=kernel, __name__="m"))

    def kernel(text):
        return Kernel(made(text, __name__="m"), dict(scaled.targetoptions), KernelCache)

    one = kernel("def function(a):\n    return a * 2.0")
    same = kernel("def function(a):\n    return a * 2.0  # the same")
    other = kernel("def function(a):\n    return a * 2.5")
    assert caller(one) == caller(same) != caller(other)


SEARCHED = {"search._search_each"}
FOLLOWS = {"tile_sets._list_tiles", "thread_blocks.run_blocks", "search._search_each"}
EDITS = """
import sys
from fastflow.performance import precompile, crossflow
calls = [call for kind in ("network, searched", "layer, blocks") for call in precompile._calls(kind)]
print(*sorted({precompile._kernel(name)._cache.stem() for name, _ in calls}), sep="\\n")
"""


def long(*edit):
    return pytest.param(*edit, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("file", "before", "after", "anew"),
    [
        ("physics/timing/roofline.py", '"""Write every level', '"""Write each level', set()),
        ("physics/timing/tiling/tile_sets.py", "PARTIAL_SUM_BYTES = 4.0", "PARTIAL_SUM_BYTES = 2.0", FOLLOWS),
        long("physics/timing/roofline.py", "launch[p]\n", "launch[p] + 0.0\n", {"roofline._limit"}),
        long("physics/timing/tiling/dataflow.py", "per_n: float) -> float:", "per_n: float) -> int:", set()),
        long("physics/timing/tiling/bounds.py", "LEAST, SHARE = 0, 1, 2", "LEAST, SHARE = 0, 2, 1", SEARCHED),
    ],
)  # fmt: skip
def test_an_edit_compiles_what_depends_on_it_and_no_more(copied, file, before, after, anew):
    package, run = copied
    first = set(run(EDITS).split())
    text = (package / file).read_text()
    assert before in text
    (package / file).write_text(text.replace(before, after, 1))
    changed = {one.rpartition("-")[0] for one in set(run(EDITS).split()) - first}
    assert changed == anew
