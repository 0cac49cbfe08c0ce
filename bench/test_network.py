"""How long it takes to place a strategy on a torus in all its orders; single patterns."""

from __future__ import annotations

from functools import cache, partial

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fastflow.core.tables import Floats
from fastflow.physics.network.placement import axis_costs, neighbour_cost, orders
from fastflow.physics.network.routing.contention import reach
from fastflow.physics.network.routing.patterns import ALL_PAIRS, TREES, group_of
from fastflow.physics.network.routing.topology import topology
from fastflow.physics.parallelism.mesh import AXES, MESHES
from fastflow.physics.parallelism.strategy import parse

STRATEGIES = ("RC-4-4-d16-p2", "RC-4-2-d64", "RC-4-8-d8-p2")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("shape", ["16x32", "8x8x8"])
def test_place_512_devices_in_all_orders(benchmark: BenchmarkFixture, shape: str, strategy: str) -> None:
    network = topology(512, 1, "switch", "1d", "torus", shape, 1, 1.0)
    degrees = parse(strategy).degrees
    mesh = [AXES.index(name) for name in MESHES[0]]
    placed = orders(mesh, [axis for axis in mesh if degrees[axis] > 1], False)

    def run() -> tuple[Floats, Floats]:
        return axis_costs(degrees, placed, cache(partial(neighbour_cost, network, 512)))

    load, _ = benchmark(run)
    assert load.shape == (len(placed), len(degrees), 2)


def test_double_binary_tree_of_512_devices(benchmark: BenchmarkFixture) -> None:
    network = topology(512, 8, "switch", "1d", "torus", "2d", 1, 1.0)
    load = benchmark(reach, network, 512, *group_of([(512, 1)]).arrays(), TREES, 0)
    assert load[0] > 0.0


@pytest.mark.parametrize("degree", [512, 510], ids=["by factors", "pair by pair"])
def test_all_pairs_of_512_devices(benchmark: BenchmarkFixture, degree: int) -> None:
    network = topology(512, 1, "switch", "1d", "torus", "16x32", 1, 1.0)
    load = benchmark(reach, network, degree, *group_of([(degree, 1)]).arrays(), ALL_PAIRS, 0)
    assert load[1] > 0.0
