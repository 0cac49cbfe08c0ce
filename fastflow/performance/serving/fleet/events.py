"""What happens next in a fleet."""

from __future__ import annotations

from typing import NamedTuple

from fastflow.core.jit import inlined_kernel
from fastflow.performance.serving.fleet.members import PoolStates, ServerStates
from fastflow.performance.serving.fleet.state import RUNNING, Plans

END, OPENING, TICK, ARRIVAL, START = range(5)
"""Kinds of events, in their order at equal times: iterations end, a server takes requests from now on, a pool
scales, a request arrives, iterations start."""


class Event(NamedTuple):
    """What happens next; among equals the lowest number is first."""

    when: float  # [s]; inf: nothing will happen
    kind: int
    number: int  # of a server, or of a pool


@inlined_kernel
def next_event(plans: Plans, servers: ServerStates, pools: PoolStates, arrival: float) -> Event:
    """Return the next event; arrival: when the next request arrives [s]."""
    server = 0
    for other in range(1, plans.when.size):
        is_end = plans.phase[other] == RUNNING and plans.phase[server] != RUNNING
        if plans.when[other] < plans.when[server] or (plans.when[other] == plans.when[server] and is_end):
            server = other
    when, number = plans.when[server], server
    kind = END if plans.phase[server] == RUNNING else START
    for opening in range(servers.opens_at.size):
        if _is_before(servers.opens_at[opening], OPENING, when, kind):
            when, kind, number = servers.opens_at[opening], OPENING, opening
    for pool in range(pools.next_tick.size):
        if _is_before(pools.next_tick[pool], TICK, when, kind):
            when, kind, number = pools.next_tick[pool], TICK, pool
    if _is_before(arrival, ARRIVAL, when, kind):
        when, kind = arrival, ARRIVAL
    return Event(when, kind, number)


@inlined_kernel
def _is_before(when: float, kind: int, other_when: float, other_kind: int) -> bool:
    return when < other_when or (when == other_when and kind < other_kind)
