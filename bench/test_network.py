"""How long it takes to place a strategy on a torus in all 24 orders; single patterns."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fastflow.network.patterns import ALL_PAIRS, TREES
from fastflow.network.placement import ORDERS, place
from fastflow.network.routing import reach
from fastflow.network.topology import topology

STRATEGIES = {"RC-4-4-d16-p2": (4, 4, 16, 2), "RC-4-2-d64": (4, 2, 64, 1), "RC-4-8-d8-p2": (4, 8, 8, 2)}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("shape", ["16x32", "8x8x8"])
def test_place_512_devices_in_24_orders(benchmark: BenchmarkFixture, shape: str, strategy: str) -> None:
    network = topology(512, 1, "switch", "1d", "torus", shape, 1, 1.0)
    degrees = np.array(STRATEGIES[strategy])
    load, _ = benchmark(place, network, degrees)
    assert load.shape == (len(ORDERS), 4, 2)


def test_double_binary_tree_of_512_devices(benchmark: BenchmarkFixture) -> None:
    network = topology(512, 8, "switch", "1d", "torus", "2d", 1, 1.0)
    load = benchmark(reach, *network, 512, 512, 1, 1, 0, TREES, 0)
    assert load[0] > 0.0


@pytest.mark.parametrize("degree", [512, 510], ids=["by factors", "pair by pair"])
def test_all_pairs_of_512_devices(benchmark: BenchmarkFixture, degree: int) -> None:
    network = topology(512, 1, "switch", "1d", "torus", "16x32", 1, 1.0)
    load = benchmark(reach, *network, degree, degree, 1, 1, 0, ALL_PAIRS, 0)
    assert load[1] > 0.0
