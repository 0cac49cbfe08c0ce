"""How long the fast form of prefill and decoding apart takes, and how much longer their simulation does."""

from __future__ import annotations

from time import perf_counter

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from fastflow.core.tables import take
from fastflow.performance.serving.disaggregated.simulate import Pools, simulate_disaggregated
from fastflow.performance.serving.disaggregated.steady_state import steady_disaggregated
from tests.support.servers import loads, realistic, servers

POINTS = 1000


def test_prefill_and_decoding_apart(benchmark: BenchmarkFixture) -> None:
    """Closed loops of 1 to 256 requests at a time on two servers of prefill and two of decode; compiled."""
    times = realistic()
    asked = loads(*({"concurrency": (c := 1 + i % 256), "requests": 10 * c} for i in range(POINTS)))
    two, none = np.full(POINTS, 2), np.zeros(POINTS)
    same = servers(*[{}] * POINTS)
    pools = Pools(same, same, two, two, none + 1e-3, none + 1e-6, two - 1, streams=none > 0.0)
    few = np.arange(0, POINTS, 100)
    some = times, times, take(pools, few), take(asked, few)
    simulate_disaggregated(*some)
    start = perf_counter()
    simulate_disaggregated(*some)
    simulated = (perf_counter() - start) / few.size
    benchmark.pedantic(steady_disaggregated, (times, times, pools, asked), warmup_rounds=1, rounds=5)
    benchmark.extra_info["points"] = POINTS
    if benchmark.stats:
        fast = benchmark.stats.stats.min / POINTS
        benchmark.extra_info["ratio:simulation_to_fast_form_of_apart"] = simulated / fast
