"""The library of real chips (conf/chip): what their datasheets say, and where every figure comes from."""

import re
from pathlib import Path

import pytest
import yaml

import fastflow

CHIPS = Path(fastflow.__file__).parent.parent / "conf" / "chip"
SHORT = {"v100": "v100_sxm", "a100": "a100_sxm_80"}

# datasheets: TFLOP/s by data type (dense, of matrix units where there are any), memory in GB, GB/s, devices
SHEETS = {
    "p4": ({"fp16": 5.5, "fp32": 5.5}, 8, 192, 8),
    "p100": ({"fp16": 18.7, "fp32": 9.3}, 16, 732, 4),
    "v100_sxm": ({"fp16": 125, "fp32": 15.7}, 16, 900, 4),
    "v100_pcie": ({"fp16": 112, "fp32": 14}, 16, 900, 4),
    "t4": ({"fp16": 65, "fp32": 8.1}, 16, 320, 8),
    "a100_sxm_40": ({"fp16": 312, "bf16": 312, "fp32": 19.5}, 40, 1555, 5),
    "a100_pcie_40": ({"fp16": 312, "bf16": 312, "fp32": 19.5}, 40, 1555, 5),
    "a100_sxm_80": ({"fp16": 312, "bf16": 312, "fp32": 19.5}, 80, 2039, 5),
    "a100_pcie_80": ({"fp16": 312, "bf16": 312, "fp32": 19.5}, 80, 1935, 5),
    "h100_sxm": ({"fp16": 989.4, "bf16": 989.4, "fp32": 66.9}, 80, 3350, 5),
    "h100_pcie": ({"fp16": 756, "bf16": 756, "fp32": 51.2}, 80, 2039, 5),
    "mi210": ({"fp16": 181, "bf16": 181, "fp32": 45.3}, 64, 1638, 4),
}
# clocks of a datasheet's peak [Hz], where the highest one is above it
SHEET_HZ = {"p4": 1.063e9, "p100": 1.303e9}
# what an SM or CU moves in a cycle [B]: registers, and shared memory
WIDTHS = {"p4": (2048, 128), "t4": (1024, 64)}


@pytest.fixture(scope="module")
def frame():
    """One product on every chip in every data type, one row each."""
    names = ",".join([*SHEETS, *SHORT])
    frame = fastflow.evaluate("model=gemm", f"chip={names}", "model.dtype=fp16,bf16,fp32")
    return frame.set_index(["chip", "model.dtype"])


def test_every_real_chip_is_listed():
    assert {path.stem for path in CHIPS.glob("*.yaml")} == {*SHEETS, *SHORT, "pathfinding"}


@pytest.mark.parametrize("chip", SHEETS)
def test_a_chip_has_its_datasheet_peaks_and_a_time_in_every_data_type(frame, chip):
    peaks, *_ = SHEETS[chip]
    for dtype in ("fp16", "bf16", "fp32"):
        row = frame.loc[chip, dtype]
        if dtype in peaks:
            assert row["reason"] == ""
            # 1%, and a hair: P4's boost clock makes 5.44 of the 5.5 announced
            peak = row["compute_flops"] * SHEET_HZ.get(chip, row["core_Hz"]) / row["core_Hz"]
            assert peak == pytest.approx(peaks[dtype] * 1e12, rel=0.0105), dtype
            assert row["time_s"] > row["flop"] / row["compute_flops"]
        else:
            says = r"model\.dtype=bf16 is invalid: expected a data type of chip [^:]*: fp16, fp32"
            assert re.fullmatch(says, row["reason"])
            assert row["reason"].count("\n") == 0


def test_a_data_type_that_a_chip_lacks_needs_no_units():
    row = fastflow.evaluate("model=gemm", "chip=v100", "model.dtype=bf16", "~chip.matrix.bf16").iloc[0]
    assert row["reason"].startswith("model.dtype=bf16 is invalid: expected a data type of chip V100")


@pytest.mark.parametrize("chip", SHEETS)
def test_a_chip_has_its_datasheet_memory(frame, chip):
    _, capacity, bandwidth, devices = SHEETS[chip]
    row = frame.loc[chip, "fp32"]
    assert row["dram_capacity_B"] == capacity * 1e9
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
        "v100_sxm": ["v100_pcie"],
        "a100_sxm_80": ["a100_sxm_40", "a100_pcie_40", "a100_pcie_80"],
        "h100_sxm": ["h100_pcie"],
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
