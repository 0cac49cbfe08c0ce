"""Register accesses and kernels on their devices, against the oracles (6.1, 6.3)."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.physics.hardware.chip import generate, peak_flops
from fastflow.physics.timing.device import Boost, Device, Library, Memories, device
from fastflow.physics.timing.roofline import KernelWork, TilingOptions, limiter_names, time_kernels
from fastflow.physics.timing.tiling.dataflow import (
    DATAFLOW_CODES,
    Units,
    make_unit,
    register_accesses_per_flop,
)
from tests.conftest import columns_of
from tests.naive import dataflow, roofline, tiling
from tests.support.checks import cases, near
from tests.support.tilings import designs, gemms

dataflows = st.sampled_from(sorted(DATAFLOW_CODES))


def accesses_per_flop(flow, unit, tile):
    units = Units(*(np.array([number]) for number in (*unit, DATAFLOW_CODES[flow])))
    made = make_unit(units, 0)
    return register_accesses_per_flop(made, *(1.0 / side for side in tile))


@given(dataflows, st.tuples(*[st.integers(1, 256)] * 3), st.tuples(*[st.integers(1, 4096)] * 3))
@example("weight", (128, 128, 128), (1, 1, 1))
@cases(300)
def test_register_accesses(flow, unit, tile):
    assert near(
        accesses_per_flop(flow, unit, tile) * 1000.0, dataflow.register_accesses(flow, 1000.0, unit, tile)
    )


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
    assert near(accesses_per_flop(flow, (4, 4, 4), tile), expected)


def device_of(point):
    inputs = columns_of([point])
    chip = generate(inputs)
    peaks = {dtype: peak_flops(inputs, chip, np.array([dtype]))[0] for dtype in ("fp16", "fp32")}
    return device(inputs, chip, lasts=False), chip, peaks


def test_a_device_reaches_shares_of_its_chip(compose):
    """Of the peak in the operands' type by products, in fp32 by passes, and of main memory's bandwidth."""
    shares = {"chip.utilization": 0.5, "chip.vector_utilization": 0.25, "chip.dram_utilization": 0.75}
    found, chip, peaks = device_of(compose("model=gemm", "model.dtype=fp16") | shares)
    assert found.matrix_flops == 0.5 * peaks["fp16"]
    assert found.vector_flops == 0.25 * peaks["fp32"]
    assert (found.library.peak_flops, found.vector_peak) == (peaks["fp16"], peaks["fp32"])
    assert found.memories.bandwidth[:, -1] == 0.75 * chip.dram.bandwidth


@pytest.mark.parametrize(
    ("scopes", "level"),
    [(("mcu", "bundle", "global"), 1), (("mcu", "global", "global"), 0), (("global",) * 3, -1)],
)
def test_tiles_are_dealt_out_to_the_outermost_level_that_is_not_shared(compose, scopes, level):
    scope = {f"chip.memory.l{number}.scope": name for number, name in enumerate(scopes)}
    found, chip, _ = device_of(compose("model=gemm") | scope)
    instances = {1: chip.bundles, 0: chip.cores.mcus, -1: 1.0}
    assert found.memories.private == level
    assert found.instances == instances[level]


@given(st.integers(1, 3).flatmap(lambda n: st.lists(designs(st.just(n)), min_size=1, max_size=3)), st.data())
@cases(80)
def test_kernels_on_their_devices(points, data):
    """GEMMs and memory-bound passes of several points together, each row by its own device."""
    levels, vector = len(points[0].capacities), 3e12
    launch = [data.draw(st.sampled_from([0.0, 1e-6, 9e-6])) for _ in points]

    def column(values, dtype=np.float64):
        return np.array(values, dtype=dtype)

    machines = Device(
        matrix_flops=column([p.flops for p in points]),
        vector_flops=column([vector for _ in points]),
        vector_peak=column([vector for _ in points]),
        special_functions=column([vector for _ in points]),
        issue=column([vector for _ in points]),
        memories=Memories(
            capacity=column([p.capacities for p in points]),
            bandwidth=column([p.bandwidths for p in points]),
            driven=column([p.driven() for p in points]),
            private=column([p.private for p in points], np.int64),
        ),
        launch=column(launch),
        units=Units(
            m=column([p.unit[0] for p in points], np.int64),
            k=column([p.unit[1] for p in points], np.int64),
            n=column([p.unit[2] for p in points], np.int64),
            dataflow=column([DATAFLOW_CODES[p.flow] for p in points], np.int64),
        ),
        instances=column([p.instances for p in points]),
        boost=Boost(
            threshold=column([p.threshold() for p in points]),
            headroom=column([p.headroom() for p in points]),
            enabled=column([p.headroom() > 1.0 for p in points], np.bool_),
        ),
        library=Library(*[column([0.0 for _ in points])] * len(Library._fields)),
        blocks=column(["1x1" for _ in points], np.str_),
        batched_blocks=column(["1x1" for _ in points], np.str_),
        grouped_blocks=column(["" for _ in points], np.str_),
    )
    kernels = []  # point, m, k, n, batch, bytes and flop of a memory-bound pass
    for i in range(len(points)):
        for _ in range(data.draw(st.integers(0, 3))):
            if data.draw(st.booleans()):
                kernels.append((i, *data.draw(gemms), data.draw(st.integers(1, 4)), 0.0, 0.0))
            else:
                passed = data.draw(st.floats(0.0, 1e12)), data.draw(st.floats(0.0, 1e12))
                kernels.append((i, 0, 0, 0, 1, *passed))
    kinds = [np.int64] * 5 + [np.float64] * 2
    table = [column([kernel[place] for kernel in kernels], kind) for place, kind in enumerate(kinds)]
    names = ["point", "m", "k", "n", "batch", "pass_bytes", "pass_flop"]
    work = KernelWork(
        **dict(zip(names, table, strict=True)),
        strided=column([False for _ in kernels], np.bool_),
        copies=column([0 for _ in kernels], np.int64),
        options=TilingOptions(
            element_bytes=column([p.element for p in points]),
            weight_bytes=column([p.stored or p.element for p in points]),
            conversion=column([0.0 for _ in points]),
            output_bytes=column([p.element for p in points]),
            samples=column([p.samples for p in points], np.int64),
            seed=column([p.seed for p in points], np.int64),
            brute=column([data.draw(st.booleans()) for _ in points], np.bool_),
            blocks=column([False for _ in points], np.bool_),
            overlap=column([0.0 for _ in points]),
            parts=column([1 for _ in points], np.int64),
        ),
    )
    got = time_kernels(machines, work)
    assert got.times.shape == (len(kernels), len(limiter_names(levels)))
    for row, (i, *gemm, batch, bytes_, flop) in enumerate(kernels):
        p, idle = points[i], 1.0
        if gemm[0] == 0:
            expected = roofline.memory_bound(bytes_, flop, vector, p.bandwidths, launch[i])
            moved, compute = [bytes_] * (levels + 1), flop / vector
        else:
            best = tiling.search(tuple(gemm), batch, p.machine(), p.candidates(0))
            expected, moved, compute = best.time + launch[i], best.moved, best.compute
            idle = best.idle
            assert got.flop[row] == 2 * gemm[0] * gemm[1] * gemm[2] * batch
            assert [tuple(tile) for tile in got.tile[got.tiling[row]]] == best.tiles
            assert [tiling.OPERANDS[x] for x in got.stationary[got.tiling[row]]] == best.stationary
            assert (got.parts[row], got.waves[row]) == (best.parts, best.waves)
            assert near(got.busy[row], 1.0 / best.idle)
        assert near(got.time[row], expected)
        assert all(near(g, e) for g, e in zip(got.bytes[row], moved, strict=True))
        serving = [tiling.level_time(b, p.machine(), level, idle) for level, b in enumerate(moved)]
        times = [compute, *serving, launch[i]]
        assert all(near(g, e) for g, e in zip(got.times[row], times, strict=True))
        assert near(times[got.limiter[row]], max(times))
