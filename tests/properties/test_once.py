"""Each thing once: how often a command predicts, ranks, composes, opens and reads, exactly.

A number here is what the command needs, and why; whatever is made twice makes it grow.
"""

import functools
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl

import fastflow
from fastflow.analysis.calibration import parameters
from fastflow.analysis.measurements import csv_file
from fastflow.cli.commands.calibrate import main as calibrate
from fastflow.cli.commands.search import main as search
from fastflow.cli.commands.sweep import main as sweep
from fastflow.cli.commands.validate import main as validate
from fastflow.config import composer
from fastflow.config.hydra_composer import HydraComposer
from fastflow.core import yaml_file
from fastflow.engine.dataset.reader import Dataset
from fastflow.engine.dataset.store import Store
from fastflow.engine.run import chunks
from fastflow.performance import crossflow
from fastflow.performance.auto import rank
from fastflow.physics.hardware import chip

RC = "parallel.strategy=RC-1-16-d32"
AUTO = "parallel.strategy=auto"
COUNTED = {
    "predicted": (crossflow, "predict"),
    "ranked": (rank, "_ranked_rows"),
    "peaks": (chip, "peak_flops"),  # of the units of products, and of passes: 2 a prediction
    "composed": (HydraComposer, "_compose_choices"),
    "by hydra": (ConfigLoaderImpl, "load_configuration"),
    "opened": (Store, "open"),
    "read back": (Dataset, "_part"),
    "parts shown": (Store, "read"),
    "warmed": (chunks, "warm_up"),
    "csv": (csv_file, "read_csv"),
    "points": (parameters, "points_of"),
    "networks": (yaml_file, "load"),
}


@pytest.fixture
def counts(monkeypatch):
    """How often each of COUNTED has been called, wherever it was imported to."""
    found = Counter()
    monkeypatch.setattr(composer, "_COMPOSERS", type("Kept", (), {})())  # what other tests have composed

    def counted(name, function):
        @functools.wraps(function)
        def call(*arguments, **named):
            found[name] += 1
            return function(*arguments, **named)

        return call

    for name, (home, attribute) in COUNTED.items():
        function = getattr(home, attribute)
        replaced = counted(name, function)
        modules = [module for key, module in sys.modules.items() if key.startswith("fastflow")]
        for owner in [home, *modules]:
            for other in [key for key, value in vars(owner).items() if value is function]:
                monkeypatch.setattr(owner, other, replaced)
    return found


GEMMS = "m,k,n,dtype,time_s\n" + "".join(
    f"{m},{k},4096,{dtype},{m * k * 1e-10}\n"
    for m in (512, 1024, 2048, 4096)
    for k in (1024, 4096, 8192)
    for dtype in ("fp16", "fp32")
)
ITERATIONS = """\
tech,mem,parallel.strategy,time_s
n7,hbm3,RC-1-16-d32,0.5
n5,hbm3,RC-1-16-d32,0.4
n7,hbm3,auto,0.5
"""
NETWORK = "rows: 64\nlayers:\n  - {name: one, kernels: [{name: g, type: gemm, inner: 32, cols: 32}]}\n"

