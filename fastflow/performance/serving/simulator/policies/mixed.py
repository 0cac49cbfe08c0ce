"""Prompts share iterations with decoding requests, which are in every iteration."""

from __future__ import annotations

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.simulator.policies.prompts import fill_prompts
from fastflow.performance.serving.simulator.scheduler import Batch, Ranks, Requests
from fastflow.schema.scheduling import Policy


@lean_kernel
def tokens_of_prompts(batch: Batch, ranks: Ranks, rank: int) -> int:
    """Return what decoding requests leave of the iteration's tokens."""
    return int(batch.budget - ranks.decoding[rank] * batch.queries)


@lean_kernel
def schedule(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Give prompts what decoding requests leave of the iteration's tokens, oldest first."""
    fill_prompts(batch, requests, ranks, rank, now, tokens_of_prompts(batch, ranks, rank))


POLICY = Policy("mixed", schedule, in_order=True)
