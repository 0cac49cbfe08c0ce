"""Prefill and decoding on servers of their own: the simulation against its definition, the fast form, the points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.serving import load
from fastflow.serving.disaggregated import Pools, simulate_apart
from fastflow.serving.load import TAKEN, TOO_LONG
from tests.checks import cases, near
from tests.naive import disaggregated as naive
from tests.servers import LOAD, PLAIN, loads, realistic, servers
from tests.test_serving import lengths, oracle_tables, random_load, random_server, random_times


def pools(first, second, counts, way):
    return Pools(
        servers(first), servers(second), np.array([counts[0]]), np.array([counts[1]]),
        np.array([way[0]]), np.array([way[1]]),
    )  # fmt: skip


def check(times, two, counts, way, load_):
    got = simulate_apart(*times, pools(*two, counts, way), loads(load_))
    two, load_ = [PLAIN | server for server in two], LOAD | load_
    one = {name: column[0] for name, column in got._asdict().items()}
    every = lengths(load_)
    capacity = [server["capacity"] // server["slots"] for server in two]
    if max(a for a, _ in every) > capacity[0] or max(a + b for a, b in every) > capacity[1]:
        assert one["refused"] == TOO_LONG
        assert not any(value for name, value in one.items() if name != "refused")
        return None
    sent = None
    if not load_["concurrency"]:
        sent = load.arrivals_of(load_["rate"], load_["requests"]).tolist()
    requests, total = naive.simulate(
        [oracle_tables(one) for one in times], two, counts, way, every, sent, load_["concurrency"],
        load_["prefix"],
    )  # fmt: skip
    assert one["refused"] == TAKEN
    moved = [r for r in requests if r.osl > 1]
    for name, values in (
        ("ttft", [r.first - r.sent for r in requests]),
        ("tpot", [(r.end - r.first) / (r.osl - 1) for r in moved] or [0.0]),
    ):
        assert near(one[f"{name}_s"], np.mean(values), 1e-9)
        assert near(one[f"{name}_median_s"], np.median(values), 1e-9)
        assert near(one[f"{name}_p99_s"], np.percentile(values, 99), 1e-9)
    span = total["makespan"]
    assert near(one["requests_per_s"], len(requests) / span, 1e-9)
    assert near(one["tokens_per_s"], sum(r.osl for r in requests) / span, 1e-9)
    assert near(one["decoding"] * span, sum(r.end - r.arrive for r in moved), 1e-9)
    assert one["queue"] * span == pytest.approx(sum(r.admitted - r.sent for r in requests), rel=1e-9)
    assert one["transfer_s"] == pytest.approx(np.mean([r.arrive - r.placed for r in moved] or [0]), rel=1e-9)
    assert one["place_s"] == pytest.approx(np.mean([r.placed - r.first for r in moved] or [0]), rel=1e-9)
    for i, name in enumerate(("prefill", "decode")):
        assert one[f"{name}_iterations"] == total[f"{name}_iterations"]
        units = counts[i] * two[i]["slots"]
        assert near(one[f"{name}_busy"], total[f"{name}_busy"] / (span * units), 1e-9)
    return one


@cases(300)
@given(st.integers(0, 2**32))
def test_simulation_agrees_with_its_definition(seed):
    random = np.random.default_rng(seed)
    times = random_times(random), random_times(random)
    two = [random_server(random, int(random.integers(1, 4))) for _ in range(2)]
    for server in two:
        server["slots"] = int(random.integers(1, 3))
        server["per_pass"] = float(random.choice([1.0, 1.5, 1.75]))  # contexts are exact in any order
    way = float(random.choice([0.0, 1e-2 * random.random()])), float(random.choice([0.0, 1e-4]))
    counts = random.integers(1, 4, 2).tolist()
    check(times, two, counts, way, random_load(random))


@pytest.mark.parametrize("capacity", [3000, 1_000_000])
def test_full_servers_of_decode_hold_prefill_up(capacity):
    times = realistic()
    first, second = {"capacity": capacity, "budget": 2048}, {"capacity": 8200}
    load_ = {"concurrency": 16, "requests": 32, "osl": 60.0}
    one = check((times, times), (first, second), (1, 1), (1e-3, 1e-6), load_)
    assert one["place_s"] > 0.0
