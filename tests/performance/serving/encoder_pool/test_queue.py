"""The queue of encoders: against results of queueing theory, and by hand."""

import numpy as np
import pytest

from fastflow.performance.serving.encoder_pool.queue import encoded_at
from fastflow.performance.serving.requests.load import arrivals_of
from fastflow.performance.serving.simulator.latencies import columns_of
from fastflow.performance.serving.simulator.run import simulate
from tests.support.fleets import per_token
from tests.support.servers import loads, servers


def wait_of(encoders, rate, encode_s=1.0, requests=200_000):
    """Return the mean wait at encoders that take equally long for all requests."""
    free, sent = np.zeros(encoders), arrivals_of(rate, requests)
    return np.mean([encoded_at(free, encode_s, when) - when - encode_s for when in sent.tolist()])


@pytest.mark.parametrize("utilization", [0.3, 0.6, 0.8])
def test_one_encoder_is_a_queue_with_equal_times(utilization):
    """M/D/1 (Pollaczek and Khinchine)."""
    expected = utilization / (2.0 * (1.0 - utilization))
    assert wait_of(1, utilization) == pytest.approx(expected, rel=0.05)


def test_several_encoders_wait_half_as_long_as_with_random_times():
    """M/D/2: near half of M/M/2's wait, which is r^2 / (1 - r^2) times the mean time (Tijms, 2003)."""
    utilization = 0.8
    random_times = utilization**2 / (1.0 - utilization**2)
    assert wait_of(2, 2.0 * utilization) == pytest.approx(0.5 * random_times, rel=0.08)


def test_a_closed_loop_is_as_fast_as_its_encoders():
    """The server takes 1 ms a token, each of two encoders 0.1 s a request: 20 requests a second."""
    server = {"iteration_s": 0.0, "row_s": 0.0, "encoders": 2, "encode_s": 0.1, "send_s": 0.01}
    load = {"isl": 1.0, "osl": 1.0, "concurrency": 8, "requests": 800}
    row = {name: column[0] for name, column in columns_of(
        simulate(per_token(), servers(server), loads(load))
    ).items()}  # fmt: skip
    assert row["requests_per_s"] == pytest.approx(20.0, rel=0.01)
    assert row["e2e_s"] == pytest.approx(8 / 20.0, rel=0.02)  # Little's law
    assert row["ttft_s"] > row["arrival_s"] > 0.1 + 0.01


def test_without_encoders_requests_arrive_when_they_are_sent():
    row = columns_of(simulate(per_token(), servers({}), loads({"isl": 4.0, "osl": 4.0})))
    assert row["arrival_s"][0] == 0.0
