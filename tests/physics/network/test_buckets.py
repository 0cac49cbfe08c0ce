"""Messages of data parallelism: buckets of several tensors, against adding them up one by one."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.network.buckets import KEY, has_buckets, message_bytes
from tests.support.checks import cases, near


def naive(bucket, sizes, stages):
    """Return the bytes of the message of each of a point's tensors, (bytes, launches) each."""
    total = sum(size * launches for size, launches in sizes) / stages
    return [max(size, min(bucket, total)) for size, _ in sizes]


TENSORS = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 90)), min_size=1, max_size=6)


@given(st.lists(TENSORS, min_size=1, max_size=3), st.integers(0, 10**6), st.integers(1, 8))
@cases(80)
def test_a_tensor_is_a_part_of_a_bucket(points, bucket, stages):
    point = np.repeat(np.arange(len(points)), [len(tensors) for tensors in points])
    size, launches = (np.array([one[i] for tensors in points for one in tensors]) for i in (0, 1))
    ones = np.ones(point.size, dtype=np.int64)
    graph = SimpleNamespace(point=point, launches=SimpleNamespace(repeat=ones, times=launches))
    edges = SimpleNamespace(bytes=size.astype(float), group=0 * ones)
    every = np.ones(point.size, dtype=bool)
    inputs = {KEY: np.full(len(points), float(bucket))}
    element = np.full(len(points), 2.0)
    got = message_bytes(inputs, graph, edges, element, np.full(len(points), stages), every)
    expected = [one for tensors in points for one in naive(2.0 * bucket, tensors, stages)]
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    none = message_bytes(inputs, graph, edges, element, np.full(len(points), stages), ~every)
    np.testing.assert_array_equal(none, edges.bytes)
    assert has_buckets(inputs) == (bucket > 0)


POINT = (
    "model=llama2_70b", "system=superpod_h100", "model.sequence=4096", "model.batch=128",
    "model.lora.rank=16",
    "parallel.strategy=TP-4-d128", "system.devices=512", "parallel.zero_stage=1", "engine.jobs=1",
)  # fmt: skip


def test_small_tensors_wait_for_fewer_messages():
    """Adapters of 80 layers on 128 ranks: hundreds of rings of 128 steps, or one."""
    alone, in_buckets = (
        fastflow.evaluate(*POINT, f"{KEY}={parameters}").iloc[0] for parameters in ("0", "40e6")
    )
    assert in_buckets["param_gather_exposed_s"] < 0.1 * alone["param_gather_exposed_s"]
    assert in_buckets["time_s"] < alone["time_s"]


def test_tensors_larger_than_a_bucket_are_messages_of_their_own():
    large = (*POINT[:4], "parallel.strategy=TP-4-d128", "system.devices=512", "engine.jobs=1")
    alone, in_buckets = (fastflow.evaluate(*large, f"{KEY}={size}").iloc[0] for size in ("0", "1e5"))
    assert near(alone["time_s"], in_buckets["time_s"], 1e-6)
