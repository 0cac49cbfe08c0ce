"""DeepEP's exchanges: each against one written out by hand, and how they behave."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.physics.network.deepep import (
    COMBINE,
    DISPATCH,
    LOW_LATENCY,
    NORMAL,
    Exchange,
    Links,
    exchange_time,
)
from fastflow.physics.network.moe_dispatch import Routing, expected_parts
from tests.naive import deepep as naive
from tests.support.checks import cases, near

LINKS = Links(launch=2.4e-6, step=0.8e-6, bandwidth=370e9, sms=132.0)


@given(
    st.integers(1, 1 << 17), st.sampled_from([1024, 2048, 7168]), st.integers(1, 8),
    st.sampled_from([8, 16, 128, 256, 384, 512]), st.sampled_from([2, 4, 8]),
    st.floats(1.0, 8.0), st.integers(1, 64),
)  # fmt: skip
@cases(300)
def test_each_is_as_written_out_by_hand(tokens, hidden, topk, experts, ranks, copies, sms):
    exchange = Exchange(float(tokens), float(hidden), float(topk), float(experts), float(ranks), copies)
    links = (LINKS.launch, LINKS.step, LINKS.bandwidth)
    of_sms = (tokens, hidden, ranks, copies, sms, *links)
    of_experts = (tokens, hidden, topk, experts, ranks, int(LINKS.sms), *links)
    for mode, part, expected in (
        (NORMAL, DISPATCH, naive.normal_dispatch(*of_sms)),
        (NORMAL, COMBINE, naive.normal_combine(*of_sms)),
        (LOW_LATENCY, DISPATCH, naive.low_latency_dispatch(*of_experts)),
        (LOW_LATENCY, COMBINE, naive.low_latency_combine(*of_experts)),
    ):
        assert near(exchange_time(mode, part, float(sms), exchange, LINKS), expected, rel=1e-9)


@pytest.mark.parametrize(("experts", "topk", "ranks"), [(8, 2, 8), (16, 3, 4), (16, 4, 8), (8, 1, 2)])
def test_copies_are_those_of_every_choice(experts, topk, ranks):
    assert near(
        expected_parts(Routing(experts, topk, 1, 1), ranks), naive.copies(experts, topk, ranks), rel=1e-9
    )


@pytest.mark.parametrize("mode", [NORMAL, LOW_LATENCY])
@pytest.mark.parametrize("part", [DISPATCH, COMBINE])
def test_more_takes_longer_and_more_sms_less(mode, part):
    def time(tokens=512.0, hidden=4096.0, topk=8.0, copies=5.0, sms=8.0):
        return exchange_time(mode, part, sms, Exchange(tokens, hidden, topk, 256.0, 8.0, copies), LINKS)

    times = [time(tokens=float(2**power)) for power in range(18)]
    assert (np.diff(times) > 0.0).all()
    assert time(hidden=7168.0) > time()
    assert time(topk=4.0, copies=3.0) < time()
    assert (time(sms=24.0) < time()) == (mode == NORMAL)
