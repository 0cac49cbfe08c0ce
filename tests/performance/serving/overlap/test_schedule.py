"""The schedule of a device's nano-batches: limits, and against the oracle."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastflow.performance.serving.overlap.schedule import KINDS, layer_time, makespan
from fastflow.performance.serving.overlap.shares import (
    ATTENTION_SPEED,
    MULTIMEM_SPEED,
    NETWORK_SPEED,
    speeds_of_sets,
)
from tests.naive import overlap as naive

SPEEDS = speeds_of_sets(np.array([0.4]), np.array([27.0]), np.array([108.0]), np.array([False]))[0]
WORK = st.one_of(st.just(0.0), st.integers(1, 60).map(float))
WORKS = st.lists(WORK, min_size=6, max_size=6)


def naive_speeds(attention, network, of_network):
    def of(share):
        return Fraction(float(np.interp(share, *ATTENTION_SPEED)))

    attention = min(attention, 1.0 - network)
    return naive.speeds(
        Fraction(attention), Fraction(network), of(attention), of(1.0 - network), Fraction(of_network)
    )


@settings(max_examples=60, deadline=None)
@given(
    works=WORKS,
    batches=st.integers(1, 4),
    attention=st.floats(0.05, 0.7),
    sms=st.integers(1, 32),
    is_multimem=st.booleans(),
)
def test_a_layer_takes_what_the_oracle_says(works, batches, attention, sms, is_multimem):
    works = [work + 0.37 * i * (work > 0) for i, work in enumerate(works)]  # few ends at the same time
    table = speeds_of_sets(
        np.array([attention]), np.array([float(sms)]), np.array([128.0]), np.array([is_multimem])
    )[0]
    network = sms / 128.0
    of_network = np.interp(sms, *MULTIMEM_SPEED) if is_multimem else np.interp(network, *NETWORK_SPEED)
    expected = naive.layer_time(works, batches, naive_speeds(attention, network, float(of_network)))
    assert layer_time(np.array(works), batches, table) == pytest.approx(float(expected), rel=1e-6)


@settings(max_examples=200, deadline=None)
@given(works=WORKS, batches=st.integers(1, 6), attention=st.floats(0.05, 0.9), sms=st.integers(1, 100))
@example(works=[0.0, 1.0, 1.0, 0.0, 0.0, 1.0], batches=3, attention=0.75, sms=52)  # no share is left
def test_not_faster_than_a_kind_nor_slower_than_one_after_the_other(works, batches, attention, sms):
    table = speeds_of_sets(
        np.array([attention]), np.array([float(sms)]), np.array([108.0]), np.array([False])
    )[0]
    works = np.array(works)
    time = layer_time(works, batches, table)
    of_kinds = [sum(w for w, k in zip(works, KINDS, strict=True) if k == kind) for kind in range(3)]
    assert batches * max(of_kinds) * (1 - 1e-12) <= time <= batches * works.sum() * (1 + 1e-12)
    for layers in (1, 5):
        whole = makespan(works, batches, table, layers) if works.any() else 0.0
        assert layers * batches * max(of_kinds) * (1 - 1e-9) <= whole
        assert whole <= layers * batches * works.sum() * (1 + 1e-9)


def test_one_nano_batch_runs_its_operations_one_after_the_other():
    works = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert layer_time(works, 1, SPEEDS) == works.sum() == makespan(works, 1, SPEEDS, 1)


def test_products_alone_gain_nothing():
    works = np.array([1.0, 0.0, 1.0, 0.0, 4.0, 0.0])
    assert layer_time(works, 2, SPEEDS) == pytest.approx(12.0)


def test_short_exchanges_cost_products_their_share_of_sms():
    """As TokenWeave: all exchanges are hidden, and products run on what is left of the device meanwhile."""
    works = np.array([5.0, 0.0, 0.0, 1.0, 5.0, 1.0])
    speeds = speeds_of_sets(np.array([0.4]), np.array([8.0]), np.array([132.0]), np.array([True]))[0]
    assert layer_time(works, 2, speeds) == pytest.approx(20.0 + 4.0 * 8.0 / 132.0)


def test_products_without_attention_between_them_are_one_block():
    """As TokenWeave: the all-reduce of one half has the whole block of attention of the other half."""
    parts, block = np.array([3.0, 0.0, 1.0, 2.5, 4.0, 2.5]), np.array([4.0, 0.0, 0.0, 2.5, 4.0, 2.5])
    assert layer_time(parts, 2, SPEEDS) == pytest.approx(layer_time(block, 2, SPEEDS), rel=1e-12)


def test_attention_behind_products_of_the_other_nano_batch():
    works = np.array([4.0, 2.0, 4.0, 0.0, 0.0, 0.0])
    hidden = 2.0 / 0.8  # time in which attention runs at 0.4 of the device, and products at 0.6
    assert layer_time(works, 2, SPEEDS) == pytest.approx(16.0 + 2 * 0.4 * hidden)


def test_nothing_and_endless_works():
    assert layer_time(np.zeros(6), 2, SPEEDS) == 0.0
    assert layer_time(np.array([1.0, np.inf, 0, 0, 0, 0]), 2, SPEEDS) == np.inf


def test_shares_of_the_literature():
    assert SPEEDS[0b011].tolist() == [0.6, pytest.approx(0.8), 0.0]
    assert SPEEDS[0b101].tolist() == [0.75, 0.0, pytest.approx(0.5 + 0.05 / 0.6 * 0.4)]
    assert SPEEDS[0b111, 0] == pytest.approx(0.35)
    multimem = speeds_of_sets(np.full(3, 0.4), np.array([2.0, 4.0, 8.0]), np.full(3, 132.0), np.full(3, True))
    assert multimem[:, 0b101, 2].tolist() == [0.65, 0.98, 1.0]


@given(st.floats(0.01, 0.99), st.integers(1, 100), st.booleans())
def test_together_is_never_slower_than_one_after_the_other(attention, sms, is_multimem):
    speeds = speeds_of_sets(
        np.array([attention]), np.array([1.0 * sms]), np.array([108.0]), np.array([is_multimem])
    )[0]
    assert (speeds[1:].sum(axis=1) >= 1.0 - 1e-12).all()
