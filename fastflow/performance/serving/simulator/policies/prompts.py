"""What policies are made from: the order of a queue, and prompts of an iteration."""

from __future__ import annotations

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.simulator.scheduler import (
    NEVER,
    TOLERANCE,
    Batch,
    Ranks,
    Requests,
    is_next,
    used_tokens,
)


@lean_kernel
def sort_waiting(
    requests: Requests, ranks: Ranks, rank: int, now: float, key: Floats | Ints, descending: bool = False
) -> None:
    """Sort the requests that have arrived and wait by a key, (requests,), least first.

    Those with equal keys keep their order.
    """
    for index in range(ranks.head[rank] + 1, ranks.tail[rank]):
        i = ranks.queue[rank, index]
        if requests.sent[i] > now:
            return
        free = index
        while free > ranks.head[rank]:
            other = ranks.queue[rank, free - 1]
            if key[other] >= key[i] if descending else key[other] <= key[i]:
                break
            ranks.queue[rank, free] = other
            free -= 1
        ranks.queue[rank, free] = i


@lean_kernel
def may_start(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> bool:
    """Say whether the next request of a queue has arrived and fits the batch and the cache."""
    if not is_next(batch, requests, ranks, rank, now):
        return False
    i = ranks.queue[rank, ranks.head[rank]]
    if batch.reserves:
        reserved = ranks.reserved[rank] - ranks.saved[rank] - requests.shared[i]
        return bool(reserved + requests.isl[i] + requests.osl[i] <= batch.capacity)
    used = used_tokens(batch, ranks, rank) - requests.shared[i]
    return bool(used + requests.prompt[i] <= batch.capacity + TOLERANCE)


@lean_kernel
def fill_prompts(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float, tokens: int) -> None:
    """Put prompts of at most so many tokens into the iteration: those that have started, then the queue's.

    Without chunked prefill, a prompt beyond the budget has an iteration alone, in which no request decodes.
    """
    left, index = tokens, ranks.decoding[rank]
    while left > 0:
        is_new = index == ranks.started[rank]
        if is_new and not may_start(batch, requests, ranks, rank, now):
            break
        i = ranks.queue[rank, ranks.head[rank]] if is_new else ranks.running[rank, index]
        chunk = requests.prompt[i] - requests.cached[i] - requests.computed[i]
        if chunk > left:
            if batch.chunks:
                chunk = left
            elif chunk > batch.budget and ranks.chunks[rank] == 0:
                ranks.pauses[rank] = 1
            else:
                break
        if is_new:
            _start(batch, requests, ranks, rank)
        ranks.chunk[rank, index] = chunk
        ranks.chunks[rank] += 1
        left -= chunk
        index += 1


@lean_kernel
def _start(batch: Batch, requests: Requests, ranks: Ranks, rank: int) -> None:
    """Start the next request of a queue; what is in the host's memory is read."""
    i = ranks.queue[rank, ranks.head[rank]]
    ranks.head[rank] += 1
    ranks.running[rank, ranks.started[rank]] = i
    ranks.end_pass[rank, ranks.started[rank]] = NEVER
    ranks.started[rank] += 1
    ranks.prompts[rank] += requests.prompt[i]
    ranks.reserved[rank] += requests.isl[i] + requests.osl[i]
    ranks.saved[rank] += requests.shared[i]
    left = requests.prompt[i] - requests.cached[i] - requests.computed[i]
    ranks.service.tokens[rank, requests.client[i]] += left
    if requests.swapped[i] > 0:
        ranks.swap_s[rank] += requests.computed[i] * batch.swap.token_s
        ranks.swapped[rank] -= requests.swapped[i]
        requests.swapped[i] = 0
