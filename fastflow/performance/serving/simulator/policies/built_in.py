"""`mixed` and `prefill_first` in one kernel, so that servers with either are simulated in one call."""

from __future__ import annotations

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.simulator.policies import mixed
from fastflow.performance.serving.simulator.policies.prompts import fill_prompts
from fastflow.performance.serving.simulator.scheduler import Batch, Ranks, Requests


@lean_kernel
def schedule(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Choose a rank's prompts of the next iteration by the policy of its server."""
    tokens = mixed.tokens_of_prompts(batch, ranks, rank) if batch.mixes else batch.budget
    fill_prompts(batch, requests, ranks, rank, now, tokens)
