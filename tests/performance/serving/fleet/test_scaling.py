"""Pools whose servers come and go: the simulation against its definition, and by hand.

Iterations take 1 ms a token; a scaler is called each second.
"""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naive.autoscaling import BY_LATENCY, BY_QUEUE, BY_RATE, DRAINING, OFF, OPEN, STARTING
from tests.naive.prefix_cache import PER_FLEET, PER_RANK, PER_SERVER
from tests.performance.serving.fleet.test_simulate import check, compare
from tests.support.checks import cases
from tests.support.fleets import fleet_of, of_oracle, random_scaled_fleet, texts_of

ONE = texts_of((-1, 100))
"""A prompt of 100 tokens."""
SHORT, FOREVER = texts_of((-1, 1)), 1000.0
QUEUE, RATE, LATENCY = ({"kind": kind} for kind in (BY_QUEUE, BY_RATE, BY_LATENCY))
LOADED = {"name": "least_loaded"}


def sent_at(*times):
    """Return requests that are sent at these times."""
    return [{"sent": when} for when in times]


@cases(100)
@given(st.integers(0, 2**32))
def test_pools_that_scale_agree_with_their_definition(seed):
    compare(random_scaled_fleet(np.random.default_rng(seed)))


def test_the_draws_have_what_can_happen_to_servers():
    seen = Counter()
    for seed in range(100):
        requests, members = of_oracle(random_scaled_fleet(np.random.default_rng(seed)))
        seen["handed"] += any(request.handed for request in requests)
        seen["waits"] += any(request.routed > request.arrived for request in requests)
        every = [[state for _, state in server.states] for server in members]
        turns = {turn for states in every for turn in pairwise(states)}
        seen.update(turns)
    turns = (STARTING, OPEN), (STARTING, OFF), (OPEN, DRAINING), (DRAINING, OFF), (DRAINING, OPEN)
    assert min(seen[name] for name in ("handed", "waits", *turns)) >= 3, seen


def test_a_queue_that_grows_starts_a_server():
    """Three long requests at 1 s, for two a server: a second server starts, and is open from 1.5 s on."""
    rows = [{"osl": 1000}] * 3 + sent_at(1.4, 1.6)
    scaler = QUEUE | {"target": 2.0, "least": 1, "stabilization_s": FOREVER}
    fleet = fleet_of(SHORT, *rows, servers=[{"start_s": 0.5}] * 3, scaling=[scaler], router=LOADED)
    got = compare(fleet)
    assert got.served.rank.tolist() == [0, 0, 0, 0, 1]
    assert got.starts.tolist() == [0, 1, 0]
    last = got.served.end.max()
    assert got.on_s == pytest.approx([last, last - 1.0, 0.0])


@pytest.mark.parametrize(
    ("stabilization", "off_at"), [(0.0, 4.0), (1.0, 4.0), (1.5, 5.0), (3.0, 6.0), (FOREVER, 10.001)]
)
def test_a_server_is_turned_off_once_it_was_not_needed_for_long_enough(stabilization, off_at):
    """Four requests of 3.2 s need two servers at 1, 2 and 3 s, and none from 4 s on."""
    rows = [{"osl": 800}] * 4 + sent_at(10.0)
    scaler = QUEUE | {"target": 2.0, "least": 1, "stabilization_s": stabilization}
    got = compare(fleet_of(SHORT, *rows, servers=[{}, {}], scaling=[scaler]))
    assert got.served.end[:4] == pytest.approx(np.full(4, 3.2))
    assert got.on_s == pytest.approx([10.001, off_at - 1.0])


