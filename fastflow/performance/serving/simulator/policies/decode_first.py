"""Prompts start only where no request decodes: a batch runs to its end, as in static batching."""

from __future__ import annotations

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.simulator.policies.prompts import fill_prompts
from fastflow.performance.serving.simulator.scheduler import Batch, Ranks, Requests
from fastflow.schema.scheduling import Policy


@lean_kernel
def schedule(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Give prompts all tokens of the iteration, oldest first, where no request decodes."""
    if ranks.decoding[rank] == 0:
        fill_prompts(batch, requests, ranks, rank, now, batch.budget)


POLICY = Policy("decode_first", schedule, in_order=True)
