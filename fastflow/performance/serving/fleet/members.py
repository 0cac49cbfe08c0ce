"""Servers of a fleet: the pool of each, how pools grow and shrink, and the state of servers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints

NEVER_SCALES, BY_QUEUE, BY_RATE, BY_LATENCY = range(4)
"""What a pool scales by (`autoscale`)."""
OFF, STARTING, OPEN, DRAINING = range(4)
"""States of a server: a draining one takes no further requests, and is off when its last one has ended."""


class Members(NamedTuple):
    """Servers; (servers,)."""

    table: Ints  # of the tables of passes
    pool: Ints  # from 0
    start_s: Floats  # from the decision to start until it takes requests [s]
    handover_latency_s: Floats  # of the cache of a request that another server computed [s]
    handover_token_s: Floats  # to send a token of it [s]
    handover_layers: Ints  # parts of it, each sent once it is computed; 1: it is sent as a whole


class Scaling(NamedTuple):
    """How the pools of servers scale; (pools,)."""

    kind: Ints
    target: Floats  # for a server: requests in flight, requests a second, or first tokens' time [s]
    interval_s: Floats  # between decisions [s]
    least: Ints  # servers
    most: Ints
    stabilization_s: Floats  # for which fewer servers must be enough [s]


class ServerStates(NamedTuple):
    """What servers of a fleet do; (servers,)."""

    state: Ints
    opens_at: Floats  # [s]; inf: it is not starting
    on_since: Floats  # [s]
    on_s: Floats  # time that it was on until it was off last [s]
    starts: Ints


class PoolStates(NamedTuple):
    """What pools of servers do; (pools,), but for `next`."""

    in_flight: Ints  # requests routed to its servers that have not ended
    waiting: Ints  # requests that wait at the router
    first: Ints  # request that waits longest at the router; -1: none does
    last: Ints
    next: Ints  # (requests,) that waits behind one
    routed: Ints  # requests so far
    arrivals: Ints  # since the last tick
    first_tokens: Ints  # since the last tick
    first_tokens_s: Floats  # their times since the arrival at the router, in all [s]
    next_tick: Floats  # [s]; inf: it does not scale
    ticks: Ints  # so far
    steady_since: Floats  # when its servers were last too few, or just enough [s]


def server_states(members: Members, scaling: Scaling) -> ServerStates:
    """Return the states of servers at the start."""
    servers = members.pool.size
    state = np.full(servers, OPEN)
    for pool in range(scaling.kind.size):
        if scaling.kind[pool] != NEVER_SCALES:
            state[np.flatnonzero(members.pool == pool)[int(scaling.least[pool]) :]] = OFF
    zeros = np.zeros((2, servers))
    return ServerStates(
        state, np.full(servers, np.inf), zeros[0], zeros[1], np.zeros(servers, dtype=np.int64)
    )


def pool_states(scaling: Scaling, requests: int) -> PoolStates:
    """Return the states of pools at the start."""
    pools = scaling.kind.size
    integers, floats = np.zeros((6, pools), dtype=np.int64), np.zeros((2, pools))
    return PoolStates(
        in_flight=integers[0], waiting=integers[1], first=np.full(pools, -1), last=np.full(pools, -1),
        next=np.full(requests, -1), routed=integers[2], arrivals=integers[3], first_tokens=integers[4],
        first_tokens_s=floats[0],
        next_tick=np.where(scaling.kind == NEVER_SCALES, np.inf, scaling.interval_s),
        ticks=integers[5], steady_since=floats[1],
    )  # fmt: skip
