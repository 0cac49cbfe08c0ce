"""Early stopping: only where the whole run misses the limit, and as soon as its requests show it."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.performance.serving.fleet import loading, simulate
from fastflow.performance.serving.fleet.early_stop import EarlyStop, early_stop
from fastflow.performance.serving.fleet.loading import Times
from fastflow.performance.serving.fleet.run import RequestResults, results_of
from fastflow.performance.serving.fleet.state import Served
from fastflow.performance.serving.requests.load import STOPPED, TOO_LARGE
from fastflow.performance.serving.slo import GOODPUT, LIMITS, MEAN, PERCENTILE, STATISTICS, Limit
from tests.naive import early_stop as naive
from tests.performance.serving.fleet.test_loading import assert_same
from tests.support.checks import cases
from tests.support.fleets import fleet_of_sessions, of_package, random_fleet

EVENTS = ("arrived", "admitted", "first", "end")


def drawn(random):
    """Return requests as dictionaries, and their times as a simulation has them."""
    count, host = int(random.choice([1, 2, 5, 40])), float(random.choice([0.0, 0.3]))
    sent, osl = np.sort(20.0 * random.random(count)), random.integers(1, 9, count)
    waits, runs = random.choice([0.0, 1.0, 3.0], count), random.choice([0.5, 2.0], count)
    first = sent + waits + 0.1
    end = first + runs * (osl - 1)
    columns = {"sent": sent, "first": first, "end": end, "osl": osl}
    requests = [{name: column[i].item() for name, column in columns.items()} for i in range(count)]
    return [request | {"host": host} for request in requests], columns


def seen_at(columns, now):
    """Return (times, served) at a time: what has not happened yet is negative."""
    known = {name: np.where(columns[name] <= now, columns[name], -1.0) for name in naive.EVENTS}
    isl, none = np.ones_like(columns["osl"]), np.zeros_like(columns["osl"])
    times = Times(isl, columns["osl"], known["sent"], known["first"], known["end"])
    return times, Served(none, known["sent"], none, none, none, 0.0 * none, none)


def stops_at(limit, columns, host):
    """Return when to stop at a limit."""
    trace = SimpleNamespace(
        isl=np.ones_like(columns["osl"]), osl=columns["osl"], deadline=np.full(columns["osl"].size, 0.5)
    )
    scenario = SimpleNamespace(request_s=np.array([host]), inputs={LIMITS["tpot"]: np.array([1.0])})
    return EarlyStop(
        (limit,), lambda times, served: results_of(scenario, 0, trace, times, served), columns["sent"].max()
    )


@cases(300)
@given(seed=st.integers(0, 2**32), column=st.sampled_from([*STATISTICS]), share=st.floats(0.3, 1.3))
def test_it_stops_only_where_the_whole_run_misses_the_limit(seed, column, share):
    random = np.random.default_rng(seed)
    requests, columns = drawn(random)
    of, percentile = STATISTICS[column]
    whole = naive.statistic(requests, of, percentile)
    limit = share * (1.0 if whole is None else whole)
    stop = stops_at(Limit(of, percentile, limit, "missed"), columns, requests[0]["host"])
    misses = naive.misses(requests, of, percentile, limit)
    for now in [*np.sort(25.0 * random.random(5)), 1e9]:
        has_stopped = stop.why(*seen_at(columns, now), now) == "missed"
        assert misses or not has_stopped
        if percentile == MEAN:
            # a mean is known exactly, a percentile up to the values that it lies between
            soonest = [naive.soonest(request, now) for request in requests]
            least = naive.statistic(soonest, of, percentile)
            assert least is None or has_stopped == (least > limit) or least == pytest.approx(limit)


@cases(200)
@given(seed=st.integers(0, 2**32), column=st.sampled_from([*STATISTICS]))
def test_it_stops_where_all_are_late(seed, column):
    """With half of the least latency as the limit, all requests are late at the end, and none at first."""
    requests, columns = drawn(np.random.default_rng(seed))
    of, percentile = STATISTICS[column]
    values = [value for request in requests if (value := naive.latency(request, of)) is not None]
    if not values or min(values) <= 0.0:
        return
    limit, host = Limit(of, percentile, 0.5 * min(values), "missed"), requests[0]["host"]
    stop = stops_at(limit, columns, host)
    assert stop.why(*seen_at(columns, 1e9), 1e9) == "missed"
    least = 0.0 if of == "tpot" else host
    assert stop.why(*seen_at(columns, -1.0), 0.0) == ("missed" if least > limit.value else "")


@cases(200)
@given(seed=st.integers(0, 2**32), share=st.floats(0.3, 2.0))
def test_goodput_is_at_most_what_is_not_late_over_the_least_duration(seed, share):
    random = np.random.default_rng(seed)
    requests, columns = drawn(random)
    within = [
        naive.latency(request, "ttft") <= 0.5 and (naive.latency(request, "tpot") or 0.0) <= 1.0
        for request in requests
    ]
    whole = sum(within) / columns["end"].max()
    stop = stops_at(Limit(GOODPUT, MEAN, share * (whole or 1.0), "missed"), columns, requests[0]["host"])
    for now in columns["end"].max() * random.random(5):  # a simulation that goes on
        if stop.why(*seen_at(columns, now), now):
            assert whole < share * (whole or 1.0)
    last = columns["end"].max()
    if whole and abs(share - 1.0) > 1e-6:
        assert bool(stop.why(*seen_at(columns, last), last)) == (share > 1.0)


@cases(60)
@given(seed=st.integers(0, 2**32))
def test_what_a_simulation_has_not_seen_happens_later(seed):
    """At each look the times so far are those of the whole run, and all others are not before now."""
    fleet = random_fleet(np.random.default_rng(seed))
    whole, looks = of_package(fleet), []

    def look(times, served, now):
        looks.append(now)
        for name in EVENTS:
            got = getattr(served if name == "arrived" else times, name)
            later = got < 0.0
            expected = getattr(whole.served, name)
            assert np.array_equal(got[~later], expected[~later]), name
            assert (expected[later] >= now).all(), name
        return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "LEAST_WINDOW", 1)
        assert_same(of_package(fleet, stop=look), whole)
    assert looks == sorted(looks)


def test_a_stopped_simulation_serves_a_part_of_its_requests(monkeypatch):
    fleet, looks = fleet_of_sessions(400, 4), []
    monkeypatch.setattr(loading, "LEAST_WINDOW", 1)

    def third(times, served, now):
        looks.append(int((times.end >= 0.0).sum()))
        return "late" if len(looks) == 3 else ""

    got = of_package(fleet, stop=third)
    assert got.refused == STOPPED
    ended = int((got.served.end >= 0.0).sum())
    assert looks[2] == ended
    assert 0 < looks[0] < looks[1] < ended < 0.3 * len(fleet["trace"]["isl"])


def test_a_long_trace_has_few_looks_and_a_short_one_none():
    looks = []
    of_package(fleet_of_sessions(1000, 20), stop=lambda *_: looks.append(0) or "")
    assert 14 <= len(looks) <= 16
    looks.clear()
    of_package(fleet_of_sessions(200, 5), stop=lambda *_: looks.append(0) or "")
    assert not looks


def test_a_fleet_whose_tables_may_be_too_large_is_refused_as_without(monkeypatch):
    """Fewer requests at a time would fit."""
    monkeypatch.setattr(simulate, "MAX_BYTES", 12 * 100)
    monkeypatch.setattr(loading, "LEAST_WINDOW", 1)
    looks = []
    got = of_package(fleet_of_sessions(40, 4), stop=lambda *_: looks.append(0) or "")
    assert got.refused == TOO_LARGE
    assert not looks


def test_limits_of_an_slo_count_too():
    inputs = {key: np.array([1.5]) for key in LIMITS.values()} | {PERCENTILE: np.array([99.0])}
    trace = SimpleNamespace(sent=np.array([1.0, 7.0, 9.0]), follower=np.array([2, -1, -1]), isl=np.ones(3))
    scenario = SimpleNamespace(stop_at=(), inputs=inputs)
    stop = early_stop(scenario, 0, trace, RequestResults)
    assert [(limit.of, limit.percentile, limit.value) for limit in stop.limits] == [
        ("ttft", 99.0, 1.5), ("tpot", 99.0, 1.5),
    ]  # fmt: skip
    assert stop.limits[0].text == "ttft at the 99th percentile is above serve.slo.ttft=1.5 s"
    assert stop.last_sent == 7.0
    inputs[PERCENTILE][0], inputs[LIMITS["ttft"]][0] = 0.0, 0.0
    (limit,) = early_stop(scenario, 0, trace, RequestResults).limits
    assert limit.text == "mean tpot is above serve.slo.tpot=1.5 s"
    assert early_stop(SimpleNamespace(stop_at=None, inputs=inputs), 0, trace, RequestResults) is None
    inputs[LIMITS["tpot"]][0] = 0.0
    assert early_stop(scenario, 0, trace, RequestResults) is None
