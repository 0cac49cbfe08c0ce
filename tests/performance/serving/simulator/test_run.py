"""Servers: iterations from tables, lengths and arrivals, the simulation against its definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.performance.serving.passes import step_time as iterations
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests import load
from fastflow.performance.serving.requests.load import TAKEN, TOO_LONG
from fastflow.performance.serving.simulator.latencies import columns_of
from fastflow.performance.serving.simulator.run import simulate
from tests.naive import serving as naive
from tests.naive import window as naive_window
from tests.naive.percentile import percentile
from tests.support.checks import cases, near
from tests.support.servers import LOAD, PLAIN, loads, realistic, servers, walk

TABLES = ("shared", "experts", "head", "decode", "prefill", "prefill_more")


def random_times(random):
    """Tables of a few entries on uneven axes. Decoding takes no less for more requests: beyond the tables,
    which are extrapolated, many requests would else have negative times."""

    def axis(low):
        return np.unique(np.concatenate([[low], random.integers(2, 60, random.integers(0, 4))]))

    tokens, requests, context, chunk, before = axis(1), axis(1), axis(1), axis(1), axis(0)
    shapes = (tokens.size,), (tokens.size,), (requests.size, context.size), *[(chunk.size, before.size)] * 2
    tables = [np.cumsum(1e-3 * random.random((1, *shape)), axis=-1) for shape in shapes]
    shared, head, decode, prefill, more = tables
    decode = np.cumsum(decode, axis=-2)
    experts = np.cumsum(np.diff(shared, prepend=0.0) * random.random(shared.shape), axis=-1)
    return PassTimes(tokens, shared, experts, head, requests, context, decode, chunk, before, prefill, more)


def random_server(random, ranks):
    return (
        {
            "ranks": ranks,
            "iteration_s": random.choice([0.0, 1e-3 * random.random()]),
            "row_s": random.choice([0.0, 1e-4 * random.random()]),
            "budget": int(random.integers(4, 60)),
            "most": int(random.choice([2, 5, 100])),
            "capacity": int(random.choice([80, 150, 100_000])),
            "mixes": bool(random.integers(2)),
            "chunks": bool(random.integers(2)),
            "reserves": bool(random.integers(2)),
            "per_pass": float(random.choice([1.0, 1.0, 1.0 + random.random()])),
            "queries": int(random.integers(1, 3)),
            "draft_s": float(random.choice([0.0, 1e-3])),
        }
        | random_stages(random)
        | random_intake(random)
        | {
            "swap_tokens": int(random.choice([0, 0, 60, 1000])),
            "swap_token_s": float(random.choice([0.0, 1e-4 * random.random()])),
        }
    )


def random_stages(random):
    """Pipeline stages, half of the time."""
    if random.random() < 0.5:
        return {}
    widest, last = (0.5 * (1.0 + random.random(2))).tolist()
    return {"in_flight": float(random.choice([1.0, 1.5, 2.0])), "widest": widest, "last": last}


def random_intake(random):
    """How requests get into iterations: each mechanism in a third of all servers."""
    rare = {
        "ahead": {"ahead": True},
        "interval": {"interval": int(random.integers(2, 7))},
        "balances": {"balances": True, "timeout": int(random.choice([0, 1, 3, 1000]))},
        "waits": {
            "wait_iterations": int(random.choice([1, 4, 1000])),
            "wait_tokens": float(random.integers(1, 60)),
        },
        "trip": {"round_trip_s": 10.0 ** random.uniform(-4.0, 0.0)},
        "encoders": {
            "encoders": int(random.integers(1, 4)),
            "encode_s": 10.0 ** random.uniform(-3.0, -0.5),
            "send_s": float(random.choice([0.0, 1e-2])),
        },
        "eager": {"eager_s": 10.0 ** random.uniform(-3.5, -1.5)},
        "first use": {"first_use_s": 10.0 ** random.uniform(-3.0, 0.0)},
        "graphs": {
            "step": int(random.choice([0, 1, 3, 8])),
            "largest": int(random.choice([1, 3, 9, 1 << 40])),
            "pads": bool(random.integers(2)),
            "launch_s": float(random.choice([0.0, 1e-3, 5e-3, 2e-2])),
        },
    }
    drawn = random.random(len(rare)) < 1.0 / 3.0
    found = [fields for fields, is_drawn in zip(rare.values(), drawn, strict=True) if is_drawn]
    return {name: value for fields in found for name, value in fields.items()}


def random_load(random):
    is_closed = bool(random.integers(2))
    return {
        "isl": float(random.integers(1, 40)),
        "osl": float(random.integers(1, 40)),
        "relative_range": float(random.choice([0.0, 0.5, 1.0])),
        "prefix": float(random.choice([0.0, 0.6])),
        "concurrency": int(random.integers(1, 12)) if is_closed else 0,
        "rate": 0.0 if is_closed else 10.0 ** random.uniform(-0.5, 2.5),
        "requests": int(random.integers(1, 30)) if is_closed else int(random.choice([3, 20, 20, 40])),
        "most": 0 if is_closed else int(random.choice([0] * 7 + [24])),
        "percentile": float(random.choice([0.0, 37.5, 50.0, 90.0, 99.9, 100.0])),
    } | random_file(random, is_closed)


def random_file(random, is_closed):
    """Requests of a file, once in four, and the arrival times of half of these in open loops."""
    if random.random() < 0.75:
        return {}
    known = int(random.integers(1, 12))
    file = {"known": known, "lengths": random.integers(1, 40, (2, known))}
    if is_closed or random.random() < 0.5:
        return file
    sent = np.sort(random.choice([0.0, 0.01, 1.0]) * random.random(known))
    return file | {"rate": 0.0, "requests": int(random.integers(1, known + 1)), "arrivals": sent - sent[0]}


def arrivals(load_):
    """Return when each request is sent [s]; None of a closed loop."""
    if load_["concurrency"]:
        return None
    if load_["rate"] == 0.0:
        return load_["arrivals"][: load_["requests"]].tolist()
    return load.arrivals_of(load_["rate"], load_["requests"]).tolist()


def lengths(load_):
    """Return (isl, osl) of every request."""
    if "arrivals" in load_ and load_["rate"] == 0.0 and not load_["concurrency"]:
        return [tuple(pair) for pair in load_["lengths"][:, : load_["requests"]].T.tolist()]
    relative_range, requests = load_["relative_range"], load_["requests"]
    if load_.get("known"):
        both = load.lengths_sent(loads(load_), 0, requests)
        return list(zip(*(column.tolist() for column in both), strict=True))
    isl = load.lengths_of(load_["isl"], relative_range, requests, load.PROMPTS)
    osl = load.lengths_of(load_["osl"], relative_range, requests, load.ANSWERS)
    return list(zip(isl.tolist(), osl.tolist(), strict=True))


def oracle_tables(times):
    plain = {name: getattr(times, name).tolist() for name in times._fields if name != "overlap"}
    return plain | {name: plain[name][0] for name in TABLES}


def of_oracle(times, server, load_, policy=naive.compose):
    """Return (requests as they were sent, iterations) of the oracle, each slot as a separate server."""
    pairs, times_sent = lengths(load_), arrivals(load_)
    slots = min(server["slots"], load_["concurrency"] or len(pairs), len(pairs))
    slot_server = server | {"capacity": server["capacity"] // server["slots"]}
    slot_server["most"] = max(1, server["most"] // server["slots"])
    plain = oracle_tables(times)
    requests, log = [], []
    clients = load_["concurrency"] or len(pairs)
    for slot in range(slots):
        members = [i for i in range(len(pairs)) if i % clients % slots == slot]
        at_once = len(range(slot, load_["concurrency"], slots))
        sent = None if times_sent is None else [times_sent[i] for i in members]
        slot_requests, iterations = naive.simulate(
            plain,
            slot_server,
            [pairs[i] for i in members],
            sent,
            at_once,
            load_["prefix"],
            load.trip_share,
            policy,
        )
        requests, log = requests + list(zip(members, slot_requests, strict=True)), log + iterations
    return [request for _, request in sorted(requests, key=lambda pair: pair[0])], log


def until_stationary(run, load_, fits):
    """Return an oracle's requests, iterations and window, of a run that is extended until it is stationary.

    None where requests do not fit the caches; fits: whether (isl, osl) of all requests do.
    """
    while True:
        if not fits(lengths(load_)):
            return None
        requests, log = run(load_)
        if load_["concurrency"] or load_["rate"] == 0.0:
            return requests, log, naive_window.whole(requests)
        window = naive_window.window(requests, load_["rate"])
        more = naive_window.sent_next(window, load_["requests"], load_["rate"], load_["most"])
        if not more:
            return requests, log, window
        load_ = load_ | {"requests": more}


def check_metrics(row, requests, window, load_, begin):
    """Compare metrics of requests, and the state of an open loop."""
    sent = [r for r in requests if naive_window.has(window, r.sent)]
    ended = [r for r in requests if naive_window.has(window, r.end)]
    ttft = [request.first - request.sent for request in sent]
    tpot = [(r.end - r.first) / (r.osl - 1) for r in sent if r.osl > 1] or [0.0]
    e2e = [request.end - request.sent for request in sent]
    shares = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "percentile": load_["percentile"]}
    for name, values in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e)):
        assert near(row[f"{name}_s"], np.mean(values), 1e-9)
        for part, share in shares.items():
            assert near(row[f"{name}_{part}_s"], percentile(values, share), 1e-9), (name, part)
    span = window["end"] - window["start"]
    decoding, queue = (
        sum(naive_window.inside(window, *ends(r)) for r in requests)
        for ends in (lambda r: (begin(r), r.end), lambda r: (r.arrived, r.admitted))
    )
    assert row["arrival_s"] == pytest.approx(np.mean([r.arrived - r.sent for r in sent]), rel=1e-9, abs=1e-12)
    assert near(row["requests_per_s"], len(ended) / span, 1e-9)
    assert row["decoding"] * span == pytest.approx(decoding, rel=1e-9, abs=1e-12)
    assert row["queue"] * span == pytest.approx(queue, rel=1e-9, abs=1e-12)
    if "stationary" not in window:
        assert np.isnan(row["stationary"])
        if load_["concurrency"]:
            assert row["overload"] == 0
        else:
            check_backlog(row, requests)
        return
    assert row["stationary"] == window["stationary"]
    assert row["overload"] == (load_["rate"] if window["overload"] else 0)


def check_backlog(row, requests):
    """Of a file's arrivals: more than 5% wait at the last one, by more than chance."""
    stop, service = requests[-1].sent, np.mean([r.service for r in requests])
    waiting = sum(r.admitted > stop for r in requests)
    many = max(0.05 * len(requests), 4 * len(requests) ** 0.5)
    assert row["overload"] == (len(requests) / stop if waiting > many and stop >= 5 * service else 0)


