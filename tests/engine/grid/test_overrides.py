"""Study files: lists that multiply, lists that are walked together, and grids one after the other."""

import itertools
import math
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules, library_root
from fastflow.core.errors import InputError
from fastflow.engine.grid import compose
from fastflow.engine.grid.plan import plan
from fastflow.reporting.html.columns import describe_span
from tests.support.paths import ROOT


@pytest.fixture(autouse=True)
def _rules():
    with hydra_rules():
        yield


@pytest.fixture
def study(tmp_path):
    """A function that writes a study file and plans it with further overrides."""
    (tmp_path / "sweeps").mkdir()

    def write(text, *overrides):
        (tmp_path / "sweeps" / "mine.yaml").write_text(
            "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n"
            + "\n".join(f"    {line}" for line in text.splitlines() if line.strip())
        )
        return plan(Composer.of_library(tmp_path), ["+sweeps=mine", *overrides]).grid

    return write


def points_of(grid, *keys):
    """The values of some keys, inputs or labels, at every point."""
    found = {}
    for share in grid.shares(0, grid.points):
        inputs = grid.inputs(share)
        for i, point in enumerate(share.points.tolist()):
            labels = {name: grid.label(name, point, point + 1)[0] for name in grid.labels}
            found[point] = tuple(inputs[key][i].item() if key in inputs else str(labels[key]) for key in keys)
    return [found[point] for point in range(grid.points)]


def test_zipped_leaves_are_one_axis(study):
    grid = study("""
params: {mem: 'hbm2,hbm3'}
zip: [{model.hidden: '1024,2048,4096', model.batch: [8, 16, 32]}]
""")
    assert grid.points == 6
    assert grid.compositions == 2
    assert grid.describe() == "6 points: 2 mem x 3 (model.hidden, model.batch); 2 compositions"
    pairs = [(1024, 8), (2048, 16), (4096, 32)]
    assert points_of(grid, "mem", "model.hidden", "model.batch") == [
        (mem, *pair) for mem in ("hbm2", "hbm3") for pair in pairs
    ]


@pytest.mark.parametrize(
    ("text", "expected", "by_rows"),
    [
        ("params: {tech: 'n12,n7', mem: 'hbm2,hbm3,hbm4'}", "2 tech x 3 mem", "2 tech x 3 mem"),
        ("params: {tech: n7, model.batch: 'range(512,2049,512)'}", "4 model.batch", "4 model.batch"),
        ("params: {tech: 'glob(n1*)'}", "3 tech", "3 tech"),
        ("params: {parallel.strategy: 'auto,d512'}", "2 parallel.strategy", "2 parallel.strategy"),
        (
            "params: {tech: 'n12,n7'}\nzip: [{mem: 'hbm2,hbm3,hbm2', net: 'ndr_x8,ndr_x8,gdr_x8'}]",
            "2 tech x 3 (mem, net)",
            "2 tech x 3 (mem, net)",
        ),
        (
            "zip: [{tech: 'n12,n7', model.batch: '512,1024'}, {mem: 'hbm2,hbm3', net: 'ndr_x8,gdr_x8'}]",
            "2 (tech, model.batch) x 2 (mem, net)",
            "2 (tech, model.batch) x 2 (mem, net)",
        ),
        (
            "params: {mem: 'hbm2,hbm3'}\nunion: [{params: {tech: 'n12,n7'}}, {params: {tech: n5}}]",
            "2 mem x 2 tech + 2 mem",
            "2 mem x 3 tech",
        ),
        (
            "union: [{params: {tech: 'n12,n7', mem: 'hbm2,hbm3'}}, {params: {tech: n5, mem: hbm4}}]",
            "2 tech x 2 mem + 1",
            "5 (tech, mem)",
        ),
        ("union: [{params: {tech: 'n12,n7'}}, {params: {tech: 'n12,n7'}}]", "2 tech + 2 tech", "tech"),
    ],
)  # fmt: skip
def test_products_come_out(study, text, expected, by_rows):
    """What is said before a run, and on a page by the rows alone, is as many points as there are."""
    grid = study(text)
    shown = re.fullmatch(r"([\d,]+) points?: (.*); \d+ compositions?", grid.describe())
    assert shown[2] == expected
    frame = pd.DataFrame(points_of(grid, *grid.keys), columns=list(grid.keys))
    assert describe_span(frame, grid.keys) == by_rows
    for product in {expected, by_rows} - {"tech"}:
        factors = [re.findall(r"(?:^| x )(\d+)(?= |$)", part) for part in product.split(" + ")]
        assert sum(math.prod(map(int, part)) for part in factors) == grid.points == len(frame)


