"""A kernel library's blocks against the oracle, and what must hold whatever the chip."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow import evaluate, predict_gemm
from fastflow.core.errors import InputError
from fastflow.physics.timing.library.thread_blocks import ORDER
from fastflow.physics.timing.roofline import KernelWork, TilingOptions, time_kernels
from fastflow.physics.timing.tile_catalogue import read_catalogue
from fastflow.physics.timing.tiling.dataflow import DATAFLOW_CODES
from tests.naive import blocks
from tests.support.checks import cases, near
from tests.support.devices import column, devices, rates
from tests.support.tilings import SPARE, SUPPLIES

TILES = [(16, 64), (32, 32), (64, 64), (128, 64), (64, 256), (128, 128), (48, 80), (1, 8), (8, 1)]
sides = st.one_of(st.integers(1, 40), st.integers(1, 3000))


@st.composite
def chips(draw, levels):
    private, latency = draw(st.integers(0, levels - 1)), draw(st.sampled_from([0.0, 5e-7]))
    return blocks.Chip(
        size=draw(st.sampled_from([1, 2, 4])),
        output=draw(st.sampled_from([2, 4])),
        unit=draw(st.sampled_from([(1, 1, 8), (4, 4, 4), (8, 4, 16)])),
        dataflow=draw(st.sampled_from(sorted(DATAFLOW_CODES))),
        peak=draw(st.floats(1e12, 1e14)),
        flops=draw(st.floats(1e11, 1e14)),
        bandwidths=[draw(rates) for _ in range(levels + 1)],
        capacities=[draw(st.sampled_from([1e3, 2e4, 1e5, 5e6])) for _ in range(levels)],
        private=private,
        bundles=draw(st.sampled_from([1, 5, 20, 108])),
        registers=draw(st.sampled_from([1e3, 6.4e4, 2.6e5])),
        warp=draw(st.sampled_from([(64, 64), (64, 256), (32, 64)])),
        latency=latency,
        step=draw(st.sampled_from([0.0, 2e-7, 1e-4])),
        shared=draw(st.booleans()),
        cluster=draw(st.sampled_from([1, 2])),
        pair=draw(st.sampled_from([1, 2])),
        persistent=draw(st.booleans()),
        overlap=draw(st.sampled_from([0.5, 1.0, 2.0])),
        splits=draw(st.booleans()),
        promotion=draw(st.sampled_from([0.0, 0.0, 0.3])),
        launch=draw(st.sampled_from([0.0, 4e-6])),
        drive=draw(st.sampled_from([0.0, 0.8, 2.0, 30.0])),
        strided=draw(st.sampled_from([0.0, 0.3])),
        reach=draw(st.sampled_from([1e4, 1e6])),
        miss=draw(st.sampled_from([0.0, 2.0])),
        order=draw(st.sampled_from([0.0, 3.0, 4.0])),
        parts=draw(st.sampled_from([1, 8, 20])),
        spare=tuple(draw(st.sampled_from(SPARE)) for _ in range(levels)),
        supply=draw(st.sampled_from(SUPPLIES)),
        stored=draw(st.sampled_from([0.0, 0.53])),
        instructions=draw(st.sampled_from([0.0, 2.0])),
        issue=draw(st.sampled_from([1e11, 1e13])),
        stages=draw(st.sampled_from([1, 4])),
        fill=draw(st.sampled_from([np.inf, 1e8, 1e10])),
        late_launch=draw(st.sampled_from([0.0, 2e-6])),
        cache=draw(st.sampled_from([0.0, 1e5, 2e6, 5e6])),
        beyond=latency * draw(st.sampled_from([0.0, 0.4])),
    )


def launched(designs, catalogues, gemms):
    """Time GEMMs (design's place, (m, k, n), batch, strided, copies) on designs with equally many levels."""
    texts = [" ".join(f"{a}x{b}" for a, b in catalogue) for catalogue in catalogues]
    none = column([0 for _ in designs], np.int64)
    work = KernelWork(
        point=column([g[0] for g in gemms], np.int64),
        **{axis: column([g[1][i] for g in gemms], np.int64) for i, axis in enumerate("mkn")},
        batch=column([g[2] for g in gemms], np.int64),
        strided=column([g[3] for g in gemms], np.bool_),
        copies=column([g[4] if len(g) > 4 else 0 for g in gemms], np.int64),
        pass_bytes=column([0 for _ in gemms]),
        pass_flop=column([0 for _ in gemms]),
        options=TilingOptions(
            element_bytes=column([d.size for d in designs]),
            weight_bytes=column([blocks.of_b(d) for d in designs]),
            conversion=column([d.instructions for d in designs]),
            output_bytes=column([d.output for d in designs]),
            samples=none,
            seed=none,
            brute=column([False for _ in designs], np.bool_),
            blocks=column([True for _ in designs], np.bool_),
            overlap=column([d.order for d in designs]),
            parts=column([d.parts for d in designs], np.int64),
        ),
    )
    return time_kernels(devices(designs, texts, texts[::-1]), work)


catalogues = st.lists(st.sampled_from(TILES), min_size=1, max_size=4, unique=True).filter(
    lambda tiles: 1 not in tiles[0]
)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(chips(n), min_size=1, max_size=3)), st.data())
@cases(90)
def test_library_is_the_oracle(designs, data):
    listed = [data.draw(catalogues) for _ in designs]
    gemm = st.tuples(
        st.integers(0, len(designs) - 1), st.tuples(sides, sides, sides), st.integers(1, 6), st.booleans(),
        st.sampled_from([0, 1, 5]),
    )  # fmt: skip
    gemms = data.draw(st.lists(gemm, min_size=1, max_size=4))
    got = launched(designs, listed, gemms)
    for row, (i, (m, k, n), batch, strided, copies) in enumerate(gemms):
        of = listed[::-1][i] if batch > 1 else listed[i]
        expected = blocks.run(designs[i], of, m, k, n, batch, strided, copies)
        assert near(got.time[row], expected.time, 1e-9)
        assert got.flop[row] == 2 * m * k * n * batch
        if near(got.busy[row], expected.busy) and got.parts[row] == expected.parts:
            assert got.waves[row] == expected.waves
            assert all(near(g, e, 1e-9) for g, e in zip(got.times[row], expected.times, strict=True))
            assert all(near(g, e, 1e-9) for g, e in zip(got.bytes[row], expected.moved, strict=True))
        assert got.times[row][got.limiter[row]] == got.times[row].max()


