"""Local linear attention: products and passes counted as it runs, and kernels beside attention's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.physics.parallelism.defaults import ParallelOptions
from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.partition import shard_graph
from fastflow.physics.parallelism.strategy import parse
from fastflow.physics.workload.autodiff import kernels
from fastflow.physics.workload.graph import BACKWARD, FORWARD, HIDDEN, Dims, stack
from fastflow.physics.workload.network import INPUT, Layer, connect
from fastflow.physics.workload.ops.attention import AttentionSizes, attention
from fastflow.physics.workload.ops.local_linear import KERNELS, local_linear_attention
from fastflow.physics.workload.precision import precision
from tests.naive import local_linear
from tests.support.checks import cases, mixed, near
from tests.support.devices import device_of

DIMS = Dims(("sequence",), (), ("heads",), ("batch",))
FORWARD_KERNEL, KEY_KERNEL, QUERY_KERNEL = 0.0, 1.0, 2.0


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
@cases(20)
def test_conjugate_gradients_solve_each_query_with_the_counted_products(tokens, key, value, seed):
    rng, steps = np.random.default_rng(seed), 2 * key + 2
    q, k = 0.5 * rng.standard_normal((2, tokens, key))
    v, times = rng.standard_normal((tokens, value)), local_linear.Products()
    quick = local_linear.by_gradients(q, k, v, 0.5, steps, times)
    assert np.allclose(quick, local_linear.solved(q, k, v, 0.5), rtol=1e-6, atol=1e-8)
    at_all, of_a_step = KERNELS[FORWARD_KERNEL]
    assert times.keys == at_all.keys + steps * of_a_step.keys
    assert times.values == at_all.values + steps * of_a_step.values
    assert times.passes == at_all.key_loads + steps * of_a_step.key_loads


def launched(make, strategy="d1", **options):
    """Return the kernels' labels, phases, seconds and operations on a device, an H100."""
    size = AttentionSizes(8, options.pop("q_len", 2048), 2048, 16, 16, 128, 128, 0)
    node = make("core", (INPUT,), size, True, dims=DIMS, **options)
    net = connect([Layer("layer", HIDDEN, (node,))], needs_input_gradient=True)
    one, plan = np.ones(1, dtype=np.int64), parse(strategy)
    columns = {
        "model.dtype": np.array(["bf16"]),
        "model.training": one > 0,
        "model.optimizer": np.array(["sgd"]),
    }
    numbers = precision(columns | mixed(1))
    graph = stack(kernels(net, True, numbers), 1)
    layouts = Layouts(
        np.full((1, 3), plan.kernel), np.repeat([[plan.degrees]], 3, axis=1).reshape(1, 3, len(AXES)), one
    )
    options_of = ParallelOptions(one, one, zero=0 * one, reshards=one > 0, copies=one < 0)
    shards, device = shard_graph(graph, layouts, options_of, numbers), device_of("h100_sxm")
    result = {}
    for group in shards.fused:
        times, flop = group.type.time(device, group.share)
        for row, time, work in zip(group.rows.tolist(), times.time, flop, strict=True):
            result[str(graph.names[graph.label[row]])] = (int(graph.phase[row]), float(time), float(work))
    return result


@pytest.mark.parametrize("iterations", [1, 32])
def test_operations_are_those_of_the_products(iterations):
    ours = launched(local_linear_attention, iterations=iterations)
    base = launched(attention)
    of_a_product = base["core"][2] / 2  # as wide as a key or a value
    forward, keys, queries = (ours[name] for name in ("core", "core gradient", "core query gradient"))
    assert near(forward[2], (4 + 3 * iterations + 1) * of_a_product)
    assert near(keys[2], (10 + 2) * of_a_product)
    assert near(queries[2], (10 + 3 * iterations + 1) * of_a_product)
    assert [entry[0] for entry in (forward, keys, queries)] == [FORWARD, BACKWARD, BACKWARD]


def test_it_takes_as_much_longer_as_it_has_more_products():
    """But for launches; decoding, as it loads more keys."""
    ours = launched(local_linear_attention)
    base = launched(attention)
    assert near(ours["core"][1], base["core"][1] * (5 + 3 * 32) / 2, rel=0.1)
    ours = launched(local_linear_attention, decodes=True, q_len=1)
    base = launched(attention, decodes=True, q_len=1)
    assert 10 < ours["core"][1] / base["core"][1] < (3 + 32) / 2


@pytest.mark.parametrize("strategy", ["TP-2", "TP-1-c2", "d2"])
def test_it_is_sharded_as_attention_is(strategy):
    shares = [
        launched(make, strategy)["core"][2] / launched(make)["core"][2]
        for make in (local_linear_attention, attention)
    ]
    assert shares[0] == pytest.approx(shares[1], rel=1e-12)
    assert shares[0] == pytest.approx(0.5, rel=0.01)


def test_it_saves_each_querys_solution():
    size = AttentionSizes(2, 64, 64, 4, 4, 32, 32, 0)
    assert local_linear_attention("core", (INPUT,), size, True).keeps == 32 + 6
    assert local_linear_attention("core", (INPUT,), size, True, keeps=0).keeps == 0
