"""The rank with the fewest requests in flight."""

from __future__ import annotations

from fastflow.core.jit import inlined_kernel
from fastflow.performance.serving.fleet.view import View, least_loaded_of
from fastflow.schema.routing import Limits, Router


@inlined_kernel
def choose(view: View, limits: Limits, request: int, now: float) -> int:
    """Return the rank with the fewest requests in flight."""
    return least_loaded_of(view)


ROUTER = Router("least_loaded", choose)
