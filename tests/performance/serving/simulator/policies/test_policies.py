"""Scheduling policies: fastflow's, and one of a package against its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.serving.policy import mixes_of
from fastflow.performance.serving.requests.load import STALLED
from fastflow.performance.serving.simulator.latencies import columns_of
from fastflow.performance.serving.simulator.policies import Policy, built_in, sort_waiting
from fastflow.performance.serving.simulator.run import _simulation, simulate
from fastflow.schema.scheduling import ANALYTIC, KEY, POLICIES
from tests.naive import serving as naive
from tests.performance.serving.simulator.test_run import check, random_load, random_server, random_times
from tests.support.checks import cases
from tests.support.servers import loads, many_likely, realistic, servers

STUCK = 7  # slots of a server that starts no request


def schedule(batch, requests, ranks, rank, now):
    """Longest answers first, and none beside requests that decode before two wait: `naive.longest_first`."""
    if batch.slots == STUCK:
        return
    sort_waiting(requests, ranks, rank, now, requests.osl, True)
    second = ranks.head[rank] + 1
    two_wait = second < ranks.tail[rank] and requests.sent[ranks.queue[rank, second]] <= now
    if ranks.decoding[rank] == 0 or two_wait:
        built_in.schedule(batch, requests, ranks, rank, now)


LONGEST_FIRST = Policy("longest_first", schedule)


@cases(60)
@given(st.integers(0, 2**32))
def test_a_policy_agrees_with_its_definition(seed):
    random = np.random.default_rng(seed)
    server, load = random_server(random, int(random.integers(1, 4))), random_load(random)
    check(random_times(random), server, load, LONGEST_FIRST, naive.longest_first)


@cases(40)
@given(st.integers(0, 2**32), st.sampled_from(POLICIES.built_in[2:]))
def test_a_policy_of_fastflow_agrees_with_its_definition(seed, name):
    random = np.random.default_rng(seed)
    server, load = random_server(random, int(random.integers(1, 4))), random_load(random)
    check(random_times(random), server, load, POLICIES[name], getattr(naive, name))


def test_a_policy_changes_who_waits():
    load = loads({"concurrency": 0, "rate": 40.0, "requests": 200, "relative_range": 1.0})
    server = servers({"most": 8})
    first_come, longest = (simulate(realistic(), server, load, policy) for policy in (None, LONGEST_FIRST))
    assert columns_of(first_come)["ttft_s"] != columns_of(longest)["ttft_s"]


def test_a_policy_that_starts_nothing_is_refused():
    load = loads({"concurrency": 14, "requests": 14}, {"concurrency": 14, "requests": 14})
    got = simulate(realistic(), servers({"slots": STUCK}, {}), load, LONGEST_FIRST)
    assert got.refused.tolist() == [STALLED, 0]
    assert (columns_of(got)["ttft_s"] > 0.0).tolist() == [False, True]


@pytest.mark.long
@pytest.mark.parametrize("name", ANALYTIC[1:])
def test_a_policy_of_fastflow_is_the_same_where_it_is_asked_for(name):
    """In the kernel of all of them, in a kernel of its own, and asked for every iteration."""
    policy = POLICIES[name]
    server, load = many_likely(60, 3)
    server = server._replace(mixes=np.full(60, policy.mixes))
    expected, got = simulate(realistic(), server, load), simulate(realistic(), server, load, policy)
    stepped = simulate(realistic(), server, load, policy._replace(in_order=False))
    for key, column in columns_of(expected).items():
        assert np.array_equal(column, columns_of(got)[key], equal_nan=True), key
        np.testing.assert_allclose(columns_of(stepped)[key], column, rtol=1e-7, err_msg=key)


def test_a_policy_goes_before_the_key_of_mixed_batches():
    names = np.array(["auto", "mixed", "prefill_first"])
    for mixes in (True, False):
        inputs = {"server.mixed_batches": np.full(3, mixes), KEY: names}
        assert mixes_of(inputs).tolist() == [mixes, True, False]
    assert mixes_of({"server.mixed_batches": np.array([True, False])}).tolist() == [True, False]


def test_an_unknown_policy_is_refused():
    with pytest.raises(fastflow.InputError, match=r"^server\.policy=lifo .* auto, mixed, prefill_first, "):
        fastflow.evaluate("model=llama3_8b", "serve=continuous", "server.policy=lifo")


def test_a_policy_that_is_no_function_is_told_in_one_line():
    with pytest.raises(fastflow.InputError, match=r"^server\.policy=word: its function cannot be .*callable"):
        simulate(realistic(), servers({}), loads({}), Policy("word", 3))


def test_what_is_compiled_follows_from_the_source_of_a_policy():
    def policy(text):
        namespace = {"built_in": built_in, "__name__": "mine"}
        exec(f"def schedule(batch, requests, ranks, rank, now):\n    {text}", namespace)
        return _simulation(Policy("mine", namespace["schedule"]))._cache.stem()

    one, other = "built_in.schedule(batch, requests, ranks, rank, now)", "return"
    assert policy(one) == policy(f"{one}  # the same") != policy(other)