def check(times, server, load_, policy=None, definition=naive.compose):
    got = simulate(times, servers(server), loads(load_), policy)
    server, load_ = PLAIN | server, LOAD | load_
    row = {name: column[0] for name, column in columns_of(got).items()}
    capacity = server["capacity"] // server["slots"]
    run = until_stationary(
        lambda more: of_oracle(times, server, more, definition),
        load_,
        lambda pairs: max(a + b for a, b in pairs) <= capacity,
    )
    if run is None:
        assert row["refused"] == TOO_LONG
        assert not any(value for name, value in row.items() if name != "refused")
        return None
    requests, log, window = run
    assert row["refused"] == TAKEN
    check_metrics(row, requests, window, load_, lambda r: r.first)
    measured = [counts for start, counts in log if naive_window.has(window, start)]
    total = {name: sum(counts[name] for counts in measured) for name in log[0][1]}
    assert row["preemptions"] == total["preemptions"]
    assert near(row["prefill_share"], total["with_prefill"] / max(total["iterations"], 1), 1e-12)
    capacity = (window["end"] - window["start"]) * server["ranks"] * server["capacity"]
    assert near(row["cache"], total["cache"] / capacity, 1e-9)
    return row


@cases(240)
@given(st.integers(0, 2**32))
def test_simulation_agrees_with_its_definition(seed):
    random = np.random.default_rng(seed)
    check(random_times(random), random_server(random, int(random.integers(1, 4))), random_load(random))


