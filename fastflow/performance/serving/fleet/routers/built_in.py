"""fastflow's routers in one kernel, so that fleets with any of them are simulated by one loop."""

from __future__ import annotations

from fastflow.core.jit import inlined_kernel
from fastflow.performance.serving.fleet.routers import (
    hashing,
    least_loaded,
    power_of_two,
    prefix_aware,
    random,
    round_robin,
    session_sticky,
)
from fastflow.performance.serving.fleet.view import View
from fastflow.schema.routing import ROUTERS, Limits, Router


def number_of(router: Router) -> int:
    """Return the number of a router of fastflow; -1 of another one."""
    return ROUTERS.built_in.index(router.name) if router.name in ROUTERS.built_in else -1


@inlined_kernel
def route(view: View, limits: Limits, number: int, request: int, now: float) -> int:
    """Return the rank that a router of fastflow chooses; number: of `number_of`."""
    if number == 0:
        return round_robin.choose(view, limits, request, now)
    if number == 1:
        return random.choose(view, limits, request, now)
    if number == 2:
        return least_loaded.choose(view, limits, request, now)
    if number == 3:
        return power_of_two.choose(view, limits, request, now)
    if number == 4:
        return hashing.choose(view, limits, request, now)
    if number == 5:
        return session_sticky.choose(view, limits, request, now)
    return prefix_aware.choose(view, limits, request, now)
