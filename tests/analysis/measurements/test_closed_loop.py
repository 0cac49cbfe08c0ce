"""Throughput of closed loops, against counting the answers of clients one after another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.analysis.measurements.closed_loop import TPOT, TTFT, closed_loop_throughput, time_of_line
from tests.support.checks import cases, near


def counted_rate(clients, answers, ttft, tpot, devices):
    """Each client asks as soon as it has its answer, and gets the given answers [tokens] in turn."""
    tokens = seconds = 0.0
    for length in answers:
        seconds += ttft
        for _ in range(length):
            seconds += tpot
            tokens += 1
    return clients * tokens / seconds / devices


@given(
    st.integers(1, 64), st.lists(st.integers(1, 50), min_size=1, max_size=8), st.floats(1e-3, 10.0),
    st.floats(1e-3, 0.5), st.integers(1, 16),
)  # fmt: skip
@cases(80)
def test_the_rate_is_what_clients_count(clients, answers, ttft, tpot, devices):
    mean = np.array([np.mean(answers)])
    rate = closed_loop_throughput(np.array([clients]), mean, np.array([ttft]), np.array([tpot]), devices)
    assert near(rate[0], counted_rate(clients, answers, ttft, tpot, devices), 1e-9)


ROWS = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from([TTFT, TPOT]), st.floats(1e-3, 9.0)), min_size=1, max_size=9
)


@given(ROWS)
@cases(80)
def test_the_time_of_a_line_is_its_first(rows):
    line, part, measured = map(np.array, zip(*rows, strict=True))
    for name in (TTFT, TPOT):
        expected = [
            next((time for other, of, time in rows if (other, of) == (number, name)), np.nan)
            for number, _, _ in rows
        ]
        assert time_of_line(line, part, measured, name) == pytest.approx(expected, nan_ok=True)
