"""Every chip of the library as people have it: one to eight of them, to train and to serve, in one line."""

import pytest

import fastflow
from tests.properties.test_chips import SHEETS, SHORT

COUNTS = (1, 2, 4, 8)
BRIDGES = {
    "a100_pcie_80": "pcie_nvlink_pairs", "h100_pcie": "pcie_nvlink_pairs", "h100_nvl": "pcie_nvlink_pairs",
    "a30": "pcie_nvlink_pairs_a30", "a40": "pcie_nvlink_pairs_ga102", "a6000": "pcie_nvlink_pairs_ga102",
    "rtx_3090": "pcie_nvlink_pairs_ga102",
}  # fmt: skip
HELD = {"rtx_3090": "a40", "rtx_4090": "l40s", "rtx_5090": "rtx_pro_6000"}


@pytest.fixture(scope="module")
def chips():
    """What every chip is, one row each."""
    names = ",".join([*SHEETS, *SHORT])
    return fastflow.evaluate("model=gemm", f"chip={names}", "model.dtype=fp32").set_index("chip")


@pytest.mark.parametrize("chip", SHEETS)
def test_a_chip_rests_within_its_budget_and_costs_something(chips, compose, chip):
    point, row = compose(f"chip={chip}"), chips.loc[chip]
    assert 0.0 < row["idle_W"] < row["full_W"] <= point["chip.tdp"]
    assert row["device_usd"] > 0.0
    assert row["device_carbon_kg"] > 0.0


def best(*words):
    """Return the row that an automatic strategy chose."""
    return fastflow.evaluate("model=llama3_8b", "parallel.strategy=auto", *words).iloc[0]


SYSTEMS = [(), *(pytest.param((f"system={name}",), marks=pytest.mark.long) for name in ("pcie", "cluster"))]


@pytest.mark.parametrize("chip", SHEETS)
@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_a_few_of_any_chip_serve_a_model_in_one_line(chip, system):
    """What does not fit says that memory is missing."""
    for devices in COUNTS:
        row = best("serve=decode", "serve.batch=8", f"chip={chip}", f"system.devices={devices}", *system)
        assert row["time_s"] > 0.0, (devices, row["reason"])
        if row["feasible"]:
            assert row["reason"] == ""
            assert row["tokens_per_s"] > 0.0
        else:
            assert "memory" in row["reason"], devices
            assert row["dram_capacity_B"] * devices < 40e9


@pytest.mark.long
@pytest.mark.parametrize("chip", SHEETS)
@pytest.mark.parametrize("system", SYSTEMS[:2], ids=str)
def test_a_few_of_any_chip_train_a_model_in_one_line(chip, system):
    for devices in COUNTS:
        row = best("model.batch=16", f"chip={chip}", f"system.devices={devices}", *system)
        assert row["time_s"] > 0.0, (devices, row["reason"])
        assert row["feasible"] or "memory" in row["reason"], (devices, row["reason"])


@pytest.mark.parametrize(("chip", "system"), BRIDGES.items())
def test_a_pair_of_cards_with_a_bridge_is_faster_than_without(chip, system):
    words = ("serve=decode", "serve.batch=8", "model=llama3_8b", "parallel.strategy=TP-2", f"chip={chip}")
    bridged, plain = (
        fastflow.evaluate(*words, "system.devices=2", f"system={name}").iloc[0] for name in (system, "pcie")
    )
    assert bridged["intra_Bps"] > plain["inter_Bps"] == bridged["inter_Bps"]
    assert bridged["tpot_s"] <= plain["tpot_s"]


@pytest.mark.parametrize(("chip", "whole"), HELD.items())
def test_cards_that_add_in_fp32_at_half_rate_do_so_for_all_floats_of_matrix_units(compose, chip, whole):
    held, full = compose(f"chip={chip}"), compose(f"chip={whole}")
    for key in full:
        if key.startswith("chip.rate."):
            half = key.rpartition(".")[2] in ("fp16", "bf16", "tf32", "fp8", "fp8_block")
            assert held[key] == full[key] * (0.5 if half else 1.0), key
