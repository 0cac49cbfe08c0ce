"""Shortest prompts first, among those that have arrived; otherwise as `mixed`."""

from __future__ import annotations

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.simulator.policies import built_in
from fastflow.performance.serving.simulator.policies.prompts import sort_waiting
from fastflow.performance.serving.simulator.scheduler import Batch, Ranks, Requests
from fastflow.schema.scheduling import Policy


@lean_kernel
def schedule(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Give prompts what decoding requests leave of the iteration's tokens, shortest first."""
    sort_waiting(requests, ranks, rank, now, requests.prompt)
    built_in.schedule(batch, requests, ranks, rank, now)


POLICY = Policy("shortest_prompt", schedule)