POINT = {"predicted": 1, "peaks": 2, "composed": 1}
COMMANDS = {
    "a point": (sweep, ["tech=n7", RC], {**POINT, "opened": 1}),
    # the best strategy is among those that the ranking has predicted; two datasets
    "the best strategy of a point": (sweep, ["tech=n7", AUTO], {**POINT, "ranked": 1, "opened": 2}),
    # first of all a point, so that no clock runs while kernels load; parts may be an earlier run's
    "a grid": (
        sweep,
        ["-m", "tech=n7,n5", RC],
        {"predicted": 2, "peaks": 4, "composed": 2, "warmed": 1, "opened": 1, "parts shown": 1},
    ),
    # that point is ranked with all others; then the winners are predicted
    "a grid of best strategies": (
        sweep,
        ["-m", "tech=n7,n5", "mem=hbm2,hbm3", AUTO],
        {"predicted": 3, "ranked": 1, "peaks": 6, "composed": 4, "warmed": 1, "opened": 1, "parts shown": 1},
    ),
    "a grid of two parts": (
        sweep,
        ["-m", "model=gemm", "model.m=range(1,301)"],
        {"predicted": 3, "peaks": 6, "composed": 1, "warmed": 1, "opened": 1, "parts shown": 2},
    ),
    # composed for what is said of measurements, and for the points of their kind
    "a validation": (
        validate,
        ["measurements=gemms.csv", "chip=a100"],
        {"predicted": 1, "peaks": 2, "composed": 2, "csv": 1},
    ),
    "a validation of iterations": (
        validate,
        ["measurements=iterations.csv"],
        {"predicted": 2, "ranked": 1, "peaks": 4, "composed": 3, "csv": 1},
    ),
    # points of all rows, and of those that are fitted
    "a calibration": (
        calibrate,
        ["measurements=gemms.csv", "chip=a100", "fit=utilization"],
        {"composed": 2, "csv": 1, "points": 2},
    ),
    # composed again for what a chip's file leaves out; the figure is drawn from the history on disk
    "a search": (search, ["tech=n7", RC, "starts=1", "steps=1"], {"composed": 2, "read back": 1}),
}
CALLS = {
    "evaluate": (lambda: fastflow.evaluate("tech=n7", RC), POINT),
    "evaluate a grid": (
        lambda: fastflow.evaluate("model=gemm", "model.m=range(1,301)"),
        {"predicted": 3, "peaks": 6, "composed": 1, "warmed": 1},
    ),
    "evaluate a network's file": (
        lambda: fastflow.evaluate("model=graph", "model.file=net.yaml", "parallel.strategy=d1,CR-2-d4"),
        {**POINT, "networks": 1},
    ),
    "predict_gemm": (
        lambda: fastflow.predict_gemm([256, 512], 512, 512),
        {"peaks": 2, "composed": 1},
    ),  # no point
    "rank_strategies": (lambda: fastflow.rank_strategies("tech=n7"), {**POINT, "ranked": 1}),
    "validate": (
        lambda: fastflow.validate("measurements=gemms.csv", "chip=a100", output="here"),
        {"predicted": 1, "peaks": 2, "composed": 2, "csv": 1},
    ),
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Files of measurements and of a network, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"gemms.csv": GEMMS, "iterations.csv": ITERATIONS, "net.yaml": NETWORK}.items():
        (tmp_path / name).write_text(text)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_does_each_thing_once(cli, files, counts, name):
    command, arguments, expected = COMMANDS[name]
    code, _, err = cli(command, *arguments)
    assert code == 0, err
    open_ended = {"predicted", "peaks"} if command in (calibrate, search) else set()  # as long as it takes
    assert {key: count for key, count in counts.items() if key not in open_ended} == expected


@pytest.mark.parametrize("name", CALLS)
def test_a_call_does_each_thing_once(files, counts, name):
    call, expected = CALLS[name]
    call()
    assert counts == expected


def test_the_best_strategy_of_a_point_is_shown_as_if_it_had_been_asked_for(cli, files):
    best = fastflow.rank_strategies("tech=n7")["strategy"][0]
    shown = {}
    for name in ("auto", best):
        asked = (f"parallel.strategy={name}", f"output={name}", f"trace={name}.json", f"picture={name}.svg")
        code, out, err = cli(sweep, "tech=n7", *asked)
        assert code == 0, err
        beside = [line for line in out if not line.startswith(("Trace:", "Picture:", "Dataset:"))]
        start = next((i for i, line in enumerate(beside) if line.startswith("Best of")), len(beside))
        row = pd.read_parquet(name)
        files = [Path(f"{name}.{ending}").read_bytes() for ending in ("json", "svg")]
        shown[name] = beside[: start - (start < len(beside))], row, files
    (lines, row, drawn), (other_lines, other_row, other_drawn) = shown.values()
    assert lines == other_lines
    pd.testing.assert_frame_equal(row, other_row, check_exact=True)
    assert drawn == other_drawn


def test_a_ranking_of_two_parts_is_the_grid_of_its_strategies(cli, files):
    asked = ("tech=n7", "system.devices=4096")
    code, out, err = cli(sweep, *asked, AUTO, "output=here")
    assert code == 0, err
    assert len(list(Path("here-ranking").glob("*.parquet"))) == 2
    ranking = pd.read_parquet("here-ranking")
    each = fastflow.evaluate(*asked, f"parallel.strategy={','.join(ranking['parallel.strategy'])}")
    pd.testing.assert_frame_equal(ranking, each, check_exact=True)
    called = fastflow.rank_strategies(*asked)
    pd.testing.assert_frame_equal(ranking, called, check_exact=True)
    assert f"Best of {len(ranking)} strategies, identical results shown once" in "\n".join(out)
