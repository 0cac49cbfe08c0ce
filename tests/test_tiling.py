"""Tiles, dataflows and rooflines against the oracles (6.1 to 6.3)."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.timing.dataflow import DATAFLOW_CODES, register_accesses_per_flop
from fastflow.timing.device import Device
from fastflow.timing.roofline import Work, limiter_names, time_kernels
from fastflow.timing.tiling import Gemms, grow_tile, search, set_direction
from tests.checks import cases, near
from tests.naive import dataflow, roofline, tiling

OPERANDS = "ABC"
# samples a level that keep the brute force at some thousand combinations
SAMPLES = {1: 6, 2: 5, 3: 3, 4: 2}

sides = st.sampled_from([1, 2, 3, 7, 8, 16, 37, 100, 129, 1000, 4096]) | st.integers(1, 5000)
dataflows = st.sampled_from(sorted(DATAFLOW_CODES))


def solve(gemm, batch, element, unit, flow, flops, capacities, bandwidths, samples, seed):
    """Return time, bytes of each level, tiles and stationary operands as the kernel finds them."""
    levels = len(capacities)
    whole = dict(
        zip(("m", "k", "n", "unit_m", "unit_k", "unit_n"), (*gemm, *unit), strict=True),
        batch=batch, dataflow=DATAFLOW_CODES[flow], samples=samples, seed=seed,
    )  # fmt: skip
    real = {"element_bytes": element, "compute_flops": flops, "dram_bandwidth": bandwidths[-1]}
    gemms = Gemms(
        **{name: np.array([value], dtype=np.int64) for name, value in whole.items()},
        **{name: np.array([value], dtype=np.float64) for name, value in real.items()},
        capacity=np.array(capacities, dtype=np.float64),
        bandwidth=np.array(bandwidths[:-1], dtype=np.float64),
    )
    found = search(gemms, levels)
    tiles = [tuple(int(side) for side in tile) for tile in found.tile.reshape(levels, 3)]
    return found.time[0], list(found.bytes), tiles, [OPERANDS[i] for i in found.stays], found.compute_time[0]


@st.composite
def problems(draw):
    levels = draw(st.integers(1, 4))
    decades = st.integers(0, 9)
    # few distinct bandwidths, so that levels often tie
    rates = st.builds(
        lambda digit, decade: digit * 10.0**decade, st.sampled_from([1.0, 3.0]), st.integers(10, 13)
    )
    return {
        "gemm": (draw(sides), draw(sides), draw(sides)),
        "batch": draw(st.sampled_from([1, 1, 3, 64])),
        "element": draw(st.sampled_from([2, 4])),
        "unit": tuple(draw(st.sampled_from([(4, 4, 4), (8, 4, 8), (16, 16, 16), (1, 1, 1), (3, 5, 128)]))),
        "flow": draw(dataflows),
        "flops": 10.0 ** draw(st.integers(9, 15)),
        "capacities": [draw(st.integers(1, 9)) * 10.0 ** draw(decades) for _ in range(levels)],
        "bandwidths": [draw(rates) for _ in range(levels + 1)],
        "samples": draw(st.integers(1, SAMPLES[levels])),
        "seed": draw(st.integers(0, 5)),
    }  # fmt: skip


def problem(gemm, capacities, bandwidths, batch=1, flops=1e14, samples=2, flow="best", unit=(4, 4, 4)):
    return {
        "gemm": gemm, "batch": batch, "element": 2, "unit": unit, "flow": flow, "flops": flops,
        "capacities": capacities, "bandwidths": bandwidths, "samples": samples, "seed": 0,
    }  # fmt: skip


EQUAL = [1e12, 1e12, 1e12, 1e12]


@given(problems())
@example(problem((1, 1, 1), [1e4, 1e5, 1e7], EQUAL))
@example(problem((1, 16384, 16384), [1e4, 1e5, 1e7], EQUAL))
@example(problem((4096, 4096, 4096), [1e4, 1e5, 1e7], EQUAL))
@example(problem((4096, 4096, 4096), [1e17, 1e17, 1e17], EQUAL))  # everything fits everywhere
@example(problem((512, 512, 512), [1.0, 7.0, 8.0], EQUAL))  # not even one element of each
@example(problem((64, 64, 64), [1e9, 1e4, 1e2], EQUAL))  # capacities that shrink outwards
@example(problem((1024, 1024, 1024), [1e4, 1e5, 1e7], [1e18, 1e18, 1e18, 1e18], flops=1.0))  # all tie in time
@example(problem((5000, 3, 5000), [1e5], [1e12, 1e12], samples=20))
@cases(800)
def test_search_is_the_exact_optimum(case):
    """Exact minimum of the stated space, ties by the fewest bytes from main memory inwards."""
    time, moved, tiles, stays, floor = solve(**case)
    tried = tiling.candidates(
        len(case["capacities"]), case["samples"], case["seed"], case["capacities"], case["element"]
    )
    best, fewest = tiling.search(
        case["gemm"], case["batch"], case["element"], case["unit"], case["flow"], case["flops"], tried,
        case["bandwidths"],
    )  # fmt: skip
    assert near(time, best)
    assert all(near(got, expected) for got, expected in zip(moved, fewest, strict=True))
    assert near(floor, tiling.compute_time(case["gemm"], case["batch"], case["unit"], case["flops"]))
    # the tiles and operands that a user sees explain the bytes that he sees
    explained = tiling.served(
        case["gemm"], case["batch"], case["element"], case["unit"], case["flow"], tiles, stays
    )
    assert all(near(got, expected) for got, expected in zip(moved, explained, strict=True))
    outwards = [*tiles, case["gemm"]]
    for inner, outer in pairwise(outwards):
        assert all(1 <= i <= o for i, o in zip(inner, outer, strict=True))
    for tile, capacity in zip(tiles, case["capacities"], strict=True):
        smallest = tiling.footprint((1, 1, 1), case["element"])
        assert tiling.footprint(tile, case["element"]) <= max(capacity, smallest)


powers = st.integers(0, 5).map(lambda exponent: 2**exponent)


@given(
    st.tuples(powers, powers, powers), st.lists(st.floats(8.0, 3000.0), min_size=1, max_size=3),
    st.integers(0, 3),
)  # fmt: skip
@cases(120)
def test_bytes_are_those_of_walking_the_loops(gemm, capacities, seed):
    bandwidths = [1e12] * (len(capacities) + 1)
    _, moved, tiles, stays, _ = solve(gemm, 1, 2, (4, 4, 4), "best", 1e14, capacities, bandwidths, 5, seed)
    for level, (tile, operand) in enumerate(zip(tiles, stays, strict=True)):
        outer = list(reversed(tiles[level + 1 :]))
        assert tiling.walk(gemm, outer, tile, operand, 2) == moved[level + 1]


@given(
    st.integers(0, 6), st.integers(0, 200), st.integers(0, 30), st.floats(1.0, 1e15), st.sampled_from([2, 4])
)
@example(0, 0, 0, 8.0, 2)
@example(0, 0, 0, 7.0, 2)
@example(3, 19, 0, 16.0, 4)
@cases(400)
def test_tiles_grow_until_they_fill_the_capacity(level, sample, seed, capacity, element):
    direction, tile = np.empty(3), np.empty(3, dtype=np.int64)
    set_direction(level, sample, seed, direction)
    assert all(
        near(got, share, 1e-9)
        for got, share in zip(direction, tiling.direction(level, sample, seed), strict=True)
    )
    assert near(direction.sum(), 1.0)
    assert (direction >= 0.0).all()
    grow_tile(direction, capacity, element, tile)
    assert tuple(tile) == tiling.grow(tuple(direction), capacity, element)
    # a larger memory's tile holds the smaller one's
    larger = np.empty(3, dtype=np.int64)
    grow_tile(direction, 1.5 * capacity, element, larger)
    assert (larger >= tile).all()


@given(problems(), st.integers(1, 6))
@cases(300)
def test_more_samples_are_never_slower(case, more):
    times = [solve(**case | {"samples": count})[0] for count in (case["samples"], case["samples"] + more)]
    assert times[1] <= times[0]


@given(problems(), st.integers(0, 4), st.floats(1.0, 100.0))
@cases(300)
def test_more_bandwidth_is_never_slower(case, which, factor):
    faster = list(case["bandwidths"])
    faster[which % len(faster)] *= factor
    assert solve(**case | {"bandwidths": faster})[0] <= solve(**case)[0]


@given(problems(), st.tuples(*[st.integers(0, 14)] * 3), st.integers(0, 3), st.floats(1.0, 100.0))
@cases(400)
def test_more_capacity_is_never_slower(case, exponents, which, factor):
    """For sides that are powers of two; other sides lose a little to tiles that do not divide them."""
    case = case | {"gemm": tuple(2**exponent for exponent in exponents)}
    larger = list(case["capacities"])
    larger[which % len(larger)] *= factor
    assert solve(**case | {"capacities": larger})[0] <= solve(**case)[0] * (1 + 1e-12)


@given(problems())
@cases(100)
def test_best_dataflow_is_the_best(case):
    times = {flow: solve(**case | {"flow": flow})[0] for flow in DATAFLOW_CODES}
    assert near(times["best"], min(times.values()))


@given(dataflows, st.tuples(*[st.integers(1, 256)] * 3), st.tuples(*[st.integers(1, 4096)] * 3))
@example("weight", (128, 128, 128), (1, 1, 1))
@cases(300)
def test_register_accesses(flow, unit, tile):
    got = register_accesses_per_flop(DATAFLOW_CODES[flow], *unit, *tile)
    assert near(got * 1000.0, dataflow.register_accesses(flow, 1000.0, unit, tile))


@pytest.mark.parametrize(
    ("flow", "tile", "expected"),
    [
        ("weight", (8, 4, 4), (16 + 2 * 4 + 2 * 4) / (2 * 2 * 16)),
        ("activation", (4, 4, 16), (16 + 4 * 4 + 4 * 4) / (2 * 4 * 16)),
        ("output", (4, 32, 4), (16 + 8 * 4 + 8 * 4) / (2 * 8 * 16)),
        ("output", (4, 1, 4), (16 + 4 + 4) / (2 * 16)),  # reuse is at least 1
        ("best", (8, 32, 4), (16 + 8 * 4 + 8 * 4) / (2 * 8 * 16)),
    ],
)
def test_equation_5_by_hand(flow, tile, expected):
    assert near(register_accesses_per_flop(DATAFLOW_CODES[flow], 4, 4, 4, *tile), expected)


@given(st.lists(problems(), min_size=1, max_size=3), st.data())
@cases(80)
def test_kernels_on_their_devices(cases_, data):
    """GEMMs and memory-bound passes of several points together, each row by its own device."""
    levels = min(len(case["capacities"]) for case in cases_)
    points = [
        case | {"capacities": case["capacities"][:levels], "bandwidths": case["bandwidths"][-levels - 1 :]}
        for case in cases_
    ]
    launch = [data.draw(st.sampled_from([0.0, 1e-6, 9e-6])) for _ in points]
    samples, vector = 2, 3e12

    def column(values, dtype=np.float64):
        return np.array(values, dtype=dtype)

    machines = Device(
        column([p["flops"] for p in points]),
        column([vector for _ in points]),
        tuple(column([p["capacities"][level] for p in points]) for level in range(levels)),
        tuple(column([p["bandwidths"][level] for p in points]) for level in range(levels)),
        column([p["bandwidths"][-1] for p in points]),
        column(launch),
        *(column([p["unit"][axis] for p in points], np.int64) for axis in range(3)),
        column([DATAFLOW_CODES[p["flow"]] for p in points], np.int64),
    )
    kernels = []  # point, m, k, n, batch, element, bytes and flop of a memory-bound pass
    for i in range(len(points)):
        for _ in range(data.draw(st.integers(0, 3))):
            if data.draw(st.booleans()):
                gemm = (data.draw(sides), data.draw(sides), data.draw(sides))
                kernels.append((i, *gemm, data.draw(st.integers(1, 4)), points[i]["element"], 0.0, 0.0))
            else:
                passed = data.draw(st.floats(0.0, 1e12)), data.draw(st.floats(0.0, 1e12))
                kernels.append((i, 0, 0, 0, 1, points[i]["element"], *passed))
    whole = [np.int64] * 5 + [np.float64] * 3
    table = [column([kernel[place] for kernel in kernels], dtype) for place, dtype in enumerate(whole)]
    work = Work(*table, np.full(len(points), samples), column([p["seed"] for p in points], np.int64))
    got = time_kernels(machines, work)
    names = limiter_names(levels)
    for row, (i, m, k, n, batch, element, bytes_, flop) in enumerate(kernels):
        p = points[i]
        if m == 0:
            expected = roofline.memory_bound(bytes_, flop, vector, p["bandwidths"], launch[i])
            moved = [bytes_] * (levels + 1)
            compute = flop / vector
        else:
            tried = tiling.candidates(levels, samples, p["seed"], p["capacities"], element)
            rest = ((m, k, n), batch, element, p["unit"], p["flow"])
            best, moved = tiling.search(*rest, p["flops"], tried, p["bandwidths"])
            expected = best + launch[i]
            compute = tiling.compute_time((m, k, n), batch, p["unit"], p["flops"])
            assert got.flop[row] == 2 * m * k * n * batch
        assert near(got.time[row], expected)
        assert all(near(g, e) for g, e in zip(got.bytes[row], moved, strict=True))
        times = [compute, *(b / w for b, w in zip(moved, p["bandwidths"], strict=True)), launch[i]]
        assert names[got.limiter[row]] in {
            name for name, time in zip(names, times, strict=True) if near(time, max(times))
        }
