"""How fast servers are predicted: every iteration in plain Python, in steps, and in the fast form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from test_tiling import seconds

import fastflow
from fastflow.performance.serving.analytic.steady_state import steady
from fastflow.performance.serving.passes import tabulate
from fastflow.performance.serving.passes.parts import Passes
from fastflow.performance.serving.requests.load import trip_share
from fastflow.performance.serving.simulator.run import simulate
from tests.naive import serving as naive
from tests.support.fleets import fleet_of_sessions, of_oracle, of_package
from tests.support.servers import LOAD, PLAIN, loads, many_likely, realistic, servers, walk


def test_simulate_1000_requests(benchmark: BenchmarkFixture) -> None:
    """A loaded server whose answers have unlike lengths; prompts of 1024 tokens, 128 requests at once."""
    load = loads({"concurrency": 128, "requests": 1000, "relative_range": 0.2})
    benchmark(simulate, realistic(), servers({}), load)
    walked, iterations = walk(realistic(), servers({}), load)
    benchmark.extra_info["iterations"] = iterations
    benchmark.extra_info["count:steps_of_a_server"] = walked


def test_simulation_against_its_definition(benchmark: BenchmarkFixture) -> None:
    times, load = realistic(), {"concurrency": 32, "requests": 96, "osl": 256.0}
    plain = {name: getattr(times, name).tolist() for name in times._fields if name != "overlap"}
    tables = ("shared", "experts", "head", "decode", "prefill", "prefill_more")
    plain |= {name: plain[name][0] for name in tables}

    def oracle() -> None:
        naive.simulate(plain, PLAIN, [(1024, 256)] * 96, None, 32, 0.0, trip_share)

    many = 100  # one alone takes less than a call of it
    arguments = times, servers(*[{}] * many), loads(*[LOAD | load] * many)
    fast, slow = seconds(lambda: simulate(*arguments), oracle)
    benchmark.extra_info["ratio:definition_over_simulation"] = slow / fast * many
    benchmark.pedantic(simulate, arguments, rounds=5)


def test_a_fleet_against_its_definition(benchmark: BenchmarkFixture) -> None:
    """60 sessions of four turns on four servers with a tier below their caches."""
    fleet = fleet_of_sessions(60, 4)
    of_package(fleet)  # compiles
    fast, slow = seconds(lambda: of_package(fleet), lambda: of_oracle(fleet))
    benchmark.extra_info["ratio:definition_over_fleet"] = slow / fast
    benchmark.pedantic(of_package, (fleet,), rounds=5)


def test_fast_form_of_600_servers(benchmark: BenchmarkFixture) -> None:
    times, points = realistic(), 600
    server, load = many_likely(points, 7)
    fast, slow = seconds(lambda: steady(times, server, load), lambda: simulate(times, server, load))
    benchmark.extra_info["ratio:simulation_over_fast_form"] = slow / fast
    got = benchmark(steady, times, server, load)
    assert np.isfinite(got.ttft_s).all()
    if benchmark.stats is not None:
        benchmark.extra_info["points_per_s"] = points / benchmark.stats.stats.min


def test_a_grid_of_points_that_serve(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three layouts under 3,375 loads each: the fast form, from the grid to the frame, on one thread."""
    tabulated, sizes = [], "128,192,256,384,512,768,1024,1536,2048,3072,4096,5120,6144,7168,8192"
    real = tabulate.tabulate

    def counted(*arguments: Any) -> Passes:
        tabulated.append(arguments[1].ranks.size)
        return real(*arguments)

    monkeypatch.setattr(tabulate, "tabulate", counted)
    asked = (
        "serve=continuous", "server=vllm", "model=llama3_70b", "chip=h100_sxm", "system=dgx_h100",
        "model.dtype=fp8", "engine.jobs=1", "parallel.strategy=TP-2-d4,TP-4-d2,TP-8", f"serve.isl={sizes}",
        f"serve.osl={sizes}", "serve.concurrency=1,2,4,8,16,24,32,48,64,96,128,192,256,384,512",
    )  # fmt: skip
    frame = fastflow.evaluate(*asked)
    assert frame["feasible"].any()
    tabulated.clear()
    fastflow.evaluate(*asked)
    benchmark.extra_info["count:servers_tabulated_of_a_grid"] = sum(tabulated)
    benchmark.pedantic(fastflow.evaluate, asked, rounds=3)
    if benchmark.stats is not None:
        benchmark.extra_info["points_per_s"] = len(frame) / benchmark.stats.stats.min
