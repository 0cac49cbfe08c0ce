"""Servers of the tests: small random ones, and realistic ones with made-up times."""

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.passes.captured_graphs import Graphs
from fastflow.performance.serving.passes.step_time import Adapters, Hosts, Intakes, Pipelines, Servers, Swaps
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import Loads, lengths_sent
from fastflow.performance.serving.simulator import fast_forward, preemption, scheduler
from fastflow.performance.serving.simulator.intake import NO_LIMIT
from fastflow.performance.serving.simulator.policies import built_in
from fastflow.performance.serving.simulator.run import simulate

PLAIN = {
    "times": 0, "ranks": 1, "slots": 1, "iteration_s": 1e-3, "row_s": 5e-6, "budget": 8192,
    "most": 1024, "capacity": 1_000_000, "mixes": False, "chunks": True, "reserves": False, "per_pass": 1.0,
    "queries": 1, "draft_s": 0.0, "in_flight": 1.0, "widest": 0.0, "last": 1.0, "eager_s": 0.0,
    "first_use_s": 0.0, "ahead": False, "interval": 1, "balances": False, "timeout": 50, "wait_iterations": 0,
    "wait_tokens": 0.0, "round_trip_s": 0.0, "encoders": 0,
    "encode_s": 0.0, "send_s": 0.0, "step": 1, "largest": 1 << 40, "pads": True, "launch_s": 0.0,
    "swap_tokens": 0, "swap_token_s": 0.0, "adapter_s": 0.0, "any_adapter_s": 0.0,
}  # fmt: skip
LOAD = {
    "isl": 1024.0, "osl": 1024.0, "relative_range": 0.0, "prefix": 0.0, "concurrency": 64, "rate": 0.0,
    "requests": 640, "most": 0, "known": 0, "in_order": False,
    "lengths": np.zeros((2, 0), dtype=np.int64),
    "arrivals": np.zeros(0), "percentile": 99.0,
}  # fmt: skip


def columns(cls, defaults, rows):
    """Return a table of points, each of which says where it differs from the defaults."""
    return cls(*(np.array([(defaults | row)[name] for row in rows]) for name in cls._fields))


def servers(*rows):
    tables = {"host": Hosts, "intake": Intakes, "graph": Graphs, "pipeline": Pipelines}
    nested = {name: columns(table, PLAIN, rows) for name, table in tables.items()}
    for name, table, fields in (
        ("swap", Swaps, ("swap_tokens", "swap_token_s")),
        ("adapter", Adapters, ("adapter_s", "any_adapter_s")),
    ):
        nested[name] = table(*(np.array([(PLAIN | row)[field] for row in rows]) for field in fields))
    return columns(Servers, PLAIN | dict.fromkeys(nested, 0), rows)._replace(**nested)


def loads(*rows):
    return columns(Loads, LOAD, rows)


def powers(low, high):
    return 2 ** np.arange(np.log2(low), np.log2(high) + 1).astype(np.int64)


def realistic():
    """Two servers: like a model of 70e9 weights on four devices, and like one of 8e9 on one device."""
    tokens, requests, context = powers(1, 16384), powers(1, 1024), powers(1, 131072)
    chunk, before = powers(1, 16384), np.array([0, *powers(256, 131072)])
    shared, experts, head, decode, prefill = [], [], [], [], []
    for floor, token, row, pair in ((12e-3, 2e-5, 1e-8, 2.5e-10), (5e-3, 8e-6, 1e-8, 1.2e-10)):
        shared.append(np.maximum(floor, tokens * token) + 1e-3)
        experts.append(0.5 * np.maximum(0.8 * floor, tokens * token))
        head.append(2e-4 + np.maximum(1e-4, tokens * 4e-7))
        held = np.multiply.outer(requests, context)
        decode.append(4e-4 + requests[:, None] * 4e-6 + held * row)
        pairs = chunk[:, None] * (before[None, :] + chunk[:, None] / 2)
        prefill.append(3e-4 + pairs * pair)
    more = [table - 2e-4 for table in prefill]
    tables = (np.array(table) for table in (decode, prefill, more))
    a, b, c = tables
    shared, experts, head = (np.array(table) for table in (shared, experts, head))
    return PassTimes(tokens, shared, experts, head, requests, context, a, chunk, before, b, c)


def likely(random):
    """Return a server and a load as benchmarks have them; an open loop's rate is a share of what it takes."""
    is_closed, at_once = random.random() < 0.75, int(2 ** random.uniform(0, 9))
    isl, osl = float(int(2 ** random.uniform(7, 13))), float(int(2 ** random.uniform(6, 11.5)))
    relative_range, slots = float(random.choice([0.0, 0.2, 0.5, 1.0])), int(random.choice([1, 1, 1, 1, 2, 4]))
    per_pass = float(random.choice([1.0, 1.0, 1.0, 1.7, 2.4]))
    server = {
        "times": int(random.integers(2)),
        "ranks": int(random.choice([1, 1, 1, 1, 4, 8])),
        "slots": slots,
        "iteration_s": float(10 ** random.uniform(-3.7, -2.5)),
        "row_s": float(random.choice([0, 5e-6, 2e-5])),
        # the draw before keeps servers as they were when the bounds of test_steady_state.py were set
        "budget": [random.choice(3), int(random.choice([2048, 4096, 8192, 8192, 16384]))][1],
        "most": int(random.choice([64, 256, 1024])),
        "capacity": int((isl + osl) / (1 - relative_range / 2) * slots * 2 ** random.uniform(2, 9)),
        "mixes": bool(random.integers(2)),
        "chunks": bool(random.random() < 0.8),
        "reserves": bool(random.integers(2)),
        "per_pass": per_pass,
        "queries": 1 if per_pass == 1.0 else int(np.ceil(per_pass)) + int(random.integers(2)),
        "draft_s": 0.0 if per_pass == 1.0 else 1e-3,
    }
    server["step"] = 1 if server["row_s"] else 8  # without a draw, which would change the others
    load = {
        "isl": isl,
        "osl": osl,
        "relative_range": relative_range,
        "prefix": float(random.choice([0, 0, 0, 0.5])),
        "concurrency": at_once if is_closed else 0,
        "rate": 0.0 if is_closed else random.uniform(0.1, 0.9),
        "requests": min(3000, max(10 * at_once, 40)) if is_closed else 1000,
        "most": 0 if is_closed else 16384,
    }
    return server | intake(random, server["budget"]), load


