"""A hash of the session, or of the start of the prompt where there is none, chooses the rank."""

from __future__ import annotations

from fastflow.core.jit import inlined_kernel
from fastflow.performance.serving.fleet.state import NONE
from fastflow.performance.serving.fleet.view import View, rank_of_hash
from fastflow.schema.routing import Limits, Router


@inlined_kernel
def choose(view: View, limits: Limits, request: int, now: float) -> int:
    """Return the rank of a hash; requests of a session, or with the same start, have the same rank."""
    key = view.trace.session[request]
    if key == NONE:
        node = view.trace.text[request]
        while view.texts.parent[node] != NONE:
            node = view.texts.parent[node]
        key = view.stores.number[node]
    return rank_of_hash(view, key)


ROUTER = Router("hashing", choose)
