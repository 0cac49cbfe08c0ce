"""The tiling search against brute force, and brute force against C: counts, and ratios within one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tilings import LEVELS, both_loops, hierarchy, shapes_64

from fastflow.core.tables import Inputs, take
from fastflow.performance.crossflow import predict
from fastflow.physics.timing.tiling import cache
from fastflow.physics.timing.tiling.brute_force import search_all
from fastflow.physics.timing.tiling.search import search_tilings
from fastflow.physics.timing.tiling.search_space import Gemms, Tilings

Points = Callable[..., Inputs]
ROUNDS = 7


def seconds(*functions: Callable[[], object]) -> list[float]:
    """Return the median time of each function; they take turns, so that noise hits all of them."""
    taken: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for function, times in zip(functions, taken, strict=True):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    return [float(np.median(times)) for times in taken]


def check_same(one: Tilings, other: Tilings) -> None:
    for name in Tilings._fields:
        if name != "candidates":
            assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_search_against_brute_force(benchmark: BenchmarkFixture, points: Points) -> None:
    """64 shapes on a100, 20 tiles at each of three levels, 27 choices of operands: 216,000 tilings each."""
    inputs, gemms = points("model=gemm", "chip=a100"), shapes_64()
    thinned, every = hierarchy(inputs, 20, True), hierarchy(inputs, 20, False)
    often = Gemms(*(np.tile(column, 20) for column in gemms))
    found, brute = search_tilings(gemms, *thinned, LEVELS), search_all(gemms, *every, LEVELS)
    check_same(found, brute)
    assert (brute.candidates == 20**3 * 27).all()
    searched, tried = seconds(
        lambda: search_tilings(often, *thinned, LEVELS), lambda: search_all(gemms, *every, LEVELS)
    )
    info = benchmark.extra_info
    info["us_per_gemm"], info["brute_us_per_gemm"] = searched / often.m.size * 1e6, tried / 64 * 1e6
    info["ratio:brute_over_search"] = info["brute_us_per_gemm"] / info["us_per_gemm"]
    info["count:candidates_20"] = int(found.candidates.sum())
    benchmark.pedantic(search_tilings, (often, *thinned, LEVELS), rounds=5)


@pytest.mark.parametrize("samples", [0, 100])
def test_candidates_of_other_tile_sets(benchmark: BenchmarkFixture, points: Points, samples: int) -> None:
    inputs, gemms = points("model=gemm", "chip=a100"), shapes_64()
    thinned = hierarchy(inputs, samples, True)
    found = search_tilings(gemms, *thinned, LEVELS)
    benchmark.extra_info[f"count:candidates_{samples}"] = int(found.candidates.sum())
    benchmark.pedantic(search_tilings, (gemms, *thinned, LEVELS), rounds=5)


def test_a_batch_of_distinct_gemms(benchmark: BenchmarkFixture, points: Points) -> None:
    """100,000 GEMMs with sides from 128 to 32768, spread evenly over their logarithm; one thread."""
    random = np.random.default_rng(0)
    sides = np.exp2(random.uniform(7.0, 15.0, (3, 100_000))).astype(np.int64)
    gemms = Gemms(np.zeros(100_000, np.int64), *sides, np.ones(100_000, np.int64))
    thinned = hierarchy(points("model=gemm", "chip=a100"), 20, True)
    search_tilings(gemms, *thinned, LEVELS)
    (taken,) = seconds(lambda: search_tilings(gemms, *thinned, LEVELS))
    benchmark.extra_info["gemms_per_s"] = gemms.m.size / taken
    benchmark.pedantic(search_tilings, (gemms, *thinned, LEVELS), rounds=2)


def test_numba_against_c(benchmark: BenchmarkFixture, points: Points, tmp_path: Path) -> None:
    inputs = points("model=gemm", "chip=a100")
    in_numba, in_c, best = both_loops(*hierarchy(inputs, 20, False), shapes_64(), tmp_path)
    if in_c is None:
        pytest.skip("no C compiler")
    results = []
    for loop in (in_numba, in_c):
        results.append((loop(), best.copy()))
    assert results[0][0] == results[1][0] == 20**3 * 27
    assert np.array_equal(results[0][1], results[1][1])
    own, by_hand = seconds(lambda: [in_numba() for _ in range(20)], lambda: [in_c() for _ in range(20)])
    benchmark.extra_info["ratio:c_over_numba"] = by_hand / own
    benchmark.extra_info["ns_per_candidate"] = own / 20 / (20**3 * 27) * 1e9
    benchmark.pedantic(in_numba, rounds=5)


def test_a_library_against_the_search(benchmark: BenchmarkFixture, points: Points) -> None:
    """20,000 distinct GEMMs as a100 runs them: blocks of its library, beside the exact search of divisors."""
    random = np.random.default_rng(0)
    sides = np.exp2(random.uniform(7.0, 15.0, (3, 20_000))).astype(np.int64)
    one = {f"model.{axis}": column for axis, column in zip("mkn", sides, strict=True)}
    both = []
    for tiling in ("blocks", "divisors"):
        inputs = take(points("model=gemm", "chip=a100", f"tiling={tiling}"), np.zeros(20_000, np.int64)) | one
        predict(inputs)
        both.append(inputs)

    def searched() -> None:
        cache._caches.clear()
        predict(both[1])

    blocks, divisors = seconds(lambda: predict(both[0]), searched)
    info = benchmark.extra_info
    info["gemms_per_s"] = 20_000 / blocks
    info["ratio:search_over_library"] = divisors / blocks
    info["count:blocks_compared"] = int(predict(both[0]).timing.candidates.sum())
    benchmark.pedantic(predict, (both[0],), rounds=2)
