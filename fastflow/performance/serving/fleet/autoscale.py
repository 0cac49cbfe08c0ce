"""Autoscaling: how many servers of a pool are on, decided at intervals.

The number follows from a value of the pool and a target for each server, as in Kubernetes' horizontal pod
autoscaler: the ratio rounded up, and fewer servers only after a time of stabilization (kubernetes.io,
Horizontal Pod Autoscaling, "Algorithm details"). A server takes requests some time after the decision. One
that is to go takes none any more, and is off when its last request has ended: its caches are lost then.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import inlined_kernel
from fastflow.core.tables import Ints
from fastflow.performance.serving.fleet.members import (
    BY_LATENCY,
    BY_QUEUE,
    DRAINING,
    OFF,
    OPEN,
    STARTING,
    Members,
    PoolStates,
    Scaling,
    ServerStates,
)
from fastflow.performance.serving.fleet.prefix_cache import clear
from fastflow.performance.serving.fleet.state import Stores, Texts

ROUNDING = 1e-9
"""What a ratio may exceed a whole number by, for rounding."""


@inlined_kernel
def count_active(members: Members, servers: ServerStates, pool: int) -> int:
    """Return the servers of a pool that take requests, or will when they have started."""
    active = 0
    for server in range(members.pool.size):
        state = servers.state[server]
        active += members.pool[server] == pool and (state in (OPEN, STARTING))
    return active


@inlined_kernel
def activate(members: Members, servers: ServerStates, pool: int, number: int, now: float) -> None:
    """Let more servers of a pool be on, the first ones that are not.

    Those that drain take requests from now on; others start.
    """
    for _ in range(number):
        draining, off = -1, -1
        for server in range(members.pool.size - 1, -1, -1):
            if members.pool[server] == pool and servers.state[server] == DRAINING:
                draining = server
            if members.pool[server] == pool and servers.state[server] == OFF:
                off = server
        if draining >= 0:
            servers.state[draining] = OPEN
        elif off >= 0:
            servers.state[off], servers.opens_at[off] = STARTING, now + members.start_s[off]
            servers.on_since[off] = now
            servers.starts[off] += 1


@inlined_kernel
def has_requests(in_flight: Ints, ranks: int, server: int) -> bool:
    """Say whether a server has requests in flight; in_flight: of each rank, ranks: of each server."""
    return bool(in_flight[server * ranks : (server + 1) * ranks].sum() > 0)


@inlined_kernel
def turn_off(
    servers: ServerStates, stores: Stores, texts: Texts, ranks: int, server: int, now: float
) -> None:
    """Turn a server off, whose requests have all ended; ranks: of each server."""
    servers.state[server], servers.opens_at[server] = OFF, np.inf
    servers.on_s[server] += now - servers.on_since[server]
    for rank in range(server * ranks, (server + 1) * ranks):
        clear(stores, texts, rank)


@inlined_kernel
def _deactivate(
    members: Members,
    servers: ServerStates,
    stores: Stores,
    texts: Texts,
    ranks: int,
    in_flight: Ints,
    pool: int,
    number: int,
    now: float,
) -> None:
    """Let fewer servers of a pool be on: first those that start, then the last ones."""
    for _ in range(number):
        starting, last = -1, -1
        for server in range(members.pool.size):
            if members.pool[server] == pool and servers.state[server] == STARTING:
                starting = server
            if members.pool[server] == pool and servers.state[server] == OPEN:
                last = server
        if starting >= 0:
            turn_off(servers, stores, texts, ranks, starting, now)
        elif last >= 0:
            servers.state[last] = DRAINING
            if not has_requests(in_flight, ranks, last):
                turn_off(servers, stores, texts, ranks, last, now)


@inlined_kernel
def scale(
    members: Members,
    scaling: Scaling,
    servers: ServerStates,
    pools: PoolStates,
    stores: Stores,
    texts: Texts,
    ranks: int,
    in_flight: Ints,
    pool: int,
    now: float,
) -> None:
    """Decide how many servers of a pool are on.

    ranks: of each server; in_flight: requests of each rank.
    """
    active, kind, target = count_active(members, servers, pool), scaling.kind[pool], scaling.target[pool]
    desired = active
    if kind == BY_QUEUE:
        desired = int(np.ceil((pools.in_flight[pool] + pools.waiting[pool]) / target - ROUNDING))
    elif kind == BY_LATENCY:
        if pools.first_tokens[pool] > 0:
            mean = pools.first_tokens_s[pool] / pools.first_tokens[pool]
            desired = int(np.ceil(active * mean / target - ROUNDING))
    else:
        desired = int(np.ceil(pools.arrivals[pool] / scaling.interval_s[pool] / target - ROUNDING))
    needed = 1 if pools.waiting[pool] > 0 else 0  # a server that starts for them goes on
    desired = min(max(desired, scaling.least[pool], needed), scaling.most[pool])
    pools.arrivals[pool], pools.first_tokens[pool], pools.first_tokens_s[pool] = 0, 0, 0.0
    pools.ticks[pool] += 1
    pools.next_tick[pool] = (pools.ticks[pool] + 1) * scaling.interval_s[pool]
    if desired >= active:
        pools.steady_since[pool] = now
        activate(members, servers, pool, desired - active, now)
    elif now - pools.steady_since[pool] >= scaling.stabilization_s[pool]:
        _deactivate(members, servers, stores, texts, ranks, in_flight, pool, active - desired, now)
