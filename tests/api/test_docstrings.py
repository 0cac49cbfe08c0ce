"""The public names: each has a docstring with an example, and every example prints what it says."""

import doctest
import re
import subprocess
import sys

import pandas as pd
import pytest

import fastflow
from fastflow.core.jit import cache

SLOW = {"backtest", "calibrate", "search", "sensitivity", "Backtest", "Calibration", "FleetSearch", "Search",
        "Sensitivity", "ServerCalibration"}  # fmt: skip
"""Examples that take longer than 0.2 s."""
RESULTS = {"Backtest", "Calibration", "Chances", "FleetSearch", "Points", "Search", "Sensitivity",
           "ServerCalibration", "Validation"}  # fmt: skip
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples_of(name):
    finder = doctest.DocTestFinder(recurse=False)
    names = {"fastflow": fastflow, "pd": pd}
    (found,) = finder.find(getattr(fastflow, name), f"fastflow.{name}", module=False, extraglobs=names)
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in SLOW)) for name in fastflow.__all__]
)
def test_examples_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name == "clear_cache":
        monkeypatch.setattr(cache, "FOLDERS", (tmp_path / "cache", tmp_path / "spare"))
    shown = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    results = runner.run(examples_of(name), out=shown.append, clear_globs=False)
    assert results.attempted > 0
    assert results.failed == 0, "".join(shown)


@pytest.mark.parametrize("name", fastflow.__all__)
def test_public_functions_say_what_they_return_and_raise(name):
    text = " ".join(getattr(fastflow, name).__doc__.split())
    if name not in ("InputError", "clear_cache", *RESULTS):
        assert re.search(r"[Rr]eturns? ", text)
        assert "Raises InputError" in text


@pytest.mark.parametrize("name", sorted(RESULTS - {"Chances", "Points"}))
def test_results_explain_each_of_their_fields(name):
    result = getattr(fastflow, name)
    assert [field for field in result._fields if f"`{field}`" not in result.__doc__] == []
    assert "rrors are" in result.__doc__


def test_results_are_public_names():
    assert set(dir(fastflow)) >= RESULTS


@pytest.mark.long
def test_results_are_loaded_when_they_are_named_and_screens_when_they_are_shown():
    code = "import fastflow, sys; print(sorted({'pandas', 'numpy', 'rich'} & sys.modules.keys()))"
    code += "; fastflow.Search; print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nFalse\n"
