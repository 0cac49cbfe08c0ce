"""Open loops: the stationary state, overloads, the same verdict of both methods at any share of capacity."""

import numpy as np
import pytest

import fastflow
from fastflow.api.notebook.cards import grid_card, point_card
from fastflow.cli.commands.sweep import main as sweep
from fastflow.performance.serving.analytic.steady_state import steady
from fastflow.performance.serving.requests.load import TAKEN, TOO_MANY
from fastflow.performance.serving.simulator.latencies import columns_of
from fastflow.performance.serving.simulator.run import simulate
from tests.support.commands import report
from tests.support.servers import likely, loads, realistic, servers

CARRIED, TOO_MUCH = (0.5, 0.8, 0.95), 1.1
GPT = (
    "model=gpt_oss_120b", "system=dgx_h200", "serve=continuous", "server=vllm",
    "parallel.strategy=TP-1-e8-d8",
)  # fmt: skip
POINTS = [
    GPT,
    ("serve=continuous", "server=trtllm", "model=llama3_8b", "system=dgx_h100", "system.devices=1",
     "parallel.strategy=TP-1"),
    ("serve=continuous", "server=sglang", "model=llama3_70b", "system=dgx_h100", "model.dtype=fp8",
     "parallel.strategy=TP-4-p2", "serve.osl=256"),
    ("serve=disaggregated", "server=vllm", "model=llama3_70b", "system=dgx_h100", "model.dtype=fp8",
     "parallel.strategy=TP-2", "serve.prefill.devices=4", "serve.isl=2048", "serve.osl=256"),
    ("serve=disaggregated", "server=vllm", "model=llama3_8b", "system=dgx_h100", "system.devices=4",
     "parallel.strategy=TP-1", "serve.prefill.devices=2", "serve.length_range_ratio=1"),
]  # fmt: skip


def open_loop(point, rate, *more):
    return fastflow.evaluate(*point, "serve.concurrency=0", f"serve.request_rate={rate} 1/s", *more).iloc[0]


def capacity(point):
    """Return the most that closed loops of ever more requests serve, or open ones carry [1/s]."""
    at_once = ",".join(str(2**i) for i in range(6, 14))
    few = fastflow.evaluate(*point, f"serve.concurrency={at_once}", "serve.simulate=true")
    best = few["requests_per_s"].idxmax()
    many = 20 * 2 ** (6 + best)
    loop = (f"serve.concurrency={2 ** (6 + best)}", f"serve.num_requests={many}", "serve.simulate=true")
    most = fastflow.evaluate(*point, *loop)["requests_per_s"][0]
    while open_loop(point, 1.04 * most, "serve.simulate=true")["feasible"]:  # which has no burst at its start
        most *= 1.04
    return most


def drawn(count, seed):
    """Return servers, loads of closed loops with a few more requests than fit, and open ones at capacity."""
    random, rows = np.random.default_rng(seed), []
    while len(rows) < count:
        server, load = likely(random)
        max_running = min(server["most"], server["capacity"] / (load["isl"] + load["osl"])) * server["ranks"]
        if server["slots"] < max_running < 300:
            rows.append((server, load, int(1.3 * max_running) + 2))
    table = servers(*(server for server, _, _ in rows))
    full = [load | {"concurrency": n, "rate": 0.0, "requests": 12 * n, "most": 0} for _, load, n in rows]
    served = simulate(realistic(), table, loads(*full)).metrics.requests_per_s
    return table, loads(*(load | {"concurrency": 0, "requests": 1000} for _, load, _ in rows)), served