A100ISH = blocks.Chip(
    2, 2, (8, 4, 8), "best", 3e14, 3e14, [1e18, 1e18, 1e18, 1e15], [6e4, 2e5, 4e7], 1, 108, 2.6e5, (64, 64),
    0.0, 0.0, False, 1, 1, False, 1.0, True, 0.0, 0.0, 0.0, 0.0, 1e9, 0.0, 0.0, 1,
)  # fmt: skip


def one(chip, m, k, n, batch=1, strided=False, tiles=((128, 128),)):
    got = launched([chip], [tiles], [(0, (m, k, n), batch, strided)])
    return got.time[0], got


def test_fused_kernels_have_the_order_of_products(compose):
    assert compose("model=gemm", "chip=a100", "tiling=blocks")["tiling.soft_max_order"] == ORDER


def test_a_wave_more():
    """108 blocks fill the bundles; the 109th takes a wave of its own."""
    full, got = one(A100ISH, 128 * 108, 4096, 128)
    assert (got.waves[0], got.busy[0]) == (1, 1.0)
    more, got = one(A100ISH, 128 * 108 + 1, 4096, 128)
    assert (got.waves[0], got.busy[0]) == (2, 109 / 216)
    assert near(more, 2 * full)


def test_parts_of_the_inner_dimension():
    """One block would keep one bundle busy; eight parts keep eight, and launch a second kernel.

    It reads sums of 4 B of each part and writes C, with one trip there and back that misses main memory.
    """
    chip = A100ISH._replace(launch=1e-6, parts=8, latency=3e-7, beyond=1e-7)
    chip = chip._replace(bandwidths=[1e18, 1e18, 1e13, 1e15])
    _, got = one(chip, 128, 65536, 128)
    assert got.parts[0] == 8
    assert near(got.times[0, -1], 2.4e-6 + 128 * 128 * (8 * 4 + 2) / 1e13)
    _, got = one(chip._replace(parts=1), 128, 65536, 128)
    assert (got.parts[0], got.times[0, -1]) == (1, 1e-6)