@pytest.mark.parametrize("least", [0, 1])
def test_where_no_server_is_on_the_first_request_waits_for_one_to_start(least):
    """It starts for 2 s, at 0 and at 10 s, and is off from 3 s on: nothing is in flight then."""
    server, scaler = {"start_s": 2.0}, QUEUE | {"least": least}
    got = compare(fleet_of(ONE, *sent_at(0.0, 10.0), servers=[server], scaling=[scaler]))
    served = got.served
    assert served.arrived.tolist() == [0.0, 10.0]
    if least:
        assert served.first == pytest.approx([0.1, 10.001])
        assert served.hit.tolist() == [0, 99]
        assert (got.starts[0], got.on_s[0]) == (0, pytest.approx(10.001))
    else:
        assert served.first == pytest.approx([2.1, 12.1])
        assert served.hit.tolist() == [0, 0]
        assert (got.starts[0], got.on_s[0]) == (2, pytest.approx(3.0 + 2.1))


@pytest.mark.parametrize(("scope", "read"), [(PER_RANK, 0), (PER_SERVER, 0), (PER_FLEET, 100)])
def test_a_server_that_is_off_has_lost_its_caches(scope, read):
    """All but the fleet's own memory, from which it reads the prompt of 100 tokens."""
    tier = {"scope": scope, "through": True, "latency_s": 0.01}
    got = compare(fleet_of(ONE, *sent_at(0.0, 10.0), scaling=[QUEUE], tiers=[tier]))
    assert got.served.read.tolist() == [0, read]
    assert got.served.first[1] == pytest.approx(10.011 if read else 10.1)


def test_what_a_server_loses_is_written_nowhere():
    """A tier that gets what the one above drops gets nothing as a server is turned off."""
    tier = {"scope": PER_FLEET, "through": False}
    served = check(fleet_of(ONE, *sent_at(0.0, 10.0), scaling=[QUEUE], tiers=[tier]))
    assert served.read.tolist() == [0, 0]


DRAINS = [*sent_at(0.0, 0.1, 1.4), {"sent": 1.5, "osl": 3000}, *sent_at(2.5, 3.2)]
"""By rate, one a second for each server: two are needed at 1 and 2 s, one is at 3 s and later.

In turns, of two servers that are open from 1 s on, the long request is on the second.
"""


def test_a_server_that_drains_ends_its_requests_and_takes_no_other():
    got = compare(fleet_of(SHORT, *DRAINS, servers=[{}, {}], scaling=[RATE | {"least": 1}]))
    assert got.served.rank.tolist() == [0, 0, 0, 1, 0, 0]
    assert got.served.end[3] == pytest.approx(4.5)
    assert got.on_s == pytest.approx([4.5, 3.5])
    usual = check(fleet_of(SHORT, *DRAINS, servers=[{}, {}], scaling=[RATE | {"least": 2}]))
    assert usual.rank.tolist() == [0, 1, 0, 1, 0, 1]


def test_a_server_is_off_once_its_last_request_has_ended():
    """The long one's end at 4.5 s is that of the second server, though the run goes on."""
    rows = [*DRAINS, *sent_at(10.0)]
    got = compare(fleet_of(SHORT, *rows, servers=[{}, {}], scaling=[RATE | {"least": 1}]))
    assert got.on_s == pytest.approx([10.001, 3.5])


