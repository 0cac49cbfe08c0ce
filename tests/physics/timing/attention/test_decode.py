"""Fused attention of few queries against the oracle, what must hold whatever the chip, and errors."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.physics.timing.attention.decode import fuses_rotary, time_decoding
from fastflow.physics.timing.attention.decode_tiles import Decodes
from tests.naive import decoding
from tests.support.checks import cases, near
from tests.support.devices import A100ISH, attention_designs, column, device_of, devices
from tests.support.measured import SAMPLE, whole

lengths = st.one_of(st.integers(1, 40), st.integers(1, 3000), st.integers(2000, 9000))


@st.composite
def tasks(draw):
    head_dim = draw(st.sampled_from([64, 80, 128, 256, 576]))
    kv_heads = 1 if head_dim == 576 else draw(st.sampled_from([1, 2, 3, 8]))
    size = draw(st.sampled_from([1, 2, 4]))
    kv_len = draw(lengths)
    return decoding.Task(
        sequences=draw(st.sampled_from([1, 2, 7, 64])),
        q_len=min(kv_len, draw(st.sampled_from([1, 1, 1, 2, 5]))),
        kv_len=kv_len,
        heads=kv_heads * draw(st.sampled_from([1, 1, 4, 8, 24, 40, 128])),
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=512 if head_dim == 576 else head_dim,
        window=draw(st.sampled_from([0, 0, 1, 100, 1000])),
        shared=draw(st.booleans()),
        size=size,
        cache=draw(st.sampled_from([1, size])),
        output=draw(st.sampled_from([1, 2])),
        hits=draw(st.sampled_from([0.0, 0.0, 0.4, 1.0])),
    )


def work(of, points):
    """Return tasks as decodes, each on its point."""
    dtypes = {"shared": np.bool_} | dict.fromkeys(("size", "cache", "output", "hits"), np.float64)
    columns = {
        name: column([getattr(task, name) for task in of], dtypes.get(name, np.int64))
        for name in decoding.Task._fields
    }
    return Decodes(point=column(points, np.int64), **columns)


@given(attention_designs, st.data())
@cases(72)
def test_decoding_is_the_oracle(designs, data):
    listed = data.draw(st.lists(tasks(), min_size=1, max_size=3))
    points = [data.draw(st.integers(0, len(designs) - 1)) for _ in listed]
    got = time_decoding(devices(designs), work(listed, points))
    for row, (task, point) in enumerate(zip(listed, points, strict=True)):
        runs = decoding.runs(designs[point], task)
        least = min(run.time for run in runs)
        expected = next(
            run for run in runs if near(run.time, least, 1e-9) and int(run.parts) == got.parts[row]
        )
        assert got.candidates[row] == len(runs)
        assert near(got.time[row], expected.time, 1e-9)
        assert all(near(g, e, 1e-9) for g, e in zip(got.times[row], expected.times, strict=True))
        assert all(near(g, e, 1e-9) for g, e in zip(got.bytes[row], expected.moved, strict=True))
        assert got.waves[row] == int(np.ceil(expected.waves))
        assert 0.0 < got.busy[row] <= 1.0


CHIP = A100ISH._replace(
    bandwidths=[1e15, 2e13, 5e12, 1.6e12], registers=262144.0, latency=3e-7, step=3e-7, launch=3e-6
)
HOPPER = CHIP._replace(
    flops=9e14, vector=6e13, bandwidths=[1e15, 3e13, 1e13, 2.4e12], capacities=[6e4, 262144, 5e7], step=1e-7,
    shared=True,
)  # fmt: skip
TASK = decoding.Task(64, 1, 8192, 32, 8, 128, 128, 0, False, 2, 2, 2)
LATENT = decoding.Task(64, 1, 8192, 128, 1, 576, 512, 0, True, 2, 2, 2)


def one(task, chip=CHIP):
    got = time_decoding(devices([chip]), work([task], [0]))
    return got.time[0], got


def test_a_long_cache_takes_its_bytes():
    time, got = one(TASK._replace(sequences=256, kv_len=16384))
    cache = 256 * 16384 * 8 * 2 * 128 * 2
    assert got.bytes[0, -1] == pytest.approx(cache, rel=1e-3)
    assert cache / 1.6e12 / 1.12 < time < 1.4 * cache / 1.6e12


def test_values_among_keys_are_read_once():
    assert one(TASK)[1].bytes[0, -1] == pytest.approx(
        2 * one(TASK._replace(shared=True))[1].bytes[0, -1], rel=1e-2
    )
    heads = TASK._replace(heads=8, shared=True)  # each on lanes, that come to values too late
    assert one(heads)[1].bytes[0, -1] == pytest.approx(one(heads._replace(shared=False))[1].bytes[0, -1])


def test_few_sequences_are_split():
    time, got = one(TASK._replace(sequences=1, kv_len=65536))
    assert got.parts[0] == 64
    whole_sequence = one(TASK._replace(sequences=1, kv_len=65536 // 64))[0]
    assert time < 20 * whole_sequence


def test_heads_that_share_keys_are_read_together():
    """On tiles the cache comes from L2 once for all heads; beyond 32 of them it comes for each."""
    assert one(TASK)[1].bytes[0, 2] < 1.1 * 64 * 8192 * 8 * 2 * 128 * 2
    assert one(TASK._replace(heads=8 * 64))[1].bytes[0, 2] > 60 * one(TASK)[1].bytes[0, 2]
    assert one(TASK._replace(sequences=1, kv_heads=1, heads=8, kv_len=64))[1].tile[0, 0, 0] == 1


def test_drafted_tokens_cost_little():
    assert one(TASK._replace(q_len=4))[0] < 1.2 * one(TASK)[0]
    assert one(TASK._replace(q_len=4, heads=8))[0] < 1.3 * one(TASK._replace(heads=8))[0]


def test_a_window_leaves_keys_out():
    assert one(TASK._replace(window=1024))[1].bytes[0, -1] < 0.13 * one(TASK)[1].bytes[0, -1]
    assert one(TASK._replace(window=8192))[0] == one(TASK)[0]


@pytest.mark.parametrize(("heads", "limiter"), [(16, 4), (128, 1)])
def test_latent_attention_of_many_heads_is_products(heads, limiter):
    """DeepSeek-V3's 128 heads keep Hopper's units busy, a device's 16 of them main memory."""
    time, _ = one(LATENT._replace(heads=heads, sequences=528), HOPPER)
    slower = {4: HOPPER._replace(bandwidths=[1e15, 3e13, 1e13, 1.2e12]), 1: HOPPER._replace(flops=4.5e14)}
    assert one(LATENT._replace(heads=heads, sequences=528), slower[limiter])[0] > 1.3 * time


