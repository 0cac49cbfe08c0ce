"""Ranks take turns."""

from __future__ import annotations

from fastflow.core.jit import inlined_kernel
from fastflow.performance.serving.fleet.state import ROUTED
from fastflow.performance.serving.fleet.view import View
from fastflow.schema.routing import Limits, Router


@inlined_kernel
def choose(view: View, limits: Limits, request: int, now: float) -> int:
    """Return the rank whose turn it is."""
    return int(view.counts[ROUTED] % view.in_flight.size)


ROUTER = Router("round_robin", choose)
