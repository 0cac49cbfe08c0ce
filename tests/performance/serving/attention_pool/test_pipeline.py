"""The closed form of the pipeline of micro-batches against its events."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.performance.serving.attention_pool.pipeline import Trip, pipelined_s
from tests.naive.attention_pool import STAGES, makespan

times = st.integers(0, 40).map(float)


@given(st.tuples(times, times, times, times), st.integers(1, 7), st.integers(1, 9))
def test_closed_form_is_that_of_the_events(seconds, microbatches, layers):
    expected = makespan(dict(zip(STAGES, seconds, strict=True)), microbatches, layers)
    trip = Trip(*map(np.array, seconds))
    assert pipelined_s(trip, np.array(float(microbatches)), np.array(float(layers))) == float(expected)


@pytest.mark.parametrize(
    ("attention", "rest", "sent", "microbatches", "layers"),
    [(4.0, 4.0, 1.0, 3, 32), (5.0, 3.0, 2.0, 3, 56), (2.0, 7.0, 0.0, 2, 40), (6.0, 6.0, 6.0, 4, 80)],
)
def test_full_pipeline_of_megascale_infer(attention, rest, sent, microbatches, layers):
    """Equations 1 to 5 of arXiv:2504.02263, section 4.1: enough micro-batches hide transfers."""
    slowest = max(attention, rest)
    assert sent <= slowest
    assert microbatches * slowest >= attention + rest + 2.0 * sent
    trip = Trip(*map(np.array, (attention, sent, rest, sent)))
    expected = (attention + rest + 2.0 * sent) + slowest * (microbatches * layers - 1.0)
    assert pipelined_s(trip, np.array(float(microbatches)), np.array(float(layers))) == expected


def test_a_single_micro_batch_hides_nothing():
    trip = Trip(*map(np.array, (3.0, 1.0, 5.0, 2.0)))
    assert pipelined_s(trip, np.array(1.0), np.array(10.0)) == 110.0
