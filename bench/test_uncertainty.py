"""What bands cost: samples against as many points of a grid."""

from __future__ import annotations

from time import perf_counter

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

import fastflow

GRID = ("tech=n12,n7,n5,n3,n2", "mem=hbm2,hbm2e,hbm3,hbm4", "parallel.strategy=RC-1-16-d32")
SIDE = 16  # of a grid of as many points as there are samples


def test_bands_against_as_many_points(benchmark: BenchmarkFixture) -> None:
    power = ",".join(f"{value:.2f} W" for value in np.linspace(280.0, 320.0, SIDE))
    area = ",".join(f"{value:.2f} mm2" for value in np.linspace(780.0, 840.0, SIDE))
    sampled = (*GRID, "uncertainty=on", f"uncertainty.samples={SIDE**2}")
    fastflow.evaluate(*sampled)
    points: list[float] = []

    def of_points() -> None:  # in turns, so that both meet the machine as it is
        begin = perf_counter()
        fastflow.evaluate(*GRID, f"chip.tdp={power}", f"chip.die_area={area}")
        points.append(perf_counter() - begin)

    frame = benchmark.pedantic(fastflow.evaluate, sampled, setup=of_points, rounds=5)
    benchmark.extra_info["points"] = len(frame)
    benchmark.extra_info["ratio:points_over_samples"] = round(min(points) / benchmark.stats.stats.min, 3)
