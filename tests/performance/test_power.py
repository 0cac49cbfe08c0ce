"""What real devices draw: at least what they draw at rest, at most their budget, and the oracle between."""

import numpy as np
import pytest

import fastflow
from fastflow.config import catalog
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.performance import results
from tests.naive import energy as naive

RESTING, RUNNING = 0.22, 0.25
"""Shares of the budget."""
RATES = {"bf16": 989.4e12, "fp8": 1978.9e12}


def known(chip):
    """The share of its budget that a chip draws at rest, None where it is made from budgets."""
    with hydra_rules():
        return Composer.of_library().compose([f"chip={chip}"]).leaves.get("chip.idle_power_fraction")


def is_real(chip):
    """Whether a chip has known quantities in place of generated ones."""
    with hydra_rules():
        return "chip.pinned.core_Hz" in Composer.of_library().compose([f"chip={chip}"]).leaves


CHIPS = ["a100_sxm_80", "a100_pcie_40", "h100_sxm", "h200_sxm", "b200_sxm", "v100_sxm", "l40s", "mi300x"]


def budget_of(compose, chip):
    return compose(f"chip={chip}", "model=gemm")["chip.tdp"]


def watts(rows):
    return (rows["energy_J"] / rows["time_s"] / rows["devices"]).to_numpy(np.float64)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "work",
    [
        ("model=gemm", "model.m=1,64,8192", "model.k=64,8192", "model.n=64,8192"),
        (
            "model=llama2_7b",
            "system.devices=8",
            "parallel.strategy=d8,TP-8,TP-2-d2-p2",
            "model.batch=8",
            "memory=tensors",
        ),
    ],
    ids=["products", "training"],
)
def test_no_device_draws_less_than_at_rest_or_more_than_its_budget(compose, chip, work):
    rows = fastflow.evaluate(f"chip={chip}", "model.dtype=fp16", *work)
    drawn, budget = watts(rows[rows["reason"] == ""]), budget_of(compose, chip)
    assert drawn.size
    assert (drawn >= RESTING * budget * (1 - 1e-9)).all()
    assert (drawn <= budget * 1.05).all()  # and links


@pytest.mark.parametrize("chip", ["a100_sxm_80", "h100_sxm", "b200_sxm"])
def test_a_kernel_that_is_slowed_down_draws_its_limit(compose, chip):
    rows = fastflow.evaluate(
        f"chip={chip}", "model=gemm", "model.m=8192", "model.k=8192", "model.n=8192", "model.dtype=bf16"
    )
    assert watts(rows)[0] == pytest.approx(budget_of(compose, chip), rel=0.03)


@pytest.mark.parametrize(("mode", "key"), [("decode", "serve.batch"), ("continuous", "serve.concurrency")])
def test_a_server_draws_what_its_devices_may(compose, mode, key):
    rows = fastflow.evaluate(
        "model=llama3_8b", "chip=h100_sxm", "system.devices=1", "parallel.strategy=TP-1", f"serve={mode}",
        "serve.isl=512", "serve.osl=256", f"{key}=1,16,64",
    )  # fmt: skip
    drawn = (rows["joules_per_token"] * rows["tokens_per_s"]).to_numpy(np.float64)
    budget = budget_of(compose, "h100_sxm")
    assert (drawn > (RESTING + RUNNING) * budget * 0.95).all()
    assert (drawn < budget).all()
    assert (np.diff(drawn) > 0.0).all()


def test_waiting_for_a_network_costs_what_rest_costs(compose):
    common = ("model=llama2_7b", "system=dgx_h100", "parallel.strategy=d64", "model.batch=64")
    fast, slow = (
        fastflow.evaluate(*common, "system.devices=64", f"chip.pinned.inter_Bps={rate} GB/s").iloc[0]
        for rate in (450, 10)
    )
    waited = slow["time_s"] - fast["time_s"]
    assert waited > 0.1 * fast["time_s"]
    rest = RESTING * budget_of(compose, "h100_sxm") * 64
    assert slow["energy_J"] - fast["energy_J"] == pytest.approx(rest * waited, rel=0.02)


