"""What sensitivities cost: points for each figure, and the engine's own rate on them."""

from __future__ import annotations

from pytest_benchmark.fixture import BenchmarkFixture

import fastflow

POINT = ("tech=n7", "mem=hbm3", "parallel.strategy=d512")


def test_every_figure_one_at_a_time(benchmark: BenchmarkFixture) -> None:
    found = benchmark(fastflow.sensitivity, *POINT)
    benchmark.extra_info["count:parameters"] = len(found.parameters)


def test_indices_of_all_figures_at_once(benchmark: BenchmarkFixture) -> None:
    found = benchmark.pedantic(fastflow.sensitivity, (*POINT, "sensitivity.samples=65536"), rounds=1)
    benchmark.extra_info["count:points"] = found.points
    if benchmark.stats is not None:
        benchmark.extra_info["points_per_s"] = found.points / benchmark.stats.stats.min
