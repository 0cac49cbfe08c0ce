"""Servers with caches of prefixes behind a router: the simulation against its definition, and by hand."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.core.errors import InputError
from fastflow.performance.serving.requests import load
from fastflow.performance.serving.requests.load import ROUTES, TAKEN, TOO_LONG
from fastflow.performance.serving.simulator.fast_forward import CACHE, ITERATIONS, PREEMPTIONS, WITH_PREFILL
from fastflow.performance.serving.simulator.latencies import columns_of
from fastflow.performance.serving.simulator.run import simulate
from fastflow.schema.routing import ROUTERS, Router
from fastflow.schema.scheduling import POLICIES
from tests.naive import routing
from tests.naive.prefix_cache import PER_FLEET, PER_RANK, PER_SERVER
from tests.naive.serving import compose, deadline, fair_share, priority
from tests.performance.serving.simulator.test_run import random_server, random_times
from tests.support.checks import cases, near
from tests.support.fleets import (
    fleet_of,
    of_oracle,
    of_package,
    per_token,
    random_fleet,
    texts_of,
)
from tests.support.servers import loads, servers

COUNTS = ("rank", "hit", "read", "handed", "preempted")
TIMES = ("arrived", "admitted", "first", "end")
NEVER = 1 << 40
"""Tokens of a block that no prompt fills: nothing is cached."""


def compare(fleet, policy=None, definition=compose):
    """Compare a fleet with the oracle, and return the simulation; policy, definition: of the two."""
    requests, members = of_oracle(fleet, definition)
    got = of_package(fleet, policy)
    assert got.refused == TAKEN
    for request in requests:
        for name in COUNTS:
            assert getattr(got.served, name)[request.number] == getattr(request, name), name
        for name in TIMES:
            assert near(getattr(got.served, name)[request.number], getattr(request, name), 1e-9), name
    for row, server in zip(got.totals, members, strict=True):
        assert near(row[CACHE], server.totals["cache"], 1e-9)
        assert row[ITERATIONS] == server.totals["iterations"]
        assert row[WITH_PREFILL] == server.totals["with_prefill"]
        assert row[PREEMPTIONS] == server.totals["preemptions"]
    waits_s = sum(request.encode_wait_s for request in requests)
    assert got.encode_waits_s == pytest.approx(waits_s, rel=1e-9, abs=1e-9)
    last = max(request.end for request in requests)
    assert got.starts.tolist() == [server.starts for server in members]
    assert got.on_s == pytest.approx([server.on_s(last) for server in members], rel=1e-9, abs=1e-9)
    return got


def check(fleet, policy=None, definition=compose):
    """Compare a fleet with the oracle, and return its requests."""
    return compare(fleet, policy, definition).served


@cases(300)
@given(st.integers(0, 2**32))
def test_simulation_agrees_with_its_definition(seed):
    check(random_fleet(np.random.default_rng(seed)))


@pytest.mark.long
def test_a_router_that_leaves_the_fleet_is_one_line(monkeypatch):
    """Its function is compiled: nothing else would keep it from memory that is none of its own."""
    lost = Router("lost", lambda view, limits, request, now: 10**6)
    monkeypatch.setitem(ROUTERS._things, "lost", lost)
    fleet = random_fleet(np.random.default_rng(0))
    with pytest.raises(
        InputError, match=r"^router\.policy=lost: its function returns a rank that is none of"
    ):
        of_package(fleet | {"router": fleet["router"] | {"name": "lost"}})


@pytest.mark.parametrize("definition", [priority, deadline, fair_share])
@cases(40)
@given(seed=st.integers(0, 2**32))
def test_a_policy_agrees_with_its_definition(definition, seed):
    check(random_fleet(np.random.default_rng(seed)), POLICIES[definition.__name__], definition)


def test_the_draws_have_what_can_happen():
    """Prompts that are cached, read and preempted; memory whose size matters."""
    seen = Counter()
    for seed in range(120):
        fleet = random_fleet(np.random.default_rng(seed))
        requests, _ = of_oracle(fleet)
        larger = [server | {"capacity": 1_000_000} for server in fleet["servers"]]
        with_more, _ = of_oracle(fleet | {"servers": larger})
        hits = [sum(request.hit for request in run) for run in (requests, with_more)]
        seen["hit"] += hits[0] > 0
        seen["read"] += any(request.read for request in requests)
        seen["preempted"] += any(request.preempted for request in requests)
        seen["dropped"] += hits[0] != hits[1]
        seen["waits"] += any(request.admitted > request.arrived for request in requests)
        seen["encoders"] += any(request.encode_wait_s > 0.0 for request in requests)
    names = "hit", "read", "preempted", "dropped", "waits", "encoders"
    assert min(seen[name] for name in names) >= 6, seen


@cases(40)
@given(st.integers(0, 2**32))
def test_a_server_whose_requests_share_nothing_is_one_without_caches(seed):
    random = np.random.default_rng(seed)
    server = random_server(random, int(random.integers(1, 4)))
    server |= {"capacity": 100_000, "first_use_s": 0.0}
    count, times = int(random.integers(1, 20)), random_times(random)
    isl, osl = random.integers(1, 40, (2, count))
    sent = np.sort(random.choice([0.0, 0.01, 1.0]) * random.random(count))
    sent -= sent[0]
    rows = [{"osl": int(osl[i]), "sent": float(sent[i]), "text": i} for i in range(count)]
    fleet = fleet_of(
        texts_of(*((-1, int(n)) for n in isl)), *rows, servers=[server], times=times, block=NEVER
    )
    served = of_package(fleet).served
    load_ = {"known": count, "lengths": np.array([isl, osl]), "arrivals": sent, "requests": count}
    alone = simulate(times, servers(fleet["servers"][0]), loads(load_ | {"concurrency": 0}))
    row = {name: column[0] for name, column in columns_of(alone).items()}
    assert near(row["ttft_s"], np.mean(served.first - served.arrived), 1e-9)
    assert near(row["e2e_s"], np.mean(served.end - served.arrived), 1e-9)
    assert near(row["e2e_p50_s"], np.median(served.end - served.arrived), 1e-9)


def test_waits_are_those_of_a_queue_with_one_server_and_equal_times():
    """M/D/1: the mean wait is rho / (2 (1 - rho)) services, by Pollaczek and Khinchine."""
    count, service, rho = 20_000, 1e-3, 0.5
    gaps = np.random.default_rng(5).exponential(service / rho, count)
    sent = np.cumsum(gaps)
    rows = [{"sent": when, "text": i} for i, when in enumerate(sent.tolist())]
    served = of_package(fleet_of(texts_of(*[(-1, 1)] * count), *rows, servers=[{"most": 1}])).served
    waits = np.zeros(count)
    for i in range(1, count):
        waits[i] = max(0.0, waits[i - 1] + service - gaps[i])
    np.testing.assert_allclose(served.admitted - served.arrived, waits, rtol=0, atol=1e-9)
    assert waits.mean() / service == pytest.approx(rho / (2 * (1 - rho)), rel=0.04)


def test_random_routes_are_the_same_bits():
    for index in (0, 1, 7, 12_345):
        assert int(load.random_bits(ROUTES, index)) == routing.random_bits(routing.ROUTES, index)


@pytest.mark.parametrize(("block", "hit"), [(1, 120), (16, 112), (128, 0)])
def test_a_second_turn_hits_its_first(block, hit):
    """100 tokens, an answer of 20, then 30 more: of 150 tokens, whole blocks of 120 are cached."""
    texts = texts_of((-1, 100), (0, 20), (1, 30))
    rows = {"osl": 20, "answer": 1, "follower": 1}, {"sent": 0.5, "text": 2}
    served = check(fleet_of(texts, *rows, block=block))
    assert served.hit.tolist() == [0, hit]
    assert served.first[0] == pytest.approx(0.100)
    assert served.end[0] == pytest.approx(0.100 + 19 * 0.001)
    assert served.arrived[1] == pytest.approx(0.119 + 0.5)
    assert served.first[1] == pytest.approx(0.619 + (150 - hit) * 0.001)


def test_an_answer_that_is_not_kept_is_computed_as_part_of_the_next_prompt():
    texts = texts_of((-1, 100), (0, 50))
    served = check(fleet_of(texts, {"osl": 20, "follower": 1}, {"text": 1}))
    assert served.hit.tolist() == [0, 100]


def test_all_but_the_last_token_of_a_known_prompt_are_cached():
    served = check(fleet_of(texts_of((-1, 100)), {}, {"sent": 1.0}))
    assert served.hit.tolist() == [0, 99]
    assert served.first[1] - served.arrived[1] == pytest.approx(0.001)


FIVE = [{"text": text, "sent": 1.0 * i} for i, text in enumerate((0, 1, 2, 1, 0))]
"""Three texts of 40 tokens, for which a memory of 100 is too small: A, B, C, B, A."""
THREE_TEXTS = texts_of((-1, 40), (-1, 40), (-1, 40))


def test_the_text_that_was_used_least_recently_is_dropped():
    """C drops A; B is there still, and is then newer than C: A drops C, and B is there at the end."""
    rows = [*FIVE, {"text": 1, "sent": 5.0}, {"text": 2, "sent": 6.0}]
    served = check(fleet_of(THREE_TEXTS, *rows, servers=[{"capacity": 100}]))
    assert served.hit.tolist() == [0, 0, 0, 39, 0, 39, 0]


@pytest.mark.parametrize("through", [False, True])
def test_what_is_read_from_a_tier_below_takes_its_latency_and_its_tokens(through):
    """A of 40 tokens is in host memory once C has come: 10 ms, and 0.1 ms for each token; 1 is computed."""
    host = {"capacity": 1000, "through": through, "latency_s": 0.010, "token_s": 1e-4}
    served = check(fleet_of(THREE_TEXTS, *FIVE, servers=[{"capacity": 100}], tiers=[host]))
    assert served.read.tolist() == [0, 0, 0, 0, 40]
    assert served.hit.tolist() == [0, 0, 0, 39, 39]
    assert served.admitted[4] - served.arrived[4] == pytest.approx(0.010 + 40 * 1e-4)
    assert served.first[4] - served.arrived[4] == pytest.approx(0.014 + 0.001)


def test_reads_of_a_rank_wait_for_each_other():
    """A and B are in host memory once C and D fill the rank's; both come at 4 s, over one link."""
    texts = texts_of(*[(-1, 40)] * 4)
    rows = [{"text": text, "sent": 1.0 * text} for text in range(4)]
    rows += [{"text": 0, "sent": 4.0}, {"text": 1, "sent": 4.0}]
    host = {"latency_s": 0.010, "token_s": 1e-4}
    served = check(fleet_of(texts, *rows, servers=[{"capacity": 100}], tiers=[host]))
    assert served.read.tolist() == [0, 0, 0, 0, 40, 40]
    assert (served.admitted - served.arrived)[4:] == pytest.approx([0.014, 0.028])


