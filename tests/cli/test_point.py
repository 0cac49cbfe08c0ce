"""Strategies, placements, pipelines and traces from the command line."""

import errno
import json

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.cli.run.point import _writing
from fastflow.core.errors import InputError
from tests.naive import space
from tests.support.networks import three_products

SMALL = [
    "model.hidden=512", "model.batch=64", "model.vocabulary=4000", "model.sequence=4", "system.devices=16",
]  # fmt: skip


@pytest.fixture
def cli(cli, monkeypatch):
    """A function that runs a sweep here, 80 columns wide: exit code, output, lines of standard error."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        code, out, err = cli(main, *arguments)
        return code, "\n".join([*out, ""]), err

    return run


@pytest.mark.long
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


@pytest.mark.long
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
    assert f"Best of {len(ranking)} strategies" in out
    evaluated = fastflow.evaluate(*SMALL, "system=torus", "parallel.strategy=auto")
    pd.testing.assert_frame_equal(best, evaluated)


@pytest.mark.long
def test_a_grid_that_chooses_has_no_ranking(cli, tmp_path):
    code, _, err = cli(
        "-m", *SMALL, "parallel.strategy=auto,d16", "placement=auto,pp-dp-kp2-kp1", "output=here"
    )
    assert code == 0
    assert len(err) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    frame = pd.read_parquet(tmp_path / "here")
    assert len(frame) == 4
    assert frame["strategy"].tolist()[2:] == ["d16", "d16"]
    assert (frame["time_s"].iloc[:2].to_numpy() <= frame["time_s"].iloc[2:].to_numpy()).all()


@pytest.mark.long
def test_the_screen_of_a_pipeline(cli):
    code, out, _ = cli(*SMALL, "system=torus", "parallel.strategy=RC-2-2-d2-p2", "output=here")
    assert code == 0
    for words in ("Placement kp", "bubble", "pipeline stage", "8 micro-batches", "pp (pipeline)"):
        assert words in out


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "allowed", "fixed"),
    [
        ("placement=kp1-kp2", "auto, or kp1, kp2, dp and pp, or tp, dp and pp, or tp, cp, dp and pp", []),
        ("system.shape=3x5", "1d, 2d, 3d, or sides whose product is 16 packages; 3 x 5", ["system=torus"]),
        ("system.shape=4y4", "1d, 2d, 3d, or up to three sides", ["system=mesh"]),
        ("system.oversubscription=0.5", "a number at least 1", ["system=fat_tree"]),
        ("system.collective=rings", "one of auto, ring, ", []),
        ("trace=my.json", "null here", ["-m", "model.layers=2,3"]),
        ("trace=my.txt", "a file whose name ends in .json", []),
        ("trace=no/my.json", "a file in a folder that exists", []),
        ("parallel.microbatches=5", "at most 4, the number of rows of one device", []),
        (
            "parallel.softmax=RC-9",
            "RC-KP1-KP2, CR-KP1, TP-TP (then cCP and eEP), 2D-KP1-KP2, 3D-KP1-KP2-TP or none",
            [],
        ),
        ("parallel.softmax=RC-1-3", "a cut that uses the 16 devices of a layer", []),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(cli, tmp_path, wrong, allowed, fixed):
    code, out, err = cli(*fixed, *SMALL, "parallel.strategy=d16", wrong, "output=here")
    assert (code, out) == (2, "")
    assert len(err) == 1
    assert err[0].startswith(f"{wrong} (from the command line) is invalid: expected {allowed}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_ranking_that_has_no_place_is_refused_before_anything_is_done(cli, tmp_path):
    (tmp_path / "here-ranking").mkdir()
    (tmp_path / "here-ranking" / "mine.txt").write_text("mine", encoding="utf-8")
    code, out, err = cli(*SMALL, "parallel.strategy=auto", "output=here")
    assert (code, out, len(err)) == (2, "", 1)
    assert "here-ranking" in err[0]
    assert not (tmp_path / "here").exists()


def test_python_refuses_what_the_command_line_leaves():
    for call in (fastflow.evaluate, fastflow.rank_strategies, fastflow.sweep):
        with pytest.raises(fastflow.InputError, match=r"trace=x\.json"):
            call(*SMALL, "trace=x.json")


def test_networks_of_files_are_a_grid(tmp_path):
    for name, cols in (("narrow", 64), ("wide", 4096)):
        text = three_products(64, [64, 64, 64, cols])
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    files = [str(tmp_path / f"{name}.yaml") for name in ("narrow", "wide")]
    got = fastflow.evaluate("model=graph", f"model.file={','.join(files)}", "parallel.strategy=d1,d2")
    assert got["model.file"].tolist() == [files[0]] * 2 + [files[1]] * 2
    assert got["flop"][0] == got["flop"][1] < got["flop"][2]
    with pytest.raises(fastflow.InputError, match=r"model\.file.*missing"):
        fastflow.evaluate("model=graph")


def test_sequences_are_not_cut(tmp_path):
    file = tmp_path / "attention.yaml"
    file.write_text("sequences: 4\n" + three_products(64, [64, 64, 64, 64]), encoding="utf-8")
    base = ("model=graph", f"model.file={file}", "system.devices=16")
    got = fastflow.evaluate(*base, "parallel.strategy=d4,d8,RC-2-2-d4,RC-1-4-d4,d4-p2,d2-p2,d1-p2")
    assert [reason == "" for reason in got["reason"]] == [True, False, False, True, True, True, True]
    assert all(
        "batch into at most 4 parts, the number of sequences" in text for text in got["reason"][[1, 2]]
    )
    assert got["microbatches"][4:].tolist() == [1, 2, 4]
    got = fastflow.evaluate(*base, "parallel.strategy=d2", "parallel.microbatches=2,3")
    assert "at most 2, the number of sequences of one device" in got["reason"][1]
    file.write_text("sequences: 5\n" + three_products(64, [64, 64, 64, 64]), encoding="utf-8")
    with pytest.raises(fastflow.InputError, match="sequences is a divisor of its 64 rows"):
        fastflow.evaluate(*base)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_file_that_cannot_be_written_is_named_with_its_key(code):
    with (
        pytest.raises(InputError, match=r"^trace=t\.json .*a file that can be written"),
        _writing("trace", "t.json"),
    ):
        raise OSError(code, "why")