def test_the_end_of_the_last_blocks_adds_in_full():
    """C takes 1 us to write in four rounds; persistent kernels hide the ends of the first three."""
    written = 128 * 128 * 432 * 2
    chip = A100ISH._replace(step=1e-18, registers=1e5, bandwidths=[1e18, 1e18, written / 1e-6, 1e18])
    alone = 2 * 128 * 128 * 432 * 8192 / 3e14
    for persistent, ends in ((False, 0.75e-6), (True, 0.0)):
        _, got = one(chip._replace(persistent=persistent), 128 * 432, 8192, 128)
        assert got.waves[0] == 4
        assert near(got.times[0, 0], alone + ends)
        assert near(got.times[0, -1], 0.25e-6)


def test_sustained_clock():
    """Eight times the power there is halves the clock; main memory keeps its own."""
    fast, _ = one(A100ISH, 8192, 8192, 8192)
    share = 2 * 8192**3 / (3e14 * fast)
    slow, _ = one(A100ISH._replace(drive=8.0 / share), 8192, 8192, 8192)
    assert near(slow, 2 * fast)
    chip = A100ISH._replace(bandwidths=[1e18, 1e18, 1e18, 1e11])
    memory_bound, _ = one(chip, 64, 64, 65536)
    assert one(chip._replace(drive=4.0), 64, 64, 65536)[0] == memory_bound


def test_pairs_of_bundles_read_half_of_the_columns_each():
    """A tile of 128 x 256: 128 rows once, and 256 columns or half of them."""
    chip = A100ISH._replace(shared=True, warp=(128, 256))
    alone, pair = (
        one(chip._replace(pair=bundles), 8192, 4096, 8192, tiles=((128, 256),))[1].bytes[0, 1]
        for bundles in (1, 2)
    )
    read = 64 * 32 * 4096 * 2
    assert (alone, pair) == (read * (128 + 256), read * (128 + 128))
    _, single = one(chip._replace(pair=2), 128, 4096, 256, tiles=((128, 256),))  # one block has no partner
    assert single.bytes[0, 1] == 4096 * 2 * (128 + 256)


@pytest.mark.parametrize(
    ("block", "read"),
    [((64, 256), 64 + 256), ((256, 64), 64 + 256), ((128, 128), 128 + 2 * 128), ((64, 8), 64 + 8)],
)
def test_units_read_operands_in_l1_by_instructions_of_64_rows(block, read):
    """Whichever side of the block has the rows; a side below 64 has the columns."""
    chip = A100ISH._replace(shared=True, warp=(64, 256))
    sides = 8 * block[0], 1024, 8 * block[1]
    assert one(chip, *sides, tiles=(block,))[1].bytes[0, 1] == 64 * 1024 * 2 * read


def test_a_library_without_split_kernels_splits_nothing():
    chip = A100ISH._replace(parts=8)
    assert one(chip, 128, 65536, 128)[1].parts[0] == 8
    assert one(chip._replace(splits=False), 128, 65536, 128)[1].parts[0] == 1


def test_strided_operands_cost_where_translation_does_not_reach():
    chip = A100ISH._replace(strided=0.3, miss=2.0, reach=1e7)
    plain, _ = one(chip, 8192, 8192, 8192)
    far, _ = one(chip, 8192, 8192, 8192, strided=True)
    near_by, _ = one(chip._replace(reach=1e10), 8192, 8192, 8192, strided=True)
    assert near(near_by, 1.3 * plain)
    assert far > near_by