@pytest.mark.parametrize("chip", ["a100_sxm_80", "h100_sxm"])
@pytest.mark.parametrize("sizes", [(1, 8192, 8192), (512, 512, 512), (4096, 4096, 4096)])
def test_energy_is_the_oracles(compose, predict, chip, sizes):
    m, k, n = sizes
    point = compose(f"chip={chip}", "model=gemm") | {
        "model.m": m, "model.k": k, "model.n": n, "model.dtype": "bf16",
    }  # fmt: skip
    prediction = predict([point])
    timing, made, budget = prediction.timing, prediction.chip, point["chip.tdp"]
    rest, running = RESTING * budget, RUNNING * budget
    full = point["chip.pinned.boost_W"] * point["chip.matrix_power"]
    per_operation = (full - rest - running) / prediction.peaks.device[0]
    kernels = [
        (
            int(prediction.pipeline.launches[row]),
            timing.time[row],
            timing.flop[row] * per_operation,
            timing.bytes[row],
            timing.busy[row],
        )
        for row in range(timing.time.size)
    ]
    per_byte = [8.0 * level.dynamic_energy[0] for level in made.levels] + [point["chip.pinned.dram_JpB"]]
    got = results.summary(prediction)
    expected = naive.real_chip(kernels, per_byte, rest, running, budget, full, got["time_s"][0])
    assert got["energy_J"][0] == pytest.approx(expected, rel=1e-9)


def test_products_draw_more_than_the_budget_beside_passes_that_draw_less(compose, predict):
    point = compose("chip=b200_sxm", "model=gemm") | {
        "model.m": 2048, "model.k": 16384, "model.n": 1024, "model.dtype": "fp8",
    }  # fmt: skip
    prediction = predict([point])
    timing, made, budget = prediction.timing, prediction.chip, point["chip.tdp"]
    per_byte = [8.0 * level.dynamic_energy[0] for level in made.levels] + [point["chip.pinned.dram_JpB"]]
    wanted = timing.flop * prediction.peaks.operation + timing.bytes @ np.array(per_byte)
    wanted += (RUNNING * naive.awake(timing.busy) + RESTING) * budget * timing.time
    drawn = wanted / timing.time
    assert drawn[-1] > budget > drawn[:-1].max()  # the product, and passes that quantise
    assert wanted.sum() < budget * timing.time.sum()
    got = results.summary(prediction)
    waits = got["time_s"][0] - timing.time.sum()
    assert got["energy_J"][0] == pytest.approx(wanted.sum() + RESTING * budget * waits, rel=1e-9)


@pytest.mark.parametrize(("dtype", "head"), [("bf16", 128), ("fp8", 64)])
def test_attention_has_the_energy_of_its_products_and_of_its_softmax(compose, predict, dtype, head):
    """A score takes 4.5 operations of vector lanes beside two products with the columns of its head."""
    point = compose("chip=h100_sxm", "model=attention") | {
        "model.batch": 1, "model.q_len": 64, "model.kv_len": 64, "model.heads": 4, "model.kv_heads": 4,
        "model.head_dim": head, "model.dtype": dtype, "chip.launch_overhead": 1e-3,
    }  # fmt: skip
    prediction = predict([point])
    of_type = prediction.peaks.operation
    shares = (RESTING + RUNNING) * point["chip.tdp"]
    lanes = (point["chip.pinned.boost_W"] - shares) / 66.9e12  # its datasheet's rates
    units = (point["chip.pinned.boost_W"] * point["chip.matrix_power"] - shares) / RATES[dtype]
    padding = prediction.timing.padding  # the energy is that of whole tiles
    assert (padding > 1.0).sum() == 1
    assert np.isclose(of_type / padding, units + 2 * 4.5 / (4 * head) * lanes, rtol=2e-3).any()


def test_chips_made_from_budgets_draw_what_technology_says():
    (row,) = fastflow.evaluate("model=gemm", "chip=pathfinding").to_dict("records")
    assert row["energy_J"] / row["time_s"] < 300.0
    assert not known("pathfinding")


def test_every_real_chip_of_the_library_says_what_it_draws_at_rest():
    real = [chip for chip in catalog.choices("chip") if is_real(chip)]
    assert len(real) > 20
    assert [chip for chip in real if not known(chip)] == []


@pytest.mark.parametrize("rate", [0.05, 30.0])
def test_servers_in_an_open_loop_draw_at_least_rest_and_at_most_the_budget(compose, rate):
    (row,) = fastflow.evaluate(
        "model=llama3_8b", "chip=h100_sxm", "system.devices=1", "parallel.strategy=TP-1", "serve=continuous",
        "serve.isl=512", "serve.osl=256", "serve.concurrency=0", f"serve.request_rate={rate}/s",
    ).to_dict("records")  # fmt: skip
    budget = budget_of(compose, "h100_sxm")
    assert RESTING * budget <= row["power_W"] * (1 + 1e-9) <= budget * (1 + 1e-6)
