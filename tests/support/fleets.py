"""Fleets of the tests: small random ones, and those that are written by hand.

A fleet is a dictionary: times (PassTimes), servers, members, scaling, trace, texts, tiers, router and block,
as the oracle (`tests.naive.fleet`) takes them.
"""

from types import SimpleNamespace

import numpy as np

from fastflow.performance.serving.fleet.members import Members, Scaling
from fastflow.performance.serving.fleet.simulate import simulate
from fastflow.performance.serving.fleet.state import Texts, Tiers, Trace
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.schema.routing import ROUTERS as BUILT_IN
from fastflow.schema.routing import Limits
from tests.naive import fleet as naive
from tests.naive.autoscaling import BY_LATENCY, BY_QUEUE, BY_RATE, NEVER_SCALES
from tests.naive.prefix_cache import PER_FLEET, PER_RANK, PER_SERVER, path_of, tokens_of
from tests.naive.serving import compose
from tests.performance.serving.simulator.test_run import TABLES, random_server, random_times
from tests.support.servers import PLAIN, realistic, servers

ROUTERS = (
    "round_robin", "random", "least_loaded", "power_of_two", "hashing", "session_sticky", "prefix_aware",
)  # fmt: skip
ROUTER = {
    "name": "round_robin",
    "balance_abs_threshold": 32,
    "balance_rel_threshold": 1.5,
    "cache_threshold": 0.5,
    "max_in_flight": 0,
    "priority": False,
}
SENT = {
    "osl": 1, "priority": 0.0, "client": 0, "deadline": 1.0, "sent": 0.0, "text": 0, "answer": -1,
    "session": -1, "follower": -1, "pool": 0, "handover": False,
}  # fmt: skip
TIER = {"scope": PER_RANK, "capacity": 1_000_000, "through": False, "latency_s": 0.0, "token_s": 0.0}
MEMBER = {"pool": 0, "start_s": 0.0, "handover_latency_s": 0.0, "handover_token_s": 0.0, "handover_layers": 1}
SOURCE = {"load_latency_s": 0.0, "load_token_s": 0.0}
SCALER = {
    "kind": NEVER_SCALES, "target": 1.0, "interval_s": 1.0, "least": 0, "most": 1000, "stabilization_s": 0.0,
}  # fmt: skip


def per_token(seconds=1e-3):
    """Return times of a server whose iterations take so long for each token, and nothing else."""
    one, zero = np.array([1]), np.zeros((1, 1, 1))
    tokens = np.array([1, 2])
    shared, none = seconds * tokens[None, :], np.zeros((1, 2))
    return PassTimes(tokens, shared, none, none, one, one, zero, one, np.array([0]), zero, zero)


def texts_of(*nodes):
    """Return texts; nodes: (parent, tokens) of each."""
    texts = {"parent": [parent for parent, _ in nodes], "tokens": [tokens for _, tokens in nodes]}
    return with_sizes(texts, texts["tokens"], texts["tokens"], [True] * len(nodes))


def with_sizes(texts, weight, room, resumes):
    """Return texts that take some room in caches, and after some of which prompts may go on."""
    texts = {**texts, "weight": weight, "room": room, "resumes": resumes}
    ancestors = [path_of(texts, node)[:-1] for node in range(len(weight))]
    return texts | {
        "before": [tokens_of(texts, nodes) for nodes in ancestors],
        "above": [tokens_of(texts, nodes, "weight") for nodes in ancestors],
    }


def trace_of(texts, *rows):
    """Return a trace of requests, each of which says where it differs from SENT."""
    rows = [SENT | row for row in rows]
    isl = [tokens_of(texts, path_of(texts, row["text"])) for row in rows]
    return {"isl": isl} | {name: [row[name] for row in rows] for name in SENT}


def fleet_of(texts, *rows, servers=({},), scaling=({},), tiers=(), router=None, block=1, times=None):
    """Return a fleet; rows: of its requests; the others: where they differ from what is usual.

    servers: with what each of them is in its pool; scaling: of each pool. Its iterations take 1 ms a token.
    """
    usual = PLAIN | {"iteration_s": 0.0, "row_s": 0.0}
    every = [MEMBER | server for server in servers]
    return {
        "times": per_token() if times is None else times,
        "servers": [usual | {k: v for k, v in one.items() if k not in MEMBER} for one in every],
        "members": [{name: one[name] for name in MEMBER} for one in every],
        "scaling": [SCALER | scaler for scaler in scaling],
        "trace": trace_of(texts, *rows),
        "texts": texts,
        "tiers": [TIER | tier for tier in tiers],
        "router": ROUTER | (router or {}),
        "block": block,
        "source": SOURCE,
    }