def intake(random, budget):
    """Return how requests get into a server's iterations: most servers hold no prompts back."""
    balances, gathers = random.random(2) < 0.06
    return {
        "eager_s": float(random.choice([0.0, 0.0, 5e-3, 2e-2])),
        "ahead": bool(random.integers(2)),
        "interval": int(random.choice([1] * 14 + [2, 8])),
        "balances": bool(balances),
        "timeout": int(random.choice([5, 50])),
        "wait_iterations": int(random.choice([5, 50])) if gathers else 0,
        "wait_tokens": float(random.uniform(0.1, 0.9) * budget),
        "round_trip_s": float(random.choice([0.0, 0.0, 2e-3, 1e-2, 3e-2, 0.1])),
    }


def unlikely(random):
    """Return a server and a load of any size: long and short, full and empty, few requests and many."""
    server, load = likely(random)
    is_closed, at_once = random.random() < 0.75, int(2 ** random.uniform(0, 11))
    isl, osl = float(int(2 ** random.uniform(4, 16))), float(int(2 ** random.uniform(0, 13)))
    relative_range, slots = (
        float(random.choice([0.0, 0.2, random.random(), 1.0])),
        int(random.choice([1, 1, 2, 8])),
    )
    server |= {
        "ranks": int(random.choice([1, 1, 2, 8, 32])),
        "slots": slots,
        "capacity": int((isl + osl) / (1 - relative_range / 2) * slots * 2 ** random.uniform(0.3, 10)),
        "iteration_s": float(random.choice([0.0, 1e-3, 5e-3])),
        "most": int(random.choice([8, 64, 256, 1024, 2048])),
        "budget": int(random.choice([512, 2048, 8192, 16384])),
    }
    load |= {
        "isl": isl,
        "osl": osl,
        "relative_range": relative_range,
        "prefix": float(random.choice([0.0, 0.0, 0.3, 0.9, 1.0])),
        "concurrency": at_once if is_closed else 0,
        "rate": 0.0 if is_closed else random.uniform(0.05, 0.97),
        "requests": int(random.choice([1, 3, 10])) * at_once
        if is_closed
        else [random.choice(2), 1000][1],  # the draw keeps servers as they were
        "most": 0 if is_closed else 16384,
    }
    return server, load


def many_likely(count, seed, draw=likely):
    """Return tables of so many likely points; rates are shares of what a closed loop of 512 takes."""
    random = np.random.default_rng(seed)
    rows = [draw(random) for _ in range(count)]
    filled = [load | {"concurrency": 512, "rate": 0.0, "requests": 1500, "most": 0} for _, load in rows]
    table = servers(*(server for server, _ in rows))
    takes = simulate(realistic(), table, loads(*filled)).metrics.requests_per_s
    load = loads(*(load for _, load in rows))
    return table, load._replace(rate=load.rate * takes)


@lean_kernel
def _compose(batch, requests, ranks, now):
    return scheduler.compose(batch, requests, ranks, now, now, False, built_in.schedule)


def walk(times, server, load):
    """Return how many steps a simulation of a closed loop takes, and for how many iterations: of one slot."""
    count, sent, ended, walked, now = load.requests[0], 0, 0, 0, 0.0
    batch, totals = scheduler.batch_of(server, 0, True), np.zeros(fast_forward.TOTALS)
    requests = scheduler.requests_of(*lengths_sent(load, 0, count), np.zeros(count), load.prefix[0])
    ranks = scheduler.ranks_of(batch.ranks, count, batch.most)
    while ended < count:
        while sent < min(count, ended + load.concurrency[0]):
            requests.sent[sent] = now
            scheduler.send(batch, requests, ranks, sent)
            sent += 1
        for rank in range(batch.ranks if not batch.reserves else 0):
            preemption.preempt(batch, requests, ranks, rank)
        has_prompts = _compose(batch, requests, ranks, now)
        took = fast_forward.step(
            times, batch, requests, ranks, has_prompts, fast_forward.Span(now, np.inf, NO_LIMIT)
        )
        fast_forward.add_totals(batch, ranks, took, has_prompts, totals)
        now += fast_forward.seconds_of(took)
        walked += 1
        for rank in range(batch.ranks):
            ended += scheduler.advance(batch, requests, ranks, rank, took.passes, now)
    return walked, totals[fast_forward.ITERATIONS]
