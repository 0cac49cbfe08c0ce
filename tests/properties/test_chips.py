"""The library of real chips (conf/chip): what their datasheets say, and where every figure comes from."""

import re
from pathlib import Path

import pytest
import yaml

import fastflow

CHIPS = Path(fastflow.__file__).parent.parent / "conf" / "chip"
SHORT = {"v100": "v100_sxm", "a100": "a100_sxm_80"}

TYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp8_block", "int8", "nvfp4", "mxfp4")


def ampere(fp16, fp32):
    """Return the peaks of matrix units that have tf32 and bf16, and int8 at twice the rate."""
    return {"fp16": fp16, "bf16": fp16, "tf32": fp16 / 2, "int8": 2 * fp16, "fp32": fp32}


def hopper(fp16, fp32):
    """Return the peaks of those that have fp8 too."""
    return ampere(fp16, fp32) | {"fp8": 2 * fp16, "fp8_block": 2 * fp16}


def blackwell(fp16, fp32, fp4, **others):
    """Return the peaks of those that have types of 4 bits too."""
    return hopper(fp16, fp32) | {"nvfp4": fp4, "mxfp4": fp4} | others


def cdna4(fp16, fp4, fp32):
    """Return the peaks of AMD's matrix cores that have types of 4 bits and no tf32."""
    eight = dict.fromkeys(("fp8", "fp8_block", "int8"), 2 * fp16)
    return eight | {"fp16": fp16, "bf16": fp16, "mxfp4": fp4, "fp32": fp32}


# datasheets: TFLOP/s by data type (dense, of matrix units where there are any), memory in GB, GB/s, devices
SHEETS = {
    "p4": ({"fp16": 5.5, "fp32": 5.5, "int8": 22}, 8, 192, 8),
    "p100": ({"fp16": 18.7, "fp32": 9.3}, 16, 732, 4),
    "v100_sxm": ({"fp16": 125, "fp32": 15.7, "int8": 62.8}, 16, 900, 4),
    "v100_pcie": ({"fp16": 112, "fp32": 14, "int8": 56}, 16, 900, 4),
    "v100_sxm_32": ({"fp16": 125, "fp32": 15.7, "int8": 62.8}, 32, 900, 4),
    "v100_pcie_32": ({"fp16": 112, "fp32": 14, "int8": 56}, 32, 900, 4),
    "v100s": ({"fp16": 130, "fp32": 16.4, "int8": 65.6}, 32, 1134, 4),
    "t4": ({"fp16": 65, "fp32": 8.1, "int8": 130}, 16, 320, 8),
    "a100_sxm_40": (ampere(312, 19.5), 40, 1555, 5),
    "a100_pcie_40": (ampere(312, 19.5), 40, 1555, 5),
    "a100_sxm_80": (ampere(312, 19.5), 80, 2039, 5),
    "a100_pcie_80": (ampere(312, 19.5), 80, 1935, 5),
    "a800_sxm": (ampere(312, 19.5), 80, 2039, 5),
    "a30": (ampere(165, 10.3), 24, 933, 3),
    "a40": (ampere(149.7, 37.4), 48, 696, 12),
    "a6000": (ampere(154.8, 38.7), 48, 768, 12),
    "a10": (ampere(125, 31.2), 24, 600, 12),
    "rtx_3090": (ampere(71, 35.6) | {"int8": 284}, 24, 936, 12),
    "h100_sxm": (hopper(989.4, 66.9), 80, 3350, 5),
    "h100_pcie": (hopper(756, 51.2), 80, 2039, 5),
    "h100_hbm2e": (hopper(989.4, 66.9), 96, 2447, 6),
    "h100_nvl": (hopper(835.5, 60), 94, 3938, 6),
    "h200_sxm": (hopper(989.4, 66.9), 141, 4800, 6),
    "h20": (hopper(148, 39.5), 96, 4000, 6),
    "h20_141": (hopper(148, 39.5), 141, 4800, 6),
    "h800_sxm": (hopper(989.4, 66.9), 80, 3350, 5),
    "gh200": (hopper(989.4, 66.9), 96, 4000, 6),
    "gh200_144": (hopper(989.4, 66.9), 144, 4900, 6),
    "b200_sxm": (blackwell(2250, 75, 9000), 180, 7700, 8),
    "b300_sxm": (blackwell(2250, 75, 13500, int8=153.5), 270, 7700, 8),
    "gb200": (blackwell(2500, 80, 10000), 186, 8000, 8),
    "gb300": (blackwell(2500, 80, 15000, int8=165), 279, 8000, 8),
    "l40s": (hopper(366.5, 91.6), 48, 864, 12),
    "l4": (hopper(121, 30.3), 24, 300, 6),
    "rtx_6000_ada": (hopper(364.2, 91.1), 48, 960, 12),
    "rtx_4090": (hopper(165.2, 82.6) | {"int8": 660.6}, 24, 1008, 12),
    "rtx_pro_6000": (blackwell(480, 120, 1920), 96, 1597, 16),
    "rtx_5090": (blackwell(209.5, 104.8, 1676, int8=838), 32, 1792, 16),
    "mi210": ({"fp16": 181, "bf16": 181, "fp32": 45.3, "int8": 181}, 64, 1638, 4),
    "mi250x": ({"fp16": 191.5, "bf16": 191.5, "fp32": 47.9, "int8": 191.5}, 64, 1638, 4),
    "mi300x": (hopper(1307.4, 163.4), 192, 5300, 8),
    "mi308x": (hopper(344, 43), 192, 5300, 8),
    "mi325x": (hopper(1307.4, 163.4), 256, 6000, 8),
    "mi350x": (cdna4(2300, 9200, 144.2), 288, 8000, 8),
    "mi355x": (cdna4(2500, 10100, 157.3), 288, 8000, 8),
}
# clocks of a datasheet's peak [Hz], where the highest one is above it
SHEET_HZ = {"p4": 1.063e9, "p100": 1.303e9}
# what an SM or CU moves in a cycle [B]: registers, and shared memory
WIDTHS = {"p4": (2048, 128), "t4": (1024, 64), "mi350x": (2048, 256), "mi355x": (2048, 256)}


