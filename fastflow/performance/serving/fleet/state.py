"""What a simulated fleet consists of: its requests, their texts, tiers of memory, servers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.jit import inlined_kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.performance.serving.fleet.members import (
    Members,
    PoolStates,
    Scaling,
    ServerStates,
    pool_states,
    server_states,
)
from fastflow.performance.serving.passes.step_time import Intakes, Servers
from fastflow.performance.serving.simulator.fast_forward import TOTALS
from fastflow.performance.serving.simulator.scheduler import NEVER, Ranks, Requests, Service

PER_RANK, PER_SERVER, PER_FLEET = range(3)
"""Scopes of a tier: which ranks share a store of it."""
NONE = -1
_QUEUE = 4096  # requests that wait for a rank at first, as far as there is room
IDLE, READY, RUNNING = range(3)
"""Phases of a server: it waits for requests; it starts an iteration at its next event; iterations run."""


class Trace(NamedTuple):
    """Requests of a fleet; (requests,). Those that are nobody's follower are in the order of arrival."""

    isl: Ints  # tokens of the prompt
    osl: Ints
    priority: Floats  # less goes first, with a policy that reads it
    client: Ints  # from 0: class of service, among which `fair_share` divides ranks
    deadline: Floats  # from the arrival until the first token, of `deadline` [s]
    sent: Floats  # arrival; of a follower the time from the end of the request before until it is sent [s]
    text: Ints  # last node of the prompt
    answer: Ints  # last node of the answer, below `text`; NONE: it is not cached
    session: Ints  # NONE: no session
    follower: Ints  # request that is sent after this one has ended; NONE: no such request
    pool: Ints  # of the servers that may take it
    handover: Bools  # another server has computed its prompt, and sends its cache


class Texts(NamedTuple):
    """A forest of texts; (nodes,). A prompt is the path from a root to a node. Parents precede children.

    A root without tokens is an adapter, or a model, with which the texts below it are computed.
    """

    parent: Ints  # NONE: a root
    tokens: Ints
    before: Ints  # tokens of all ancestors
    weight: Ints  # of its keys and values, as of so many tokens of a mean request
    above: Ints  # the same of all ancestors
    room: Ints  # the same, with the state at its end, or of an adapter
    resumes: Bools  # a prompt may go on from its end


class Tiers(NamedTuple):
    """Tiers of memory below the first one, which is the devices' own; (tiers,)."""

    scope: Ints  # PER_RANK, PER_SERVER or PER_FLEET
    capacity: Ints  # of a store [tokens]
    through: Bools  # it gets what the tier above gets; else what the tier above evicts
    latency_s: Floats  # of a read
    token_s: Floats  # to read a token
    load_latency_s: float  # of a load of an adapter from where all of them lie [s]
    load_token_s: float  # the same, for room of a token [s]


class Served(NamedTuple):
    """What became of requests; (requests,)."""

    rank: Ints  # that served it, of all ranks of the fleet; NONE: it has not arrived
    arrived: Floats  # [s]
    cached: Ints  # tokens of its prompt that were in the cache when it first started
    read: Ints  # tokens that were read from lower tiers when it arrived
    handed: Ints  # tokens that another server has sent
    prefill_s: Floats  # from the start until the end of the request that it follows [s]
    preempted: Ints  # how often


class Stores(NamedTuple):
    """Caches of texts: a tier has a store for each rank, each server, or the fleet. Nodes are whole there.

    Nodes of a store that no running request uses are in a list, from the least recently used one.
    """

    of: Ints  # (tiers, ranks) store of a rank
    tier: Ints  # (stores,)
    capacity: Ints  # (stores,) [tokens]
    idle: Ints  # (stores,) tokens that no running request uses
    oldest: Ints  # (stores,) least recently used node; NONE: the list is empty
    newest: Ints  # (stores,)
    uses: NDArray[np.int32]  # (nodes, stores) 0: absent, 1: idle, above: by one request less than this
    older: NDArray[np.int32]  # (nodes, stores) its neighbour in the list; NONE: no neighbour
    newer: NDArray[np.int32]  # (nodes, stores)
    through: Bools  # (tiers,)
    is_shared: Bools  # (tiers,) by all servers
    latency_s: Floats  # (tiers,)
    token_s: Floats  # (tiers,)
    free_at: Floats  # (tiers, ranks) when the rank's link to a tier is free [s]
    has_adapters: Bools  # (1,) whether requests need any
    adapters: Ints  # (ranks,) adapters in use
    loads: Ints  # (ranks,) adapters that were loaded
    loads_s: Floats  # (ranks,) the time of these loads, and of waits for each other [s]
    loaded_at: Floats  # (ranks,) when the last load ends [s]
    load_latency_s: Floats  # (1,) from where adapters lie
    load_token_s: Floats  # (1,) the same, for room of a token
    path: Ints  # nodes of one prompt, from the last one
    number: Ints  # (nodes,) of each node, among those of the whole trace; NONE: a free slot


