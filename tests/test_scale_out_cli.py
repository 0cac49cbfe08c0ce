"""Strategies, placements, pipelines and traces from the command line."""

import json
import logging
import sys

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.sweep import main
from tests.naive import space

SMALL = [
    "model.hidden=512", "model.batch=64", "model.vocabulary=4000", "model.sequence=4", "system.devices=16",
]  # fmt: skip


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """A function that runs a command line here: exit code, standard output, lines of standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # so that it is restored
    # tests that compose by Hydra's own means leave handlers that a process of its own does not have
    monkeypatch.setattr(logging.root, "handlers", [logging.NullHandler()])

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["sweep.py", *arguments])
        code = main()
        out, err = capsys.readouterr()
        return code, out, err.splitlines()

    return run


def test_a_trace_of_a_pipeline(cli, tmp_path):
    code, out, err = cli(*SMALL, "parallel.strategy=RC-2-2-d2-p2", "trace=my.json", "output=here")
    assert (code, err) == (0, [])
    assert "Trace: my.json" in out
    events = json.loads((tmp_path / "my.json").read_text(encoding="utf-8"))["traceEvents"]
    named = {
        (event["name"], event["pid"]): event["args"]["name"]
        for event in events
        if event["name"] == "process_name"
    }
    assert set(named.values()) == {"stage 0", "stage 1"}
    tracks = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"]))
    assert {pid for pid, _ in tracks} == {1, 2}
    assert len(tracks) == 4  # of each stage, kernels and the network between packages
    frame = pd.read_parquet(tmp_path / "here")
    for runs in tracks.values():
        runs.sort()
        ends = [start + length for start, length in runs]
        assert all(end <= start + 1e-3 for end, (start, _) in zip(ends[:-1], runs[1:], strict=True))
        assert max(ends) <= frame.loc[0, "time_s"] * 1e6 * (1 + 1e-6)
    names = [event["name"] for event in events if event["ph"] == "X"]
    count = frame.loc[0, "microbatches"]
    for name, times in (("softmax", count), ("softmax input gradient", count), ("softmax update", 1)):
        assert names.count(name) == times


def test_a_ranking_beside_the_dataset(cli, tmp_path):
    code, out, err = cli(*SMALL, "system=torus", "parallel.strategy=auto", "output=here")
    assert (code, err) == (0, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "here-ranking"]
    assert "Ranking: here-ranking" in out
    assert out.splitlines()[-1] == "Dataset: here"
    assert max(len(line) for line in out.splitlines()) <= 80
    best, ranking = (pd.read_parquet(tmp_path / name) for name in ("here", "here-ranking"))
    assert sorted(ranking["strategy"]) == sorted(space.every_strategy(16, 4))
    assert (ranking["point"] == np.arange(len(ranking))).all()
    assert ranking["time_s"].is_monotonic_increasing
    assert ranking["feasible"].all()
    same = ["strategy", "placement", "time_s", "energy_J", "footprint_B", "feasible"]
    assert best.loc[0, same].tolist() == ranking.loc[0, same].tolist()
    assert f"Best 10 of {len(ranking)} strategies" in out
    evaluated = fastflow.evaluate(*SMALL, "system=torus", "parallel.strategy=auto")
    pd.testing.assert_frame_equal(best, evaluated)


def test_a_grid_that_chooses_has_no_ranking(cli, tmp_path):
    code, _, err = cli(
        "-m", *SMALL, "parallel.strategy=auto,d16", "placement=auto,lp-dp-kp2-kp1", "output=here"
    )
    assert code == 0
    assert len(err) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    frame = pd.read_parquet(tmp_path / "here")
    assert len(frame) == 4
    assert frame["strategy"].tolist()[2:] == ["d16", "d16"]
    assert (frame["time_s"].iloc[:2].to_numpy() <= frame["time_s"].iloc[2:].to_numpy()).all()


def test_the_screen_of_a_pipeline(cli):
    code, out, _ = cli(*SMALL, "system=torus", "parallel.strategy=RC-2-2-d2-p2", "output=here")
    assert code == 0
    for words in ("Placement kp", "bubble", "pipeline stage", "8 micro-batches", "lp (pipeline)"):
        assert words in out


@pytest.mark.parametrize(
    ("wrong", "allowed", "beside"),
    [
        ("placement=kp1-kp2", "auto, or kp1, kp2, dp and lp in any order", []),
        ("system.shape=3x5", "1d, 2d, 3d, or sides whose product is 16 packages; 3 x 5", ["system=torus"]),
        ("system.shape=4y4", "1d, 2d, 3d, or up to three sides", ["system=mesh"]),
        ("system.package.devices=3", "a number of devices that divides system.devices=16", ["system=mcm"]),
        ("system.taper=0.5", "a number at least 1", ["system=fat_tree"]),
        ("system.collective=rings", "one of auto, ring, ", []),
        ("trace=my.json", "null in a grid", ["-m", "model.layers=2,3"]),
        ("trace=my.txt", "a file whose name ends in .json", []),
        ("trace=no/my.json", "a file in a folder that exists", []),
        ("parallel.microbatches=5", "at most 4, the rows of one device", []),
        ("parallel.softmax=RC-9", "RC-KP1-KP2, CR-KP1 or neither", []),
        ("parallel.softmax=RC-1-3", "a cut for the 16 devices", []),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(cli, tmp_path, wrong, allowed, beside):
    code, out, err = cli(*beside, *SMALL, "parallel.strategy=d16", wrong, "output=here")
    assert (code, out) == (2, "")
    assert len(err) == 1
    assert err[0].startswith(f"{wrong} (from the command line): allowed is {allowed}")
    assert list(tmp_path.iterdir()) == []
