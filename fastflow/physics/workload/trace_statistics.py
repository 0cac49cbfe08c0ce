"""Statistics of a trace."""

from __future__ import annotations

from fastflow.physics.workload.prompt_texts import prompt_texts
from fastflow.physics.workload.request_order import RequestTrace


def reuse(trace: RequestTrace, shared_prefix: int = 0) -> float:
    """Return the share of all prompts' tokens that a cache of any size has when the prompts come.

    shared_prefix: tokens that every session begins with. What a request shares with none before it are texts
    of its own: each text of `prompt_texts` is of the first request that has it, and each answer of one.
    """
    new = prompt_texts(trace, shared_prefix).tokens.sum() - trace.osl.sum()
    return float(1.0 - new / trace.isl.sum())