def fleet_of_sessions(sessions, turns):
    """Return a fleet of four servers with realistic times, and sessions whose prompts grow turn by turn."""
    random = np.random.default_rng(0)
    nodes, rows = [], []
    for session in range(sessions):
        parent = -1
        for turn in range(turns):
            new, answer = (int(tokens) for tokens in random.integers((200, 50), (800, 150)))
            nodes += [(parent, new), (len(nodes), answer)]
            row = {"osl": answer, "text": len(nodes) - 2, "answer": len(nodes) - 1, "session": session}
            row["sent"] = session / 4.0 if turn == 0 else float(random.exponential(5.0))
            row["follower"] = len(rows) + 1 if turn < turns - 1 else -1
            rows.append(row)
            parent = len(nodes) - 1
    tier = {"scope": PER_SERVER, "capacity": 200_000, "latency_s": 1e-4, "token_s": 2e-6}
    return fleet_of(
        texts_of(*nodes), *rows, servers=[{"capacity": 20_000, "mixes": True, "most": 64}] * 4, tiers=[tier],
        router={"name": "session_sticky"}, block=16, times=realistic(),
    )  # fmt: skip


def by_column(rows, defaults):
    """Return the columns of a table; each of its rows has all fields that the defaults have."""
    return {name: [row[name] for row in rows] for name in defaults}


def arrays_of(cls, columns):
    """Return a table of the package; columns: lists."""
    return cls(**arrays_by_name(columns))


def arrays_by_name(columns):
    """Return lists as arrays."""
    bools = ("through", "handover", "resumes")
    floats = {"sent", "target", "priority", "deadline"} | {name for name in columns if name.endswith("_s")}
    types = {name: bool if name in bools else float if name in floats else np.int64 for name in columns}
    return {name: np.array(values, dtype=types[name]) for name, values in columns.items()}


def of_package(fleet, policy=None, stop=None):
    """Return what the package's simulation says; stop: when it stops."""
    router = dict(fleet["router"])
    got = simulate(
        (fleet["times"], fleet["times"]),
        servers(*fleet["servers"]),
        arrays_of(Members, {"table": [0] * len(fleet["servers"])} | by_column(fleet["members"], MEMBER)),
        arrays_of(Scaling, by_column(fleet["scaling"], SCALER)),
        arrays_of(Trace, fleet["trace"]),
        arrays_of(Texts, fleet["texts"]),
        Tiers(**arrays_by_name(by_column(fleet["tiers"], TIER)), **fleet["source"]),
        BUILT_IN[router.pop("name")],
        Limits(**router),
        fleet["block"],
        policy,
        stop,
    )
    of_requests = {name: getattr(got.requests, name) for name in ("admitted", "first", "end")}
    served = SimpleNamespace(**of_requests, **got.served._asdict(), hit=got.served.cached)
    return SimpleNamespace(
        refused=got.refused,
        served=served,
        totals=got.totals,
        on_s=got.on_s,
        starts=got.starts,
        encode_waits_s=got.encode_waits_s,
    )


def tables_by_row(times):
    """Return the oracle's tables of each row."""
    plain = {name: getattr(times, name).tolist() for name in times._fields if name != "overlap"}
    return [plain | {name: plain[name][row] for name in TABLES} for row in range(len(plain["shared"]))]


def of_oracle(fleet, policy=compose):
    """Return (requests, servers) of the oracle."""
    parts = {name: value for name, value in fleet.items() if name != "times"}
    return naive.simulate(tables_by_row(fleet["times"]), **parts, policy=policy)


def random_fleet(random):
    """Return a fleet of servers of all kinds, with little memory; half of all fleets scale."""
    return random_scaled_fleet(random) if random.random() < 0.5 else random_pool(random)


def random_pool(random):
    """Return a fleet of one pool of 1 to 4 servers, which are all open."""
    return with_servers(random, *random_trace(random, 1), int(random.choice([1, 1, 2, 3, 4])))


