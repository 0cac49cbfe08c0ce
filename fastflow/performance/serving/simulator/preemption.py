"""Preemption: where the cache is full, requests that started last return to the front of the queue.

Their tokens are computed anew; or they are swapped to the host's memory, as far as it has room, and back when
the request starts once more. The iteration waits for both (vLLM's PreemptionMode, Kwon et al., SOSP 2023,
section 4.5).
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.simulator.scheduler import (
    NEVER,
    TOLERANCE,
    Batch,
    Ranks,
    Requests,
    used_tokens,
)


@lean_kernel
def preempt(batch: Batch, requests: Requests, ranks: Ranks, rank: int) -> int:
    """Preempt requests until the cache has room for the rest; returns how many."""
    preempted = 0
    while is_short(batch, ranks, rank):
        preempt_last(batch, requests, ranks, rank)
        preempted += 1
    return preempted


@lean_kernel
def is_short(batch: Batch, ranks: Ranks, rank: int) -> bool:
    """Say whether the requests of a rank, more than one, exceed its cache."""
    return bool(ranks.started[rank] > 1 and used_tokens(batch, ranks, rank) > batch.capacity + TOLERANCE)


@lean_kernel
def preempt_last(batch: Batch, requests: Requests, ranks: Ranks, rank: int) -> int:
    """Return the request of a rank that started last to the queue."""
    ranks.started[rank] -= 1
    i = ranks.running[rank, ranks.started[rank]]
    tokens = requests.cached[i] + requests.computed[i]
    if ranks.started[rank] < ranks.decoding[rank]:
        generated = requests.generated[i] + batch.per_pass * (ranks.passes[rank] - requests.start_pass[i])
        ranks.base[rank] -= requests.isl[i] + requests.generated[i] - batch.per_pass * requests.start_pass[i]
        ranks.decoding[rank] -= 1
        requests.generated[i] = np.floor(generated + TOLERANCE)
        requests.prompt[i] = requests.isl[i] + int(requests.generated[i])
        tokens = requests.prompt[i] - 1  # the last token made has no keys yet
        _find_next_end(ranks, rank)
    else:
        ranks.prompts[rank] -= requests.prompt[i]
    requests.computed[i] = 0
    if 0 < tokens <= batch.swap.tokens - ranks.swapped[rank]:
        requests.swapped[i] = tokens
        requests.computed[i] = tokens - requests.cached[i]
        ranks.swapped[rank] += tokens
        ranks.swap_s[rank] += tokens * batch.swap.token_s
    ranks.reserved[rank] -= requests.isl[i] + requests.osl[i]
    ranks.head[rank] -= 1
    ranks.queue[rank, ranks.head[rank]] = i
    return int(i)


@lean_kernel
def _find_next_end(ranks: Ranks, rank: int) -> None:
    next_end = NEVER
    for index in range(ranks.decoding[rank]):
        next_end = min(next_end, ranks.end_pass[rank, index])
    ranks.next_end[rank] = next_end
