"""Ranks take turns."""

from __future__ import annotations

from fastflow.core.jit import inlined_kernel
from fastflow.performance.serving.fleet.view import View, number_of_choices
from fastflow.schema.routing import Limits, Router


@inlined_kernel
def choose(view: View, limits: Limits, request: int, now: float) -> int:
    """Return the rank whose turn it is."""
    return int(view.choices[view.routed[view.trace.pool[request]] % number_of_choices(view)])


ROUTER = Router("round_robin", choose)