def random_scaled_fleet(random):
    """Return a fleet of 1 to 3 pools of 1 to 4 servers, which scale or not, with handovers between them."""
    pools = int(random.integers(1, 4))
    pool_of = [*range(pools), *random.integers(0, pools, random.integers(0, 4)).tolist()]
    random.shuffle(pool_of)
    fleet = with_servers(random, *random_trace(random, pools), len(pool_of))
    return fleet | {
        "members": [random_member(random, pool) for pool in pool_of],
        "scaling": [random_scaler(random, pool_of.count(pool)) for pool in range(pools)],
    }


def random_member(random, pool):
    """Return what a server is in its pool."""
    return {
        "pool": pool,
        "start_s": float(random.choice([0.0, 0.05, 0.1 * random.random(), random.random()])),
        "handover_latency_s": float(random.choice([0.0, 1e-2 * random.random()])),
        "handover_token_s": float(random.choice([0.0, 1e-3 * random.random()])),
        "handover_layers": int(random.choice([1, 1, 2, 32])),
    }


def random_scaler(random, servers):
    """Return the scaler of a pool of so many servers."""
    kind = int(random.choice([NEVER_SCALES, BY_QUEUE, BY_RATE, BY_LATENCY]))
    targets = {BY_QUEUE: [1.0, 2.0, 3.5], BY_RATE: [10.0, 50.0, 300.0], BY_LATENCY: [0.01, 0.05, 0.5]}
    least = min(int(random.integers(3)), servers)
    return {
        "kind": kind,
        "target": float(random.choice(targets.get(kind, [1.0]))),
        "interval_s": float(random.choice([0.004, 0.02, 0.1 * (0.1 + random.random())])),
        "least": least,
        "most": int(random.choice([max(1, least), servers, 1000])),
        "stabilization_s": float(random.choice([0.0, 0.02, 0.3 * random.random()])),
    }


def with_servers(random, texts, trace, count):
    """Return a fleet with so many servers, all in one pool."""
    longest = max(isl + osl for isl, osl in zip(trace["isl"], trace["osl"], strict=True))
    longest += max(texts["room"]) if 0 in texts["tokens"] else 0
    ranks, rows = int(random.choice([1, 1, 2, 3])), int(random.integers(1, 4))
    times = random_times(random)
    factors = [1.0, *random.uniform(0.5, 2.0, rows - 1)]
    tables = {name: np.concatenate([getattr(times, name) * factor for factor in factors]) for name in TABLES}
    return {
        "times": times._replace(**tables),
        "servers": [random_server_of(random, ranks, rows, longest) for _ in range(count)],
        "members": [MEMBER] * count,
        "scaling": [SCALER],
        "trace": trace,
        "texts": texts,
        "tiers": [random_tier(random) for _ in range(random.integers(4))],
        "router": {
            "name": str(random.choice(ROUTERS)),
            "balance_abs_threshold": int(random.choice([0, 1, 32])),
            "balance_rel_threshold": float(random.choice([1.0, 1.5])),
            "cache_threshold": float(random.choice([0.0, 0.2, 0.5])),
            "max_in_flight": int(random.choice([0, 0, 1, 2, 5])),
            "priority": bool(random.integers(2)),
        },
        "block": int(random.choice([1, 4, 16])),
        "source": {
            "load_latency_s": float(random.choice([0.0, 1e-2 * random.random()])),
            "load_token_s": float(random.choice([0.0, 1e-4 * random.random()])),
        },
    }


def random_server_of(random, ranks, rows, longest):
    """Return a server of a fleet; longest: tokens of the longest request, which it has room for."""
    server = PLAIN | random_server(random, ranks) | {"first_use_s": 0.0, "times": int(random.integers(rows))}
    server["per_pass"] = float(random.choice([1.0, 1.0, 1.5, 1.75]))  # contexts are exact in any order
    server["capacity"] = int(longest * random.choice([1.0, 1.2, 1.5, 3.0, 1000.0]))
    server |= random_swap(random)
    server["adapter_s"] = float(random.choice([0.0, 1e-3]))
    server["any_adapter_s"] = -server["adapter_s"] if random.random() < 0.5 else float(random.random() * 1e-3)
    return server


def random_swap(random):
    """Return the host's memory for caches of preempted requests: half of all servers have some."""
    return {
        "swap_tokens": int(random.choice([0, 0, 50, 10_000])),
        "swap_token_s": float(random.choice([0.0, 1e-4 * random.random()])),
    }