def test_a_tier_that_is_full_drops_its_oldest_into_the_next():
    """A, then B, are in a host memory of 40 tokens; A goes on to the disk, which reads slowly."""
    texts = texts_of(*[(-1, 40)] * 4)
    rows = [{"text": text, "sent": 1.0 * i} for i, text in enumerate((0, 1, 2, 3, 1, 0))]
    tiers = {"capacity": 40, "latency_s": 0.01}, {"latency_s": 0.5}
    served = check(fleet_of(texts, *rows, servers=[{"capacity": 100}], tiers=tiers))
    assert served.read.tolist() == [0, 0, 0, 0, 40, 40]
    assert (served.admitted - served.arrived)[4:] == pytest.approx([0.01, 0.5])


@pytest.mark.parametrize(
    ("scope", "read"),
    [(PER_RANK, [0, 0, 0, 0]), (PER_SERVER, [0, 100, 0, 100]), (PER_FLEET, [0, 100, 100, 100])],
)
def test_a_pool_is_for_its_scope(scope, read):
    """Two servers of two ranks have the same prompt in turn: who reads what the first rank wrote."""
    rows = [{"sent": 1.0 * i} for i in range(4)]
    tier = {"scope": scope, "through": True, "latency_s": 0.01}
    served = check(fleet_of(texts_of((-1, 100)), *rows, servers=[{"ranks": 2}] * 2, tiers=[tier]))
    assert served.rank.tolist() == [0, 1, 2, 3]
    assert served.read.tolist() == read


