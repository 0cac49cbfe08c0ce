"""Kernels of linear-time mixers: their operations are those of the recurrences, their times those by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.workload.models.linear_attention import KERNELS
from fastflow.physics.workload.ops.recurrence import DELTA, RULES, SCAN
from tests.naive import linear_kernels, linear_time
from tests.support.checks import cases, near
from tests.support.devices import device_of


def products_of(rule, chunks, chunk, key, value):
    """Return the operations of the products of one head in chunks."""
    times, rng, tokens = linear_time.Counter(), np.random.default_rng(0), chunks * chunk
    a, beta = rng.uniform(0.6, 1.0, tokens), rng.uniform(0.1, 1.0, tokens)
    q, k, v = (
        rng.standard_normal((tokens, key)),
        rng.standard_normal((tokens, key)),
        rng.standard_normal((tokens, value)),
    )
    if rule == SCAN:
        linear_time.state_space_in_chunks(a, v, k, q, chunk, times)
    else:
        linear_time.gated_delta_in_chunks(a, beta, q, k, v, chunk, times)
    return sum(2 * m * n * p for _, m, n, p in times.done)


@pytest.mark.parametrize("rule", RULES)
@given(st.integers(1, 4), st.integers(2, 9), st.integers(1, 6), st.integers(1, 6))
@cases(15)
def test_operations_of_chunks_are_those_of_the_products(rule, chunks, chunk, key, value):
    ours = chunks * chunk * RULES[rule].flop(float(key), float(value), float(chunk), 1.0)
    inverses = chunks * chunk**3 / 3 if rule == DELTA else 0.0
    assert near(ours, products_of(rule, chunks, chunk, key, value) + inverses)


@pytest.mark.parametrize("rule", RULES)
def test_operations_of_a_step_are_those_of_the_recurrence(rule):
    """Counted over elements of the state: decay, what the key finds, the outer product, the query."""
    decay, finds, outer, query = 1, 2 if rule == DELTA else 0, 2, 2
    assert RULES[rule].step_flop == decay + finds + outer + query


@st.composite
def points(draw):
    sizes = {
        "batch": draw(st.sampled_from([1, 3, 64, 1024])), "tokens": draw(st.integers(1, 5000)),
        "channels": draw(st.integers(1, 9000)), "conv_width": draw(st.integers(1, 8)),
        "key_heads": draw(st.sampled_from([1, 4, 16])), "key_dim": draw(st.sampled_from([16, 64, 128])),
        "value_dim": draw(st.sampled_from([16, 64, 128])),
    }  # fmt: skip
    return sizes | {"value_heads": sizes["key_heads"] * draw(st.integers(1, 4))}


@pytest.mark.parametrize("chip", ["h100_sxm", "a100_sxm_80"])
@given(st.lists(points(), min_size=1, max_size=2), st.sampled_from(["fp32", "bf16"]))
@cases(2)
def test_times_are_those_by_hand(chip, sizes, state):
    made = device_of(chip)
    simple = SimpleNamespace(
        bundles=made.instances[0], bandwidths=made.memories.bandwidth[0], issue=made.issue[0],
        launch=made.library.launch[0], latency=made.library.latency[0],
    )  # fmt: skip
    for kernel in KERNELS:
        for point in sizes:
            keys = [f"model.{name}={value}" for name, value in point.items()]
            (ours,) = fastflow.evaluate(
                "model=linear_attention",
                f"model.kernel={kernel}",
                f"model.state_dtype={state}",
                f"chip={chip}",
                *keys,
            ).time_s
            assert near(ours, by_hand(simple, kernel, point, {"fp32": 4, "bf16": 2}[state]))


def by_hand(chip, kernel, point, state_size):
    if kernel == "convolution":
        return linear_kernels.convolution(chip, point["batch"], point["tokens"], point["channels"], 2)
    if kernel == "convolution_step":
        sizes = (point["batch"], point["channels"], point["conv_width"])
        return linear_kernels.convolution_step(chip, *sizes, 2)
    heads = (point["key_heads"], point["key_dim"], point["value_heads"], point["value_dim"])
    if kernel.endswith("_step"):
        return linear_kernels.step(chip, point["batch"], *heads, state_size, 2)
    delta = kernel.startswith(DELTA)
    return linear_kernels.chunks(chip, point["batch"], point["tokens"], *heads, state_size, 2, delta)


def test_a_longer_prompt_never_takes_less_time():
    for kernel in KERNELS:
        df = fastflow.evaluate(
            "model=linear_attention",
            f"model.kernel={kernel}",
            "chip=h100_sxm",
            "model.tokens=range(8,4097,8)",
        )
        assert (np.diff(df.time_s) >= 0.0).all()


def test_heads_of_values_that_no_key_divides_are_a_reason():
    df = fastflow.evaluate(
        "model=linear_attention", "model.key_heads=3,4", "model.value_heads=8", "chip=h100_sxm"
    )
    assert df.reason[0] == "model.key_heads=3 is invalid: expected a divisor of model.value_heads, 8"
    assert df.reason.isna()[1] or df.reason[1] == ""