@cases(30)
@given(st.integers(0, 2**32))
def test_times_are_interpolated_and_extrapolated(seed):
    random = np.random.default_rng(seed)
    times = random_times(random)
    plain = oracle_tables(times)
    y, x = random.integers(1, 100, 2).tolist()
    mean = x * random.random()
    got = iterations.shared_time(times, 0, float(x), float(x)), iterations.head_time(times, 0, float(x))
    assert got[0] == pytest.approx(naive.line(plain["tokens"], plain["shared"], x), rel=1e-12)
    of_fullest, of_all = (naive.line(plain["tokens"], plain["experts"], n) for n in (x, mean))
    shared = iterations.shared_time(times, 0, float(x), mean)
    assert shared == pytest.approx(got[0] - of_fullest + of_all, rel=1e-11)
    assert got[1] == pytest.approx(naive.line(plain["tokens"], plain["head"], x), rel=1e-12)
    expected = naive.plane(plain["requests"], plain["context"], plain["decode"], y, x)
    assert iterations.decode_line(times, 0, float(y), float(x)).seconds == pytest.approx(expected, rel=1e-12)
    for table, is_first in (("prefill", True), ("prefill_more", False)):
        expected = naive.plane(plain["chunk"], plain["before"], plain[table], y, x - 1)
        got = iterations.prefill_time(times, 0, float(y), x - 1.0, is_first)
        assert got == pytest.approx(expected, rel=1e-12)


