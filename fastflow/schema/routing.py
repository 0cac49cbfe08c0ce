"""Routers: which server of a fleet takes a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fastflow.core.field import Column, count, fraction, nonnegative, text
from fastflow.core.registry import Registry

KEY = "router.policy"
_PACKAGE = "fastflow.performance.serving.fleet"


class Limits(NamedTuple):
    """Limits of routers, as `ROUTING` has them."""

    balance_abs_threshold: float
    balance_rel_threshold: float
    cache_threshold: float
    max_in_flight: float
    priority: float  # 1: of the requests at the router, those of the least priority value go first


class Router(NamedTuple):
    """A router."""

    name: str
    choose: Callable[..., Any]
    """Chooses a rank of the fleet for a request that arrives: `choose(view, limits, request, now)`, of
    `fleet.view.View`. It is compiled."""


ROUTERS: Registry[Router] = Registry(
    KEY,
    "routers",
    lambda thing: isinstance(thing, Router),
    "a fastflow.schema.routing.Router",
    modules={
        name: f"{_PACKAGE}.routers.{name}:ROUTER"
        for name in (
            "round_robin", "random", "least_loaded", "power_of_two", "hashing", "session_sticky",
            "prefix_aware",
        )
    },
)  # fmt: skip
"""Routers by name."""
LIMITS = {name: f"router.{name}" for name in Limits._fields}
"""Keys of limits."""
ROUTING: tuple[Column, ...] = (
    text(
        KEY,
        "which rank of a server takes a request of serve.trace: a name of the group router, or one that a"
        " package adds",
    ),
    nonnegative(
        LIMITS["balance_abs_threshold"],
        "",
        "prefix_aware: requests in flight, on the rank with most less that with fewest, above which a request"
        " goes to the latter",
    ),
    nonnegative(
        LIMITS["balance_rel_threshold"], "", "prefix_aware: the same, most over fewest; both must be exceeded"
    ),
    fraction(
        LIMITS["cache_threshold"],
        "prefix_aware: share of a prompt that the caches of a rank must have, or the request goes to the rank"
        " with fewest in flight",
    ),
    count(
        LIMITS["max_in_flight"],
        "requests in flight of a rank, with which it takes no further ones: these wait at the router; 0: any"
        " number",
        low=0,
        high=1e6,
    ),
    Column(
        LIMITS["priority"],
        "bool",
        "",
        "true: of the requests that wait at the router, those of the class that is first go first; false: in"
        " the order of arrival",
    ),
)