def random_tier(random):
    """Return a tier below the first one."""
    return {
        "scope": int(random.choice([PER_RANK, PER_SERVER, PER_FLEET])),
        "capacity": int(random.choice([0, 20, 60, 200, 10_000])),
        "through": bool(random.integers(2)),
        "latency_s": float(random.choice([0.0, 1e-2 * random.random()])),
        "token_s": float(random.choice([0.0, 1e-4 * random.random()])),
    }


def random_class(random):
    """Return the class of a request, and its deadline."""
    number = int(random.integers(3))
    return {"priority": float(number), "client": number, "deadline": float(random.choice([0.1, 0.5, 2.0]))}


def random_trace(random, pools):
    """Return (texts, trace): prompts from trees of several levels, and turns of sessions that go on.

    Where there are several pools, some turns begin in one of them and are handed over to another.
    """
    nodes, rows = [], []

    def add(parent, tokens):
        nodes.append((parent, int(tokens)))
        return len(nodes) - 1

    def depth(node):
        return 0 if node < 0 else 1 + depth(nodes[node][0])

    adapters = int(random.choice([0, 0, 1, 4]))
    roots = [add(-1, 0) for _ in range(adapters)] or [-1]
    for _ in range(random.integers(1, 9)):
        shallow = [node for node in range(adapters, len(nodes)) if depth(node) < 4]
        add(int(random.choice([random.choice(roots), *shallow])), random.integers(1, 20))
    trees = len(nodes)
    for session in range(random.integers(1, 16)):
        number = session if random.random() < 0.7 else -1
        text = int(random.integers(adapters, trees))
        if random.random() < 0.5:
            text = add(int(random.choice([-1, text])), random.integers(1, 20))
        follows = False
        for _ in range(random.integers(1, 4)):
            pool, is_handed = int(random.integers(pools)), pools > 1 and random.random() < 0.4
            if is_handed:
                first = add(text, 1)
                rows.append(
                    SENT
                    | {"text": text, "session": number, "pool": pool, "follows": follows}
                    | random_class(random)
                )
                rows[-1]["answer"] = first if random.random() < 0.7 else -1
                text, follows, pool = first, True, (pool + int(random.integers(1, pools))) % pools
            osl = int(random.integers(1, 20))
            answer = add(text, osl) if random.random() < 0.7 else -1
            row = {"osl": osl, "text": text, "answer": answer, "session": number}
            rows.append(SENT | row | random_class(random))
            rows[-1] |= {"pool": pool, "handover": is_handed, "follows": follows}
            text = add(text if answer < 0 else answer, random.integers(1, 12))
            follows = bool(random.random() < 0.8)
    texts = random_sizes(random, texts_of(*nodes))
    return texts, trace_of(texts, *in_order_of_arrival(random, rows))


def random_sizes(random, texts):
    """Return texts of a model with states, or of one without, and with adapters of random room."""
    tokens = texts["tokens"]
    weight, room, resumes = tokens, list(tokens), [True] * len(tokens)
    if random.random() < 0.5:
        weight = [int(0.5 * count) for count in tokens]
        resumes = [count == 0 or bool(random.integers(2)) for count in tokens]
        state = int(random.integers(0, 15))
        room = [taken + state * resumes[node] for node, taken in enumerate(weight)]
    size = int(random.choice([0, 5, 30]))
    room = [size if count == 0 else taken for taken, count in zip(room, tokens, strict=True)]
    return with_sizes(texts, weight, room, resumes)


def in_order_of_arrival(random, rows):
    """Return requests in a random order, with their followers and times; rows: each says if it follows."""
    order = [int(i) for i in random.permutation(len(rows))]  # rows by number
    numbers = {row: number for number, row in enumerate(order)}
    pause = random.choice([0.0, 0.02, 0.1, 1.0])
    sent = sorted(pause * float(random.choice([0.0, 0.5, random.random()])) for _ in rows)
    ordered = []
    for number, row in enumerate(order):
        one = dict(rows[row])
        one["sent"] = sent[number]
        if one.pop("follows"):
            think_s = float(random.choice([0.0, 0.01, 0.1 * random.random()]))
            one["sent"] = 0.0 if one["handover"] else think_s
        if row + 1 < len(rows) and rows[row + 1]["follows"]:
            one["follower"] = numbers[row + 1]
        ordered.append(one)
    return ordered
