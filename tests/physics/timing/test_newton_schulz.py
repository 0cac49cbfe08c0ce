"""Newton-Schulz iterations: operations counted one by one, and the time that follows from a chip's rates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastflow
from fastflow.physics.timing.newton_schulz import time_iterations
from tests.naive import optimizers

LLAMA = ("model=llama3_8b", "system=dgx_h100", "model.layers=4", "model.batch=16")


class Rates:
    """A device of 1 Tflop/s and 1 TB/s, without any latency."""

    levels = 1
    launch = np.zeros(1)
    matrix_flops = vector_flops = np.full(1, 1e12)

    class memories:  # noqa: N801
        bandwidth = np.full((1, 2), 1e12)

    class library:  # noqa: N801
        launch = latency = late_launch = np.zeros(1)


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 7), cols=st.integers(1, 7), matrices=st.integers(1, 3))
def test_operations_are_those_of_three_products(rows, cols, matrices):
    one, zero = np.ones(1), np.zeros(1)
    sides = np.array([min(rows, cols)]), np.array([max(rows, cols)])
    launched, flop = time_iterations(
        Rates, np.zeros(1, dtype=np.int64), sides=sides, matrices=matrices * one, iterations=5.0 * one,
        element=zero, moved=zero, passed=zero,
    )  # fmt: skip
    assert flop[0] == 5 * matrices * optimizers.iteration_flop(rows, cols)
    assert launched.time[0] == pytest.approx(flop[0] / 1e12)


def run(*overrides):
    return fastflow.evaluate(*LLAMA, *overrides).iloc[0]


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_devices_gather_momenta_where_they_shard_them(zero):
    """In bf16, of matrices in hidden layers: as many bytes as the weights once more."""
    base = (*LLAMA, "parallel.strategy=d8", f"parallel.zero_stage={zero}")

    def gathered(optimizer):
        table = fastflow.explain_sharding(*base, f"model.optimizer={optimizer}")
        updates = table[table["kernel"].str.endswith(" update")]
        return dict(zip(updates["kernel"], updates["fetch_B"], strict=True))

    adam, muon = gathered("adam"), gathered("muon")
    hidden = 4096 * 6144 + 4096 * 4096 + 4096 * 2 * 14336 + 14336 * 4096
    more = {name: muon[name] - adam[name] for name in adam}
    assert sum(more.values()) == (2 * hidden if zero else 0)
    assert more["embedding update"] == more["logits update"] == 0


def test_devices_share_the_iterations_where_they_shard_the_state():
    """Eight devices iterate on an eighth of the matrices each; each of two has half of each matrix."""
    whole, sharded = (
        run("parallel.strategy=d8", f"parallel.zero_stage={zero}", "model.optimizer=muon") for zero in (0, 1)
    )
    adam = run("parallel.strategy=d8", "parallel.zero_stage=0")
    iterations = whole["optimizer_s"] - adam["optimizer_s"]
    assert iterations > 0
    assert sharded["optimizer_s"] < whole["optimizer_s"] / 4
    assert whole["optimizer_B"] < adam["optimizer_B"]