@pytest.fixture(scope="module")
def frame():
    """One product on every chip in every data type, one row each."""
    names = ",".join([*SHEETS, *SHORT])
    frame = fastflow.evaluate("model=gemm", f"chip={names}", "model.dtype=" + ",".join(TYPES))
    return frame.set_index(["chip", "model.dtype"])


TEMPLATES = ("pathfinding", "pathfinding_today", "chiplets")


def test_every_real_chip_is_listed():
    assert {path.stem for path in CHIPS.glob("*.yaml")} == {*SHEETS, *SHORT, *TEMPLATES}


@pytest.mark.parametrize("chip", SHEETS)
def test_a_chip_has_its_datasheet_peaks_and_a_time_in_every_data_type(frame, chip):
    peaks, *_ = SHEETS[chip]
    for dtype in TYPES:
        row = frame.loc[chip, dtype]
        if dtype in peaks:
            assert row["reason"] == ""
            # 1%, and a hair: P4's boost clock makes 5.44 of the 5.5 announced
            peak = row["compute_flops"] * SHEET_HZ.get(chip, row["core_Hz"]) / row["core_Hz"]
            assert peak == pytest.approx(peaks[dtype] * 1e12, rel=0.0105), dtype
            assert row["time_s"] > row["flop"] / row["compute_flops"]
        else:
            says = rf"model\.dtype={dtype} is invalid: expected a data type of chip [^:]*: ([a-z0-9_, ]*)"
            said = re.fullmatch(says, row["reason"])
            assert set(said[1].split(", ")) == set(peaks)
            assert row["reason"].count("\n") == 0


def test_a_data_type_that_a_chip_lacks_needs_no_units():
    row = fastflow.evaluate("model=gemm", "chip=v100", "model.dtype=bf16", "~chip.matrix.bf16").iloc[0]
    assert row["reason"].startswith("model.dtype=bf16 is invalid: expected a data type of chip V100")