def test_a_prompt_in_use_is_in_memory_once():
    """Three requests of 100 tokens and answers of 5 are in 112 tokens at once, once the first has started."""
    rows = [{"osl": 5, "sent": when} for when in (0.0, 0.05, 0.06)]
    alone = check(fleet_of(texts_of((-1, 100)), *rows, servers=[{"capacity": 112}]))
    assert alone.preempted.sum() == 0
    assert alone.admitted.tolist() == pytest.approx([0.0, 0.1, 0.1])
    texts = texts_of(*[(-1, 100)] * 3)
    own = [row | {"text": i} for i, row in enumerate(rows)]
    apiece = check(fleet_of(texts, *own, servers=[{"capacity": 112}]))
    assert apiece.admitted[1] == pytest.approx(apiece.end[0])


def test_a_preempted_request_has_its_prompt_in_the_cache():
    """Two prompts of 40 tokens and answers of 20 exceed 100: the later one is preempted, and then hits."""
    texts = texts_of((-1, 40), (-1, 40))
    fleet = fleet_of(texts, {"osl": 20}, {"osl": 20, "text": 1}, servers=[{"capacity": 100}])
    served = check(fleet)
    assert served.preempted.tolist() == [0, 1]
    assert served.hit.tolist() == [0, 0]  # of first starts
    uncached = check(fleet | {"block": NEVER})
    assert served.end[1] < uncached.end[1]