def test_a_server_that_drains_opens_at_once_where_it_is_needed():
    """Two requests between 3 and 4 s need the second: it is open at 4 s, the third would be at 4.25 s."""
    rows = [*DRAINS, *sent_at(3.3, 4.1005, 4.2005)]
    got = compare(fleet_of(SHORT, *rows, servers=[{"start_s": 0.25}] * 3, scaling=[RATE | {"least": 1}]))
    assert got.served.rank.tolist() == [0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert got.starts.tolist() == [0, 1, 0]
    assert got.on_s[1] == pytest.approx(got.served.end.max() - 1.0)


def test_a_request_opens_a_server_that_drains_where_no_other_is_open():
    """A request of 5 s came at 0.5 s, none after it until 3.5 s: nobody waits for a start of 1 s then."""
    rows = [{"sent": 0.5, "osl": 5000}, *sent_at(3.5005)]
    got = compare(fleet_of(SHORT, *rows, servers=[{"start_s": 1.0}], scaling=[RATE]))
    assert got.served.first[0] == pytest.approx(1.501)
    assert got.served.admitted[1] == pytest.approx(3.5, abs=0.002)
    assert got.starts.tolist() == [1]


@pytest.mark.parametrize(("target", "starts"), [(0.10, [0, 1, 0]), (0.15, [0, 0, 0]), (0.05, [0, 1, 1])])
def test_first_tokens_that_come_late_start_servers(target, starts):
    """One after the other, two prompts take 0.1 and 0.2 s: 0.15 s on average, with one server."""
    texts = texts_of((-1, 100), (-1, 100), (-1, 1))
    rows = {}, {"text": 1}, {"text": 2, "sent": 1.5}
    scaler = LATENCY | {"target": target, "least": 1}
    got = compare(fleet_of(texts, *rows, servers=[{"most": 1}] * 3, scaling=[scaler]))
    assert got.starts.tolist() == starts


def test_without_first_tokens_as_many_servers_are_on_as_were():
    """Two from 1 s on, of which the second is idle until the end."""
    texts = texts_of((-1, 100), (-1, 100), (-1, 1))
    rows = {}, {"text": 1}, {"text": 2, "sent": 5.5}
    scaler = LATENCY | {"target": 0.1, "least": 1}
    got = compare(fleet_of(texts, *rows, servers=[{"most": 1}] * 2, scaling=[scaler]))
    assert got.on_s == pytest.approx([5.501, 4.501])


def test_servers_that_start_are_turned_off_before_one_that_is_open():
    """Three are needed at 1 s, two at 2 s, one at 3 s: the last ones would be open at 11 s."""
    rows = sent_at(0.0, 0.1, 0.2, 1.5, 1.6, 12.0)
    got = compare(fleet_of(SHORT, *rows, servers=[{"start_s": 10.0}] * 3, scaling=[RATE | {"least": 1}]))
    assert got.served.rank.tolist() == [0] * 6
    assert got.starts.tolist() == [0, 1, 1]
    assert got.on_s == pytest.approx([12.001, 2.0, 1.0])


def test_a_server_for_which_requests_wait_goes_on_starting():
    """No request comes between 1 and 3 s, but one waits since 0.5 s: its server is open at 3 s."""
    got = compare(fleet_of(ONE, *sent_at(0.5), servers=[{"start_s": 2.5}] * 2, scaling=[RATE]))
    assert got.served.first.tolist() == pytest.approx([3.1])
    assert got.starts.tolist() == [1, 0]


def test_requests_that_wait_for_a_server_are_routed_in_order_as_it_opens():
    """Those of 0 and 0.1 s start a server; at 1 s two more are needed, all of which take 2 s to start."""
    rows = sent_at(0.0, 0.1, 0.2, 2.5)
    got = compare(fleet_of(ONE, *rows, servers=[{"start_s": 2.0, "most": 1}] * 3, scaling=[QUEUE]))
    served = got.served
    assert served.rank.tolist()[:3] == [0, 0, 0]
    assert served.arrived.tolist() == [0.0, 0.1, 0.2, 2.5]
    assert served.admitted[:3] == pytest.approx([2.0, 2.1, 2.101])
    assert got.starts.tolist() == [1, 1, 1]
    last = served.end.max()
    assert got.on_s == pytest.approx([last, last - 1.0, last - 1.0])


def test_a_session_moves_where_its_server_is_not_open():
    """It is on the second server from 1.5 s on; that drains from 3 s on, and the session is on the first."""
    rows = [*sent_at(0.0, 0.1), {"sent": 1.4, "osl": 200}, {"sent": 1.5, "session": 7, "osl": 3000}]
    rows += [{"sent": when, "session": 7} for when in (3.2, 3.4, 4.6)]
    scaler = RATE | {"least": 1}
    router = {"name": "session_sticky"}
    got = compare(fleet_of(SHORT, *rows, servers=[{}, {}], scaling=[scaler], router=router))
    assert got.served.rank.tolist() == [0, 0, 0, 1, 0, 0, 0]