@pytest.mark.parametrize("chip", SHEETS)
def test_a_chip_has_its_datasheet_memory(frame, chip):
    _, capacity, bandwidth, devices = SHEETS[chip]
    """Its GB are GiB: stacks have powers of two, and an H100 of 80 GB has 81,559 MiB (nvidia-smi)."""
    row = frame.loc[chip, "fp32"]
    assert row["dram_capacity_B"] == capacity * 2**30
    assert row["dram_Bps"] == bandwidth * 1e9
    assert row["dram_devices"] == devices


@pytest.mark.parametrize("chip", SHEETS)
def test_bandwidths_on_the_chip_follow_its_clock(frame, chip):
    row = frame.loc[chip, "fp32"]
    registers, shared = WIDTHS.get(chip, (1024, 128))
    bundle_cycles = row["bundles"] * row["core_Hz"]
    assert row["l0_Bps"] == pytest.approx(registers * bundle_cycles, rel=2e-4)
    assert row["l1_Bps"] == pytest.approx(shared * bundle_cycles, rel=2e-4)


@pytest.mark.parametrize("short", SHORT)
def test_short_names(frame, short):
    for dtype in ("fp16", "fp32"):
        assert frame.loc[short, dtype]["time_s"] == frame.loc[SHORT[short], dtype]["time_s"]


@pytest.mark.parametrize("chip", SHEETS)
def test_a_pinned_figure_and_its_source_stand_in_one_file(chip):
    said = yaml.safe_load((CHIPS / f"{chip}.yaml").read_text())
    source = said["source"]
    for key in said["pinned"]:
        assert source.get(f"pinned.{key}", source.get("default")), key
    for key in ("node_area", "die_area", "tdp", "area", "power", "rate", "mcu", "mcus_per_bundle"):
        if key in said:
            assert source.get(key, source.get("default")) or any(k.startswith(f"{key}.") for k in source), key


def test_chips_of_one_die_differ_in_what_their_boards_set(compose):
    """So that a file says only what differs: area, units, caches and their shares are the die's."""
    boards = {
        "v100_sxm": ["v100_pcie", "v100_sxm_32", "v100_pcie_32", "v100s"],
        "a100_sxm_80": ["a100_sxm_40", "a100_pcie_40", "a100_pcie_80", "a800_sxm"],
        "a40": ["a6000", "a10"],
        "h100_sxm": ["h100_pcie", "h800_sxm"],
        "gh200": ["gh200_144"],
        "h20": ["h20_141"],
        "l40s": ["rtx_6000_ada"],
        "mi210": ["mi250x"],
        "mi300x": ["mi308x", "mi325x"],
        "mi355x": ["mi350x"],
    }
    theirs = (
        "chip.die_area",
        "chip.mcu",
        "chip.rate",
        "chip.area",
        "chip.memory",
        "chip.blocks",
        "chip.matrix",
    )
    for die, others in boards.items():
        point = compose(f"chip={die}")
        for other in others:
            board = compose(f"chip={other}")
            same = [key for key in point if key.startswith(theirs)]
            assert {key: board[key] for key in same} == {key: point[key] for key in same}, other


def test_what_no_datasheet_gives_says_what_it_was_calibrated_on():
    """Or which relative's it is: a chip without data takes its nearest relative's."""
    keys = (
        "utilization",
        "vector_utilization",
        "dram_utilization",
        "launch_overhead",
        "call_overhead",
        "strided",
    )
    for chip in SHEETS:
        said = yaml.safe_load((CHIPS / f"{chip}.yaml").read_text())
        for key in keys:
            if key in said:
                assert key in said["source"], (chip, key)
        if "boost_W" in said["pinned"]:
            assert "pinned.boost_W" in said["source"], chip


def test_a_smaller_share_of_the_budget_for_cores_slows_long_products_down():
    """P4 and T4 cannot feed their lanes at the highest clock: about 1.03 GHz is left of 1.53 and 1.59."""
    sides = [f"model.{side}=8192" for side in "mnk"]
    asked = ("model=gemm", "model.dtype=fp32", *sides)
    for chip, clock in (("p4", 1.034e9), ("t4", 1.037e9)):
        short, long = (
            fastflow.evaluate(*asked, f"chip={chip}", *more).iloc[0] for more in (("chip.tdp=1kW",), ())
        )
        assert long.time_s / short.time_s == pytest.approx(short.core_Hz / clock, rel=0.06)


