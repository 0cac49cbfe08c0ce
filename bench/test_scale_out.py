"""How fast strategies are ranked and placed; compiled and warm before the clock starts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fastflow.core.tables import Inputs
from fastflow.performance.auto.rank import rank
from fastflow.performance.auto.resolve import resolve_strategy
from fastflow.performance.crossflow import predict
from fastflow.physics.network import routes
from fastflow.physics.parallelism.strategy import every_strategy

Points = Callable[..., Inputs]
LANGUAGE_MODEL_LAYERS = 4  # of the default: embedding, two of cells, softmax


@pytest.mark.parametrize("system", ["cluster", "torus", "mcm"])
def test_rank_all_strategies_of_512_devices(benchmark: BenchmarkFixture, points: Points, system: str) -> None:
    """Routes are known from the first round on, as between the points of a sweep over technologies."""
    inputs = points(f"system={system}", "parallel.strategy=auto")
    (ranked,) = benchmark(lambda: list(rank(inputs)))
    space = every_strategy(512, LANGUAGE_MODEL_LAYERS)
    alone = predict({**inputs, "parallel.strategy": ranked[:1]}).timeline.total[0]
    data = predict({**inputs, "parallel.strategy": np.array(["d512"])}).timeline.total[0]
    benchmark.extra_info["strategies"] = len(space)
    benchmark.extra_info["faster_than_d512"] = round(float(data / alone), 3)
    assert sorted(ranked) == sorted(map(str, space))


def test_settle_12_points_of_512_devices(benchmark: BenchmarkFixture, points: Points) -> None:
    inputs = points("system=torus", "tech=n12,n7,n5,n3", "mem=hbm2,hbm3,hbm4", "parallel.strategy=auto")
    settled = benchmark(resolve_strategy, inputs)
    benchmark.extra_info["points"] = 12
    benchmark.extra_info["best_strategies"] = len(set(settled["parallel.strategy"].tolist()))
    assert (settled["parallel.strategy"] != "auto").all()


@pytest.mark.parametrize("strategy", ["RC-4-2-d64", "RC-4-2-d16-p4"])
def test_place_and_predict_one_point(benchmark: BenchmarkFixture, points: Points, strategy: str) -> None:
    """One point among all its orders, with a pipeline's events or without."""
    inputs = points("system=torus", f"parallel.strategy={strategy}")
    prediction = benchmark(predict, inputs)
    benchmark.extra_info["kernels"] = int(prediction.graph.point.size)
    benchmark.extra_info["microbatches"] = int(prediction.pipeline.microbatches[0])
    assert prediction.timed.size == 1


def test_groups_that_a_ranking_routes(benchmark: BenchmarkFixture, points: Points) -> None:
    """From nothing known: of 160 strategies in all their orders, only groups that differ are routed."""
    inputs = points("system=torus", "parallel.strategy=auto")

    def forget() -> None:
        routes._route.cache_clear()
        routes._recipe.cache_clear()
        routes._neighbour_cost.cache_clear()

    benchmark.pedantic(lambda: list(rank(inputs)), setup=forget, rounds=3)
    benchmark.extra_info["count:groups_routed_to_rank_512_devices"] = routes._recipe.cache_info().misses
