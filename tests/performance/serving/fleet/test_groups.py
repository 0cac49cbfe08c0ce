"""Results of classes of service, of turns and of sessions: against their definitions."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.performance.serving.fleet.by_group import by_class, by_turn
from fastflow.performance.serving.fleet.by_session import later_hit_rate, session_times
from fastflow.performance.serving.fleet.run import results_of
from fastflow.performance.serving.slo import LIMITS
from tests.naive import fleet_results as naive
from tests.support.checks import cases

CLOSE = {"rel": 1e-9, "abs": 1e-12}


def drawn(random):
    """Return (requests as dictionaries, the file of their trace, their results, the duration of the run).

    The file may have more requests than were sent.
    """
    count, more = int(random.integers(1, 40)), int(random.integers(0, 4))
    host, limit = float(random.choice([0.0, 0.3])), float(random.choice([0.0, 1.0]))
    sent, spans = 20.0 * random.random(count), random.random((2, count))
    first, end = sent + spans[0], sent + spans[0] + 5.0 * spans[1]
    isl, osl = random.integers(1, 9, (2, count))
    cached, read = random.integers(0, isl), random.integers(0, isl)
    most = int(random.choice([0, 6]))  # 0: no session
    session, turn = random.integers(-1, most, count + more), random.integers(0, 9, count + more)
    turn[session < 0] = 0
    names = ("b", "a", "c")[: random.integers(0, 4)]
    service_class = random.integers(-1, max(len(names), 1), count + more) if names else session * 0 - 1
    file = SimpleNamespace(session=session, turn=turn, service_class=service_class, class_names=names)
    served = SimpleNamespace(arrived=sent, cached=cached, read=read)
    times = SimpleNamespace(first=first, end=end, admitted=sent)
    scenario = SimpleNamespace(
        request_s=np.array([host]), inputs={key: np.array([limit]) for key in LIMITS.values()}
    )
    deadline = np.where(random.random(count) < 0.5, limit or np.inf, 0.4)  # of a class, or of the request
    trace = SimpleNamespace(isl=isl, osl=osl, deadline=deadline)
    results = results_of(scenario, 0, trace, times, served)
    requests = []
    for i in range(count):
        request = {"sent": sent[i], "first": first[i], "end": end[i], "host": host, "isl": isl[i]}
        request |= {"osl": osl[i], "cached": cached[i], "read": read[i]}
        request["session"] = None if session[i] < 0 else session[i]
        request["turn"] = turn[i]
        request["class"] = None if service_class[i] < 0 else names[service_class[i]]
        late = first[i] - sent[i] + host > deadline[i]
        slow = limit > 0.0 and (end[i] - first[i]) / max(osl[i] - 1, 1) > limit
        request["within"] = not (late or slow)
        requests.append(request)
    return requests, file, results, end.max() - sent.min()


@cases(200)
@given(st.integers(0, 2**32))
def test_results_of_groups_and_sessions_agree_with_their_definitions(seed):
    requests, file, results, duration = drawn(np.random.default_rng(seed))
    for made, definition in ((by_class, naive.by_class), (by_turn, naive.by_turn)):
        text, expected = made(file, results, duration), definition(requests, duration)
        assert bool(text) == bool(expected)
        got = json.loads(text or "{}")
        assert got.keys() == expected.keys()
        for name, group in expected.items():
            assert got[name] == pytest.approx(group, **CLOSE), name
    times, expected = session_times(file, results), naive.sessions(requests)
    lasts, waits = zip(*(expected[name] for name in sorted(expected)), strict=True) if expected else ((), ())
    assert times.duration.tolist() == pytest.approx(lasts, **CLOSE)
    assert times.wait.tolist() == pytest.approx(waits, **CLOSE)
    rate = naive.later_hit_rate(requests)
    assert later_hit_rate(file, results) == pytest.approx(np.nan if rate is None else rate, nan_ok=True)
    assert results.within.tolist() == [request["within"] for request in requests]


def test_the_draws_have_what_can_happen():
    """Classes, sessions and later turns, or none; requests of one token; limits that are missed."""
    seen = set()
    for seed in range(60):
        requests, file, results, duration = drawn(np.random.default_rng(seed))
        seen |= {("class", bool(by_class(file, results, duration)))}
        seen |= {("later", bool(naive.later_hit_rate(requests)))}
        seen |= {("within", bool(results.within.all())), ("one", bool(np.isnan(results.tpot_s).any()))}
        seen |= {("group", name) for name in json.loads(by_turn(file, results, duration) or "{}")}
    assert len(seen) == 4 * 2 + 4, seen