@pytest.mark.parametrize(
    ("count", "shares", "most"),
    [(12, (0.5, 1.3), 16384), pytest.param(150, (0.5, 0.8, 1.3), 65536, marks=pytest.mark.long)],
)
def test_both_methods_have_the_same_verdict_and_near_times(count, shares, most):
    """Closed loops that burst and drain do not tell the capacity of a drawn server to a few percent."""
    times = realistic()
    table, load, served = drawn(count, 5)
    for share in shares:
        shared_load = load._replace(rate=share * served, most=np.full(count, most))
        fast, simulated = steady(times, table, shared_load), simulate(times, table, shared_load)
        assert (simulated.refused == TAKEN).all()
        metrics = simulated.metrics
        overload = metrics.overload > 0
        assert overload.mean() == (share > 1.0) or (share == 0.8 and overload.mean() < 0.05)
        near = fast.near & (fast.refused == TAKEN)
        assert not (near & overload).any()
        assert fast.near[fast.refused == TOO_MANY].sum() == 0
        error = fast.tpot_s[near] / metrics.tpot.mean[near] - 1
        assert np.abs(error).max(initial=0.0) < 0.08
        stationary = metrics.stationary > 0
        assert stationary.mean() > 0.9 or share > 1.0
        both = near & stationary
        assert metrics.requests_per_s[both] == pytest.approx(shared_load.rate[both], rel=0.1)
        assert metrics.decoding[both] == pytest.approx(fast.decoding[both], rel=0.1)


@pytest.mark.parametrize("osl", [64.0, 1024.0])
@pytest.mark.parametrize("server", [{}, {"times": 1}, {"mixes": True}, {"times": 1, "mixes": True}])
def test_both_methods_are_near_from_an_idle_server_on(server, osl):
    """A rare request is alone: one of its iterations computes its prompt, and each other one a token."""
    times, rates = realistic(), (1e-3, 0.01, 0.1, 0.3, 1.0, 2.0)
    many = [{"osl": osl, "concurrency": 0, "rate": rate, "requests": 300, "most": 16384} for rate in rates]
    table, load = servers(*(server for _ in rates)), loads(*many)
    fast, simulated = steady(times, table, load), columns_of(simulate(times, table, load))
    assert fast.near.all()
    for name in ("ttft_s", "tpot_s", "prefill_share"):
        assert getattr(fast, name) == pytest.approx(simulated[name], rel=0.05), name
    assert fast.prefill_share[0] == pytest.approx(1.0 / osl, rel=0.01)


def test_a_load_is_carried_or_an_overload_in_both_methods():
    """The first 1,000 requests are not in the stationary state, in which 4,000 are in flight."""
    for rate, carried in ((62.0, True), (150.0, False)):
        fast, simulated = (open_loop(GPT, rate, *more) for more in ((), ("serve.simulate=true",)))
        assert fast["feasible"] == simulated["feasible"] == carried
        assert fast["tpot_s"] == pytest.approx(simulated["tpot_s"], rel=0.08)
        assert simulated["stationary"] == carried
        if carried:
            assert simulated["requests_per_s"] == pytest.approx(rate, rel=0.03)
            assert simulated["running_requests"] == pytest.approx(rate * 1023 * simulated["tpot_s"], rel=0.03)
    short = open_loop(GPT, 62.0, "serve.simulate=true", "serve.num_requests=1000")
    assert not short["stationary"]
    assert short["feasible"]  # so short a run says nothing of an overload
    assert "serves" in fast["reason"]
    assert "of 150 requests a second that are sent (overload)" in fast["reason"]
    advised = fast["reason"].partition("serve.request_rate='")[2].partition(" 1/s'")[0]
    assert open_loop(GPT, advised)["feasible"]


def test_the_best_layout_carries_the_load():
    rows = fastflow.evaluate(
        *GPT[:-1],
        "serve.concurrency=0",
        "serve.request_rate=60 1/s",
        "parallel.strategy=TP-1-e8-d8,TP-8,TP-1-d8,auto",
    )
    assert rows["feasible"].iloc[-1]
    fits = rows["feasible"].iloc[:-1].to_numpy()
    assert fits.any()
    assert not fits.all()


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_loads_at_shares_of_capacity(point):
    """Open and closed, simulated or as the analytic form decides."""
    most = capacity(point)
    for share in (*CARRIED, TOO_MUCH):
        fast, simulated = (open_loop(point, share * most, *more) for more in ((), ("serve.simulate=true",)))
        assert fast["feasible"] == simulated["feasible"] == (share < 1), (
            share,
            fast["reason"],
            simulated["reason"],
        )
        assert "(overload)" in simulated["reason"] or share < 1
        if share < 1 and simulated["stationary"]:
            near = 0.08 if share < max(CARRIED) else 0.1  # close to the most that caches hold
            assert fast["tpot_s"] == pytest.approx(simulated["tpot_s"], rel=near)
            assert simulated["requests_per_s"] == pytest.approx(share * most, rel=0.05)
        at_once = max(1, round(simulated["running_requests"]))
        both = [
            fastflow.evaluate(*point, f"serve.concurrency={at_once}", f"serve.simulate={value}").iloc[0]
            for value in ("false", "true")
        ]
        assert all(row["feasible"] for row in both)
        assert both[0]["tpot_s"] == pytest.approx(both[1]["tpot_s"], rel=0.08)


