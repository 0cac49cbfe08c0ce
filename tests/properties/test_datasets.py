"""Every kind of dataset that a command leaves: its report, its page, and the page in a browser."""

from __future__ import annotations

import ast
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.__main__ import COMMANDS
from fastflow.__main__ import main as run
from fastflow.analysis.measurements import kinds  # noqa: F401  which registers the kinds
from fastflow.analysis.measurements.kind import KINDS
from fastflow.analysis.search.optimizers.methods import METHODS
from fastflow.config.library import PACKAGE, library_root
from fastflow.engine.dataset.folder import ERRORS, FILES, FRONT, GAINS, PLAN, RANKING
from fastflow.engine.dataset.kinds import TITLES
from fastflow.engine.dataset.reader import find
from fastflow.physics.workload import FAMILIES
from fastflow.physics.workload.models.transformer import serving_pass
from fastflow.reporting.html.kinds import page_of
from fastflow.schema import ALL, result_order
from fastflow.schema.serving import MODES, NO_SERVING
from tests.support import datasets
from tests.support.browser import PROGRAM, Browser, browser
from tests.support.datasets import CASES, words, write_files

WRITERS = {
    "engine/run/execute.py": "Store",  # points and grids
    "analysis/search/run.py": "History",
    "analysis/search/study.py": "write_table",  # rankings and fronts
    "analysis/search/fleets/study.py": "write_table",
    "analysis/validation/tables.py": "write_table",
    "api/notebook/calls.py": "write_table",  # a sensitivity
    "cli/run/sensitivity.py": "write_table",
    "analysis/backtest/study.py": "write_table",
}
"""Modules that leave datasets, and by what: of each there is a case."""


NAMED = ("Dataset", "Errors", "Front", "Plan", "Ranking")
"""What lines of a screen begin with that say where a dataset is."""


def test_the_list_has_every_module_that_writes_a_dataset() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        if not any(f"{name}(" in text for name in WRITERS.values()):
            continue
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        named = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        found |= {(str(path.relative_to(PACKAGE)), name) for name in named & {*WRITERS.values()}}
    assert found == {*WRITERS.items()}


def test_the_list_has_every_kind_of_whatever_makes_one() -> None:
    asked = [case.asked for case in CASES.values()]
    without = {"report", "fits", "requests"}
    assert {case.command for case in CASES.values()} == {*COMMANDS} - without
    assert {suffix for case in CASES.values() for suffix in case.leaves} == {
        "", RANKING, FRONT, PLAN, ERRORS, GAINS, FILES,
    }  # fmt: skip
    studies = {path.stem for path in (library_root() / "sweeps").glob("*.yaml")}
    assert {*datasets.STUDIES} == studies
    assert {*datasets.MEASURED} == {*KINDS}
    assert {*datasets.FAMILIES} == {*FAMILIES} - {serving_pass.FAMILY.name}
    assert {*datasets.MODES} == {*MODES} - {NO_SERVING}
    for method in METHODS:
        assert any(f"method={method}" in text for text in asked)


@pytest.mark.parametrize(
    ("kind", "tables"),
    [
        ("GEMMs", {}), ("whole iterations", {}), ("training runs", {"has_layer_runs": True}),
        ("served points", {"served": ALL}),
    ],
)  # fmt: skip
def test_result_columns_of_a_validation_are_in_the_order_of_the_schema(
    kind: str, tables: dict[str, Any], tmp_path: Path
) -> None:
    """They follow the columns of the file and of the comparison, as in every grid's dataset."""
    write_files(tmp_path)
    overrides = f"measurements={datasets.MEASURED[kind]}".replace("FOLDER", str(tmp_path)).split()
    rows = fastflow.validate(*overrides).rows
    names, order = [*rows], result_order(3, **tables)
    results = [name for name in names[names.index("bound_by") + 1 :] if name in order]
    assert len(results) > 30
    assert results == [name for name in order if name in results]


needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here: pages are not opened")


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Leave what Hydra changes in a process as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("HYDRA_FULL_ERROR", os.environ.get("HYDRA_FULL_ERROR", "0"))
    level, handlers = logging.root.level, logging.root.handlers[:]
    yield
    logging.root.setLevel(level)
    logging.root.handlers[:] = handlers


@pytest.mark.long
@needs_browser
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", CASES)
def test_every_dataset_has_its_report_and_its_page(
    name: str, tab: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path)
    case = CASES[name]
    assert run([case.command, *words(case, tmp_path, name)]) == 0, capsys.readouterr().err
    there = {path.name for path in tmp_path.iterdir() if path.is_dir() and any(path.glob("*.parquet"))}
    assert there == {f"{name}{suffix}" for suffix in case.leaves}
    lines = [line.partition(": ") for line in capsys.readouterr().out.splitlines()]
    assert {Path(rest).name for key, _, rest in lines if key in NAMED} == there
    for dataset in sorted(there):
        capsys.readouterr()
        assert find(str(tmp_path / dataset)).about("kind") in TITLES, dataset
        assert run(["report", str(tmp_path / dataset)]) == 0, dataset
        assert capsys.readouterr().out.count("\n") >= 1, dataset
        page = tmp_path / f"{dataset}.html"
        assert run(["report", str(tmp_path / dataset), f"html={page}"]) == 0, dataset
        told = capsys.readouterr().out
        assert "not shown" not in told, dataset  # what is inside of the points is predicted again
        assert "another time today" not in told, dataset
        tab.open(page)
        frame = pd.read_parquet(tmp_path / dataset)
        _check(tab, dataset, frame)
        assert tab.problems() == [], dataset
        assert tab.requests() == [], dataset


def _check(tab: Browser, dataset: str, frame: pd.DataFrame) -> None:
    """Look at what a page shows of its points."""
    # errors are shown with their validation, the history of a study by the ranking that it is judged by
    titles = {dataset, dataset.removesuffix(ERRORS), f"{dataset}{RANKING}"}
    _, _, folder = tab.value("document.querySelector('h1').textContent").rpartition(" (")
    assert folder.removesuffix(")") in titles
    if frame.empty:
        return
    assert tab.value("document.querySelectorAll('#scatter canvas').length") >= 1, dataset
    assert tab.value("document.querySelectorAll('#table tbody tr').length") >= 1, dataset
    opened = not tab.value("document.getElementById('point').hidden")
    if opened and "core_Hz" in frame and frame["core_Hz"].notna().all():
        chip = tab.value("document.querySelector('#pointcharts table.generated')?.textContent ?? ''")
        assert "core" in chip, dataset
        assert "l2" in chip, dataset
        if "measured_s" in frame:  # whose points are not predicted again
            return
        heads = tab.value("[...document.querySelectorAll('#pointcharts h3')].map((one) => one.textContent)")
        assert any(one.startswith("Floor plan") for one in heads), dataset


def test_a_page_of_a_served_search_has_areas_and_the_chip(tmp_path: Path) -> None:
    """It was a traceback, as no kernel is of a point that serves."""
    asked = words(CASES["search-decode"], tmp_path, "found")[:-1]
    fastflow.search(*asked, "tolerance=0", output=tmp_path / "found")
    page = page_of(find(str(tmp_path / "found")))
    assert page.details is not None
    assert page.details.kernels.name.size == 0
    shown = {quantity.name: quantity[3] for quantity in page.points}
    np.testing.assert_allclose(page.details.areas["l2"], shown["chip.area.l2"] * 850e-6)  # of the die
    for name in ("l0_B", "l1_B", "l2_B", "l2_Bps", "core_Hz", "core_V", "mcus", "bundles"):
        assert shown[name][0] > 0.0
