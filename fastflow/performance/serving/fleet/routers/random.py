"""Any rank, at random."""

from __future__ import annotations

from fastflow.core.jit import inlined_kernel
from fastflow.performance.serving.fleet.view import View, rank_of_hash
from fastflow.schema.routing import Limits, Router


@inlined_kernel
def choose(view: View, limits: Limits, request: int, now: float) -> int:
    """Return a random rank, the same in every run."""
    return rank_of_hash(view, view.number[request])


ROUTER = Router("random", choose)