LONG = {"osl": 1000, "text": 1}
"""A request that runs for a second and more."""


def test_a_session_is_sent_to_its_rank():
    """Rank 0 has a long request as the session's second turn comes; the others go by load."""
    texts = texts_of((-1, 100), (-1, 1))
    rows = [{"session": 7}, LONG | {"sent": 0.5}, {"session": 7, "sent": 0.6}, {"sent": 0.6}]
    for name, ranks in (("session_sticky", [0, 0, 0, 1]), ("least_loaded", [0, 0, 1, 0])):
        served = check(fleet_of(texts, *rows, servers=[{}, {}], router={"name": name}))
        assert served.rank.tolist() == ranks


def test_a_prompt_is_sent_to_where_its_prefix_is():
    """Rank 1 has the prefix and more requests; where it has too many more, the next goes to rank 0."""
    texts = texts_of((-1, 100), (-1, 100), (1, 20))
    rows = [{}, {"text": 1, "osl": 1000}, {"text": 2, "sent": 0.5, "osl": 1000}, {"text": 2, "sent": 0.6}]
    for threshold, ranks in ((32, [0, 1, 1, 1]), (1, [0, 1, 1, 0]), (0, [0, 1, 0, 0])):
        router = {"name": "prefix_aware", "balance_abs_threshold": threshold}
        served = check(fleet_of(texts, *rows, servers=[{"budget": 1000}] * 2, router=router))
        assert served.rank.tolist() == ranks


def test_ends_and_arrivals_go_before_starts_and_lower_numbers_first():
    """Two servers end at the same time; the followers, which think for no time, go round in their order.

    Request 4 is nobody's follower, and goes before both.
    """
    texts = texts_of((-1, 100))
    token = 2.0**-10  # sums are exact
    rows = [{"follower": 3}, {"follower": 2}, {}, {}, {"sent": 100 * token}]
    served = check(fleet_of(texts, *rows, servers=[{}, {}], times=per_token(token)))
    assert served.arrived.tolist() == [0.0, 0.0, 100 * token, 100 * token, 100 * token]
    assert served.rank.tolist() == [0, 1, 1, 0, 0]


@pytest.mark.parametrize("capacity", [119, 120])
def test_a_request_longer_than_the_cache_is_refused(capacity):
    rows = {"osl": 20}, {"osl": 3}
    got = of_package(fleet_of(texts_of((-1, 100)), *rows, servers=[{}, {"capacity": capacity}]))
    assert got.refused == (TOO_LONG if capacity < 120 else TAKEN)


def test_a_session_of_many_turns_computes_what_is_new():
    """Each turn adds 10 tokens and has an answer of 5: its prefill takes 10 ms, however long the prompt."""
    turns, nodes, rows = 6, [], []
    for turn in range(turns):
        nodes += [(2 * turn - 1, 10), (2 * turn, 5)]
        following = turn + 1 if turn + 1 < turns else -1
        rows.append({"osl": 5, "text": 2 * turn, "answer": 2 * turn + 1, "session": 0, "follower": following})
    served = check(fleet_of(texts_of(*nodes), *rows, times=per_token(2e-3)))
    assert served.hit.tolist() == [15 * turn for turn in range(turns)]
    assert served.first - served.arrived == pytest.approx(np.full(turns, 0.020))
