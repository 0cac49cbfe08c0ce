"""A file as the choice in a group, `chip=mine.yaml`, and the file that a search leaves."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hydra.types import RunMode
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.config.chip_file import chip_text
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules, library_root
from fastflow.config.model_inputs import model_inputs
from fastflow.core.errors import InputError
from fastflow.engine.grid.plan import plan
from tests.support.checks import cases

MINE = "defaults: [pathfinding, _self_]\nname: mine\ntdp: 250 W\n"
FILES = {
    "mine.yaml": MINE,
    "deep/in folders/1-a,b.yaml": MINE,
    "again.yaml": "defaults: [mine.yaml, _self_]\nname: again\n",
    "onn7.yaml": "defaults:\n  - pathfinding\n  - override /tech@_global_.tech: n7\n  - _self_\nname: onn7\n",
    "lab.yaml": "defaults: [n7, _self_]\nname: lab\ngeneration: 4\n",
    "rack.yaml": "defaults: [cluster, override /chip@_global_.chip: mine.yaml, _self_]\ntopology: mesh\n",
    "narrow.yaml": "# @package _global_\nhydra: {sweeper: {params: {model.batch: [512, 1024]}}}\n",
    "pathfinding.yaml": MINE,
    "refers.yaml": "defaults: [pathfinding, _self_]\nname: ${tech.name}-chip\n",
    "nowhere.yaml": "defaults: [nosuch, _self_]\n",
    "wrong.yaml": "defaults: [pathfinding, _self_]\ntpd: 3 W\n",
    "torn.yaml": "name: [",
    "number.yaml": "5",
    "gone.yaml": "defaults: [cluster, override /chip@_global_.chip: lost.yaml, _self_]\n",
    "folder.yaml/mine.yaml": MINE,
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working folder with files in it."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00\x81")
    monkeypatch.chdir(tmp_path)
    with hydra_rules():
        yield tmp_path


@pytest.fixture
def composer():
    return Composer.of_library()


def inputs_of(composer, *overrides):
    return model_inputs(composer.resolved(composer.compose(list(overrides))))


@pytest.mark.parametrize(
    "choice",
    ["mine.yaml", "./mine.yaml", "HERE/mine.yaml", "deep/../mine.yaml", "'deep/in folders/1-a,b.yaml'"],
)
def test_a_file_is_a_choice(composer, here, choice):
    choice = choice.replace("HERE", str(here))
    composition = composer.compose([f"chip={choice}", "tech=n7"])
    assert composition.choices["chip"] == choice.strip("'")
    changed = {"chip.name": "mine", "chip.tdp": 250.0}
    assert model_inputs(composer.resolved(composition)) == inputs_of(composer, "tech=n7") | changed


@pytest.mark.long
@pytest.mark.parametrize(
    "overrides",
    [
        ("chip=mine.yaml", "tech=n7", "chip.tdp=7 W"),
        ("chip=again.yaml",),
        ("chip=onn7.yaml", "mem=hbm3"),
        ("chip=onn7.yaml", "tech=lab.yaml"),
        ("system=rack.yaml",),
        ("chip=pathfinding.yaml",),
        ("chip=refers.yaml",),
    ],
    ids=" ".join,
)
def test_it_composes_as_hydra_does_without_asking_it(composer, monkeypatch, overrides):
    monkeypatch.setattr(composer, "_compose_by_hydra", None)
    composition = composer.compose(overrides)
    assert isinstance(composition.content, dict)
    full = composer.loader.load_configuration("config", list(overrides), RunMode.RUN)
    for group in ("chip", "tech", "system", "mem"):
        assert composition.content[group] == OmegaConf.to_container(full[group])
        assert composition.choices[group] == full.hydra.runtime.choices[group]


def test_any_group_takes_one(composer):
    assert inputs_of(composer, "tech=lab.yaml")["tech.generation"] == 4
    assert inputs_of(composer, "chip=onn7.yaml")["tech.name"] == "N7"
    rack = composer.compose(["system=rack.yaml"])
    assert rack.choices["chip"] == "mine.yaml"
    assert rack.content["system"]["topology"] == "mesh"
    assert plan(composer, ["+sweeps=narrow.yaml"]).grid.points == 2


def test_ones_own_file_comes_before_the_library(composer, tmp_path):
    assert composer.compose(["chip=pathfinding.yaml"]).content["chip"]["name"] == "mine"
    assert composer.compose(["chip=pathfinding"]).content["chip"]["name"] == "pathfinding"
    assert composer.compose(["chip=v100.yaml"]).content["chip"]["name"] == "V100-SXM2-16GB"
    assert "mine" not in composer.choices("chip")
    (tmp_path / "dir" / "chip").mkdir(parents=True)
    (tmp_path / "dir" / "chip" / "other.yaml").write_text(MINE.replace("mine", "theirs"))
    there = Composer.of_library("dir")
    for choice in ("other", "other.yaml"):
        assert there.compose([f"chip={choice}"]).content["chip"]["name"] == "theirs"


def test_a_grid_of_files_and_names(composer):
    grid = plan(composer, ["chip=mine.yaml,again.yaml,pathfinding", "tech=n12,lab.yaml"]).grid
    assert grid.labels["chip"].tolist() == ["mine.yaml"] * 2 + ["again.yaml"] * 2 + ["pathfinding"] * 2
    assert grid.labels["tech"].tolist() == ["n12", "lab.yaml"] * 3
    tdp = np.concatenate([grid.inputs(share)["chip.tdp"] for share in grid.shares(0, 6)])
    assert tdp.tolist() == [250.0] * 4 + [300.0] * 2


def test_another_content_is_another_grid(composer, here):
    before = plan(composer, ["chip=mine.yaml"]).grid.provenance.fingerprint
    assert plan(Composer.of_library(), ["chip=mine.yaml"]).grid.provenance.fingerprint == before
    (here / "mine.yaml").write_text(MINE.replace("250", "251"))
    assert plan(Composer.of_library(), ["chip=mine.yaml"]).grid.provenance.fingerprint != before


MISTAKES = [
    (
        "chip=nosuch.yaml",
        "chip=nosuch.yaml (from ORIGIN) is invalid: expected a file that exists, or one of a10, ",
    ),
    (
        "chip=/no/such.yaml",
        "chip=/no/such.yaml (from ORIGIN) is invalid: expected a file that exists, or one of ",
    ),
    (
        "chip='deep/in folders/no.yaml'",
        "chip=deep/in folders/no.yaml (from ORIGIN) is invalid: expected a file that",
    ),
    ("chip=../such.yaml", "chip=../such.yaml (from ORIGIN) is invalid: expected a file that exists"),
    ("chip=folder.yaml", "chip=folder.yaml (from ORIGIN) is invalid: expected a file that exists"),
    ("chip=p100000", "chip=p100000 (from ORIGIN) is invalid: expected one of a10, "),
    ("chip=p100000", ", or a file such as mine.yaml"),
    ("chip=deep/mine", "chip=deep/mine (from ORIGIN) is invalid: expected one of a10, "),
    ("chip=nowhere.yaml", "chip=nosuch (from nowhere.yaml) is invalid: expected one of a10, "),
    ("system=gone.yaml", "chip=lost.yaml (from gone.yaml) is invalid: expected a file that exists"),
    (
        "chip=wrong.yaml",
        "chip.tpd=3 W (from wrong.yaml) is invalid: expected an input of the model; did you mean chip.tdp?",
    ),
    ("chip=torn.yaml", "torn.yaml, line 1: not valid YAML"),
    ("chip=number.yaml", "number.yaml: cannot be read"),
    ("chip=bytes.yaml", "bytes.yaml: cannot be read (not a text in UTF-8)"),
]


@pytest.mark.parametrize(("override", "says"), MISTAKES)
def test_mistakes(override, says):
    with pytest.raises(InputError) as refused:
        plan(Composer.of_library(), [override])
    assert says.replace("ORIGIN", "the overrides") in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("override", "says"), MISTAKES[::4])
def test_mistakes_on_the_command_line(shell, override, says):
    for flags in ([], ["-m", "tech=n12,n7"]):
        code, _, err = shell(*flags, override)
        assert (code, len(err)) == (2, 1)
        assert says.replace("ORIGIN", "the command line") in err[0]


@pytest.fixture
def shell(monkeypatch, capsys):
    """A function that runs a command line here: exit code, standard output, lines of standard error."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # so that it is restored

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["sweep.py", *arguments])
        code = main()
        out, err = capsys.readouterr()
        return code, out, err.splitlines()

    return run


