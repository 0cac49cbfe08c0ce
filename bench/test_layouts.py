"""How fast the best layout of a transformer is found, and how many are predicted for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fastflow.core.tables import Inputs
from fastflow.performance.auto.transformer import best_layouts
from fastflow.physics.network import routes

Points = Callable[..., Inputs]


def forget() -> None:
    """Forget the routes that are known."""
    for kept in (routes._route, routes._recipe, routes._canonical_group, routes._neighbour_cost):
        kept.cache_clear()


@pytest.mark.parametrize(
    ("model", "devices"),
    [
        ("llama3_70b", 1024), ("llama3_405b", 1024), ("mixtral_8x7b", 1024), ("deepseek_v3", 1024),
        ("llama3_70b", 16384), ("llama3_405b", 16384),
    ],
)  # fmt: skip
def test_the_best_layout(benchmark: BenchmarkFixture, points: Points, model: str, devices: int) -> None:
    """From nothing known of the network; compiled."""
    asked = (f"model={model}", "system=superpod_h100", "parallel.strategy=auto")
    best_layouts(points(*asked, "system.devices=8"))
    inputs = points(*asked, f"system.devices={devices}")
    found = benchmark.pedantic(best_layouts, (inputs,), setup=forget, rounds=3)
    of = f"{model}_on_{devices}_devices"
    benchmark.extra_info[f"count:layouts_tried_of_{of}"] = found.layouts
    benchmark.extra_info[f"count:layouts_predicted_of_{of}"] = found.predicted
    benchmark.extra_info[f"count:groups_routed_for_{of}"] = routes._recipe.cache_info().misses