def test_nothing_takes_no_time():
    times = realistic()
    assert iterations.shared_time(times, 0, 0.0, 0.0) == iterations.head_time(times, 1, 0.0) == 0.0
    assert iterations.decode_line(times, 0, 0.0, 100.0).seconds == 0.0
    assert iterations.prefill_time(times, 1, 0.0, 100.0, True) == 0.0


@cases(30)
@given(st.integers(1, 2000), st.floats(0.0, 1.0), st.integers(1, 400), st.integers(0, 1))
def test_lengths_are_even_over_their_range_and_the_same_every_time(mean, relative_range, requests, stream):
    got = load.lengths_of(float(mean), relative_range, requests, stream)
    assert (got == load.lengths_of(float(mean), relative_range, requests, stream)).all()
    top = mean / (1 - relative_range / 2)
    assert got.min() >= max(1, np.floor((1 - relative_range) * top))
    assert got.max() <= np.ceil(top)
    assert got.mean() == pytest.approx(mean, abs=0.6)
    assert relative_range or (got == mean).all()


def test_lengths_of_prompts_and_answers_are_shuffled_independently():
    prompts, answers = (load.lengths_of(1000.0, 1.0, 1000, s) for s in (load.PROMPTS, load.ANSWERS))
    assert abs(np.corrcoef(prompts, answers)[0, 1]) < 0.1
    assert abs(np.corrcoef(prompts[1:], prompts[:-1])[0, 1]) < 0.1


def test_arrivals_are_those_of_a_poisson_process():
    sent = load.arrivals_of(4.0, 2000)
    gaps = np.diff(sent)
    assert sent[0] == 0.0
    assert (gaps > 0.0).all()
    assert gaps.mean() == pytest.approx(0.25, rel=0.01)
    assert gaps.std() == pytest.approx(0.25, rel=0.02)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.1


def test_round_trips_are_exponentially_distributed():
    trips = np.array([load.trip_share(i) for i in range(20_000)])
    assert trips.min() > 0.0
    for share in (0.25, 0.5, 0.9, 0.99):
        assert (trips > -np.log(share)).mean() == pytest.approx(share, abs=0.02)
    assert abs(np.corrcoef(trips[1:], trips[:-1])[0, 1]) < 0.03


