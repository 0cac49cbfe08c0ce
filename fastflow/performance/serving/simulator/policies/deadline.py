"""The earliest deadline for the first token first; otherwise as `mixed`.

A deadline is the arrival and the limit of `serve.trace`, or else `serve.slo.ttft` (Liu and Layland,
Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment, 1973). Requests that run are not
preempted.
"""

from __future__ import annotations

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.simulator.policies import built_in
from fastflow.performance.serving.simulator.policies.prompts import sort_waiting
from fastflow.performance.serving.simulator.scheduler import Batch, Ranks, Requests
from fastflow.schema.scheduling import Policy


@lean_kernel
def schedule(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Give prompts what decoding requests leave of the iteration's tokens, by deadline."""
    sort_waiting(requests, ranks, rank, now, requests.deadline)
    built_in.schedule(batch, requests, ranks, rank, now)


POLICY = Policy("deadline", schedule)
