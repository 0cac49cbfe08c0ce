"""Fused attention of many queries against the oracle, what must hold whatever the chip, and errors."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.physics.timing.attention.forward import RELOADED
from fastflow.physics.timing.attention.fused import time_attention, time_attention_backward
from fastflow.physics.timing.attention.tile_pairs import Attentions
from tests.naive import attention
from tests.support.checks import cases, near
from tests.support.devices import A100ISH, attention_designs, column, device_of, devices
from tests.support.measured import SAMPLE, whole

lengths = st.one_of(st.integers(1, 40), st.integers(1, 700))


@st.composite
def tasks(draw):
    groups = draw(st.sampled_from([1, 1, 2, 8]))
    kv_heads = draw(st.integers(1, 3))
    size = draw(st.sampled_from([1, 2, 4]))
    return attention.Task(
        sequences=draw(st.integers(1, 5)),
        q_len=draw(lengths),
        kv_len=draw(lengths),
        heads=groups * kv_heads,
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([32, 64, 96, 128, 192, 256])),
        value_dim=draw(st.sampled_from([64, 128])),
        window=draw(st.sampled_from([0, 0, 1, 30, 128, 500])),
        causal=draw(st.booleans()),
        size=size,
        cache=draw(st.sampled_from([1, size])),
        output=draw(st.sampled_from([1, 2])),
        hits=draw(st.sampled_from([0.0, 0.0, 0.4, 1.0])),
        flash=draw(st.sampled_from([0, 0, 1, 2])),
    )


def work(of, points):
    """Return tasks as attentions, each on its point."""
    dtypes = {
        "causal": np.bool_,
        "size": np.float64,
        "cache": np.float64,
        "output": np.float64,
        "hits": np.float64,
    }
    columns = {
        name: column([getattr(task, name) for task in of], dtypes.get(name, np.int64))
        for name in attention.Task._fields
    }
    return Attentions(point=column(points, np.int64), **columns)


@pytest.mark.parametrize(
    ("timed", "oracle"),
    [(time_attention, attention.forward), (time_attention_backward, attention.backward)],
)
def test_attention_is_the_oracle(timed, oracle):
    @given(attention_designs, st.data())
    @cases(72)
    def check(designs, data):
        listed = data.draw(st.lists(tasks(), min_size=1, max_size=2))
        points = [data.draw(st.integers(0, len(designs) - 1)) for _ in listed]
        got = timed(devices(designs), work(listed, points))
        for row, (task, point) in enumerate(zip(listed, points, strict=True)):
            chip = designs[point]
            expected = oracle(chip, task)
            assert near(got.time[row], expected.time, 1e-9)
            assert all(near(g, e, 1e-9) for g, e in zip(got.times[row], expected.times, strict=True))
            assert all(near(g, e, 1e-9) for g, e in zip(got.bytes[row], expected.moved, strict=True))
            assert got.waves[row] == -(-expected.blocks // chip.bundles)
            assert 0.0 < got.busy[row] <= 1.0
            assert near(got.executed[row], expected.executed, 1e-9)

    check()


TASK = attention.Task(4, 4096, 4096, 32, 8, 128, 128, 0, True, 2, 2, 2)


def one(task, chip=A100ISH, timed=time_attention):
    got = timed(devices([chip]), work([task], [0]))
    return got.time[0], got


def test_a_mask_leaves_half_of_the_tiles_out():
    causal, _ = one(TASK)
    full, _ = one(TASK._replace(causal=False))
    assert 1.9 < full / causal < 2.0
    window, _ = one(TASK._replace(window=128))
    assert full / window > 8.0
    assert one(TASK._replace(causal=False, window=8192))[0] == full


def test_a_chunk_over_a_cache_is_a_share_of_the_whole():
    """Chunks that follow each other see together what the prefill of all does."""
    chunks = [one(TASK._replace(q_len=1024, kv_len=1024 * (i + 1)))[1] for i in range(4)]
    _, every = one(TASK)
    assert near(sum(chunk.bytes[0, 1] for chunk in chunks), every.bytes[0, 1])


def test_softmax_beside_products():
    serial, _ = one(TASK)
    tensor_memory = A100ISH._replace(persistent=True, registers=262144.0)
    overlapped, _ = one(TASK, tensor_memory)
    assert overlapped < 0.9 * serial
    no_room = one(TASK, tensor_memory._replace(registers=262143.0))[0]  # for the scores and sums of two tiles
    assert no_room > 1.2 * overlapped
    wide = TASK._replace(head_dim=256, value_dim=256)
    assert one(wide, tensor_memory)[0] == one(wide, tensor_memory._replace(registers=262143.0))[0]
    slower, _ = one(TASK, A100ISH._replace(exponentials=2.4e11))
    assert slower > 2.0 * serial


def test_a_smaller_cache_is_read_faster_and_converted():
    slow = A100ISH._replace(bandwidths=[1e18, 1e18, 1e12, 1e15])
    assert one(TASK._replace(cache=1), slow)[0] < one(TASK, slow)[0]
    assert one(TASK._replace(cache=1))[0] > one(TASK)[0]


def test_keys_that_the_cache_does_not_hold_are_read_again():
    task = TASK._replace(q_len=32768, kv_len=32768, sequences=1, heads=1, kv_heads=1)
    _, held = one(task)
    _, missed = one(task, A100ISH._replace(capacities=[6e4, 2e5, 1e6]))
    assert held.bytes[0, 3] == 4 * 32768 * 128 * 2
    assert missed.bytes[0, 3] > 1.5 * held.bytes[0, 3]


def test_sustained_clock():
    fast, got = one(TASK)
    flop = got.bytes[0, 0] / (2 * 0.125)  # bytes that the unit reads of an element for an operation
    slow, _ = one(TASK, A100ISH._replace(drive=8.0 / RELOADED * 3e14 * fast / flop))
    assert near(slow, 2.0 * fast, 1e-6)


def test_backward_is_two_and_a_half_times_the_operations():
    forward, backward = one(TASK)[1], one(TASK, timed=time_attention_backward)[1]
    assert backward.bytes[0, 0] / forward.bytes[0, 0] == pytest.approx(2.5, rel=0.02)


@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1), (300, 1), (1, 300), (100_000, 3), (3, 100_000)])
def test_odd_lengths_have_a_time(q_len, kv_len):
    for timed in (time_attention, time_attention_backward):
        for causal in (False, True):
            task = TASK._replace(q_len=q_len, kv_len=kv_len, causal=causal)
            assert 0.0 < one(task, timed=timed)[0] < np.inf
            assert 0.0 < one(task, A100ISH._replace(latency=1e-6), timed=timed)[0] < np.inf


# --- published and measured times


@pytest.mark.parametrize(
    ("chip", "head_dim", "least", "most"),
    [
        ("a100_sxm_80", 128, 156, 197),  # FlashAttention-2, arXiv:2307.08691: 50 to 63% of the peak
        ("h100_sxm", 64, 433, 474),  # cuDNN, FlashAttention-3: arXiv:2407.08608, figure 6
        ("h100_sxm", 128, 516, 561),
    ],
)
def test_backward_pass_is_as_fast_as_published(chip, head_dim, least, most):
    heads, length = 2048 // head_dim, 16384
    task = attention.Task(1, length, length, heads, heads, head_dim, head_dim, 0, False, 2, 2, 2)
    time = time_attention_backward(device_of(chip, "bf16"), work([task], [0])).time[0]
    assert 0.95 * least < 10 * heads * head_dim * length**2 / time / 1e12 < 1.05 * most


def read(path):
    """Return a file's prefills as rows and as tasks."""
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["phase"] == "prefill"]
    return rows, [task_of(row) for row in rows]