HALF = 1 - 0.486 / 2  # a budget whose cores work at half of their rate


def test_full_power_is_a_relatives(compose):
    """`boost_W` by the written rule: a relative's, by units, clock and the share for cores."""
    on_chip = [f"chip.power.{part}" for part in ("core", "l2", "l1", "l0")]
    for chip, relative, units in (
        ("h200_sxm", "h100_sxm", 1), ("h100_nvl", "h100_sxm", 1), ("gb200", "b200_sxm", 152 / 148),
        ("l4", "l40s", 58 / 142), ("rtx_pro_6000", "l40s", 188 / 142), ("p4", "p100", 2560 / 3584),
        ("t4", "p4", 1), ("l40s", "a100_sxm_80", 142 * 8 / 1728 / 1.3),
        ("mi300x", "mi210", 304 / 104 * 2 / 1.3), ("mi355x", "mi300x", 256 / 304 * 2 / 1.3),
        ("mi350x", "mi355x", 1), ("mi308x", "mi300x", 80 / 304), ("mi250x", "mi210", 110 / 104),
        ("rtx_6000_ada", "l40s", 1), ("a40", "l40s", 84 / 142 * 1.3), ("a6000", "a40", 1),
        ("a10", "a40", 72 / 84), ("a30", "a100_sxm_80", 56 / 108), ("gh200_144", "h100_sxm", 1),
        ("h20_141", "h20", 1),
        ("rtx_3090", "a40", 82 / 84 * HALF), ("rtx_4090", "l40s", 128 / 142 * HALF),
        ("rtx_5090", "rtx_pro_6000", 170 / 188 * HALF),
    ):  # fmt: skip
        one, other = compose(f"chip={chip}"), compose(f"chip={relative}")
        expected = other["chip.pinned.boost_W"] * units
        expected *= one["chip.pinned.core_Hz"] / other["chip.pinned.core_Hz"]
        expected *= sum(other[key] for key in on_chip) / sum(one[key] for key in on_chip)
        assert one["chip.pinned.boost_W"] == pytest.approx(expected, rel=0.005), chip


VOLTA = ("v100", "v100_sxm", "v100_pcie", "v100_sxm_32", "v100_pcie_32", "v100s")
OLD = (*VOLTA, "p100", "p4", "t4")  # compute capabilities 6.0 to 7.5
OF_CHIP = ("megatron_core", "nemo", "nemo_2023", "jax", "composer")
"""Frameworks whose attention is FlashAttention's or cuDNN's."""


@pytest.mark.long
@pytest.mark.parametrize("framework", [path.stem for path in (CHIPS.parent / "framework").glob("*.yaml")])
def test_attention_is_fused_where_a_frameworks_kernels_run(compose, framework):
    """On every chip; what the user sets goes first."""
    for chip in (*SHEETS, "pathfinding", "chiplets", "v100", "a100"):
        chosen = (f"framework={framework}", f"chip={chip}", "model=llama3_8b")
        point = compose(*chosen)
        assert point["chip.flash_attention"] == (chip not in OLD)
        fused = compose(*chosen, "chip=h100_sxm")["model.fused_attention"]
        expected = chip not in OLD if framework in OF_CHIP else fused
        assert point["model.fused_attention"] == expected, chip
        assert compose(*chosen, "model.fused_attention=true")["model.fused_attention"]


def test_a_chip_file_that_does_not_say_has_fused_attention(tmp_path, compose):
    file = tmp_path / "own.yaml"
    said = yaml.safe_load((CHIPS / "pathfinding.yaml").read_text())
    del said["flash_attention"]
    file.write_text(yaml.safe_dump(said))
    point = compose("framework=megatron_core", "model=llama3_8b", f"chip={file}")
    assert point["model.fused_attention"]
