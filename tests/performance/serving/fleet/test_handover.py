"""Pools of a fleet, and requests that one pool hands over to another: by hand.

Iterations take 1 ms a token. A handover takes 10 ms, and 0.1 ms a token.
"""

import pytest

from tests.naive.autoscaling import BY_QUEUE
from tests.naive.prefix_cache import PER_FLEET
from tests.performance.serving.fleet.test_simulate import NEVER, check, compare
from tests.support.fleets import SCALER, fleet_of, texts_of

ONE = texts_of((-1, 100), (0, 1))
"""A prompt of 100 tokens, and the same with the first token of its answer."""
TO = {"pool": 1, "handover_latency_s": 0.010, "handover_token_s": 1e-4}
"""A server to which requests are handed over."""
TWO_POOLS = {"servers": [{}, TO], "scaling": [{}, {}]}


def pair(number, text=0, sent=0.0, osl=1):
    """Return two requests: a prompt for its first token, and the rest elsewhere; number: of the former."""
    first = {"text": text, "sent": sent, "follower": number + 1}
    return first, {"text": text + 1, "osl": osl, "pool": 1, "handover": True}


def test_requests_are_for_servers_of_their_pool():
    """In turns in each pool: the first has servers 0 and 2, the second has server 1."""
    rows = [{"sent": 1.0 * i, "pool": pool} for i, pool in enumerate((0, 1, 0, 1, 0))]
    servers = {"pool": 0}, {"pool": 1}, {"pool": 0}
    served = check(fleet_of(texts_of((-1, 1)), *rows, servers=servers, scaling=[{}, {}]))
    assert served.rank.tolist() == [0, 1, 2, 1, 0]


@pytest.mark.parametrize("router", ["random", "power_of_two", "hashing", "prefix_aware", "session_sticky"])
def test_every_router_chooses_within_a_pool(router):
    rows = [{"sent": 0.01 * i, "pool": i % 2, "session": i // 4} for i in range(40)]
    servers = [{"pool": number % 2} for number in range(4)]
    served = check(
        fleet_of(texts_of((-1, 1)), *rows, servers=servers, scaling=[{}, {}], router={"name": router})
    )
    assert (served.rank % 2).tolist() == [0, 1] * 20


@pytest.mark.parametrize("block", [1, 16, NEVER])
def test_a_handover_takes_its_latency_and_its_tokens(block):
    """100 tokens in 20 ms; the last of the 101 is computed, whatever the size of a block, then come 19."""
    served = check(fleet_of(ONE, *pair(0, osl=20), **TWO_POOLS, block=block))
    assert served.handed.tolist() == [0, 100]
    assert served.hit.tolist() == [0, 100]
    assert served.arrived[1] == pytest.approx(0.100)
    assert served.admitted[1] == pytest.approx(0.120)
    assert served.first[1] == pytest.approx(0.121)
    assert served.end[1] == pytest.approx(0.140)


def test_a_request_that_is_not_handed_over_computes_its_prompt():
    first, second = pair(0)
    served = check(fleet_of(ONE, first, second | {"handover": False}, **TWO_POOLS))
    assert served.handed.tolist() == served.hit.tolist() == [0, 0]
    assert served.first[1] == pytest.approx(0.100 + 0.101)


def test_what_the_receiver_has_is_not_handed_over():
    """First 90 tokens, then 30 behind the same 60, then the first prompt once more."""
    texts = texts_of((-1, 60), (0, 30), (1, 1), (0, 30), (3, 1))
    rows = *pair(0, text=1), *pair(2, text=3, sent=1.0), *pair(4, text=1, sent=2.0)
    served = check(fleet_of(texts, *rows, **TWO_POOLS))
    assert served.handed.tolist() == [0, 90, 0, 30, 0, 0]
    assert (served.admitted - served.arrived)[1::2] == pytest.approx([0.019, 0.013, 0.0])


def test_handovers_to_a_rank_wait_for_each_other():
    """Two servers compute 100 tokens each until 0.1 s; one, or two, get them."""
    texts = texts_of((-1, 100), (0, 1), (-1, 100), (2, 1))
    rows = *pair(0), *pair(2, text=2)
    for receivers, waits in ((1, [0.020, 0.040]), (2, [0.020, 0.020])):
        fleet = fleet_of(texts, *rows, servers=[{}, {}] + [TO] * receivers, scaling=[{}, {}])
        served = check(fleet)
        assert served.arrived[1::2] == pytest.approx([0.1, 0.1])
        assert (served.admitted - served.arrived)[1::2] == pytest.approx(waits)


def test_what_a_tier_has_is_read_instead():
    """The prompt is in the fleet's memory, 100 tokens for 30 ms: nothing is left to hand over."""
    tier = {"scope": PER_FLEET, "through": True, "token_s": 3e-4}
    served = check(fleet_of(ONE, *pair(0), **TWO_POOLS, tiers=[tier]))
    assert served.read.tolist() == [0, 100]
    assert served.handed.tolist() == [0, 0]
    assert served.admitted[1] == pytest.approx(0.130)


def test_a_handover_that_is_preempted_is_computed_like_others():
    """Two contexts of 41 tokens and 20 more exceed 100: the later one is preempted, and hits nothing then."""
    texts = texts_of((-1, 40), (0, 1), (-1, 40), (2, 1))
    rows = *pair(0, osl=20), *pair(2, text=2, osl=20)
    servers = [{}, {}, TO | {"capacity": 100, "handover_latency_s": 0.0, "handover_token_s": 0.0}]
    fleet = fleet_of(texts, *rows, servers=servers, scaling=[{}, {}], block=NEVER)
    served = check(fleet)
    assert served.preempted.tolist() == [0, 0, 0, 1]
    assert served.hit.tolist() == [0, 40, 0, 40]  # of first starts
    roomy = [*servers[:2], servers[2] | {"capacity": 1000}]
    with_room = check(fleet_of(texts, *rows, servers=roomy, scaling=[{}, {}], block=NEVER))
    assert served.end[3] - with_room.end[3] > 0.041


def test_a_handover_begins_as_a_server_opens():
    """The second pool has no server until 1.1 s, as the request that is handed over comes at 0.1 s."""
    scaling = [SCALER, {"kind": BY_QUEUE}]
    got = compare(fleet_of(ONE, *pair(0), servers=[{}, TO | {"start_s": 1.0}], scaling=scaling))
    assert got.served.arrived[1] == pytest.approx(0.1)
    assert got.served.admitted[1] == pytest.approx(1.1 + 0.020)
    assert got.starts.tolist() == [0, 1]


def test_pools_scale_by_their_own_requests():
    """Five prompts of 1.1 s at once are the first pool's; the second has one request at a time, of 1 ms."""
    texts = texts_of(*[node for i in range(5) for node in ((-1, 1100), (2 * i, 1))])
    rows = [row for i in range(5) for row in pair(2 * i, text=2 * i)]
    scaler = {"kind": BY_QUEUE, "target": 2.0, "least": 1}
    servers = [{"most": 1}] * 3 + [{"pool": 1}] * 3
    got = compare(fleet_of(texts, *rows, servers=servers, scaling=[scaler, scaler]))
    assert got.starts.tolist() == [0, 1, 1, 0, 0, 0]
