"""Kinds of datasets: what each writer names, and what is guessed of older ones."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import fastflow
from fastflow.analysis.backtest import study
from fastflow.analysis.backtest.options import BacktestOptions
from fastflow.engine.dataset import kinds
from fastflow.engine.dataset.folder import ERRORS, FRONT, PLAN, RANKING
from fastflow.engine.dataset.reader import find
from tests.support.measured import SAMPLE
from tests.support.old_datasets import make_old

SMALL = ("model=gemm", "tech=n7", "mem=hbm3", "system.devices=1", "model.m=1024")
GENERATED = pd.DataFrame({"chip": ["a100"], "scaling": ["paper"], "quantity": ["mcus"], "real": [1.0],
                          "generated": [1.0], "difference": [0.0]})  # fmt: skip
GAINED = pd.DataFrame({"workload": ["decode"], "before": ["v100"], "after": ["a100"], "real_gain": [2.0]})
OF_FILES = pd.DataFrame({"file": ["a.csv"], "chip": ["a100"], "rows": [3], "real_error": [0.1]})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset of every kind."""
    folder = tmp_path_factory.mktemp("kinds")
    fastflow.sweep(*SMALL, output=folder / "grid")
    fastflow.search(
        *("tech=n7", "mem=hbm3", "system.devices=4", "parallel.strategy=d4", "model.hidden=512"),
        *("model.batch=64", "pareto=energy", "starts=2", "steps=1", "tolerance=0"),
        output=folder / "found",
    )
    requests = pd.DataFrame({"arrival_time": range(20), "isl": 500, "osl": 50})
    requests.to_csv(folder / "requests.csv", index=False)
    fastflow.search(
        *("serve=continuous", "server=vllm", "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-1"),
        *("system.devices=1,2", f"serve.trace={folder / 'requests.csv'}", "plan=10 s"),
        output=folder / "fleets",
    )
    lines = (SAMPLE / "gemm_a100_llm.csv").read_text("utf-8").splitlines()[:4]
    (folder / "few.csv").write_text("\n".join(lines), "utf-8")
    fastflow.validate(f"measurements={folder / 'few.csv'}", "chip=a100", output=folder / "held")
    fastflow.sensitivity(*SMALL, output=folder / "hung")
    backtest = study.Backtest(GENERATED, GAINED, OF_FILES, GAINED.iloc[:0])
    study.write(str(folder / "back"), backtest, BacktestOptions({}, (), (), 1.0, 1.0, None, (), None))
    return folder


KINDS = {
    "grid": kinds.GRID,
    "found": kinds.SEARCH,
    f"found{RANKING}": kinds.RANKING,
    f"found{FRONT}": kinds.FRONT,
    "fleets": kinds.FLEETS,
    f"fleets{PLAN}": kinds.PLAN,
    "held": kinds.VALIDATION,
    f"held{ERRORS}": kinds.ERRORS,
    "hung": kinds.SENSITIVITY,
    "back": kinds.BACKTEST,
    f"back{study.GAINS}": kinds.GAINS,
    f"back{study.FILES}": kinds.FILES,
}


def test_there_is_a_dataset_of_every_kind() -> None:
    assert {*KINDS.values()} == {*kinds.TITLES}


@pytest.mark.parametrize("name", KINDS)
def test_a_dataset_says_its_kind_and_version(name: str, written: Path) -> None:
    dataset = find(str(written / name))
    assert dataset.about("kind") == dataset.kind == KINDS[name]
    assert dataset.about("version") == fastflow.__version__
    assert not dataset.stored


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind not in kinds.OF_FLEETS])
def test_an_older_dataset_has_todays_names_and_a_kind(
    name: str, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).mkdir()
    (part,) = (written / name).glob("*.parquet")
    (tmp_path / name / part.name).write_bytes(part.read_bytes())
    new = find(str(written / name))
    make_old(tmp_path / name)
    old = find(str(tmp_path / name))
    assert old.is_old
    assert old.kind == KINDS[name]
    assert old.schema.names == new.schema.names
    assert old.about("measured") == new.about("measured")
    pd.testing.assert_frame_equal(old.read(old.schema.names), new.read(new.schema.names))
    said = capsys.readouterr().err
    assert said.count("\n") == bool(old.stored)
    assert said.startswith(f"{tmp_path / name}: its columns have new names: ") == bool(old.stored)


def test_what_fastflow_did_not_write_has_no_kind() -> None:
    table = pa.table({"figure": [1], "value": [2]})
    assert kinds.dataset_kind(table.schema) == ""
    unknown = table.replace_schema_metadata({"fastflow.version": "0.1.0", "fastflow.kind": "gemm"})
    assert kinds.dataset_kind(unknown.schema) == kinds.GRID
