"""`python -m fastflow.sweep` as a user meets it."""

import logging
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.cli.run import grid
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.reporting.terminal import point
from fastflow.reporting.terminal import progress as progress_module
from fastflow.reporting.terminal.progress import Progress
from tests.support.paths import ROOT

RUN = [sys.executable, "-m", "fastflow.sweep"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """A function that runs a command line here: exit code, standard output, lines of standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # so that it is restored

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["sweep.py", *arguments])
        try:
            code = main()
        except SystemExit as stop:  # Hydra's own, as after --help
            code = stop.code
        out, err = capsys.readouterr()
        return code, out, err.splitlines()

    level, handlers = logging.root.level, logging.root.handlers[:]
    yield run
    logging.root.setLevel(level)  # after `--info`, Hydra logs all that it does
    logging.root.handlers[:] = handlers


def test_one_point_prints_its_breakdown(cli, tmp_path):
    code, out, err = cli("tech=n7", "mem=hbm3", "output=here")
    assert (code, err) == (0, [])
    for words in (
        "Chip",
        "Time of one iteration",
        "Kernels",
        "Bound by",
        "Memory",
        "Dataset: here",
    ):
        assert words in out
    assert max(len(line) for line in out.splitlines()) <= 80
    frame = pd.read_parquet(tmp_path / "here")
    assert frame.loc[0, ["tech", "mem", "model"]].tolist() == ["n7", "hbm3", "lstm_lm"]
    if not frame.loc[0, "feasible"]:
        assert "Not feasible" in out


def test_a_grid_ends_with_table_path_and_rate(cli, tmp_path):
    code, out, err = cli("-m", "tech=n12,n7,n3", "mem=hbm2,hbm3", "output=here")
    assert (code, err) == (0, ["6 points: 3 tech x 2 mem"])
    assert "points/s" in out
    assert "composition" not in out
    assert out.splitlines()[-1] == "Dataset: here"
    frame = pd.read_parquet(tmp_path / "here")
    assert frame["tech"].tolist() == ["n12", "n12", "n7", "n7", "n3", "n3"]
    assert frame["mem"].tolist() == ["hbm2", "hbm3"] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    pd.testing.assert_frame_equal(frame, fastflow.evaluate("tech=n12,n7,n3", "mem=hbm2,hbm3"))


def test_a_large_grid_shows_the_first_rows_and_the_best(cli):
    code, out, _ = cli("-m", "model=gemm", "model.m=range(64,1601,64)", "output=here")
    assert code == 0
    assert "First 10 of 25 points" in out
    assert "Fastest feasible points" in out


@pytest.mark.parametrize(
    ("section", "is_ours"),
    [
        ("mode: MULTIRUN\n  sweeper: {params: {tech: 'n12,n7'}}", True),
        ("sweeper: {zip: []}", True),
        ("mode: RUN\n  sweeper: {params: {tech: 'n12,n7'}}", False),
        ("sweeper: {max_jobs: 2}", False),
        ("sweep: {dir: elsewhere}", False),
        ("job: {name: mine}", False),
    ],
)
def test_a_study_that_says_more_to_hydra_than_its_grid_is_left_to_hydra(tmp_path, section, is_ours):
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "mine.yaml").write_text(f"# @package _global_\nhydra:\n  {section}\n")
    with hydra_rules():
        composer = Composer.of_library(tmp_path)
        assert (grid._study(composer, ["+sweeps=mine", "mem=hbm2,hbm3"]) is not None) == is_ours
        assert grid._study(composer, ["mem=hbm2,hbm3"]) == {}


def test_a_study_of_the_library_needs_no_flag(cli, tmp_path):
    code, _, err = cli(
        "+sweeps=serving_front", "parallel.strategy=TP-8-d4", "serve.concurrency=1,2", "output=o"
    )
    assert code == 0, err
    assert pd.read_parquet(tmp_path / "o")["serve.concurrency"].tolist() == [1, 2]


def test_a_study_needs_no_flag(cli, tmp_path):
    sweeps = tmp_path / "mine" / "sweeps"
    sweeps.mkdir(parents=True)
    (sweeps / "small.yaml").write_text(
        "# @package _global_\n"
        "defaults:\n  - override /model: gemm\n"
        "hydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      tech: n12,n7\n      model.m: 64,128\n"
    )
    for flag in ([], ["-m"]):
        code, _, err = cli(
            *flag, "--config-dir", "mine", "+sweeps=small", "model.m=256", f"output=out{len(flag)}"
        )
        assert (code, err) == (0, ["2 points: 2 tech"])
        frame = pd.read_parquet(tmp_path / f"out{len(flag)}")
        assert frame["model"].unique().tolist() == ["gemm"]
        assert frame["tech"].tolist() == ["n12", "n7"]


@pytest.mark.long
def test_the_default_folder_is_named_by_date_and_time(cli, tmp_path):
    assert cli("model=gemm")[0] == 0
    assert cli("-m", "model=gemm", "model.m=64,128")[0] == 0
    parts = list(tmp_path.glob("outputs/????-??-??/*/part-00000.parquet"))
    assert len(parts) == 2
    assert {len(pd.read_parquet(part.parent)) for part in parts} == {1, 2}


@pytest.mark.long
def test_hydras_own_folder_is_followed(cli, tmp_path):
    assert cli("model=gemm", "hydra.run.dir=a")[0] == 0
    assert cli("-m", "model=gemm", "model.m=64,128", "hydra.sweep.dir=b")[0] == 0
    assert [len(pd.read_parquet(tmp_path / name)) for name in "ab"] == [1, 2]


def test_an_infeasible_point_in_a_grid_is_a_row_with_its_reason(cli, tmp_path):
    code, out, err = cli("-m", "model=gemm", "parallel.strategy=d1,d7", "output=here")
    assert (code, err) == (0, ["2 points: 2 parallel.strategy"])
    frame = pd.read_parquet(tmp_path / "here")
    assert frame["feasible"].tolist() == [True, False]
    assert frame["time_s"].isna().tolist() == [False, True]
    assert "d7" in frame.loc[1, "reason"]
    assert "1 of 2 points have no time (column `reason`); point 1: parallel.strategy=d7" in out


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("tech=n13", "tech=n13 (from the command line) is invalid: expected one of n1, n12,"),
        ("-m tech=n12,n13", "tech=n13 (from the command line) is invalid: expected one of n1, n12,"),
        ("tecch=n7", "did you mean tech?"),
        ("model.bach=3", "expected a key of model (batch,"),
        ("-m model.bach=3,4", "did you mean model.batch?"),
        (
            "model.batch=abc",
            "model.batch=abc (from the command line) is invalid: expected a whole number at least 1",
        ),
        ("chip.tdp=300", "no unit given"),
        ("chip.tdp=300m", "is no unit for this"),
        ("chip.die_area=-3mm2", "above 0 m^2"),
        ("chip.area.core=0.99", "chip.area="),
        ("chip.utilization=1.2", "at most 1"),
        ("model=gemm parallel.strategy=d7", "parallel.strategy=d7"),
        ("parallel.strategy=x", "parallel.strategy=x (from the command line)"),
        ("model.dtype=fp12", "one of fp32, tf32, bf16, fp16, fp8, fp8_block, int8, nvfp4, mxfp4"),
        ("precision.gradient=fp8", "one of operand, fp16, bf16, fp32"),
        ("parallel.strategy=auto chip.tdp=1W", "no time can be predicted"),
        ("model=gemm model.dtype=bf16 chip.rate.bf16=0", "bf16"),
        ("tech=n12,n7", "needs -m"),
        ("model.batch=[1", "cannot be read"),
        ("model.batch=${foo}", "Interpolation key 'foo' not found"),
        ("+sweeps=nosuch", "sweeps=nosuch (from the command line) is invalid: expected one of"),
        ("engine.jobs=0", "engine.jobs=0"),
        (
            "engine=dask engine.address=tcp://127.0.0.1",
            "engine.address=tcp://127.0.0.1 (from the command line)",
        ),
        ("-m engine=dask engine.address=tcp://127.0.0.1:9 tech=n7,n5", "a Dask scheduler that answers"),
        ("engine.chunk_bytes=12", "no unit given"),
        ("-m engine.chunk=1,2", "not an input of the model"),
        ("hydra.foo=1", "hydra.foo"),
        ("-cn nosuch", "--config-name=nosuch"),
        ("--config-dir /no/such", "/no/such"),
        ("--nosuch", "--nosuch"),
        ("output=/proc/nowhere", "output=/proc/nowhere is invalid: expected a folder that can be written to"),
        (
            "-m output=/proc/nowhere tech=n7",
            "output=/proc/nowhere is invalid: expected a folder that can be written to",
        ),
        ("--cfg job tech=n13", "tech=n13"),
        ("--help tech=n13", "tech=n13"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(cli, tmp_path, arguments, says):
    code, out, err = cli(*arguments.split())
    assert code == 2
    assert out == ""
    assert len(err) == 1
    assert says in err[0]
    assert "Traceback" not in err[0]
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_keeps_the_users_own_empty_folder(cli, tmp_path):
    (tmp_path / "mine").mkdir()
    assert cli("parallel.strategy=x", "output=mine")[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.long
def test_another_dataset_in_the_folder_is_refused(cli):
    assert cli("model=gemm", "output=here")[0] == 0
    assert cli("model=gemm", "output=here")[0] == 0
    code, _, err = cli("model=gemm", "model.m=64", "output=here")
    assert code == 2
    assert "output=here" in err[0]
    assert "another configuration" in err[0]


@pytest.mark.long
def test_a_defect_keeps_its_traceback(cli, monkeypatch):
    def broken(inputs):
        raise ValueError("a defect of the model")

    monkeypatch.setattr("fastflow.performance.crossflow.predict", broken)
    for arguments in (["model=gemm"], ["-m", "model=gemm", "model.m=1,2"]):
        with pytest.raises(ValueError, match="a defect of the model"):
            cli(*arguments)


def test_help_names_groups_choices_and_examples(cli):
    code, out, err = cli("--help")
    assert (code, err) == (0, [])
    for words in ("Examples", "tech: n1, n12", "sweeps: ", "chip: ", "--config-dir", "fastflow.evaluate"):
        assert words in out
    assert "conf/" not in out


def test_hydras_switches_work(cli):
    code, out, _ = cli("--cfg", "job", "--package", "mem", "mem=hbm3")
    assert code == 0
    assert "name: HBM3" in out
    assert "chip/pathfinding" in cli("--info", "defaults")[1]


def test_progress_says_nothing_of_a_short_run(capsys):
    with Progress("", 10) as progress:
        progress.advance(5)
        progress.advance(5)
    assert progress.done == 10
    assert capsys.readouterr() == ("", "")


def test_progress_without_a_terminal_is_plain_lines(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 3.0, 4.0, 9.0, 10.0]).__next__
    with monkeypatch.context() as patch:
        patch.setattr(progress_module, "perf_counter", lambda: 0.0)
        progress = Progress("", 100)
    monkeypatch.setattr(progress_module, "perf_counter", clock)
    with progress:
        for _ in range(4):
            progress.advance(20)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["40 of 100 points, 13 points/s, 4 s left", "80 of 100 points, 9 points/s, 2 s left"]


def test_progress_of_what_has_no_known_end(capsys, monkeypatch):
    clock = iter([0.0, 0.0, 3.0, 3.5, 4.0, 9.0, 9.5]).__next__
    with monkeypatch.context() as patch:
        patch.setattr(progress_module, "perf_counter", lambda: 0.0)
        progress = Progress("", 0)
    monkeypatch.setattr(progress_module, "perf_counter", clock)
    with progress:
        progress.start("fitting", 0, "predictions")
        progress.advance(6)
        progress.start("checking", 4, "rows")
        progress.advance(1)
        progress.advance(2)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "fitting", "6 predictions, 2 predictions/s", "checking", "3 of 4 rows, 1 rows/s, 2 s left"
    ]  # fmt: skip


@pytest.mark.long
def test_a_grid_from_a_shell(tmp_path):
    command = [*RUN, "-m", "tech=n12,n7,n3", "mem=hbm2,hbm3", f"output={tmp_path}/out"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert done.stderr == "6 points: 3 tech x 2 mem\n"
    assert done.stdout.splitlines()[-1] == f"Dataset: {tmp_path}/out"
    assert len(pd.read_parquet(tmp_path / "out")) == 6


def test_exit_code_and_line_from_a_shell(tmp_path):
    done = subprocess.run([*RUN, "tech=n13"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


PRODUCTS = """\
name: products
rows: 4096
layers:
- {name: first, repeat: 3, kernels: [{name: product, type: gemm, inner: 256, cols: 256}]}
- {name: second, kernels: [{name: product, type: gemm, inner: 256, cols: 1024}]}
- {name: third, kernels: [{name: product, type: gemm, inner: 1024, cols: 256}]}
"""


def test_kernels_of_one_name_are_one_row_only_where_their_sizes_agree(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "products.yaml").write_text(PRODUCTS)
    code, out, _ = cli("model=graph", "model.file=products.yaml", "model.training=false", "output=here")
    assert code == 0
    rows = [line.split() for line in out.splitlines() if line.startswith(" product ")]
    found = {" ".join(row[-5:]): row[1] for row in rows}
    assert found == {"8 x 256 x 256": "3", "8 x 256 x 1024": "1", "8 x 1024 x 256": "1"}
    assert len(rows) == 3


@pytest.mark.parametrize("name", ["kernel", "phase", "m", "k", "n", "bound_by", "comm"])
def test_kernels_are_merged_in_the_breakdown_where_they_differ_in_nothing_that_is_shown(name):
    same = {"kernel": "a", "phase": "forward", "m": 8, "k": 4, "n": 2, "bound_by": "dram", "comm": ""}
    other = {"m": 9, "k": 9, "n": 9}.get(name, "other")
    rows = [same, same | {name: other}, same, same | {name: other}]
    columns = {key: np.array([row[key] for row in rows]) for key in same} | {
        "layer": np.arange(4), "repeat": np.array([1, 2, 4, 8]),
        "time_s": np.array([1.0, 3.0, 1.0, 1.0]), "comm_s": np.array([0.0, 0.0, 0.0, 0.5]),
    }  # fmt: skip
    merged = point.merge_identical(columns)
    assert merged[name].tolist() == [other, same[name]]  # the larger one first
    assert merged["repeat"].tolist() == [10, 5]
    assert merged["time_s"].tolist() == [4.0, 2.0]
    assert merged["comm_s"].tolist() == [0.5, 0.0]