class Plans(NamedTuple):
    """What servers do next; (servers,)."""

    phase: Ints  # IDLE, READY or RUNNING
    when: Floats  # time of the next event [s]
    start: Floats  # of the iterations that run [s]
    passes: Ints
    first: Floats  # time of the first one [s]
    increase: Floats  # from each to the next [s]
    with_prompts: Bools
    is_held: Bools
    was_idle: Bools  # no iteration ran before this one


class Arrivals(NamedTuple):
    """Arrivals to come: those of the trace in order, and followers in a heap."""

    order: Ints  # requests that are nobody's follower, in the order of arrival
    when: Floats  # of followers [s]
    request: Ints
    number: Ints  # (requests,) of each request, in the whole trace; NONE: a free slot
    counts: Ints  # HEAP, TAKEN, CHOICES, FURTHER
    encoders: Floats  # (encoders,) when each has encoded all that it has [s]; none: servers encode images
    encode_s: Floats  # (ENCODING,) of the images of a request, to send their embeddings, all waits [s]


HEAP, TAKEN, CHOICES, FURTHER = range(4)
"""Of `Arrivals.counts`: followers in the heap, requests taken from `order`, ranks that may take the next, and
whether more requests come than those that are loaded."""
ENCODE, SEND, WAITS = ENCODING = range(3)
"""Of `Arrivals.encode_s`."""


class Fleet(NamedTuple):
    """The state of a fleet."""

    requests: Requests
    ranks: Ranks  # arrays with servers first, then ranks of a server
    intake: Floats  # (servers, 4) of `simulator.intake`
    plans: Plans
    started: Ints  # (servers, ranks) requests that ran before the last iteration was composed
    in_flight: Ints  # (ranks,) requests routed to a rank that have not ended
    home: NDArray[np.int32]  # (pools, sessions) rank of each session; NONE: none yet
    inbound_at: Floats  # (ranks,) when the link over which caches are handed over is free [s]
    choices: Ints  # (ranks,) those that may take the next request come first
    clock: Floats  # (1,) time of the last event [s]
    per_pass: Floats  # (servers,) tokens of a request in a pass
    to_route: Ints  # (1,) pool whose requests at the router may go to servers; NONE: no pool's
    servers: ServerStates
    pools: PoolStates
    totals: Floats  # (servers, TOTALS)


def no_trace() -> Trace:
    """Return the table of a trace before any request is loaded."""
    ints, floats = np.zeros(0, dtype=np.int64), np.zeros(0)
    return Trace(ints, ints, floats, ints, floats, floats, *(ints,) * 5, np.zeros(0, dtype=np.bool_))


def no_requests(trace: Trace) -> Requests:
    """Return requests of a trace that have not arrived."""
    count = trace.isl.size
    zeros, none = np.zeros(count, dtype=np.int64), np.full(count, -1.0)
    return Requests(
        isl=trace.isl, osl=trace.osl, priority=trace.priority, client=trace.client,
        deadline=np.zeros(count), cached=zeros, shared=zeros.copy(), prompt=trace.isl.copy(),
        computed=zeros.copy(), swapped=zeros.copy(), generated=np.zeros(count), start_pass=zeros.copy(),
        sent=trace.sent.copy(), admitted=none, first=none.copy(), end=none.copy(),
    )  # fmt: skip


