"""Least priority values first, as `--scheduling-policy priority` of vLLM; otherwise as `mixed`.

Requests that run are not preempted for others.
"""

from __future__ import annotations

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.simulator.policies import built_in
from fastflow.performance.serving.simulator.policies.prompts import sort_waiting
from fastflow.performance.serving.simulator.scheduler import Batch, Ranks, Requests
from fastflow.schema.scheduling import Policy


@lean_kernel
def schedule(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Give prompts what decoding requests leave of the iteration's tokens, by priority."""
    sort_waiting(requests, ranks, rank, now, requests.priority)
    built_in.schedule(batch, requests, ranks, rank, now)


POLICY = Policy("priority", schedule)