def test_hopper_reads_a_latent_cache_once():
    assert one(LATENT, HOPPER)[1].bytes[0, 2] < 0.6 * one(LATENT)[1].bytes[0, 2]


def test_who_rotates():
    listed = [
        TASK, TASK._replace(heads=8), TASK._replace(cache=1), LATENT, TASK._replace(heads=8, q_len=2),
        TASK._replace(cache=1, q_len=2),
    ]  # fmt: skip
    assert fuses_rotary(devices([CHIP]), work(listed, [0] * 6)).tolist() == [
        False,
        True,
        False,
        False,
        False,
        False,
    ]
    assert fuses_rotary(devices([HOPPER]), work(listed, [0] * 6)).tolist() == [
        False,
        True,
        True,
        False,
        False,
        False,
    ]


BLACKWELL = HOPPER._replace(
    flops=1.5e15, bandwidths=[1e15, 3e13, 1.9e13, 6.3e12], capacities=[6e4, 262144, 1.2e8], persistent=True,
    exponentials=4.4e12, issue=3.5e13,
)  # fmt: skip


def test_heads_without_shared_keys_are_on_units_that_hold_the_sums():
    heads = TASK._replace(heads=8)
    assert one(heads, BLACKWELL)[1].tile[0, 0, 0] == 8
    assert one(heads, HOPPER)[1].tile[0, 0, 0] == 1
    assert one(TASK._replace(heads=8 * 64), BLACKWELL)[1].tile[0, 0, 0] == 1  # too many of them
    assert not fuses_rotary(devices([BLACKWELL]), work([heads._replace(cache=1)], [0]))[0]


@pytest.mark.parametrize(
    ("heads", "sequences", "kv_len", "rows"),
    [
        (4, 64, 8192, 8),
        (16, 64, 8192, 16),
        (32, 64, 8192, 16),
        (128, 64, 8192, 64),
        (128, 1, 8192, 16),  # few keys for each of the blocks, which have 16 heads
        (128, 1, 131072, 64),
    ],
)
def test_tiles_of_latent_attention_on_units_that_hold_the_sums(heads, sequences, kv_len, rows):
    """The kernels that TensorRT-LLM takes (selectMlaGenerationKernel of fmhaKernels.h)."""
    task = LATENT._replace(heads=heads, sequences=sequences, kv_len=kv_len)
    assert one(task, BLACKWELL)[1].tile[0, 0, 0] == rows


