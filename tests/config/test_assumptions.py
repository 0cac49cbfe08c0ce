"""What is taken without being asked for: a real chip's machine, and figures of the paper; both are said."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

import fastflow
from fastflow.cli.commands.sweep import main as sweep
from fastflow.config import catalog
from fastflow.config.assumptions import INSTEAD, OF, ORIGIN, assumptions
from fastflow.config.composer import Composer
from fastflow.config.model_inputs import ALTERNATIVE, MACHINE, convert, is_of_model
from fastflow.config.other_chips import point_inputs
from fastflow.core.errors import InputError
from fastflow.schema import OF_PREFILL, find_input
from fastflow.schema.results import BETWEEN

CONF = catalog.library_root() / "conf"
CHIPS = catalog.choices("chip")
MODEL = ("model=llama3_8b",)


@pytest.fixture(scope="module")
def composer():
    return Composer.of_library()


def assumed(composer, *overrides, **options):
    return assumptions(composer, composer.compose(overrides), **options)


def machine_in(composer, chip):
    return composer.compose([f"chip={chip}", "model=gemm"]).leaves.get(MACHINE)


# --- machines


def test_every_chip_of_a_maker_says_which_machine_it_comes_in(composer):
    """mi210 says that the library has none."""
    for chip in CHIPS:
        leaves = composer.compose([f"chip={chip}", "model=gemm"]).leaves
        assert (MACHINE in leaves) == ("chip.maker" in leaves), chip
        assert leaves.get(MACHINE) in (*catalog.choices("system"), None), chip


@pytest.mark.parametrize("chip", CHIPS)
def test_several_devices_of_a_chip_are_those_of_its_machine_in_all_but_number(composer, chip):
    """The oracle is the same point with the machine typed."""
    machine = machine_in(composer, chip)
    composition = composer.compose([f"chip={chip}", *MODEL, "system.devices=16"])
    typed = [f"system={machine or 'cluster'}", f"chip={chip}", *MODEL, "system.devices=16"]
    assert composition.choices["system"] == (machine or "cluster")
    there, expected = (
        composer.resolved(each, is_of_model) for each in (composition, composer.compose(typed))
    )
    assert there == expected
    assert composition.machine == (machine or "")
    assert any(f"system={machine}" in line for line in assumed(composer, *composition.overrides)) == bool(
        machine
    )


@pytest.mark.parametrize("chip", ["b200_sxm", "l40s", "pathfinding"])
def test_the_number_of_devices_of_a_model_is_kept(composer, chip):
    composition = composer.compose([f"chip={chip}", *MODEL])
    assert (
        composer.resolved(composition)["system.devices"]
        == composer.resolved(composition)["model.devices"]
        == 64
    )


@pytest.mark.parametrize(
    "user_overrides",
    [
        ("system=cluster",),
        ("system=torus",),
        ("net=xdr_x8",),
        ("net.inter.latency=1 us",),
        ("system.topology=ring",),
        ("system.package.devices=2",),
        ("chip.pinned.inter_Bps=100 GB/s",),
        ("calibration=none",),
    ],
)
def test_who_describes_the_network_gets_it_and_a_line_unless_a_system_is_typed(composer, user_overrides):
    overrides = ("chip=h100_sxm", *MODEL, *user_overrides)
    composition = composer.compose(overrides)
    assert composition.machine == ""
    assert (
        composition.choices["system"] == user_overrides[0].removeprefix("system=")
        if "system=" in user_overrides[0]
        else "cluster"
    )
    lines = [line for line in assumed(composer, *overrides) if "one switch" in line]
    assert len(lines) == ("system=" not in user_overrides[0])
    assert all("system=dgx_h100" in line for line in lines)


@pytest.mark.parametrize(
    "user_overrides",
    ["system.collective=ring", "net.inter.cable_price='1 USD/(GB/s)'", "cost=market", "calibration=measured"],
)
def test_what_says_nothing_of_the_network_leaves_the_machine(composer, user_overrides):
    assert composer.compose(["chip=h100_sxm", *MODEL, user_overrides]).machine == "dgx_h100"


def test_one_device_has_no_machine_alone_or_in_a_grid():
    """A grid of devices is each of its points alone, in what is asked for and in what comes out."""
    keys = ("chip=h100_sxm,l40s", *MODEL, "parallel.strategy=TP-1", "model.batch=64")
    grid = fastflow.evaluate(*keys, "system.devices=1,8,64")
    alone = [
        fastflow.evaluate(f"chip={chip}", *keys[1:], f"system.devices={devices}")
        for chip in ("h100_sxm", "l40s")
        for devices in (1, 8, 64)
    ]
    assert grid["system"].tolist() == ["cluster", "dgx_h100", "dgx_h100", "cluster", "pcie", "pcie"]
    assert grid["assumptions"].str.contains("machine of").tolist() == [False, True, True] * 2
    assert "all 64 in one, where 8 fit" in grid["assumptions"].iloc[-1]
    columns = ["time_s", "comm_s", "inter_Bps", "intra_Bps", "assumptions"]
    pd.testing.assert_frame_equal(
        grid[columns].astype(object), pd.concat(alone, ignore_index=True)[columns].astype(object)
    )


def test_a_study_that_chooses_a_system_has_it(composer):
    composition = composer.compose(["+sweeps=serving_front", "system=superpod_h100", "chip=h100_sxm", *MODEL])
    assert (composition.machine, composition.choices["system"]) == ("", "superpod_h100")


def test_a_file_of_the_user_brings_a_machine_and_one_that_does_not_exist_is_refused(tmp_path, composer):
    file = tmp_path / "mine.yaml"
    file.write_text("defaults: [h100_sxm, _self_]\nmachine: gb200_nvl72\n")
    assert composer.compose([f"chip={file}", *MODEL]).choices["system"] == "gb200_nvl72"
    with pytest.raises(
        InputError, match=r"chip.machine=nowhere .* is invalid: expected null or one of cluster"
    ):
        composer.compose(["chip=h100_sxm", *MODEL, "chip.machine=nowhere"])


@pytest.mark.parametrize(
    ("chip", "links"), [("pathfinding", (450e9, None)), ("b200_sxm", (50e9, 450e9)), ("mi210", (450e9, None))]
)
def test_a_chip_that_prefills_has_a_machine_where_the_one_that_decodes_has(composer, chip, links):
    overrides = (
        "serve=disaggregated",
        *MODEL,
        f"chip={chip}",
        "serve.prefill.chip=h100_sxm",
        "system.devices=16",
    )
    inputs = point_inputs(composer, composer.compose(overrides), overrides)
    assert tuple(inputs.get(f"{OF_PREFILL}chip.pinned.{name}_Bps") for name in ("inter", "intra")) == links


# --- figures of the paper

BLOCKS = [
    (
        group,
        choice,
        yaml.safe_load((CONF / group / f"{choice}.yaml").read_text(encoding="utf-8"))[ALTERNATIVE],
    )
    for group in catalog.groups()[:-1]
    for choice in catalog.choices(group)
    if f"\n{ALTERNATIVE}:" in (CONF / group / f"{choice}.yaml").read_text(encoding="utf-8")
]


@pytest.mark.parametrize(
    ("group", "choice", "block"), BLOCKS, ids=lambda part: part if isinstance(part, str) else ""
)
def test_what_is_published_is_of_inputs_and_differs_and_the_choice_instead_has_it(
    composer, group, choice, block
):
    fixed = ("tech=n3", "model=gemm")
    leaves = composer.resolved(composer.compose([*fixed, f"{group}={choice}"]))
    assert block.keys() >= {OF}
    for key in block.keys() - {OF, INSTEAD, ORIGIN}:
        name = f"{group}.{key}"
        assert find_input(name) is not None
        taken, published = convert(name, leaves[name]), convert(name, block[key])
        assert not 1 / 1.05 < published / taken < 1.05, "no material difference"
        if INSTEAD in block:
            there = composer.resolved(composer.compose([*fixed, block[INSTEAD]]))
            assert convert(name, there[name]) == pytest.approx(published, rel=1e-3)
    lines = [
        line
        for line in assumed(composer, *fixed, f"{group}={choice}")
        if line.startswith(f"{group}={choice},")
    ]
    assert len(lines) == 1
    assert BETWEEN not in lines[0]
    if INSTEAD in block:  # the advice, when it is followed, has no such line any more
        assert block[INSTEAD] in lines[0]
        assert not any(line.startswith(f"{group}=") for line in assumed(composer, *fixed, block[INSTEAD]))


def test_a_figure_of_the_user_or_of_a_later_file_is_not_the_papers(composer, tmp_path):
    fixed = ("tech=n3", "model=gemm")

    def of_memory(*user_overrides, **options):
        return [
            line for line in assumed(composer, *fixed, *user_overrides, **options) if line.startswith("mem=")
        ]

    assert of_memory("mem=hbm4")
    assert of_memory("mem=hbm4", "mem.price=1 USD/GB")
    assert not of_memory("mem=hbm4", "mem.nominal_frequency=8 Gb/s")
    assert not of_memory("mem=hbm4", swept=["mem.nominal_frequency"])
    assert not of_memory("mem=hbm3e")  # which is made of hbm3, but for its rate
    assert not of_memory("chip=h100_sxm", "mem=hbm3")  # whose rate is known
    own = tmp_path / "mine.yaml"
    own.write_text("defaults: [pathfinding, _self_]\ndie_area: 800 mm2\n")
    line = next(line for line in assumed(composer, *fixed, f"chip={own}") if line.startswith("chip="))
    assert "(chip.launch_overhead='2.39 us')" in line
    assert not any(
        line.startswith("chip=") for line in assumed(composer, *fixed, "chip.launch_overhead=2.39 us")
    )


def test_the_papers_own_study_says_nothing_and_its_own_model_of_memory_alone(composer):
    overrides = ("tech=n3", "mem=hbm4", "model=lstm_lm")
    assert assumed(composer, *overrides, of_study=True) == ()
    assert [line.partition(",")[0] for line in assumed(composer, *overrides)] == ["mem=hbm4"]
    assert assumed(composer) == ()
    others = assumed(composer, "tech=n3", "mem=hbm4", "model=llama3_8b", of_study=True)
    assert {line.partition(",")[0] for line in others} == {"mem=hbm4", "scaling=paper", "chip=pathfinding"}


def test_the_memories_of_the_standard_are_faster_than_those_before(composer):
    """Where power does not hold them back, and where it does."""
    for more in ((), ("chip.tdp=1400 W",)):
        frame = fastflow.evaluate("tech=n3", "model=gemm", "mem=hbm3e,hbm4_jedec,hbm4e", *more)
        assert frame["dram_Bps"].is_monotonic_increasing
        assert frame["dram_Bps"].is_unique
    assert frame["dram_Bps"].iloc[1] == pytest.approx(4 * 2048 * 8e9 / 8)


def test_a_kernel_of_pathfinding_today_is_an_h100s_launch_shorter():
    keys = ("tech=n3", "model=llama3_8b", "serve=decode", "serve.batch=1", "system.devices=4", "server=ideal")
    frame = fastflow.evaluate(*keys, "parallel.strategy=TP-4", "chip=pathfinding,pathfinding_today")
    ratio = frame["tpot_s"].iloc[1] / frame["tpot_s"].iloc[0]
    assert 0.5 < ratio < 0.8
    assert frame["assumptions"].str.contains("V100").tolist() == [True, False]


# --- screens


@pytest.mark.parametrize(
    ("user_overrides", "expected"),
    [
        (("chip=b200_sxm", "system.devices=64", *MODEL), ("system=dgx_b200, the machine of chip=b200_sxm",)),
        (("tech=n3", "mem=hbm4", *MODEL, "serve=decode"), ("the paper's value", "chip=pathfinding_today")),
        (
            ("-m", "tech=n3", "mem=hbm3,hbm4", *MODEL, "serve=decode"),
            ("mem=hbm3, the paper's", "mem=hbm4, the"),
        ),
    ],
    ids=["trained", "served", "grid"],
)
def test_screens_and_reports_say_it(user_overrides, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["fastflow", *user_overrides, "output=there"])
    assert sweep() == 0
    out = capsys.readouterr().out
    assert "Assumed  " in out
    assert all(text in " ".join(out.split()) for text in expected)
    assert Path("there").is_dir()
