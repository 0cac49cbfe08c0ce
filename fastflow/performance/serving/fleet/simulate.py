"""Simulation of a fleet: every request, from the router to its last token, event by event.

Events are ends of iterations, arrivals of requests, and starts of iterations, in this order at equal times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.errors import CompositionError
from fastflow.core.jit import inlined_kernel, kernel, lean_kernel
from fastflow.core.jit.dispatcher import Kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.fleet.arrivals import (
    drop_first,
    encode,
    first_arrival,
    needs_more,
    next_arrival_at,
)
from fastflow.performance.serving.fleet.autoscale import activate, count_active, scale
from fastflow.performance.serving.fleet.events import ARRIVAL, END, OPENING, TICK, next_event
from fastflow.performance.serving.fleet.loading import Loader, Tables, Times, rows_of
from fastflow.performance.serving.fleet.members import OFF, OPEN, Members, PoolStates, Scaling, ServerStates
from fastflow.performance.serving.fleet.requests import PREFILL_POOL
from fastflow.performance.serving.fleet.routers import built_in
from fastflow.performance.serving.fleet.server import Caches, Log, accept, finish, has_room, plan
from fastflow.performance.serving.fleet.state import (
    CHOICES,
    NONE,
    WAITS,
    Arrivals,
    Fleet,
    Served,
    Texts,
    Tiers,
    Trace,
    empty_stores,
    idle_fleet,
    is_follower,
    no_arrivals,
    no_trace,
    not_served,
)
from fastflow.performance.serving.fleet.timeline import (
    Samples,
    Timeline,
    no_samples,
    take_samples,
    timeline_of,
)
from fastflow.performance.serving.fleet.view import View, is_choice
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import STALLED, STOPPED, TAKEN, TOO_LARGE, TOO_LONG
from fastflow.performance.serving.simulator.policies import built_in as built_in_policies
from fastflow.performance.serving.simulator.run import uncompilable
from fastflow.performance.serving.simulator.scheduler import batch_of
from fastflow.schema.routing import KEY, Limits, Router
from fastflow.schema.scheduling import KEY as POLICY
from fastflow.schema.scheduling import Policy

MAX_BYTES = 6 * 1024**3
"""Most memory of the tables of stores, of which each thread has its own: a machine may have 24 GiB.
Nodes that are loaded have 12 B in each store."""
CHECKS = 16
"""How often a simulation looks whether it may stop early."""
_DONE, _FULL, _STALLED, _LOST, _NEXT = range(5)


class Simulated(NamedTuple):
    """A simulated fleet: requests are (requests,), totals (servers, TOTALS)."""

    refused: int  # TAKEN, or why there is no result: TOO_LONG, TOO_LARGE, STALLED, STOPPED
    requests: Times
    served: Served
    totals: Floats  # of `simulator.fast_forward`
    on_s: Floats  # (servers,) time that they were on [s]
    starts: Ints  # (servers,) after the first moment
    loads: int  # of adapters
    loads_s: float  # the time of all loads, and of waits for each other [s]
    timeline: Timeline
    encode_waits_s: float  # waits of all requests for encoders on devices of their own [s]
    missed: str = ""  # the limit that stopped it


def simulate(
    times: tuple[PassTimes, PassTimes],
    servers: Servers,
    members: Members,
    scaling: Scaling,
    trace: Trace,
    texts: Texts,
    tiers: Tiers,
    router: Router,
    limits: Limits,
    block: int,
    policy: Policy | None = None,
    stop: Callable[[Times, Served, float], str] | None = None,
) -> Simulated:
    """Simulate the servers of a fleet, a row each.

    times: tables of passes, of which `members` says which a server has. block: tokens of a block of a
    server's cache. policy: by default `mixed` or `prefill_first`, as `servers` says. stop: `EarlyStop.why`,
    called some CHECKS times. Raises InputError where the router or the policy does not compile.
    """
    no_texts: Texts = rows_of(texts, np.zeros(0, dtype=np.int64))
    stores = empty_stores(servers, texts, tiers)
    tables = Tables(
        idle_fleet(servers, members, scaling, trace),
        Caches(no_texts, stores, block),
        Log(no_trace(), not_served(no_trace()), no_arrivals(servers.intake)),
    )
    last_sent = float(trace.sent[~is_follower(trace)].max(initial=0.0))
    samples, most_nodes = no_samples(1 + tiers.scope.size, last_sent), MAX_BYTES // (12 * stores.tier.size)
    if texts.parent.size > most_nodes:
        stop = None  # whether the tables are too large depends on how many requests are loaded at a time
    loader = Loader(trace, texts, CHECKS if stop else 1)
    if _is_too_long(servers, members, trace, texts):
        return _result(TOO_LONG, tables, loader, samples)
    run, number, status = _simulation(router, policy), built_in.number_of(router), _NEXT
    while status in (_NEXT, _FULL):
        if status == _FULL:
            tables = tables._replace(fleet=_with_longer_queues(tables.fleet))
        else:
            loaded = loader.load(tables, most_nodes)
            if loaded is None:
                return _result(TOO_LARGE, tables, loader, samples)
            tables = loaded
        try:
            status = run(times, servers, members, scaling, *tables, samples, limits, number)
        except Exception as error:  # whatever a user's code does
            if number >= 0 and policy is None:
                raise
            culprit = f"{KEY}={router.name}" + (f" or {POLICY}={policy.name}" if policy else "")
            raise uncompilable(culprit, error) from error
        if stop and status == _NEXT:
            loader.write_all(tables)
            if missed := stop(loader.times, loader.served, float(tables.fleet.clock[0])):
                return _result(STOPPED, tables, loader, samples)._replace(missed=missed)
    if status == _LOST:
        raise CompositionError(
            f"{KEY}={router.name}: its function returns a rank that is none of view.choices"
        )
    loader.write_all(tables)
    return _result(STALLED if status == _STALLED else TAKEN, tables, loader, samples)


def _result(refused: int, tables: Tables, loader: Loader, samples: Samples) -> Simulated:
    """Return the result of a simulation that has ended."""
    fleet, stores = tables.fleet, tables.caches.stores
    states = fleet.servers
    return Simulated(
        refused, loader.times, loader.served, fleet.totals, states.on_s, states.starts,
        int(stores.loads.sum()), float(stores.loads_s.sum()), timeline_of(samples),
        float(tables.log.arrivals.encode_s[WAITS]),
    )  # fmt: skip


def _is_too_long(servers: Servers, members: Members, trace: Trace, texts: Texts) -> bool:
    """Say whether a request, with the largest adapter, exceeds the cache of a server that may take it."""
    adapter = texts.room[texts.tokens == 0].max(initial=0)
    capacity, both = servers.capacity // servers.slots, trace.isl + trace.osl + adapter
    return any(
        both[trace.pool == pool].max(initial=0) > capacity[members.pool == pool].min()
        for pool in np.unique(members.pool)
    )


def _with_longer_queues(fleet: Fleet) -> Fleet:
    """Return a fleet whose queues are twice as long."""
    queue = fleet.ranks.queue
    return fleet._replace(ranks=fleet.ranks._replace(queue=np.concatenate([queue, queue], axis=2)))


@lru_cache
def _simulation(router: Router, policy: Policy | None) -> Callable[..., int]:
    """Return the loop with a router and a policy; routers and policies of fastflow share one."""
    if policy is None and built_in.number_of(router) >= 0:
        return _run_built_in
    route: Any = built_in.route
    if built_in.number_of(router) < 0:
        choose = router.choose if isinstance(router.choose, Kernel) else lean_kernel(router.choose)

        @lean_kernel
        def route(view: View, limits: Limits, number: int, request: int, now: float) -> int:
            return int(choose(view, limits, request, now))

    in_order = policy is None or bool(policy.in_order)
    given: Any = built_in_policies.schedule if policy is None else policy.schedule
    schedule = given if isinstance(given, Kernel) else lean_kernel(given)

    @kernel
    def run(
        times: tuple[PassTimes, PassTimes],
        servers: Servers,
        members: Members,
        scaling: Scaling,
        fleet: Fleet,
        caches: Caches,
        log: Log,
        samples: Samples,
        limits: Limits,
        number: int,
    ) -> int:
        return _run(
            times, servers, members, scaling, fleet, caches, log, samples, limits, number, route, schedule,
            in_order,
        )  # fmt: skip

    return run


@kernel
def _run_built_in(
    times: tuple[PassTimes, PassTimes],
    servers: Servers,
    members: Members,
    scaling: Scaling,
    fleet: Fleet,
    caches: Caches,
    log: Log,
    samples: Samples,
    limits: Limits,
    number: int,
) -> int:
    return _run(
        times, servers, members, scaling, fleet, caches, log, samples, limits, number, built_in.route,
        built_in_policies.schedule, True,
    )  # fmt: skip


@lean_kernel
def _run(
    times: tuple[PassTimes, PassTimes],
    servers: Servers,
    members: Members,
    scaling: Scaling,
    fleet: Fleet,
    caches: Caches,
    log: Log,
    samples: Samples,
    limits: Limits,
    number: int,
    route: Callable[..., Any],
    schedule: Callable[..., Any],
    in_order: bool,
) -> int:
    """Run a fleet until all of its requests have ended, or a queue is full, or the next requests are needed.

    Returns _DONE, _FULL, _NEXT, _STALLED, or _LOST where the router chooses a rank that is no choice.
    """
    trace, served, arrivals = log
    plans, states, pools = fleet.plans, fleet.servers, fleet.pools
    ranks, left = fleet.ranks.head.shape[1], 0
    for request in range(trace.isl.size):
        left += fleet.requests.end[request] < 0.0
    view = View(
        fleet.in_flight, fleet.home, arrivals.counts, fleet.choices, pools.routed, trace, caches.texts,
        caches.stores, arrivals.number,
    )  # fmt: skip
    while left > 0:
        if needs_more(arrivals):
            return _NEXT
        now, pool = fleet.clock[0], fleet.to_route[0]
        while pool >= 0 and pools.waiting[pool] > 0:
            if _choose(servers, members, fleet, arrivals, limits, pool) == 0:
                break
            request = pools.first[pool]
            target = route(view, limits, number, request, now)
            if number < 0 and not is_choice(view, target):  # fastflow's own routers choose one
                return _LOST
            batch = batch_of(servers, target // ranks, False)
            if not has_room(fleet, target // ranks, target % ranks):
                return _FULL
            _leave_router(pools, pool)
            accept(batch, members, fleet, caches, log, request, target, now)
        event = next_event(plans, states, pools, next_arrival_at(arrivals, trace))
        now, server = event.when, event.number
        if now > samples.taken[0] * samples.distance[0] and now < np.inf:
            take_samples(samples, fleet, caches.stores, now)
        fleet.clock[0], fleet.to_route[0] = now, NONE
        if now == np.inf:
            return _STALLED
        if event.kind == END:
            batch = batch_of(servers, server, False)
            left -= finish(batch, members, scaling, fleet, caches, log, server)
            if limits.max_in_flight > 0:
                fleet.to_route[0] = members.pool[server]
            if left == 0:
                _stop(states, now)
        elif event.kind == OPENING:
            states.state[server], states.opens_at[server] = OPEN, np.inf
            fleet.to_route[0] = members.pool[server]
        elif event.kind == TICK:
            stores, texts = caches.stores, caches.texts
            scale(members, scaling, states, pools, stores, texts, ranks, fleet.in_flight, event.number, now)
            fleet.to_route[0] = event.number
        elif event.kind == ARRIVAL:
            request = first_arrival(arrivals, trace)
            drop_first(arrivals, request)
            pool = trace.pool[request]
            if served.arrived[request] < 0.0:
                served.arrived[request] = now
                if pool == PREFILL_POOL and arrivals.encoders.size > 0:
                    encode(arrivals, request, now)
                    continue
            pools.arrivals[pool] += 1
            _wait_at_router(pools, trace, limits, pool, request)
            if count_active(members, states, pool) == 0:
                activate(members, states, pool, 1, now)
            fleet.to_route[0] = pool
        else:
            batch, table = batch_of(servers, server, False), times[members.table[server]]
            if not plan(table, batch, fleet, caches, log, server, now, schedule, in_order):
                return _STALLED
    return _DONE


@inlined_kernel
def _choose(
    servers: Servers, members: Members, fleet: Fleet, arrivals: Arrivals, limits: Limits, pool: int
) -> int:
    """Write the ranks that may take a request of a pool; returns how many."""
    choices, stride = 0, fleet.ranks.head.shape[1]
    for server in range(members.pool.size):
        if members.pool[server] == pool and fleet.servers.state[server] == OPEN:
            for rank in range(servers.ranks[server]):
                target = server * stride + rank
                if limits.max_in_flight == 0 or fleet.in_flight[target] < limits.max_in_flight:
                    fleet.choices[choices] = target
                    choices += 1
    arrivals.counts[CHOICES] = choices
    return choices


@inlined_kernel
def _wait_at_router(pools: PoolStates, trace: Trace, limits: Limits, pool: int, request: int) -> None:
    """Let a request wait at the router, behind those of its pool that came before or go before it."""
    waiting, before, after = pools.waiting[pool], NONE, pools.first[pool]
    if waiting > 0 and not (
        limits.priority > 0.0 and trace.priority[request] < trace.priority[pools.last[pool]]
    ):
        before = pools.last[pool]
    elif waiting > 0:
        while trace.priority[after] <= trace.priority[request]:
            before, after = after, pools.next[after]
    if before == NONE:
        pools.next[request], pools.first[pool] = after, request
    else:
        pools.next[request], pools.next[before] = pools.next[before], request
    if waiting == 0 or before == pools.last[pool]:
        pools.last[pool] = request
    pools.waiting[pool] += 1


@inlined_kernel
def _leave_router(pools: PoolStates, pool: int) -> None:
    """Let the request that waits longest at the router go to its rank."""
    pools.first[pool] = pools.next[pools.first[pool]]
    pools.waiting[pool] -= 1
    pools.routed[pool] += 1


@inlined_kernel
def _stop(states: ServerStates, now: float) -> None:
    """Count the time of servers that are on at the end."""
    for server in range(states.state.size):
        if states.state[server] != OFF:
            states.on_s[server] += now - states.on_since[server]