def test_a_pair_of_bundles_shares_the_keys_of_128_heads():
    alone, paired = (one(LATENT, BLACKWELL._replace(pair=pair))[1] for pair in (1, 2))
    assert paired.bytes[0, 1] < 0.6 * alone.bytes[0, 1]


def test_a_chain_of_trips_is_before_the_first_blocks_alone():
    """Later rounds of blocks cost a share of the first one, a larger one for tiles of latent keys."""
    for task, most in ((TASK._replace(kv_len=1), 0.4), (LATENT._replace(kv_len=1, heads=16), 0.9)):
        first, second, third = (
            one(task._replace(sequences=n * 108, kv_heads=1, heads=task.heads // task.kv_heads), BLACKWELL)[0]
            for n in (1, 2, 3)
        )
        assert near(third - second, second - first, 1e-6)
        assert (second - first) / (first - BLACKWELL.launch) < most


@pytest.mark.parametrize("kv_len", [1, 2, 127, 128, 129, 1_000_000])
def test_odd_lengths_have_a_time(kv_len):
    for task in (TASK, LATENT, TASK._replace(heads=8), TASK._replace(cache=1)):
        for chip in (CHIP, HOPPER, BLACKWELL):
            for window in (0, 1, 100):
                assert 0.0 < one(task._replace(kv_len=kv_len, window=window), chip)[0] < np.inf


# --- measured times


def task_of(row):
    """Return a row's task; without head_dim it is latent attention, absorbed.

    The benchmark keeps keys and values in the same pages (its cache is of TensorRT-LLM's type SELFKONLY). On
    A100 a latent cache of fp8 takes as long as one of bf16.
    """
    heads, is_latent = int(row["heads"]), "head_dim" not in row
    of_heads = (heads, 1, 576, 512, 0)
    if not is_latent:
        d = int(row["head_dim"])
        of_heads = (heads, int(row["kv_heads"]), d, d, int(row["window"]))
    in_fp8 = row["kv_dtype"] == "fp8" and not (is_latent and "A100" in row["device"])
    lengths = (int(row["batch"]), int(row["q_len"]), int(row["kv_len"]))
    return decoding.Task(*lengths, *of_heads, True, 2, 1 if in_fp8 else 2, 2)


def time_of_passes(at, of):
    """Time what runs before attention in a layer of TensorRT-LLM [s]: one memory-bound kernel, or none.

    It rotates queries and keys and writes the cache; of latent attention 64 columns of a head, but it
    quantises all 576 of a query where products are of fp8.
    """
    moved = []
    for task in of:
        new = task.kv_heads * task.head_dim * (task.size + task.cache) * (1 if task.head_dim > 256 else 2)
        queries = 2 * task.heads * task.head_dim * task.size
        if task.head_dim > 256:
            to_fp8 = task.heads * task.head_dim * (task.size + task.cache)
            queries = to_fp8 if task.cache < task.size else 2 * task.heads * 64 * task.size
        moved.append(task.sequences * task.q_len * (queries + new))
    time = column(moved) / at.memories.bandwidth[0, -1] + at.launch[0]
    return np.where(fuses_rotary(at, work(of, [0] * len(of))), 0.0, time)


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize(
    ("name", "sample", "every"),
    [
        ("attention_a100", 0.112, 0.110),
        ("attention_h100", 0.102, 0.103),
        ("mla_a100", 0.080, 0.078),
        ("mla_h100", 0.101, 0.079),
    ],
)
def test_decodes_of_a_layer(name, sample, every, is_whole):
    path = whole(name) if is_whole else SAMPLE / f"{name}.csv"
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["phase"] == "decode"]
    of = [task_of(row) for row in rows]
    at = device_of("a100_sxm_80" if name.endswith("a100") else "h100_sxm")
    time = time_decoding(at, work(of, [0] * len(of))).time + time_of_passes(at, of)
    errors = abs(time / column([float(row["time_s"]) for row in rows]) - 1.0)
    assert np.mean(errors) <= (every if is_whole else sample)