def test_a_zip_may_hold_groups_and_what_others_depend_on(study):
    grid = study("""
zip:
- {tech: 'n12,n7', model.batch: '8,16'}
- {model.devices: '64,128', parallel.strategy: 'd64,CR-2-d64'}
""", "model.hidden=256,512")  # fmt: skip
    # parallel.strategy follows the model's unless it is set, system.devices follows model.devices
    assert grid.compositions == 4 + 1  # one showed what model.devices is read by
    want = [
        (tech, batch, devices, strategy, hidden)
        for tech, batch in (("n12", 8), ("n7", 16))
        for devices, strategy in ((64, "d64"), (128, "CR-2-d64"))
        for hidden in (256, 512)
    ]
    keys = ("tech", "model.batch", "system.devices", "parallel.strategy", "model.hidden")
    assert points_of(grid, *keys) == want


def test_a_union_is_its_grids_one_after_the_other(study):
    grid = study("""
params: {mem: 'hbm2,hbm3'}
union:
- params: {model.hidden: 'range(512,1537,512)'}
- params: {model: gemm, model.m: '64,128'}
- {}
""", "tech=n7")  # fmt: skip
    assert grid.points == 6 + 4 + 2
    blocks = "2 mem x 3 model.hidden + 2 mem x 2 model.m + 2 mem"
    assert grid.describe() == f"12 points: {blocks}; 6 compositions"
    assert points_of(grid, "mem", "model", "tech") == [
        *itertools.product(("hbm2",), ("lstm_lm",) * 3, ("n7",)),
        *itertools.product(("hbm3",), ("lstm_lm",) * 3, ("n7",)),
        *[("hbm2", "gemm", "n7")] * 2,
        *[("hbm3", "gemm", "n7")] * 2,
        ("hbm2", "lstm_lm", "n7"),
        ("hbm3", "lstm_lm", "n7"),
    ]


def test_the_command_line_comes_after_every_grid_of_a_union(study):
    text = """
union:
- params: {tech: 'n12,n7', model.batch: '8,16'}
- params: {tech: 'n3,n2,n1'}
"""
    assert study(text).points == 7
    assert study(text, "tech=n5").points == 3
    assert study(text, "tech=n5,n7").points == 6
    assert study(text, "model.hidden=256,512").points == 14
    assert study(text).provenance.fingerprint != study(text, "tech=n5").provenance.fingerprint


def test_a_pin_that_comes_and_goes_is_a_text_in_every_grid(study):
    grid = study("""
params: {model: gemm, chip: v100}
union:
- params: {+chip.pinned.mcus: [640, null]}
- params: {chip.pinned.mcus: '100,200'}
- params: {chip.pinned.mcus: 300}
""".replace("+chip", "chip"))  # fmt: skip
    assert grid.label("chip.pinned.mcus", 0, 5).tolist() == ["640", "null", "100", "200", "300"]
    frame = points_of(grid, "chip.name")
    assert len(frame) == 5


def test_a_study_holds_null_and_mappings(study):
    grid = study("params: {model: gemm, +chip.pinned: [null, {mcus: 640}, {mcus: 100}]}")
    assert grid.label("chip.pinned", 0, 3).tolist() == ["null", "{mcus:640}", "{mcus:100}"]


