"""Disaggregated serving: the simulation, the analytic form, points of a configuration."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.serving.disaggregated.simulate import Pools, simulate_disaggregated
from fastflow.performance.serving.disaggregated.steady_state import steady_disaggregated
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG, TOO_MANY, trip_share
from fastflow.performance.serving.simulator.latencies import columns_of
from tests.naive import disaggregated as naive
from tests.naive import window as naive_window
from tests.performance.serving.simulator.test_run import (
    arrivals,
    check_metrics,
    lengths,
    oracle_tables,
    random_load,
    random_server,
    random_times,
    until_stationary,
)
from tests.support.checks import cases
from tests.support.checks import near as equal
from tests.support.servers import LOAD, PLAIN, loads, realistic, servers


def pools(first, second, counts, transfer, streams=False):
    return Pools(
        servers(first), servers(second), np.array([counts[0]]), np.array([counts[1]]),
        *(np.array([value]) for value in transfer), np.array([streams]),
    )  # fmt: skip


def check(times, two, counts, transfer, load_, streams=False, nudges=()):
    got = simulate_disaggregated(*times, pools(*two, counts, transfer, streams), loads(load_))
    two, load_ = [PLAIN | server for server in two], LOAD | load_
    row = {name: column[0] for name, column in columns_of(got).items()}
    capacity = [server["capacity"] // server["slots"] for server in two]
    plain = [oracle_tables(table) for table in times]

    def run(more):
        """Run the oracle; cases in which the order of events is a matter of rounding are left out."""
        of_load = lengths(more), arrivals(more), load_["concurrency"], load_["prefix"], trip_share
        runs = []
        for nudge in (0.0, *nudges):
            copies = [dict(server) for server in two]
            runs.append(naive.simulate(plain, copies, counts, transfer, *of_load, streams, nudge))
        ends = [[request.end for request in requests] for requests, _ in runs]
        if nudges:
            assume(all(equal(*two, 1e-9) for nudged in ends[1:] for two in zip(ends[0], nudged, strict=True)))
        return runs[0]

    def fits(pairs):
        return max(a for a, _ in pairs) <= capacity[0] and max(a + b for a, b in pairs) <= capacity[1]

    result = until_stationary(run, load_, fits)
    if result is None:
        assert row["refused"] == TOO_LONG
        assert not any(value for name, value in row.items() if name != "refused")
        return None
    requests, log, window = result
    assert row["refused"] == TAKEN
    check_metrics(row, requests, window, load_, lambda r: r.arrive if r.osl > 1 else r.end)
    transferred = [r for r in requests if r.osl > 1 and naive_window.has(window, r.sent)]
    assert row["transfer_s"] == pytest.approx(
        np.mean([r.arrive - r.placed for r in transferred] or [0]), rel=1e-9
    )
    for name in ("prefill", "decode"):
        starts = [start for start, pool, _ in log if pool == name and naive_window.has(window, start)]
        assert row[f"{name}_iterations"] == len(starts)
    return requests


@cases(150)
@given(st.integers(0, 2**32))
def test_simulation_agrees_with_its_definition(seed):
    random = np.random.default_rng(seed)
    times = random_times(random), random_times(random)
    two = [random_server(random, int(random.integers(1, 4))) for _ in range(2)]
    for server in two:
        server["slots"] = int(random.integers(1, 3))
        server["per_pass"] = float(random.choice([1.0, 1.5, 1.75]))  # contexts are exact in any order
    transfer = (
        float(random.choice([0.0, 1e-2 * random.random()])), float(random.choice([0.0, 1e-4])),
        int(random.choice([1, 1, 2, 30])),
    )  # fmt: skip
    counts = random.integers(1, 4, 2).tolist()
    check(times, two, counts, transfer, random_load(random), bool(random.integers(2)), (1e-13, -1e-13))


@pytest.mark.parametrize("capacity", [3000, 1_000_000])
def test_full_servers_of_decode_hold_prefill_up(capacity):
    times = realistic()
    first, second = {"capacity": capacity, "budget": 2048}, {"capacity": 8200}
    load_ = {"concurrency": 16, "requests": 32, "osl": 60.0}
    requests = check((times, times), (first, second), (1, 1), (1e-3, 1e-6, 1), load_)
    assert any(request.placed > request.first for request in requests)


def test_where_it_says_so_the_analytic_form_is_near_the_simulation():
    """Means and medians of loads over servers of all kinds; closed loops that the cache bounds among them."""
    times, random, errors, near = realistic(), np.random.default_rng(1), [], []
    for case in range(150):
        is_closed, at_once = case % 3 < 2, int(2 ** random.integers(0, 8))
        first = {"ranks": int(random.choice([1, 2]))}
        second = {"ranks": int(random.choice([1, 2])), "capacity": int(random.choice([100_000, 1_000_000]))}
        load_ = {
            "isl": float(random.choice([128, 1024, 4096])), "osl": float(random.choice([64, 512])),
            "relative_range": float(random.choice([0.0, 0.2, 1.0])),
            "concurrency": at_once if is_closed else 0,
            "rate": 0.0 if is_closed else 10.0 ** random.uniform(-1.0, 0.5),
            "requests": 10 * at_once if is_closed else 300,
        }  # fmt: skip
        arguments = pools(first, second, random.choice([1, 2, 4], 2), (1e-3, 1e-6, 1)), loads(load_)
        want, got = (
            simulate_disaggregated(times, times, *arguments),
            steady_disaggregated(times, times, *arguments),
        )
        assert got.refused[0] == want.refused[0] == TAKEN
        names = ("ttft_s", "ttft_p50_s", "tpot_s", "tpot_p50_s", "e2e_s", "requests_per_s")
        errors.append([getattr(got, name)[0] / columns_of(want)[name][0] - 1.0 for name in names])
        near.append(got.near[0])
    ttft, ttft_p50, tpot, tpot_p50, e2e, rate = np.abs(errors)[near].T
    assert 0.3 < np.mean(near) < 0.9
    has_first_tokens = ~np.isnan(ttft_p50)
    assert 0.5 < has_first_tokens.mean() < 0.9
    assert ttft[has_first_tokens].max() < 0.08
    assert ttft_p50[has_first_tokens].max() < 0.08
    assert np.quantile(ttft, 0.9) < 0.2
    assert np.median(tpot) < 0.01
    assert max(tpot.max(), tpot_p50.max(), e2e.max()) < 0.08
    assert np.isnan(np.array(errors)[~np.array(near), 1]).all()
    assert rate.max() < 0.13


def test_the_analytic_form_refuses_overloads():
    times = realistic()
    many = loads({"concurrency": 0, "rate": 1000.0})
    assert (
        steady_disaggregated(times, times, pools({}, {}, (1, 1), (0.0, 0.0, 1)), many).refused[0] == TOO_MANY
    )
    long = pools({"capacity": 1000}, {}, (1, 1), (0.0, 0.0, 1))
    assert steady_disaggregated(times, times, long, loads({})).refused[0] == TOO_LONG


POINT = (
    "serve=disaggregated", "model=llama3_70b", "chip=h100_sxm", "system=dgx_h100", "model.dtype=fp8",
    "system.devices=8", "server.max_num_batched_tokens=2048", "serve.osl=64", "serve.isl=512",
    "parallel.strategy=TP-2",
)  # fmt: skip


def test_columns_of_both_pools():
    frame = fastflow.evaluate(*POINT, "serve.prefill.devices=2,4", "serve.bandwidth=10 GB/s,0 B/s")
    assert frame["feasible"].all()
    assert (frame["prefill_strategy"] == "TP-2").all()
    assert frame["prefill_devices"].tolist() == [2, 2, 4, 4]
    assert frame["replicas"].tolist() == [3, 3, 2, 2]
    assert (frame["devices"] == 8).all()
    slow, fast = frame["transfer_s"].to_numpy()[:2]
    bytes_ = 512 * frame["kv_token_B"][0]
    assert slow >= bytes_ / 10e9
    assert slow > fast > 0.0
    per_device = frame["requests_per_s"] * 64 / 8
    assert frame["tokens_per_s_per_device"].to_numpy() == pytest.approx(per_device.to_numpy())


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["serve.prefill.devices=3"], "divides system.devices - serve.prefill.devices=5"),
        (["serve.prefill.devices=8"], "expected 1 to 7 of the 8 devices"),
        (
            ["serve.prefill.devices=2", "serve.prefill.strategy=TP-4"],
            "serve.prefill.strategy=TP-4 is invalid",
        ),
        (["serve.prefill.devices=2", "serve.prefill.strategy=TP-1", "model.dtype=bf16"], "device of prefill"),
        (["serve.prefill.devices=2", "serve.bandwidth=1e-300 B/s"], "in at most 1e+100 s"),
    ],
)
def test_points_without_results_say_which_pool_is_wrong(overrides, says):
    frame = fastflow.evaluate(*POINT, *overrides)
    assert not frame["feasible"][0]
    assert says in frame["reason"][0]


def test_the_best_split_is_the_best_of_all():
    best = fastflow.evaluate(*POINT, "parallel.strategy=auto", "serve.concurrency=32")
    splits = fastflow.evaluate(
        *POINT, "serve.concurrency=32", "parallel.strategy=TP-1,TP-2,TP-4", "serve.prefill.devices=1,2,4,6,7"
    )
    assert best["feasible"][0]
    assert best["tokens_per_s"][0] >= splits["tokens_per_s"].max() * (1 - 1e-12)


def test_another_chip_may_prefill():
    chips = fastflow.evaluate(*POINT, "serve.prefill.devices=4", "serve.prefill.chip=null,b200_sxm,l40s")
    same, faster, slower = chips["ttft_s"]
    assert faster < same < slower
    assert chips["compute_flops"].nunique() == 1  # of those that decode
    named = fastflow.evaluate(*POINT, "serve.prefill.devices=4", "serve.prefill.chip=h100_sxm")
    assert named["ttft_s"][0] == same
    with pytest.raises(fastflow.InputError, match=r"serve\.prefill\.chip=h101 .* expected one of a10, a100"):
        fastflow.evaluate(*POINT, "serve.prefill.devices=4", "serve.prefill.chip=h101")


def test_layers_are_sent_while_the_next_ones_are_computed():
    """What is left of a transfer is its last layer, or what the link takes longer than the prompt."""
    columns = ("serve.prefill.devices=4", "serve.concurrency=4", "serve.layerwise_transfer=false,true")
    for bandwidth in (20, 2):
        frame = fastflow.evaluate(*POINT, *columns, f"serve.bandwidth={bandwidth} GB/s")
        whole, layers = frame["transfer_s"].to_numpy()
        last = 512 * frame["kv_token_B"][0] / (bandwidth * 1e9) / 80
        assert last < layers < whole
        assert frame["simulated"][1]
        assert frame["ttft_s"][1] < frame["ttft_s"][0]
