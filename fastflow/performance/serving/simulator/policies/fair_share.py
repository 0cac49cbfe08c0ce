"""The client that had the least of a rank first; otherwise as `mixed`. Clients are classes of service.

The virtual token counter of Sheng et al., Fairness in Serving Large Language Models (OSDI 2024), section 4. A
client's counter has the tokens of its prompts that are computed, from their start, and twice those of its
answers. A client that comes back is lifted to the least counter of the others, so that it cannot save a
claim; after an idle time all are equal.
"""

from __future__ import annotations

from fastflow.core.jit import lean_kernel
from fastflow.performance.serving.simulator.policies import built_in
from fastflow.performance.serving.simulator.scheduler import OUTPUT_WEIGHT, Batch, Ranks, Requests
from fastflow.schema.scheduling import Policy


@lean_kernel
def schedule(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Give prompts what decoding requests leave of the iteration's tokens, by what clients had."""
    _count(batch, requests, ranks, rank)
    _lift(requests, ranks, rank, now)
    _sort(batch, requests, ranks, rank, now)
    built_in.schedule(batch, requests, ranks, rank, now)
    waits = ranks.service.waits
    for client in range(waits.shape[1]):
        waits[rank, client] = 0
    for index in range(ranks.head[rank], ranks.tail[rank]):
        i = ranks.queue[rank, index]
        if requests.sent[i] > now:
            break
        waits[rank, requests.client[i]] = 1


@lean_kernel
def _count(batch: Batch, requests: Requests, ranks: Ranks, rank: int) -> None:
    """Write the counters of clients, with the answers of requests that run."""
    service = ranks.service
    for client in range(service.counter.shape[1]):
        service.counter[rank, client] = service.tokens[rank, client]
    for index in range(ranks.started[rank]):
        i = ranks.running[rank, index]
        generated = requests.generated[i]
        if index < ranks.decoding[rank]:
            generated += batch.per_pass * (ranks.passes[rank] - requests.start_pass[i])
        service.counter[rank, requests.client[i]] += OUTPUT_WEIGHT * generated


@lean_kernel
def _lift(requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Lift clients that come back to the least counter of those that run or wait, or else to the largest."""
    service, least, largest = ranks.service, 1e300, 0.0
    for index in range(ranks.started[rank]):
        service.waits[rank, requests.client[ranks.running[rank, index]]] = 1
    for client in range(service.counter.shape[1]):
        counter = service.counter[rank, client]
        largest = max(largest, counter)
        if service.waits[rank, client] == 1:
            least = min(least, counter)
    least = largest if least == 1e300 else least
    for index in range(ranks.head[rank], ranks.tail[rank]):
        i = ranks.queue[rank, index]
        if requests.sent[i] > now:
            break
        client = requests.client[i]
        missing = least - service.counter[rank, client]
        if service.waits[rank, client] == 0 and missing > 0.0:
            service.tokens[rank, client] += missing
            service.counter[rank, client] = least
        service.waits[rank, client] = 1


@lean_kernel
def _sort(batch: Batch, requests: Requests, ranks: Ranks, rank: int, now: float) -> None:
    """Bring the requests that may start to the front of the queue, each time one of the next client.

    Counters grow by what a request has to compute. Equal ones go by the number of the client.
    """
    counter, taken, tokens = ranks.service.counter, ranks.head[rank], 0
    stop = min(ranks.tail[rank], taken + batch.most - ranks.started[rank])
    while taken < stop and tokens < batch.budget:
        best = -1
        for index in range(taken, ranks.tail[rank]):
            i = ranks.queue[rank, index]
            if requests.sent[i] > now:
                break
            if best >= 0:
                client, other = requests.client[i], requests.client[ranks.queue[rank, best]]
                if counter[rank, client] > counter[rank, other]:
                    continue
                if counter[rank, client] == counter[rank, other] and client >= other:
                    continue
            best = index
        if best < 0:
            return
        i = ranks.queue[rank, best]
        for index in range(best, taken, -1):
            ranks.queue[rank, index] = ranks.queue[rank, index - 1]
        ranks.queue[rank, taken] = i
        left = requests.prompt[i] - requests.cached[i] - requests.computed[i]
        counter[rank, requests.client[i]] += left
        tokens += left
        taken += 1


POLICY = Policy("fair_share", schedule)
