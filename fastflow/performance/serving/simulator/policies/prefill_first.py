"""Prompts have separate iterations, which go before those that decode."""

from __future__ import annotations

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.simulator.policies.prompts import fill_prompts
from fastflow.performance.serving.simulator.scheduler import Batch, Ranks, Requests
from fastflow.schema.scheduling import Policy


@lean_kernel
def schedule(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Give prompts all tokens of the iteration, oldest first."""
    fill_prompts(batch, requests, ranks, rank, now, batch.budget)


POLICY = Policy("prefill_first", schedule, mixes=False, in_order=True)
