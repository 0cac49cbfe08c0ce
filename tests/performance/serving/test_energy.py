"""Energy of servers: waits, pools and limits, against the oracle; and the host's time for each worker."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.serving.energy import HOST_SHARE, Pool, Work, energy_columns
from fastflow.physics.hardware.power import Power
from tests.naive import served_energy

SECONDS = st.floats(0.0, 50.0)
IDLE, ACTIVE, BUDGET = 0.22, 0.25, 700.0
SERVER = (
    "model=llama3_70b", "chip=h100_sxm", "system.devices=8", "parallel.strategy=TP-8", "serve.isl=512",
    "serve.osl=128", "serve.simulate=false",
)  # fmt: skip


def one(value):
    return np.array([float(value)])


SHARES = st.floats(0.0, 1.0)
POOLS = st.tuples(SECONDS, SECONDS, st.floats(0.0, 1e4), st.integers(1, 8), SHARES, SHARES)


@given(st.lists(POOLS, min_size=1, max_size=2))
def test_joules_and_throttling_are_the_oracles(pools):
    power, expected, parts = Power(one(100), one(0), one(0), one(150), one(0), one(500), one(1) > 0), 0.0, []
    kernels = throttled = 0.0
    for passes, host, joules, devices, computing, slowed in pools:
        in_kernels = passes * computing
        work = Work(*map(one, (joules, passes, host, in_kernels, in_kernels * slowed)))
        parts.append(Pool(power, np.array([devices]), work))
        kernels, throttled = kernels + in_kernels, throttled + in_kernels * slowed
        expected += served_energy.pool(100, 150, 500, devices, 10, passes, host, joules)
    got = energy_columns(parts, one(4), one(5), one(10))
    assert got["energy_J"][0] == pytest.approx(expected / 4)
    assert got["joules_per_token"][0] == pytest.approx(expected / 20)
    devices = sum(pool[3] for pool in pools)
    assert got["power_W"][0] == pytest.approx(expected / 10 / devices)
    assert 100 * (1 - 1e-9) <= got["power_W"][0] <= 500 * (1 + 1e-9)
    share = throttled / kernels if kernels > 0 else 0.0
    assert got["throttled_frac"][0] == pytest.approx(share)


def test_a_host_that_takes_longer_costs_rest_and_a_share_of_running():
    quick, slow = (
        fastflow.evaluate(*SERVER, "serve=decode", "serve.batch=32", f"server.step_overhead={ms} ms").iloc[0]
        for ms in (0, 20)
    )
    waited = slow["time_s"] - quick["time_s"]
    assert waited == pytest.approx(0.02)
    more = (slow["power_W"] * slow["time_s"] - quick["power_W"] * quick["time_s"]) / waited
    assert more == pytest.approx((IDLE + HOST_SHARE * ACTIVE) * BUDGET, rel=1e-6)


@pytest.mark.parametrize(
    ("strategy", "devices", "workers"), [("TP-8", 8, 7), ("TP-2-p4", 8, 7), ("TP-4-d2", 8, 3), ("TP-1", 1, 0)]
)
def test_a_host_sends_inputs_to_each_further_worker_of_a_rank(strategy, devices, workers):
    asked = (
        "model=llama3_8b", "chip=h100_sxm", f"system.devices={devices}", f"parallel.strategy={strategy}",
        "serve=continuous", "serve.isl=512", "serve.osl=128", "serve.concurrency=16", "serve.num_requests=32",
        "serve.simulate=true,false",
    )  # fmt: skip
    each = fastflow.evaluate(*asked, "server.step_overhead=1 ms", "server.step_overhead_per_worker=2 ms")
    once = fastflow.evaluate(*asked, f"server.step_overhead={1 + 2 * workers} ms")
    for name in ("tpot_s", "ttft_s", "tokens_per_s", "energy_J", "serve_host_s"):
        assert each[name].tolist() == once[name].tolist()


@pytest.mark.parametrize("chip", ["h100_sxm", "pathfinding"])
@pytest.mark.parametrize("simulate", [True, False])
def test_a_server_with_little_to_do_draws_rest(chip, simulate):
    (row,) = fastflow.evaluate(
        "model=llama3_8b", f"chip={chip}", "system.devices=8", "parallel.strategy=TP-8", "serve=continuous",
        "serve.isl=64", "serve.osl=4", "serve.concurrency=0", "serve.request_rate=0.001/s",
        f"serve.simulate={simulate}",
    ).to_dict("records")  # fmt: skip
    assert row["power_W"] == pytest.approx(row["idle_W"], rel=0.02)
    assert row["power_W"] >= row["idle_W"]


def test_pools_that_wait_draw_rest():
    """Of both kinds: energy of a request at a low rate is that of all devices at rest between two of them."""
    (row,) = fastflow.evaluate(
        "model=llama3_8b", "chip=h100_sxm", "serve=disaggregated", "serve.isl=512", "serve.osl=16",
        "system.devices=5", "parallel.strategy=TP-1", "serve.concurrency=0", "serve.request_rate=0.01/s",
        "serve.prefill.strategy=TP-4", "serve.prefill.devices=4", "serve.simulate=false",
    ).to_dict("records")  # fmt: skip
    assert row["reason"] == ""
    assert row["power_W"] == pytest.approx(row["idle_W"], rel=0.02)
    assert row["energy_J"] == pytest.approx(5 * row["idle_W"] * 100.0, rel=0.02)