def test_a_leaf_that_only_the_study_brings_can_be_set(study):
    grid = study("params: {model: gemm, chip: 'a100,v100'}", "model.m=64,128")
    assert points_of(grid, "chip", "model.m") == list(itertools.product(("a100", "v100"), (64, 128)))


def test_part_of_a_zip_may_be_fixed(study):
    grid = study("zip: [{model.hidden: '256,512', model.batch: '8,16'}]", "model.batch=32")
    assert points_of(grid, "model.hidden", "model.batch") == [(256, 32), (512, 32)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zip: [{model.hidden: '1,2', model.batch: '1,2,3'}]",
         r"^model\.batch=1,2,3 \(3 instead of 2\) \(from .*mine\.yaml\) is .* as many values as model"),
        (
            "zip: {model.hidden: '1,2'}",
            r"^hydra\.sweeper\.zip=.*mine\.yaml\) is invalid: expected a list of mappings",
        ),
        ("union: [{parms: {tech: n7}}]", r"^hydra\.sweeper\.union\[0\]\.parms=.*expected params or zip"),
        ("params: [tech]", r"^hydra\.sweeper\.params=.*expected a mapping"),
        ("union: [{params: {tech: 'n12,n13'}}]", r"^tech=n13 .*expected one of"),
        ("union: [{params: {model.batch: '1,none'}}]", r"^model\.batch=none \(from .*mine\.yaml\)"),
        (
            "params: {parallel.strategy: 'd512,x'}",
            r"^parallel\.strategy=x \(from .*mine\.yaml\) is invalid: expected RC",
        ),
        ("unoin: []", r"^hydra\.sweeper\.unoin=\[\] \(from .*mine\.yaml\)"),
        ("params: {model.batch: null}", r"^model\.batch=null \(from .*mine\.yaml\)"),
        ("params: {nosuch.key: '1,2'}", r"^nosuch\.key=1 \(from .*mine\.yaml\)"),
        ("params: {model.batch: 'range(1,5'}", r"mine\.yaml: model\.batch=range\(1,5: cannot be read"),
        (
            "params: {output: foo}",
            r"^output=foo \(from .*mine\.yaml\) is invalid: expected this key on the command line",
        ),
        ("unoin: [{params: {tech: n7}}]", r"^hydra\.sweeper\.unoin=.*expected one of params, zip, union"),
    ],
)  # fmt: skip
def test_mistakes_in_a_study_name_its_file(study, text, says):
    with pytest.raises(InputError, match=says):
        study(text)