def test_what_keeps_prompts_from_iterations():
    """First tokens come later, and prompts are computed together."""
    times, load_ = realistic(), {"concurrency": 0, "rate": 6.0, "requests": 300, "isl": 256.0, "osl": 256.0}
    base = check(times, {}, load_)
    later = (
        {"ahead": True},
        {"interval": 8},
        {"wait_iterations": 40, "wait_tokens": 600.0},
        {"round_trip_s": 0.05},
    )
    rows = [check(times, server, load_) for server in later]
    assert rows[3] == pytest.approx(base, nan_ok=True)  # an open loop
    assert all(row["ttft_s"] > 1.2 * base["ttft_s"] for row in rows[:3])
    assert rows[2]["prefill_share"] < 0.8 * base["prefill_share"]
    two = [check(times, {"ranks": 2, "balances": b, "timeout": 40}, load_) for b in (False, True)]
    assert two[1]["ttft_s"] > two[0]["ttft_s"]
    assert two[1]["prefill_share"] < two[0]["prefill_share"]
    slow = check(times, {"eager_s": 0.2}, load_ | {"rate": 1.0})
    assert slow["ttft_s"] > 0.2


def test_prompts_go_on_once_their_wait_is_over():
    """A rank without a request, and a cache that is full as the wait ends: all requests end."""
    for server in (
        {"ranks": 2, "balances": True, "timeout": 3, "capacity": 3000},
        {"wait_iterations": 3, "wait_tokens": 1e9, "capacity": 3000},
    ):
        check(realistic(), server, {"concurrency": 7, "requests": 21, "osl": 300.0, "relative_range": 0.5})


@pytest.mark.parametrize("mixes", [False, True])
def test_equal_iterations_are_summed_in_a_step(mixes):
    """The oracle walks through every iteration."""
    times, server = realistic(), {"mixes": mixes, "budget": 2048}
    load_ = {"concurrency": 16, "requests": 48, "osl": 200.0}
    check(times, server, load_)
    walked, iterations_ = walk(times, servers(server), loads(load_))
    assert walked < iterations_ / 5


def test_slots_are_servers_that_share_the_load():
    times = realistic()
    load_ = {"concurrency": 18, "requests": 60, "osl": 50.0, "relative_range": 0.5}
    check(times, {"slots": 4, "most": 9}, load_)
    check(times, {"slots": 4, "ranks": 2, "mixes": True}, load_ | {"concurrency": 3})
    check(times, {"slots": 2, "ranks": 2, "mixes": True}, load_ | {"concurrency": 0, "rate": 5.0})


def test_a_full_cache_preempts_requests():
    load_ = {"concurrency": 20, "requests": 40, "osl": 300.0, "isl": 100.0}
    row = check(realistic(), {"capacity": 3000}, load_)
    assert row["preemptions"] > 0
    reserved = check(realistic(), {"capacity": 3000, "reserves": True}, load_)
    assert reserved["preemptions"] == 0
    assert reserved["cache"] < row["cache"]


def test_a_request_longer_than_the_cache_is_refused():
    assert check(realistic(), {"capacity": 2047}, {"concurrency": 2, "requests": 4}) is None
    assert check(realistic(), {"capacity": 4000, "slots": 2}, {"concurrency": 2, "requests": 4}) is None


def test_prompts_longer_than_an_iteration_have_one_alone_without_chunks():
    load_ = {"isl": 3000.0, "osl": 40.0, "concurrency": 4, "requests": 12, "relative_range": 0.8}
    for mixes in (False, True):
        check(realistic(), {"mixes": mixes, "chunks": False, "budget": 2500}, load_)


def test_points_do_not_affect_each_other():
    times = realistic()
    rows = [{}, {"times": 1}, {"mixes": True}]
    loads_ = [
        {"concurrency": 4, "requests": 9},
        {"concurrency": 2, "requests": 5},
        {"relative_range": 0.3, "requests": 70},
    ]
    whole = simulate(times, servers(*rows), loads(*loads_))
    for i, (server, load_) in enumerate(zip(rows, loads_, strict=True)):
        single = simulate(times, servers(server), loads(load_))
        for name, column in columns_of(single).items():
            assert np.array_equal(columns_of(whole)[name][i], column[0], equal_nan=True), name