def test_the_command_line(shell, here):
    code, out, err = shell("chip=mine.yaml", "tech=n7", "model=gemm", "output=one")
    assert (code, err) == (0, [])
    assert "on 1 x mine.yaml" in out
    assert pd.read_parquet("one")["chip"].tolist() == ["mine.yaml"]
    code, _, _ = shell("-m", "chip=mine.yaml,pathfinding", "tech=n7", "model=gemm", "output=two")
    assert code == 0
    frame = pd.read_parquet("two")
    assert frame["chip"].tolist() == ["mine.yaml", "pathfinding"]
    frame_of_python = fastflow.evaluate(f"chip={here}/mine.yaml,pathfinding", "tech=n7", "model=gemm")
    assert frame_of_python["time_s"].tolist() == frame["time_s"].tolist()
    assert frame["time_s"][0] != frame["time_s"][1]


# --- the file that a search leaves

KEYS = [
    f"chip.{budget}.{part}"
    for budget, parts in (
        ("area", ("core", "l2", "l1", "l0", "dram", "intra", "inter")),
        ("power", ("core", "l2", "l1", "l0", "dram", "intra", "inter")),
        ("perimeter", ("dram", "intra", "inter")),
    )
    for part in parts
]
ABOUT, SOURCE = "lstm_lm on 512 devices, n7, hbm3", "python -m fastflow.search tech=n7 mem=hbm3, method cma"


