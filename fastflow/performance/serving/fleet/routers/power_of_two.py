"""The less loaded of two random ranks (Mitzenmacher, IEEE TPDS 12 (10), 2001)."""

from __future__ import annotations

from fastflow.core.jit import inlined_kernel
from fastflow.performance.serving.fleet.view import View, rank_of_hash
from fastflow.schema.routing import Limits, Router


@inlined_kernel
def choose(view: View, limits: Limits, request: int, now: float) -> int:
    """Return the one of two random ranks that has fewer requests in flight."""
    number = view.number[request]
    first, second = rank_of_hash(view, 2 * number), rank_of_hash(view, 2 * number + 1)
    return second if view.in_flight[second] < view.in_flight[first] else first


ROUTER = Router("power_of_two", choose)
