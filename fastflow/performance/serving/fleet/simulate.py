"""Simulation of a fleet: every request, from the router to its last token, event by event.

Events are ends of iterations, arrivals of requests, and starts of iterations, in this order at equal times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.jit.dispatcher import Kernel
from fastflow.core.tables import Floats
from fastflow.performance.serving.fleet.arrivals import drop_first, first_arrival, next_arrival_at
from fastflow.performance.serving.fleet.routers import built_in
from fastflow.performance.serving.fleet.server import Caches, Log, accept, finish, has_room, plan
from fastflow.performance.serving.fleet.state import (
    READY,
    ROUTED,
    RUNNING,
    Fleet,
    Plans,
    Served,
    Texts,
    Tiers,
    Trace,
    empty_pools,
    idle_fleet,
    no_arrivals,
    not_served,
)
from fastflow.performance.serving.fleet.view import View
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import STALLED, TAKEN, TOO_LONG
from fastflow.performance.serving.simulator.policies import built_in as built_in_policies
from fastflow.performance.serving.simulator.run import uncompilable
from fastflow.performance.serving.simulator.scheduler import Requests, batch_of
from fastflow.schema.routing import KEY, Limits, Router
from fastflow.schema.scheduling import KEY as POLICY
from fastflow.schema.scheduling import Policy

_DONE, _FULL, _STALLED = range(3)


class Simulated(NamedTuple):
    """A simulated fleet: requests are (requests,), totals (servers, TOTALS)."""

    refused: int  # TAKEN, or why there is no result: TOO_LONG, STALLED
    requests: Requests
    served: Served
    totals: Floats  # of `simulator.fast_forward`


def simulate(
    times: PassTimes,
    servers: Servers,
    trace: Trace,
    texts: Texts,
    tiers: Tiers,
    router: Router,
    limits: Limits,
    block: int,
    policy: Policy | None = None,
) -> Simulated:
    """Simulate the servers of a fleet, a row each, with equal numbers of ranks.

    block: tokens of a block of a server's cache. policy: by default `mixed` or `prefill_first`, as `servers`
    says. Raises InputError where the router or the policy does not compile.
    """
    fleet, log = idle_fleet(servers, trace), Log(trace, not_served(trace), no_arrivals(trace))
    longest = int((trace.isl + trace.osl).max(initial=0))
    if longest > int((servers.capacity // servers.slots).min()):
        return Simulated(TOO_LONG, fleet.requests, log.served, fleet.totals)
    caches = Caches(texts, empty_pools(servers, texts, tiers), block)
    run, number = _simulation(router, policy), built_in.number_of(router)
    while True:
        try:
            status = run(times, servers, fleet, caches, log, limits, number)
        except Exception as error:  # whatever a user's code does
            culprit = f"{KEY}={router.name}" + (f" or {POLICY}={policy.name}" if policy else "")
            raise uncompilable(culprit, error) from error
        if status != _FULL:
            break
        fleet = _with_longer_queues(fleet)
    return Simulated(STALLED if status == _STALLED else TAKEN, fleet.requests, log.served, fleet.totals)


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
        times: PassTimes,
        servers: Servers,
        fleet: Fleet,
        caches: Caches,
        log: Log,
        limits: Limits,
        number: int,
    ) -> int:
        return _run(times, servers, fleet, caches, log, limits, number, route, schedule, in_order)

    return run


@kernel
def _run_built_in(
    times: PassTimes, servers: Servers, fleet: Fleet, caches: Caches, log: Log, limits: Limits, number: int
) -> int:
    return _run(
        times, servers, fleet, caches, log, limits, number, built_in.route, built_in_policies.schedule, True
    )


@kernel
def _run(
    times: PassTimes,
    servers: Servers,
    fleet: Fleet,
    caches: Caches,
    log: Log,
    limits: Limits,
    number: int,
    route: Callable[..., Any],
    schedule: Callable[..., Any],
    in_order: bool,
) -> int:
    """Run a fleet until all of its requests have ended, or a queue is full.

    Returns _DONE, _FULL or _STALLED.
    """
    trace, _, arrivals = log
    plans, left = fleet.plans, 0
    for request in range(trace.isl.size):
        left += fleet.requests.end[request] < 0.0
    view = View(fleet.in_flight, fleet.home, arrivals.counts, trace, caches.texts, caches.pools)
    while left > 0:
        server, arrival = _next_server(plans), next_arrival_at(arrivals, trace)
        is_end = plans.phase[server] == RUNNING
        if arrival < plans.when[server] or (arrival == plans.when[server] < np.inf and not is_end):
            request = first_arrival(arrivals, trace)
            target = route(view, limits, number, request, arrival)
            batch = batch_of(servers, target // servers.ranks[0], False)
            if not has_room(fleet, target // batch.ranks, target % batch.ranks):
                return _FULL
            drop_first(arrivals, request)
            arrivals.counts[ROUTED] += 1
            accept(batch, fleet, caches, log, request, target, arrival)
            continue
        if plans.when[server] == np.inf:
            return _STALLED
        batch = batch_of(servers, server, False)
        if is_end:
            left -= finish(batch, fleet, caches, log, server)
        elif not plan(times, batch, fleet, caches, log, server, plans.when[server], schedule, in_order):
            return _STALLED
    return _DONE


@lean_kernel
def _next_server(plans: Plans) -> int:
    """Return the server whose event is next: ends of iterations before starts, then the lowest number."""
    best = 0
    for server in range(1, plans.when.size):
        if plans.when[server] < plans.when[best] or (
            plans.when[server] == plans.when[best]
            and plans.phase[server] == RUNNING
            and plans.phase[best] == READY
        ):
            best = server
    return best