def test_soft_maximum_is_between_the_largest_and_the_sum():
    _, got = one(A100ISH, 2048, 512, 2048)
    hard = got.times[0, :-1].max()
    soft, got = one(A100ISH._replace(order=4.0), 2048, 512, 2048)
    assert hard < soft < got.times[0, :-1].sum()


@pytest.mark.parametrize(
    "text",
    ["", "64", "64x", "64x64x64", "0x64", "64x64,128x64", "ax64", "64x²", "64x65537", "9" * 5000 + "x64"],
)
def test_a_catalogue_that_is_none(text):
    with pytest.raises(InputError, match=r"chip\.blocks"):
        read_catalogue(np.array([text]))


def test_real_chips_run_their_librarys_blocks():
    assert predict_gemm(4096, 4096, 4096, chip="a100") == pytest.approx(
        evaluate("model=gemm", "chip=a100").time_s[0]
    )
    point = evaluate("model=gemm", "chip=a100").iloc[0]
    assert (point.tiling, point.gemm_l1_stationary) == ("blocks", "C")


def test_a_linear_layer_on_p100_pays_for_its_layout():
    sizes = ("model=gemm", "chip=p100", "model.dtype=fp32", "model.k=32768")
    frame = evaluate(*sizes, "model.transposed=false,true")
    assert frame.time_s[1] > 2.0 * frame.time_s[0]
    frame = evaluate(*sizes[:1], "chip=v100", *sizes[2:], "model.transposed=false,true")
    assert frame.time_s[1] == frame.time_s[0]


def test_what_units_of_blackwell_do_themselves_makes_them_faster():
    """Pairs of SMs, sums in tensor memory and scales of blocks: none of them takes time."""
    product = ("model=gemm", "model.m=4096", "model.n=8192", "model.k=8192", "model.quantized=true")
    without = ("chip.blocks.pair=1", "chip.blocks.persistent=false", "chip.blocks.scales=lanes")
    times = evaluate(*product, "chip=b200_sxm", "model.dtype=bf16,fp8,fp8_block").time_s
    for text in without:
        slower = evaluate(*product, "chip=b200_sxm", "model.dtype=bf16,fp8,fp8_block", text).time_s
        assert (slower >= times).all()
        assert slower[2] > times[2]
    assert times[2] == pytest.approx(times[1], rel=0.01)
    h100 = evaluate(*product, "chip=h100_sxm", "model.dtype=fp8,fp8_block").time_s
    assert h100[1] > 1.3 * h100[0]


def test_partitions_of_l2_hold_the_same_operands_each():
    """Operands of 60 MB fit H200's cache of 50 MiB no more than a half of it; those of 40 MB would."""
    sides = {30: (2048, 8192), 40: (4096, 8192), 60: (8192, 8192)}
    for size, (m, n) in sides.items():
        k = size * 500_000 // (m + n)
        product = ("model=gemm", "chip=h200_sxm", f"model.m={m}", f"model.n={n}", f"model.k={k}")
        one, two = (evaluate(*product, f"chip.memory.l2.partitions={parts}").iloc[0] for parts in (1, 2))
        if size == 60:
            assert two.gemm_dram_moved_B == one.gemm_dram_moved_B
        else:
            assert two.gemm_dram_moved_B > one.gemm_dram_moved_B


def test_catalogue_of_a_users_own():
    frame = evaluate("model=gemm", "chip=a100", "chip.blocks.matrix=16x16,128x128")
    assert frame.time_s[0] > 2.0 * frame.time_s[1]
    for key in ("matrix", "vector", "batched_vector", "warp"):
        with pytest.raises(
            InputError, match=rf"chip\.blocks\.{key}=12 \(.*\) is invalid: expected tiles such as 128x64"
        ):
            evaluate("model=gemm", "chip=a100", f"chip.blocks.{key}='12'")
