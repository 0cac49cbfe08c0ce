"""The fast form of servers, against the simulation: how near it is, and where it is exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.serving.load import TAKEN, TOO_LONG, TOO_MANY
from fastflow.serving.simulate import simulate
from fastflow.serving.steady import steady
from fastflow.tables import take
from tests.checks import cases
from tests.servers import likely, loads, many_likely, realistic, servers
from tests.test_serving import random_load, random_server, random_times

SEEN = ("ttft_s", "tpot_s", "requests_per_s", "tokens_per_s", "decoding", "iterations", "cache")
BOUNDS = {  # of errors of 600 likely points: the median, and what 19 of 20 are below
    "ttft_s": (0.02, 0.18),
    "tpot_s": (0.004, 0.07),
    "tokens_per_s": (0.015, 0.075),
    "decoding": (0.015, 0.08),
    "iterations": (0.015, 0.08),
    "cache": (0.015, 0.07),
    "shared": (0.003, 0.02),
}


def errors(server, load, rows):
    """Return the errors of the fast form in the rows where both forms have a result."""
    times = realistic()
    server, load = take(server, rows), take(load, rows)
    got, expected = steady(times, server, load), simulate(times, server, load)
    both = (got.refused == TAKEN) & (expected.refused == TAKEN)
    keeps = both & (expected.preemptions == 0)
    return {name: np.abs(getattr(got, name) / getattr(expected, name) - 1)[keeps] for name in BOUNDS}, keeps


def test_it_is_near_the_simulation_of_likely_servers_and_loads():
    """Where requests keep their places; a seed that it was not made with."""
    server, load = many_likely(600, 7)
    found, keeps = errors(server, load, np.arange(600))
    assert keeps.sum() > 500
    for name, (median, most) in BOUNDS.items():
        assert np.median(found[name]) < median, name
        assert np.quantile(found[name], 0.95) < most, name


def test_it_has_no_bias():
    server, load = many_likely(600, 8)
    times = realistic()
    got, expected = steady(times, server, load), simulate(times, server, load)
    keeps = (got.refused == TAKEN) & (expected.preemptions == 0)
    for name in ("ttft_s", "tpot_s", "tokens_per_s"):
        ratio = (getattr(got, name)[keeps]) / getattr(expected, name)[keeps]
        assert abs(np.median(ratio) - 1) < 0.01, name


@cases(100)
@given(st.integers(0, 2**32))
def test_cohorts_of_like_requests_are_nearly_exact(seed):
    """Prompts that go first and alone, and fit the cache: all requests end together."""
    random = np.random.default_rng(seed)
    server, load = likely(random)
    at_once = int(2 ** random.uniform(0, 9))
    server |= {"mixes": False, "ranks": 1, "slots": 1, "chunks": True, "capacity": 10**9, "most": 1024}
    load |= {"spread": 0.0, "rate": 0.0, "concurrency": at_once, "requests": 10 * at_once}
    times = realistic()
    got, expected = (form(times, servers(server), loads(load)) for form in (steady, simulate))
    assert got.tpot_s[0] == pytest.approx(expected.tpot_s[0], rel=0.02)
    assert got.ttft_s[0] == pytest.approx(expected.ttft_s[0], rel=0.12)
    assert got.tokens_per_s[0] == pytest.approx(expected.tokens_per_s[0], rel=0.01)


@cases(300)
@given(st.integers(0, 2**32))
def test_whatever_the_server_it_is_a_number_or_a_reason(seed):
    random = np.random.default_rng(seed)
    server, load = random_server(random, int(random.integers(1, 4))), random_load(random)
    got = steady(random_times(random), servers(server | {"slots": int(random.integers(1, 4))}), loads(load))
    for name, column in got._asdict().items():
        assert np.isfinite(column).all(), name
        assert (column >= 0).all(), name
    if got.refused[0] == TAKEN:
        assert got.ttft_s[0] > 0
        parts = got.shared + got.head + got.decode + got.prefill + got.host + got.draft
        assert parts[0] == pytest.approx(1)


def test_one_request_alone():
    """Its prompt, then its passes one after the other."""
    times = realistic()
    for server in ({}, {"mixes": True}):
        load = {"concurrency": 1, "requests": 5}
        got, expected = (form(times, servers(server), loads(load)) for form in (steady, simulate))
        for name in SEEN:
            assert getattr(got, name)[0] == pytest.approx(getattr(expected, name)[0], rel=1e-3), name


def test_longer_than_the_cache_and_more_than_the_server_takes():
    times = realistic()
    server = servers({"capacity": 2047}, {"mixes": True}, {}, {})
    load = loads({}, *({"concurrency": 0, "rate": rate} for rate in (1000.0, 1000.0, 1.0)))
    got = steady(times, server, load)
    assert got.refused.tolist() == [TOO_LONG, TOO_MANY, TOO_MANY, TAKEN]
    for name in got._fields[1:]:
        assert (getattr(got, name)[:3] == 0).all()


def test_waits_grow_with_the_rate_until_the_server_is_full():
    times, rates = realistic(), np.linspace(0.5, 20.0, 40)
    got = steady(times, *(table(*rows) for table, rows in (
        (servers, [{"most": 64}] * 40), (loads, [{"concurrency": 0, "rate": rate} for rate in rates]),
    )))  # fmt: skip
    taken = got.refused == TAKEN
    assert 3 < taken.sum() < 40
    assert (np.diff(taken.astype(int)) <= 0).all()
    assert (np.diff(got.tpot_s[taken]) > 0).all()
    assert got.ttft_s[taken][-1] > 2 * got.ttft_s[0]


def test_more_at_once_than_places_wait_for_them():
    times = realistic()
    rows = [{"concurrency": n, "requests": 20 * n} for n in (64, 128, 256)]
    for mixes in (False, True):
        got = steady(times, servers(*[{"most": 64, "mixes": mixes}] * 3), loads(*rows))
        assert got.tpot_s == pytest.approx(got.tpot_s[0], rel=0.01)
        assert got.requests_per_s == pytest.approx(got.requests_per_s[0], rel=0.01)
        assert (np.diff(got.ttft_s) > 1.0).all()