def idle_fleet(servers: Servers, members: Members, scaling: Scaling, trace: Trace) -> Fleet:
    """Return a fleet before any request of a trace is loaded; servers: a row for each.

    Ranks of the fleet are numbered as if every server had as many as the one with most.
    """
    number, ranks, requests = servers.times.size, int(servers.ranks.max()), trace.isl.size
    width = int(min((servers.most // servers.slots).max(), requests))
    shape, both = (number, ranks), (number, ranks, max(width, 1))
    clients = (number, ranks, int(trace.client.max(initial=0)) + 1)
    length = 2 * width + min(requests, _QUEUE) + 16
    of_ranks: dict[str, Any] = {name: np.zeros(shape, dtype=np.int64) for name in Ranks._fields}
    of_ranks |= {name: np.zeros(both, dtype=np.int64) for name in ("running", "chunk", "ended")}
    of_ranks |= {
        "queue": np.zeros((*shape, length), dtype=np.int64), "end_pass": np.full(both, NEVER),
        "next_end": np.full(shape, NEVER), "base": np.zeros(shape),
        "head": np.full(shape, width), "tail": np.full(shape, width), "swap_s": np.zeros(shape),
        "service": Service(np.zeros(clients), np.zeros(clients), np.zeros(clients, dtype=np.int64)),
    }  # fmt: skip
    bools, floats = np.zeros((3, number), dtype=np.bool_), np.zeros((3, number))
    return Fleet(
        requests=no_requests(no_trace()),
        ranks=Ranks(**of_ranks),
        intake=np.zeros((number, 4)),
        plans=Plans(
            np.zeros(number, dtype=np.int64), np.full(number, np.inf), floats[0],
            np.zeros(number, dtype=np.int64), floats[1], floats[2], bools[0], bools[1], ~bools[2],
        ),
        started=np.zeros(shape, dtype=np.int64),
        in_flight=np.zeros(number * ranks, dtype=np.int64),
        home=np.full((scaling.kind.size, int(trace.session.max(initial=-1)) + 1), NONE, dtype=np.int32),
        inbound_at=np.zeros(number * ranks), choices=np.zeros(number * ranks, dtype=np.int64),
        clock=np.zeros(1), per_pass=servers.per_pass, to_route=np.full(1, NONE),
        servers=server_states(members, scaling), pools=pool_states(scaling, 0),
        totals=np.zeros((number, TOTALS)),
    )  # fmt: skip


def empty_stores(servers: Servers, texts: Texts, tiers: Tiers) -> Stores:
    """Return the stores of all tiers before any of the texts is loaded."""
    number, ranks = servers.times.size, int(servers.ranks.max())
    rank = np.arange(number * ranks)
    of, capacity, stores = [rank], [np.repeat(servers.capacity // servers.slots, ranks)], rank.size
    for scope, tokens in zip(tiers.scope.tolist(), tiers.capacity.tolist(), strict=True):
        shared = {PER_RANK: rank, PER_SERVER: rank // ranks, PER_FLEET: 0 * rank}[scope]
        of.append(stores + shared)
        capacity.append(np.full(shared.max() + 1, tokens))
        stores += shared.max() + 1
    uses, older, newer = (np.zeros((0, stores), dtype=np.int32) for _ in range(3))
    return Stores(
        of=np.array(of), tier=np.repeat(np.arange(len(of)), [column.size for column in capacity]),
        capacity=np.concatenate(capacity), idle=np.zeros(stores, dtype=np.int64),
        oldest=np.full(stores, NONE), newest=np.full(stores, NONE), uses=uses, older=older, newer=newer,
        through=np.append(False, tiers.through), is_shared=np.append(False, tiers.scope == PER_FLEET),
        latency_s=np.append(0.0, tiers.latency_s),
        token_s=np.append(0.0, tiers.token_s), free_at=np.zeros((len(of), rank.size)),
        has_adapters=np.full(1, bool((texts.tokens == 0).any())), adapters=np.zeros_like(rank),
        loads=np.zeros_like(rank), loads_s=np.zeros(rank.size),
        loaded_at=np.zeros(rank.size), load_latency_s=np.full(1, tiers.load_latency_s),
        load_token_s=np.full(1, tiers.load_token_s),
        path=np.zeros(depth_of(texts.parent), dtype=np.int64), number=np.zeros(0, dtype=np.int64),
    )  # fmt: skip


def is_follower(trace: Trace) -> Bools:
    """Say which requests are sent after the end of another one, (requests,)."""
    follows = np.zeros(trace.isl.size, dtype=np.bool_)
    follows[trace.follower[trace.follower >= 0]] = True
    return follows


def no_arrivals(intake: Intakes) -> Arrivals:
    """Return the arrivals before any request is loaded; intake: of servers, the first with the encoders."""
    none = np.zeros(0, dtype=np.int64)
    encode_s = np.array([intake.encode_s[0], intake.send_s[0], 0.0])
    return Arrivals(
        none, np.zeros(0), none, none, np.zeros(4, dtype=np.int64), np.zeros(intake.encoders[0]), encode_s
    )


def not_served(trace: Trace) -> Served:
    """Return the table of requests before any has arrived."""
    count = trace.isl.size
    cached, read, handed, preempted = np.zeros((4, count), dtype=np.int64)
    return Served(
        np.full(count, NONE), np.full(count, -1.0), cached, read, handed, np.zeros(count), preempted
    )


@lean_kernel
def _depth(parent: Ints, depth: Ints) -> int:
    most = 0
    for node in range(parent.size):
        depth[node] = 1 if parent[node] < 0 else depth[parent[node]] + 1
        most = max(most, depth[node])
    return int(most)


def depth_of(parent: Ints) -> int:
    """Return the most nodes of a path."""
    return int(_depth(parent, np.zeros(parent.size, dtype=np.int64)))


@inlined_kernel
def ranks_on(ranks: Ranks, server: int) -> Ranks:
    """Return the ranks of one server; for lean kernels: nobody counts references to these views."""
    return Ranks(
        ranks.queue[server], ranks.head[server], ranks.tail[server], ranks.running[server],
        ranks.end_pass[server], ranks.chunk[server], ranks.decoding[server], ranks.started[server],
        ranks.chunks[server], ranks.pauses[server], ranks.passes[server], ranks.next_end[server],
        ranks.base[server], ranks.prompts[server], ranks.reserved[server], ranks.saved[server],
        ranks.ended[server], ranks.swapped[server], ranks.swap_s[server], ranks.adapters[server],
        Service(
            ranks.service.tokens[server], ranks.service.counter[server], ranks.service.waits[server]
        ),
    )  # fmt: skip
