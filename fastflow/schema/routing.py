"""Routers: which server of a fleet takes a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fastflow.core.registry import Registry

KEY = "router.policy"
_PACKAGE = "fastflow.performance.serving.fleet"


class Limits(NamedTuple):
    """Limits of routers that weigh caches against loads (`router.*`)."""

    abs_threshold: float  # requests in flight, most less fewest, above which loads are unequal
    rel_threshold: float  # and most over fewest
    share_threshold: float  # of a prompt that a cache has, above which it counts


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
    f"a fastflow.schema.routing.Router",
    modules={
        name: f"{_PACKAGE}.routers.{name}:ROUTER"
        for name in (
            "round_robin", "random", "least_loaded", "power_of_two", "hashing", "session_sticky", "prefix_aware",
        )
    },
)  # fmt: skip
"""Routers by name."""
