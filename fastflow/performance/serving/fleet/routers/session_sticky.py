"""A session keeps the rank of its first request, which is the least loaded one then."""

from __future__ import annotations

from fastflow.core.jit import inlined_kernel
from fastflow.performance.serving.fleet.state import NONE
from fastflow.performance.serving.fleet.view import View, is_choice, least_loaded_of
from fastflow.schema.routing import Limits, Router


@inlined_kernel
def choose(view: View, limits: Limits, request: int, now: float) -> int:
    """Return the rank of the session of a request."""
    session = view.trace.session[request]
    if session == NONE:
        return least_loaded_of(view)
    pool = view.trace.pool[request]
    if not is_choice(view, view.home[pool, session]):
        view.home[pool, session] = least_loaded_of(view)
    return int(view.home[pool, session])


ROUTER = Router("session_sticky", choose)