def test_an_overload_meets_no_limit_and_screens_and_reports_say_overload(cli):
    """Whether its times so far are above their limits or not; grids and reports count it by itself."""
    point = (*POINTS[1], "serve.concurrency=0", "serve.isl=512", "serve.osl=128")
    limits = ("serve.slo.tpot='10 s','1 us'", "serve.request_rate=1 1/s,200 1/s")
    rows = fastflow.evaluate(*point, *limits).sort_values(["serve.request_rate", "serve.slo.tpot"])
    assert rows["meets_slo"].tolist() == [False, True, False, False]
    assert rows["simulated"].all()
    assert rows["stationary"].tolist() == [True, True, False, False]
    assert rows["reason_code"].tolist() == ["slo", "", "overload", "overload"]
    code, out, _ = cli(sweep, *point, "serve.slo.tpot='10 s'", "serve.request_rate='200 1/s'", "output=p")
    assert code == 0
    assert any(line.startswith("per further token") and line.endswith("met so far") for line in out)
    assert any(line.startswith("Times are those seen so far") for line in out)
    code, out, _ = cli(
        sweep,
        "-m",
        *point,
        limits[0],
        "serve.request_rate='1 1/s','200 1/s'",
        "columns=tpot_slo_s,*_slo",
        "output=g",
    )
    assert code == 0
    assert [line.split()[-2:] for line in out if line.startswith("point ")] == [["tpot_slo", "meets_slo"]]
    assert any(line.startswith("3 of 4 points lack memory, are overloaded or miss serve.slo") for line in out)
    code, out, _ = cli(lambda: report(["g", "columns=tpot_slo_s,reason"]))
    assert code == 0
    assert [line.partition(";")[0] for line in out[1:4]] == ["1 feasible", "1 late", "2 overloaded"]


def test_the_percentile_is_of_requests_of_the_window():
    """The value compared with a limit is of the same requests as medians and 99th percentiles."""
    point = (
        *POINTS[1],
        "serve.concurrency=0",
        "serve.request_rate=4 1/s",
        "serve.osl=128",
        "serve.slo.ttft='1 s'",
    )
    rows = fastflow.evaluate(*point, "serve.slo.percentile=0,50,99")
    assert rows["stationary"].all()
    assert rows["simulated"].tolist()[1:] == [True, True]
    compared = rows["ttft_slo_s"].tolist()
    assert compared[0] == rows["ttft_s"][0]
    assert compared[1:] == [rows["ttft_p50_s"][1], rows["ttft_p99_s"][2]]
    assert compared[1] < compared[2]


def test_grids_report_runs_that_are_too_short():
    short = (
        "serve.concurrency=0",
        "serve.request_rate='2 1/s'",
        "serve.num_requests=100",
        "serve.simulate=true",
    )
    frame = fastflow.evaluate(*POINTS[1], *short, "serve.osl=512,1024")
    assert not frame["stationary"].any()
    assert "2 of 2 points not stationary" in grid_card(frame)
    assert "serve.num_requests=0" in point_card(frame.iloc[:1])


def test_closed_loops_have_no_state():
    rows = fastflow.evaluate(*POINTS[1], "serve.concurrency=4,64")
    assert rows["stationary"].isna().all()
    assert rows["feasible"].all()