def section_of(composer, *overrides):
    return OmegaConf.to_container(composer.compose(list(overrides)).config["chip"], resolve=True)


def figures(inputs):
    """Return the inputs and their types, but for the chip's name."""
    return {key: (type(value), value) for key, value in inputs.items() if key != "chip.name"}


@pytest.mark.long
@given(st.lists(st.floats(0.0, 0.14) | st.sampled_from([1e-300, 1e-5, 0.1]), min_size=17, max_size=17))
@cases(20)
def test_a_winner_reads_back_to_the_last_bit(composer, shares):
    shares_of_keys = dict(zip(KEYS, shares, strict=True))
    name = f"best{len(list(Path().iterdir()))}.yaml"
    Path(name).write_text(chip_text(section_of(composer), shares_of_keys, ABOUT, SOURCE))
    assert figures(inputs_of(composer, f"chip={name}")) == figures(inputs_of(composer) | shares_of_keys)


@pytest.mark.parametrize(
    "overrides",
    [
        ("chip=a100",),
        ("chip.tdp='250 W'", "chip.mcu.dataflow=output", "chip.launch_overhead='9.5 us'"),
        ("chip=refers.yaml", "+chip.pinned.mcus=640"),
        ("~chip.source",),
        ("chip.memory.l2.component=scratchpad", "chip.source.default='a, b: \\${c} # d'"),
    ],
    ids=" ".join,
)
def test_a_winner_keeps_all_that_is_not_shared_out(composer, overrides):
    shares = {key: 0.1 + 0.01 * index for index, key in enumerate(KEYS)}
    Path("best.yaml").write_text(chip_text(section_of(composer, *overrides), shares, ABOUT, SOURCE))
    theirs = [text for text in overrides if not text.lstrip("+~").startswith("chip")]
    technology = ["tech=n7", "mem=hbm2e", "tiling=blocks"] if overrides == ("chip=a100",) else []
    before = inputs_of(composer, *overrides) | shares
    assert figures(inputs_of(composer, "chip=best.yaml", *theirs, *technology)) == figures(before)


