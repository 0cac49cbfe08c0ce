"""Long traces, of which some requests are loaded at a time: results are as with all of them at once."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.performance.serving.fleet import loading, simulate
from fastflow.performance.serving.requests.load import TAKEN, TOO_LARGE
from tests.performance.serving.fleet.test_simulate import compare
from tests.support.checks import cases
from tests.support.fleets import fleet_of, fleet_of_sessions, of_package, random_fleet, texts_of

SERVER = ("server=vllm", "model=llama3_8b", "system=dgx_h100", "system.devices=4", "parallel.strategy=TP-1")
TIGHT = ("server.gpu_memory_utilization=0.24", "serve.tiers.host.capacity='2 GB'")
ROUTERS = "router=round_robin,random,power_of_two,hashing,session_sticky,prefix_aware"


@pytest.fixture
def loads(monkeypatch):
    """Return a function that sets the window, and the numbers of slots of requests and nodes, by load."""
    sizes, load = [], loading.Loader.load

    def counted(loader, tables, most):
        tables = load(loader, tables, most)
        if tables is not None:
            sizes.append((tables.log.arrivals.number.size, tables.caches.stores.number.size))
        return tables

    monkeypatch.setattr(loading.Loader, "load", counted)

    def at_most(window):
        monkeypatch.setattr(loading, "WINDOW", window)
        sizes.clear()
        return sizes

    return at_most


def assert_same(got, expected):
    """Assert that two results of a fleet are equal, bit by bit."""
    assert got.refused == expected.refused == TAKEN
    for name, column in vars(got.served).items():
        assert column.tolist() == getattr(expected.served, name).tolist(), name
    for name in ("totals", "on_s", "starts"):
        assert getattr(got, name).tolist() == getattr(expected, name).tolist(), name


def test_any_window_gives_the_same_bits(loads):
    """Of fleets with sessions, followers, tiers, pools, handovers, autoscaling and every router."""

    @cases(150)
    @given(st.integers(0, 2**32), st.integers(1, 9))
    def check(seed, window):
        fleet = random_fleet(np.random.default_rng(seed))
        loads(10**6)
        expected = of_package(fleet)
        loads(window)
        assert_same(of_package(fleet), expected)

    check()


def test_a_small_window_agrees_with_the_definition(loads):
    @cases(60)
    @given(st.integers(0, 2**32))
    def check(seed):
        loads(3)
        compare(random_fleet(np.random.default_rng(seed)))

    check()


def write(folder, lines):
    """Write a trace; returns its key."""
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return f"serve.trace={path}"


def lines_of_sessions(count):
    """Return requests of sessions, whose turns are at times of their own or after the turn before."""
    random, lines, at = np.random.default_rng(3), [], 0.0
    for session in range(count):
        at, context = at + random.exponential(0.3), 0
        for turn in range(random.integers(1, 6)):
            new, answer = (int(random.integers(*span)) for span in ((200, 900), (20, 200)))
            line = {"session": session, "isl": context + new, "osl": answer, "class": "ab"[session % 2]}
            has_time = turn == 0 or session % 3 == 0
            time = {"arrival_time": at + 4.0 * turn} if has_time else {"think_time": random.exponential(3.0)}
            lines.append(line | time)
            context += new + answer
    return lines


def lines_of_hashes(count):
    """Return requests with hashes of blocks: few beginnings come back all the time, others once or twice."""
    random, lines = np.random.default_rng(4), []
    for i in range(count):
        first = [int(random.integers(4)), 10 + int(random.integers(count // 2))]
        rest = [10**6 + i * 10 + k for k in range(random.integers(3))]
        hashes = (first + rest)[: random.integers(1, 5)]
        line = {"input_length": 512 * len(hashes) - int(random.integers(200)), "hash_ids": hashes}
        lines.append(line | {"output_length": int(random.integers(20, 200)), "timestamp": 150 * i})
    return lines


@pytest.mark.parametrize("lines", [lines_of_sessions(60), lines_of_hashes(250)])
@pytest.mark.parametrize(
    "mode",
    [
        ("serve=continuous",),
        ("serve=continuous", "serve.autoscale.by=queue", "serve.autoscale.start_time='1 s'"),
        ("serve=disaggregated", "serve.prefill.devices=2"),
    ],
)
def test_columns_of_files_are_the_same(loads, tmp_path, lines, mode):
    keys = (*SERVER, *mode, *TIGHT, write(tmp_path, lines), ROUTERS, "serve.shared_prefix=100")
    sizes = loads(10**6)
    whole = fastflow.evaluate(*keys)
    at_once = len(sizes)
    assert whole["feasible"].all()
    loads(20)
    frame = fastflow.evaluate(*keys)
    assert len(sizes) >= 8 * at_once >= 48
    assert frame.equals(whole)


def test_tables_have_what_is_live(loads):
    """Twice as long a trace needs no more: texts leave the caches, requests end."""
    fleets = [fleet_of_sessions(sessions, 3) for sessions in (500, 1000)]
    for fleet in fleets:
        fleet["tiers"][0]["capacity"] = 50_000
    sizes = loads(100)
    most = []
    for fleet in fleets:
        sizes.clear()
        of_package(fleet)
        most.append(np.max(sizes, axis=0))
    assert (most[1] <= 1.1 * most[0]).all()
    assert (most[1] < [450, 2000]).all(), most  # of 3,000 requests, and 6,000 nodes


def test_a_text_that_left_all_caches_comes_back(loads):
    """Two texts fill a cache of 100 tokens, so that each drives out the other."""
    rows = [{"sent": 1.0 * i, "text": i % 2} for i in range(12)]
    fleet = fleet_of(texts_of((-1, 80), (-1, 90)), *rows, servers=[{"capacity": 100}])
    sizes = loads(1)
    served = compare(fleet).served
    assert served.cached.tolist() == [0] * 12
    assert sizes[-1] == (2, 2)
    assert len(sizes) == 12


def test_a_fleet_whose_window_exceeds_memory_is_refused(monkeypatch):
    monkeypatch.setattr(simulate, "MAX_BYTES", 12 * 100)
    assert of_package(fleet_of_sessions(40, 4)).refused == TOO_LARGE
