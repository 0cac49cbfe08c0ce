"""Kernels are compiled ahead, by several processes from one list."""

import importlib
import json
import os
import re
import subprocess
import sys

import pytest
from numba.core import types

import fastflow
from fastflow.core.jit.dispatcher import Kernel
from fastflow.core.jit.signatures import read_type, write_type
from fastflow.performance import precompile
from fastflow.performance.precompile import work
from tests.support.paths import ROOT

LISTS = json.loads(precompile.SIGNATURES.read_text())


def dispatcher(name):
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


@pytest.mark.parametrize("kind", LISTS)
def test_lists_are_of_kernels_that_there_are(kind):
    for name, signature in LISTS[kind]:
        assert dispatcher(name).py_func.__code__.co_argcount == len(signature)
        assert list(map(write_type, map(read_type, signature))) == signature


@pytest.mark.parametrize(
    ("kind", "overrides"),
    [
        ("network, searched", ("tech=n7,n5", "mem=hbm2,hbm3", "parallel.strategy=auto")),
        ("layer, blocks", ("model=gemm", "chip=a100")),
    ],
)
def test_lists_are_of_what_is_called(kind, overrides):
    fastflow.evaluate(*overrides)
    for name, signature in LISTS[kind]:
        if "_which_vary" not in name:  # whose types follow from the values
            assert tuple(map(read_type, signature)) in dispatcher(name).signatures, name


@pytest.mark.parametrize(
    "given",
    [
        types.int64,
        types.boolean,
        types.Array(types.float64, 2, "C"),
        types.Array(types.float64, 1, "A", readonly=True),
        types.Array(types.UnicodeCharSeq(3), 1, "C"),
        types.UniTuple(types.int64, 3),
        types.Tuple((types.int64, types.Array(types.int64, 1, "F"))),
    ],
)
def test_types_round_trip(given):
    assert read_type(json.loads(json.dumps(write_type(given)))) == given


def test_what_is_no_argument_of_a_kernel_is_refused():
    with pytest.raises(ValueError, match="no type of a kernel's argument"):
        write_type(types.unicode_type)


class Counted:
    """Stands for a kernel, and counts how often it is compiled."""

    def __init__(self):
        self.compiled = []

    def compile(self, signature):
        self.compiled.append(signature)
        raise TypeError  # as where the list is out of date: nothing comes of it


def test_a_kernel_is_taken_once(tmp_path, monkeypatch):
    one, other = Counted(), Counted()
    monkeypatch.setattr(precompile, "one", one, raising=False)
    monkeypatch.setattr(precompile, "other", other, raising=False)
    calls = [
        ("fastflow.performance.precompile:one", ["int64"]),
        ("fastflow.performance.precompile:other", ["int64", "float64 2C"]),
    ]
    said = []
    monkeypatch.setattr(precompile, "_listeners", [lambda *what: said.append(what)])
    (tmp_path / "0.taken").touch()
    work(calls, tmp_path)
    work(calls, tmp_path)
    assert one.compiled == []
    assert other.compiled == [(types.int64, types.Array(types.float64, 2, "C"))]
    assert said == [("precompile.other", 2, 2)]


def test_nothing_is_compiled_ahead_where_all_is_there(monkeypatch):
    fastflow.evaluate("tech=n7")
    monkeypatch.setattr(precompile, "_checked_kinds", set())
    monkeypatch.setattr(precompile, "_compile_all", None)
    fastflow.evaluate("tech=n7")


def test_what_an_edit_left_out_of_date_is_compiled_ahead(monkeypatch):
    """And nothing else: the kernels that are still in the cache are not on the list."""
    fastflow.evaluate("tech=n7")
    gone = {"search._search_each", "roofline._limit", "graph._model_flop"}
    held = precompile.cache.cached_stems()
    monkeypatch.setattr(
        precompile.cache, "cached_stems", lambda: {one for one in held if one.rpartition("-")[0] not in gone}
    )
    monkeypatch.setattr(precompile, "_checked_kinds", set())
    lists = []
    monkeypatch.setattr(precompile, "_compile_all", lists.append)
    fastflow.evaluate("tech=n7")
    (calls,) = lists
    assert {name.rpartition(".")[2].replace(":", ".") for name, _ in calls} == gone


def test_a_list_that_is_out_of_date_names_kernels_that_are_gone():
    calls = [
        ("fastflow.core.dedupe:gone", []),
        ("fastflow.gone:gone", []),
        ("fastflow.core.dedupe:kinds", []),
    ]
    assert precompile._missing(calls) == []


@pytest.mark.long
def test_the_first_run_compiles_in_several_processes_and_says_so(tmp_path):
    environment = os.environ | {"FASTFLOW_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "fastflow.sweep", "-m", "tech=n12,n7", "model=gemm"]
    done = subprocess.run(
        [*command, "output=one"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    first, second = done.stderr.splitlines()
    assert first == f"compiling {len(LISTS['layer, searched'])} kernels, once for this version"
    assert second == "2 points: 2 tech"
    done = subprocess.run(
        [*command, "output=two"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert "compiling" not in done.stderr


def test_no_kernel_takes_columns_that_are_broadcast_or_strided():
    """For Numba they are of another type, and each of their kernels would be compiled a second time."""

    def compiled():
        return {
            (value, signature)
            for name, module in list(sys.modules.items())
            if name.startswith("fastflow.")
            for value in vars(module).values()
            if isinstance(value, Kernel)
            for signature in value.signatures
        }

    before = compiled()  # other tests may call a kernel with columns of their own
    fastflow.evaluate("model=llama2_7b", "chip=h100_sxm,a100", "system.devices=8")
    fastflow.evaluate("model=gemm", "model.m=64,128", "chip=v100_sxm")
    after = compiled()
    assert len({kernel for kernel, _ in after}) > 30
    for kernel, signature in after - before:
        assert not re.search(r"readonly|, A[,)]", str(signature)), (kernel, signature)
