"""Linear-time layers: their chunks give what the recurrences give, and their kernels are those products."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.core.errors import InputError
from fastflow.physics.workload.autodiff import kernels
from fastflow.physics.workload.graph import BACKWARD, BATCHED, FORWARD, ON_ACTIVATIONS
from fastflow.physics.workload.models.graph_file import read_network
from fastflow.physics.workload.ops.linear_attention import Product, Sizes, steps_of
from fastflow.physics.workload.precision import UNSIZED
from tests.naive import linear_time as naive
from tests.support.checks import cases

NAMES = ("state_space", "gated_delta")


def of_one_head(name, rng, tokens, chunk, state, head_dim):
    """Return the output token by token and in chunks, and the products of the latter."""
    a, beta = rng.uniform(0.6, 1.0, tokens), rng.uniform(0.1, 1.0, tokens)
    q, k = rng.standard_normal((2, tokens, state)) / np.sqrt(state)
    v = rng.standard_normal((tokens, head_dim))
    times = naive.Counter()
    if name == "state_space":
        return naive.state_space(a, v, k, q), naive.state_space_in_chunks(a, v, k, q, chunk, times), times
    slow = naive.gated_delta(a, beta, q, k, v)
    return slow, naive.gated_delta_in_chunks(a, beta, q, k, v, chunk, times), times


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(1, 5), st.integers(2, 9), st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
@cases(25)
def test_kernels_are_the_products_of_the_chunks(name, chunks, chunk, state, head_dim, seed):
    """Of one head; several heads and sequences have as many of each."""
    tokens = chunks * chunk
    slow, quick, times = of_one_head(name, np.random.default_rng(seed), tokens, chunk, state, head_dim)
    assert np.allclose(slow, quick)
    for sequences, heads in ((1, 1), (3, 2)):
        sizes = Sizes(sequences, tokens, heads, heads, state, head_dim, chunk)
        ours = Counter()
        for step in steps_of(name, sizes):
            if isinstance(step, Product):
                ours[step[:1] + step[2:]] += step.products
        theirs = {shape: count * sequences * heads for shape, count in Counter(times.done).items()}
        assert dict(ours) == theirs


FILE = """
rows: [batch, sequence]
dimensions: {batch: 4, sequence: 512, hidden: 256, heads: 8, head_size: 64, state: 128}
layers:
- name: block
  repeat: 2
  kernels:
  - {name: in, type: gemm, inner: hidden, cols: 2568}
  - {name: scan, type: TYPE, batch: batch, heads: heads, state: state, head_dim: head_size}
  - {name: out, type: gemm, inner: [heads, head_size], cols: hidden}
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_network_of_them(name, file):
    """Training recomputes products, and has both gradients of each; strategies shard heads and sequences."""
    path = file(FILE.replace("TYPE", name))
    result = kernels(read_network(path), True, UNSIZED)
    of_type = [kernel for kernel in result if kernel.form.type.name == name]
    work = {
        phase: sum(
            2 * int(kernel.rows) * int(kernel.inner) * int(kernel.cols)
            for kernel in of_type
            if (kernel.phase, kernel.kind) == (phase, BATCHED)
        )
        for phase in (FORWARD, BACKWARD)
    }
    last = next(kernel for kernel in of_type if kernel.label == "scan")
    made = 2 * 2 * int(last.rows) * int(last.inner) * int(last.cols)  # of two layers; not computed again
    assert work[BACKWARD] == 3 * work[FORWARD] - made
    assert any(kernel.kind == ON_ACTIVATIONS for kernel in of_type)
    results = fastflow.evaluate(
        "model=graph", f"model.file={path}", "chip=h100_sxm", "model.dtype=bf16", "system.devices=8",
        "parallel.strategy=d4-p2,TP-8,TP-2-d4,RC-1-8,CR-8", "model.training=true,false",
    )  # fmt: skip
    assert (results["reason"] == "").all()
    explained = fastflow.explain_sharding(
        "model=graph", f"model.file={path}", "system.devices=8", "parallel.strategy=TP-8"
    ).set_index("kernel")
    assert set(explained.loc[["scan"], "makes"]) == {"tp: S(heads)"}
    explained = fastflow.explain_sharding(
        "model=graph", f"model.file={path}", "system.devices=8", "parallel.strategy=TP-2-c4"
    ).set_index("kernel")
    assert set(explained.loc[["scan"], "makes"]) == {"tp: S(heads), cp: S(heads)"}
    assert set(explained.loc[["in", "scan"], "exchange"].str.split(",").str[0]) == {"all-to-all along cp"}


def test_a_single_token_updates_its_states_in_one_pass(file):
    path = file(FILE.replace("TYPE", "state_space").replace("sequence: 512", "sequence: 1"))
    (scan,) = {
        (int(kernel.rows), int(kernel.cols), kernel.kind)
        for kernel in kernels(read_network(path), False, UNSIZED)
        if kernel.form.type.name == "state_space"
    }
    assert scan == (4 * 8, 64 * 128, ON_ACTIVATIONS)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("batch: batch, ", "batch: 3, ", "batch is a divisor of the 2048 rows of the model, not 3"),
        ("state: state, ", "state: state, groups: 3, ", "groups is a divisor of its 8 heads, not 3"),
        ("cols: 2568", "cols: 2500", "reads is a kernel of 2560 to 2576 columns"),
        ("batch: batch, ", "", "gives layers.block.kernels.scan.batch"),
    ],
)
def test_mistakes_name_their_node(before, after, message, file):
    with pytest.raises(InputError, match=message):
        read_network(file(FILE.replace("TYPE", "state_space").replace(before, after)))