def test_a_winner_predicts_the_same_time_and_can_be_searched_again(composer):
    shares = {key: inputs_of(composer)[key] * 0.9731 for key in KEYS}
    overrides = ["tech=n7", "model=gemm", *(f"{key}={value!r}" for key, value in shares.items())]
    expected = fastflow.evaluate(*overrides)
    Path("best.yaml").write_text(chip_text(section_of(composer), shares, ABOUT, SOURCE))
    got = fastflow.evaluate("chip=best.yaml", "tech=n7", "model=gemm")
    columns = [name for name in got.columns if name not in ("chip", "no_effect", "assumptions")]
    pd.testing.assert_frame_equal(got[columns], expected[columns], check_exact=True)
    twice = chip_text(section_of(composer, "chip=best.yaml"), shares, ABOUT, SOURCE)
    assert twice == Path("best.yaml").read_text()


def test_a_winner_is_good_to_read(composer):
    shares = dict.fromkeys(KEYS, 0.125)
    section = section_of(composer, "chip.tdp='250 W'")
    text = chip_text(section, shares, ABOUT, SOURCE, ["chip.tdp", "chip.area.core"])
    content = yaml.safe_load(text)
    template = yaml.safe_load((library_root() / "conf" / "chip" / "pathfinding.yaml").read_text())
    assert list(content) == list(template)
    assert content["name"] == "pathfinding-best"
    for budget in ("area", "power", "perimeter"):
        assert list(content[budget]) == list(template[budget])
        # what the template says of its own breakdown does not hold any more
        assert not [key for key in content["source"] if key.startswith(f"{budget}.")]
    assert content["source"]["area"] == SOURCE
    assert content["source"]["power"] == content["source"]["perimeter"] == "as area"
    assert content["source"]["die_area"] == template["source"]["die_area"]
    assert content["source"]["tdp"] == "set for the search"
    assert "tdp: 250 W\n" in text
    assert "  core: 0.125   # 106.2 mm2\n" in text
    assert "  core: 0.125   # 31.25 W\n" in text
    assert "  inter: 0.125  # 14.58 mm\n" in text
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert ABOUT in " ".join(comments)
    assert SOURCE in " ".join(comments).replace("# ", "")
    assert max(map(len, comments)) <= 102


@pytest.mark.parametrize(
    ("written", "shown"), [("010", "010"), ("1:30", "1:30"), ("0x10", "0x10"), ("1_0", "1_0")]
)
def test_a_number_that_yaml_reads_otherwise_than_it_looks_is_a_mistake(tmp_path, written, shown):
    """YAML 1.1 makes 8, 90, 16 and 10 of them."""
    (tmp_path / "tech").mkdir()
    (tmp_path / "tech" / "mine.yaml").write_text("defaults: [n7, _self_]\nname: mine\n")
    chip = tmp_path / "mine.yaml"
    chip.write_text(f"defaults: [pathfinding, _self_]\nmcu: {{m: {written}}}  # 0100 in a comment is none\n")
    with pytest.raises(
        fastflow.InputError,
        match=rf"^m={shown} \(from .*mine\.yaml, line 2\) is invalid: expected a number in",
    ):
        fastflow.evaluate(f"chip={chip}")
    (tmp_path / "tech" / "mine.yaml").write_text(f"defaults: [n7, _self_]\ngeneration: {written}\n")
    with pytest.raises(fastflow.InputError, match=rf"^generation={shown} \(from .*tech/mine\.yaml, line 2\)"):
        fastflow.evaluate("tech=mine", config_dir=tmp_path)
    chip.write_text(f"defaults: [pathfinding, _self_]\nname: '{written}'\n")
    assert fastflow.evaluate(f"chip={chip}")["time_s"].notna().all()
