"""A server's scheduling policies: which requests, and how many of their tokens, the next iteration has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fastflow.core.registry import Registry

KEY, AUTO = "server.policy", "auto"
"""AUTO: `mixed` where `server.mixed_batches` is true, else `prefill_first`."""
_PACKAGE = "fastflow.performance.serving.simulator.policies"


class Policy(NamedTuple):
    """A scheduling policy."""

    name: str
    schedule: Callable[..., Any]
    """Chooses a rank's prompts of the next iteration: `schedule(batch, requests, ranks, rank, now)`, of
    `simulator.scheduler`. It is compiled, and may call the kernels of `simulator.policies.prompts`."""
    mixes: bool = True
    """Whether requests decode in iterations with prompts; else they pause in these."""
    in_order: bool = False
    """Whether it keeps the queue's order, and decides otherwise only once a request arrives, starts or ends.
    The iterations between two of these events are then timed in one step; else it is asked for each."""


POLICIES: Registry[Policy] = Registry(
    KEY,
    "scheduling_policies",
    lambda thing: isinstance(thing, Policy),
    f"a {_PACKAGE}.Policy",
    modules={
        name: f"{_PACKAGE}.{name}:POLICY"
        for name in (
            "mixed",
            "prefill_first",
            "decode_first",
            "shortest_prompt",
            "priority",
            "deadline",
            "fair_share",
        )
    },
)
"""Policies by name."""
CHOICES = (AUTO, *POLICIES.built_in)
ANALYTIC = (AUTO, "mixed", "prefill_first")
"""Policies that the analytic form knows; one kernel simulates them (`simulator.policies.built_in`)."""