def in_fp8(row):
    """Return whether TensorRT-LLM's products are of fp8: on Hopper where the cache is."""
    return "H100" in row["device"] and row["kv_dtype"] == "fp8"


def task_of(row):
    """Return a row's task; without head_dim it is latent attention, expanded."""
    heads, size = int(row["heads"]), 1 if in_fp8(row) else 2
    of_heads = (heads, 192, 128, 0)
    if "head_dim" in row:
        of_heads = (int(row["kv_heads"]), int(row["head_dim"]), int(row["head_dim"]), int(row["window"]))
    lengths = (int(row["batch"]), int(row["q_len"]), int(row["kv_len"]))
    return attention.Task(*lengths, heads, *of_heads, True, size, size, 1 if row["dtype"] == "fp8" else 2)


def time_of_passes(rows, of, at):
    """Time the other kernels of attention in a layer of TensorRT-LLM [s]: memory-bound ones, launches."""
    tokens = column([task.sequences * task.q_len for task in of])
    heads, kv_heads = column([task.heads for task in of]), column([task.kv_heads for task in of])
    dim, size = column([task.head_dim for task in of]), column([task.size for task in of])
    cache = column([1 if row["kv_dtype"] == "fp8" else 2 for row in rows])
    moved = tokens * dim * (2 * (heads + 2 * kv_heads) + heads * size + 2 * kv_heads * cache)
    quantised = np.zeros(len(of))
    if (
        "head_dim" not in rows[0]
    ):  # 64 rotated columns of queries, and of keys for every head; a latent of 576
        moved = tokens * (2 * 64 * heads * 3 + 576 * (2 + cache))
        quantised = np.where(size == 1, tokens * heads * (192 + 192 + 128) * (2 + 1), 0.0)
    launched = 3 + (quantised > 0.0)
    return (moved + quantised) / at.memories.bandwidth[0, -1] + launched * at.launch[0]


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize(
    ("name", "sample", "every"),
    [
        ("attention_a100", 0.065, 0.054),
        ("attention_h100", 0.092, 0.085),
        ("mla_a100", 0.062, 0.065),
        ("mla_h100", 0.083, 0.081),
    ],
)
def test_prefills_of_a_layer(name, sample, every, is_whole):
    """TensorRT-LLM's layer: a launch for offsets of sequences, one of the graph, and memory-bound kernels."""
    rows, of = read(whole(name) if is_whole else SAMPLE / f"{name}.csv")
    chip = "a100_sxm_80" if name.endswith("a100") else "h100_sxm"
    errors = []
    for is_fp8 in {in_fp8(row) for row in rows}:
        at = device_of(chip, "fp8" if is_fp8 else "bf16")
        chosen = [i for i, row in enumerate(rows) if in_fp8(row) == is_fp8]
        kept, tasks = [rows[i] for i in chosen], [of[i] for i in chosen]
        time = time_attention(at, work(tasks, [0 for _ in kept])).time + time_of_passes(kept, tasks, at)
        errors.extend(abs(time / column([float(row["time_s"]) for row in kept]) - 1.0))
    assert np.mean(errors) <= (every if is_whole else sample)