@pytest.mark.long
def test_a_union_from_the_command_line(tmp_path):
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "both.yaml").write_text(
        """
# @package _global_
hydra:
  mode: MULTIRUN
  sweeper:
    params: {mem: 'hbm2,hbm3'}
    union:
    - zip: [{model.hidden: '1024,2048', model.batch: '512,1024'}]
    - params: {model: gemm, model.m: '64,128,256'}
""".lstrip()
    )
    command = [sys.executable, "-m", "fastflow.sweep", "--config-dir", ".", "+sweeps=both", "output=out"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    begun = "10 points: 2 mem x 2 (model.hidden, model.batch) + 2 mem x 3 model.m; 4 compositions\n"
    assert done.stderr == begun
    assert "model.hidden" in done.stdout
    frame = pd.read_parquet(tmp_path / "out")
    assert frame["model"].tolist() == ["lstm_lm"] * 4 + ["gemm"] * 6
    assert frame["model.m"].isna().tolist() == [True] * 4 + [False] * 6
    assert frame["model.batch"].tolist() == [512, 1024, 512, 1024] + [1] * 6
    pd.testing.assert_frame_equal(
        frame, fastflow.evaluate("+sweeps=both", config_dir=tmp_path), check_like=True
    )
    # each block is what it is alone
    alone = fastflow.evaluate("model=gemm", "mem=hbm2,hbm3", "model.m=64,128,256")
    assert frame["time_s"].tolist()[4:] == alone["time_s"].tolist()


@pytest.mark.parametrize("function", ["explain_sharding", "sensitivity", "validate"])
def test_a_study_of_single_points_is_several_values(study, tmp_path, function):
    """Where one point is taken: no key is swept, and the union is what is named."""
    assert study("union: [{params: {tech: n7}}, {params: {tech: n5}}]").keys == []
    (tmp_path / "some.csv").write_text("m,n,k,time_s\n64,64,64,1e-5\n")
    measured = [f"measurements={tmp_path / 'some.csv'}"] if function == "validate" else []
    with pytest.raises(InputError, match=r"^hydra\.sweeper\.union(=several values .* one: |: one value)"):
        getattr(fastflow, function)("+sweeps=mine", *measured, config_dir=tmp_path)


def test_a_million_points_are_described_without_being_made(monkeypatch):
    seen = []
    of_point = compose.point_inputs
    monkeypatch.setattr(compose, "point_inputs", lambda *arguments: seen.append(1) or of_point(*arguments))
    grid = plan(Composer.of_library(), ["+sweeps=million"]).grid
    assert grid.points == 1_008_000
    assert grid.compositions == len(seen) == 7 * 4 * 3
    assert sum(values.size for values in grid.blocks[0].columns.values()) == 25 + 20 + 24
    last = next(grid.shares(grid.points - 1, grid.points))
    inputs = grid.inputs(last)
    assert [inputs[key][0] for key in ("model.batch", "model.hidden", "parallel.strategy")] == [
        25600, 20480, "RC-16-2-d16",
    ]  # fmt: skip
    assert grid.label("tech", grid.points - 1, grid.points).tolist() == ["n1"]


@pytest.mark.parametrize(
    ("override", "count"),
    [
        ("chip.area.core=range(0.1,0.5,0.01)", 40),
        ("model.batch=range(1,1000001)", 1_000_000),
        ("model.batch=range(10,0,-3)", 4),
        ("model.batch=shuffle(range(1,11))", 10),
        ("model.batch=sort(8,2,4)", 3),
        ("tech=glob(*,exclude=n1*)", 6),
        ("parallel.strategy=choice(d512,CR-8-d64)", 2),
        ("chip.tdp=choice('200 W','0.3 kW')", 2),
    ],
)
def test_whatever_hydras_grammar_spans(override, count):
    composer = Composer.of_library()
    grid = plan(composer, [override]).grid
    assert grid.points == count
    key = grid.keys[0]
    parsed = composer.parse([override])[0]
    some = sorted({0, 1, count // 2, count - 1})
    values = (
        [value for i, value in enumerate(parsed.sweep_iterator()) if i in some]
        if "shuffle" not in override
        else []
    )
    got = [points_of_one(grid, key, point) for point in some]
    if values and all(isinstance(value, int | float) for value in values):
        assert got == values


def points_of_one(grid, key, point):
    inputs = grid.inputs(next(grid.shares(point, point + 1)))
    return inputs[key][0].item() if key in inputs else grid.label(key, point, point + 1)[0]


@pytest.mark.long
def test_ready_made_studies_plan():
    for path in (library_root() / "sweeps").glob("*.yaml"):
        assert plan(Composer.of_library(), [f"+sweeps={path.stem}"]).grid.points > 1


def test_points_in_any_order_are_each_in_the_share_of_their_block(study):
    grid = study("""
params: {mem: 'hbm2,hbm3'}
union:
- params: {model.hidden: '512,1024'}
- params: {model: gemm, model.m: '64,128'}
- {}
""")  # fmt: skip
    points = np.random.default_rng(3).permutation(grid.points)
    shares = list(grid.shares_of(points))
    assert sorted(np.concatenate([positions for positions, _ in shares]).tolist()) == [*range(grid.points)]
    for positions, share in shares:
        assert share.points.tolist() == points[positions].tolist()
        assert (share.points >= share.block.first_point).all()
        assert (share.points < share.block.first_point + share.block.points).all()
