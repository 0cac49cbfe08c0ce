"""Periods of a trace: which requests each has, and the files that they are written to."""

import numpy as np
import pytest

from fastflow.analysis.search.fleets.periods import arrivals_of, periods_of, write_period
from fastflow.physics.workload.request_trace import read_trace
from tests.naive import fleet_search as naive
from tests.performance.serving.fleet.test_predict import sessions


@pytest.mark.parametrize(("requests", "speed", "length"), [(0, 1.0, 5.0), (100, 1.0, 7.0), (0, 2.0, 3.0)])
def test_each_request_is_in_one_period(tmp_path, requests, speed, length):
    trace = read_trace(sessions(tmp_path))
    periods = periods_of(trace, requests, speed, length)
    count = requests or trace.isl.size
    arrivals = (arrivals_of(trace)[:count] / speed).tolist()
    assert [period.requests.tolist() for period in periods] == naive.periods(arrivals, length)
    assert [period.start_s for period in periods] == [length * number for number in range(len(periods))]


def test_a_quiet_period_is_empty(tmp_path):
    path = tmp_path / "gap.csv"
    path.write_text("arrival_time,isl,osl\n0,10,5\n25,10,5\n", encoding="utf-8")
    assert [period.requests.size for period in periods_of(read_trace(str(path)), 0, 1.0, 10.0)] == [1, 0, 1]


def test_a_period_reads_back_as_its_requests(tmp_path):
    trace = read_trace(sessions(tmp_path))
    for number, period in enumerate(periods_of(trace, 0, 1.0, 6.0)):
        path = tmp_path / f"{number}.csv"
        write_period(trace, period, path)
        part = read_trace(str(path))
        for name in ("isl", "osl", "waits"):
            assert getattr(part, name).tolist() == getattr(trace, name)[period.requests].tolist()
        assert np.ptp(arrivals_of(part)) == pytest.approx(np.ptp(arrivals_of(trace)[period.requests]))
        followers = trace.follower[period.requests] - period.requests[0]
        assert part.follower.tolist() == np.maximum(followers, -1).tolist()


def test_hashes_go_with_their_requests(tmp_path):
    path = tmp_path / "hashes.jsonl"
    lines = [
        f'{{"timestamp": {1000 * i}, "input_length": 1024, "output_length": 5, "hash_ids": [{i}, {i + 1}]}}'
             for i in range(6)]  # fmt: skip
    path.write_text("\n".join(lines), encoding="utf-8")
    trace = read_trace(str(path))
    period = periods_of(trace, 0, 1.0, 2.0)[1]
    write_period(trace, period, tmp_path / "part.csv")
    part = read_trace(str(tmp_path / "part.csv"))
    assert part.hash_ids.tolist() == [2, 3, 3, 4]
    assert part.hash_offsets.tolist() == [0, 2, 4]
