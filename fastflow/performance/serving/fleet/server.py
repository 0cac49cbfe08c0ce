"""One server of a fleet: it accepts requests, plans its next iterations, and ends them.

It batches as `simulator.run` says. Its iterations up to the next event it knows of are planned as one step; a
request that arrives meanwhile cuts the step short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fastflow.core.jit import inlined_kernel, lean_kernel
from fastflow.performance.serving.fleet.arrivals import add_follower
from fastflow.performance.serving.fleet.autoscale import has_requests, turn_off
from fastflow.performance.serving.fleet.members import BY_LATENCY, DRAINING, Members, Scaling
from fastflow.performance.serving.fleet.prefix_cache import (
    count_hits,
    count_in_use,
    evict,
    put,
    read_adapter,
    read_tiers,
    start_using,
    stop_using,
)
from fastflow.performance.serving.fleet.state import (
    IDLE,
    NONE,
    READY,
    RUNNING,
    Arrivals,
    Fleet,
    Served,
    Stores,
    Texts,
    Trace,
    ranks_on,
)
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.simulator.fast_forward import (
    PREEMPTIONS,
    Span,
    Step,
    add_totals,
    last_of,
    seconds_of,
    step,
    steps_before,
)
from fastflow.performance.serving.simulator.intake import VISIBLE, holds, look, note, window_of_intake
from fastflow.performance.serving.simulator.preemption import is_short, preempt_last
from fastflow.performance.serving.simulator.scheduler import (
    TOLERANCE,
    Batch,
    Ranks,
    advance,
    compose,
    insert_by_arrival,
    next_arrival,
    next_sent,
    used_tokens,
)


class Caches(NamedTuple):
    """The texts of requests, and where they are cached."""

    texts: Texts
    stores: Stores
    block: int  # tokens of a block of a server's cache: whole blocks are reused


class Log(NamedTuple):
    """What is written down of requests and of what follows them."""

    trace: Trace
    served: Served
    arrivals: Arrivals


@inlined_kernel
def has_room(fleet: Fleet, server: int, rank: int) -> bool:
    """Make room for one more request in a queue, where there is any; says whether there is."""
    ranks = ranks_on(fleet.ranks, server)
    length, slack = ranks.queue.shape[1], ranks.running.shape[1]
    if ranks.tail[rank] < length:
        return True
    waiting = ranks.tail[rank] - ranks.head[rank]
    if ranks.head[rank] - slack < length // 4:
        return False
    for index in range(waiting):
        ranks.queue[rank, slack + index] = ranks.queue[rank, ranks.head[rank] + index]
    ranks.head[rank], ranks.tail[rank] = slack, slack + waiting
    return True


@inlined_kernel
def accept(
    batch: Batch,
    members: Members,
    fleet: Fleet,
    caches: Caches,
    log: Log,
    request: int,
    target: int,
    now: float,
) -> None:
    """Put a request into the queue of a rank once what other memory has of its prompt is there.

    target: rank of all ranks of the fleet.
    """
    stride = fleet.ranks.head.shape[1]
    server, rank = target // stride, target % stride
    requests, ranks = fleet.requests, ranks_on(fleet.ranks, server)
    fleet.in_flight[target] += 1
    fleet.pools.in_flight[members.pool[server]] += 1
    log.served.rank[request] = target
    there, read, ready = read_tiers(caches.stores, caches.texts, target, log.trace.text[request], now)
    evict(caches.stores, caches.texts, target, _used_now(batch, fleet, ranks, server, rank, now))
    if log.trace.handover[request] and there < requests.isl[request] - 1:
        missing = requests.isl[request] - 1 - there
        layers = members.handover_layers[server]
        latency_s, sends_s = members.handover_latency_s[server], missing * members.handover_token_s[server]
        early_s = log.served.prefill_s[request] * (layers - 1) / layers
        at_last = now + latency_s + sends_s / layers  # the last layer's, once the prompt is computed
        begin = max(now - early_s, fleet.inbound_at[target])
        fleet.inbound_at[target] = max(begin + latency_s + sends_s, at_last)
        log.served.handed[request] = missing
        ready = max(ready, fleet.inbound_at[target])
    log.served.read[request], requests.sent[request] = read, ready
    requests.deadline[request] = log.served.arrived[request] + log.trace.deadline[request]
    insert_by_arrival(ranks.queue[rank], ranks.head[rank], ranks.tail[rank], requests.sent, request)
    ranks.tail[rank] += 1
    plans = fleet.plans
    if plans.phase[server] == RUNNING:
        _shorten(batch, fleet, ranks, server)
    else:
        plans.phase[server] = READY
        plans.when[server] = min(plans.when[server], ready)


@inlined_kernel
def _used_now(batch: Batch, fleet: Fleet, ranks: Ranks, server: int, rank: int, now: float) -> float:
    """Return the tokens of running requests in the cache of a rank: more with each iteration that has run."""
    plans, ended = fleet.plans, 0
    if plans.phase[server] == RUNNING and plans.passes[server] > 1:
        span, first, increase = now - plans.start[server], plans.first[server], plans.increase[server]
        ended = steps_before(span, first, increase, plans.passes[server]) - 1
    return float(used_tokens(batch, ranks, rank) + batch.per_pass * ranks.decoding[rank] * ended)


@inlined_kernel
def _shorten(batch: Batch, fleet: Fleet, ranks: Ranks, server: int) -> None:
    """End the iterations that run where the server composes one with a request that has come meanwhile."""
    plans = fleet.plans
    if plans.passes[server] == 1:
        return
    start = plans.start[server]
    arrival = next_arrival(batch, fleet.requests, ranks, start)
    first, increase = plans.first[server], plans.increase[server]
    passes = steps_before(arrival - start, first, increase, plans.passes[server])
    if passes < plans.passes[server]:
        plans.passes[server] = passes
        plans.when[server] = start + seconds_of(Step(passes, first, increase))


@inlined_kernel
def _look_up(
    batch: Batch, fleet: Fleet, caches: Caches, log: Log, ranks: Ranks, server: int, in_order: bool
) -> None:
    """Look up the prompts that may start next in the caches."""
    requests, visible = fleet.requests, fleet.intake[server, VISIBLE]
    for rank in range(batch.ranks):
        target = server * ranks.head.size + rank
        left, used = batch.budget, used_tokens(batch, ranks, rank)
        stop = ranks.head[rank] + batch.most - ranks.started[rank]
        for index in range(ranks.head[rank], ranks.tail[rank]):
            i = ranks.queue[rank, index]
            is_over = index >= stop or left <= 0 or used > batch.capacity + TOLERANCE
            if requests.sent[i] > visible or (in_order and is_over):
                break
            text = log.trace.text[i]
            hits = min(count_hits(caches.stores, caches.texts, target, text), requests.isl[i] - 1)
            requests.cached[i] = hits // caches.block * caches.block
            if requests.swapped[i] > 0:
                requests.computed[i] = max(0, requests.swapped[i] - requests.cached[i])
            if log.trace.handover[i] and log.served.preempted[i] == 0:
                requests.cached[i] = requests.isl[i] - 1
            requests.shared[i] = count_in_use(caches.stores, caches.texts, target, text)
            left -= requests.prompt[i] - requests.cached[i] - requests.computed[i]
            used += requests.prompt[i] - requests.shared[i]


@inlined_kernel
def _release(caches: Caches, log: Log, ranks: Ranks, rank: int, target: int, request: int) -> None:
    """Release the prompt of a request that ran on a rank."""
    text = log.trace.text[request]
    ranks.saved[rank] -= stop_using(caches.stores, caches.texts, target, text)


@lean_kernel
def _waits(batch: Batch, ranks: Ranks) -> bool:
    """Say whether a request is in a queue."""
    waiting = 0
    for rank in range(batch.ranks):
        waiting += ranks.tail[rank] - ranks.head[rank]
    return bool(waiting > 0)


@inlined_kernel
def plan(
    times: PassTimes,
    batch: Batch,
    fleet: Fleet,
    caches: Caches,
    log: Log,
    server: int,
    now: float,
    schedule: Callable[..., Any],
    in_order: bool,
) -> bool:
    """Plan the next iterations of a server; schedule, in_order: of a scheduling policy.

    Returns False where the policy leaves requests waiting though none runs and none will come.
    """
    requests, ranks, plans = fleet.requests, ranks_on(fleet.ranks, server), fleet.plans
    intake = fleet.intake[server]
    while True:
        is_idle = plans.was_idle[server]
        if not batch.reserves:
            _preempt(batch, fleet, caches, log, ranks, server)
        look(batch, intake, now, is_idle)
        _look_up(batch, fleet, caches, log, ranks, server, in_order)
        is_held = holds(batch, requests, ranks, intake)
        window = window_of_intake(batch, requests, ranks, intake, now, is_held)
        plans.passes[server] = 0
        with_prompts = _compose(
            batch, fleet, caches, log, ranks, server, now, window.visible, is_held, schedule
        )
        steps = step(
            times, batch, requests, ranks, with_prompts, Span(now, 1e300 if in_order else now, window.most)
        )
        if steps.passes > 0 or is_idle:
            break
        plans.was_idle[server] = True  # an idle server takes at once what has come
    if steps.passes == 0:
        soonest = next_sent(batch, requests, ranks, now)
        plans.phase[server], plans.when[server] = READY, soonest
        if soonest < 1e300:
            return True
        plans.phase[server], plans.when[server] = IDLE, float("inf")
        return not _waits(batch, ranks)
    plans.phase[server], plans.when[server] = RUNNING, now + seconds_of(steps)
    plans.start[server], plans.passes[server] = now, steps.passes
    plans.first[server], plans.increase[server] = steps.first, steps.increase
    plans.with_prompts[server], plans.is_held[server], plans.was_idle[server] = with_prompts, is_held, False
    return True


@inlined_kernel
def _preempt(batch: Batch, fleet: Fleet, caches: Caches, log: Log, ranks: Ranks, server: int) -> None:
    """Preempt requests where a cache is full."""
    for rank in range(batch.ranks):
        target = server * ranks.head.size + rank
        while is_short(batch, ranks, rank):
            i = preempt_last(batch, fleet.requests, ranks, rank)
            _release(caches, log, ranks, rank, target, i)
            log.served.preempted[i] += 1
            fleet.totals[server, PREEMPTIONS] += 1.0


@inlined_kernel
def _compose(
    batch: Batch,
    fleet: Fleet,
    caches: Caches,
    log: Log,
    ranks: Ranks,
    server: int,
    now: float,
    visible: float,
    is_held: bool,
    schedule: Callable[..., Any],
) -> bool:
    """Choose the prompts of the next iteration, and let those that start use their texts."""
    requests, served = fleet.requests, log.served
    for rank in range(batch.ranks):
        fleet.started[server, rank] = ranks.started[rank]
    with_prompts = compose(batch, requests, ranks, now, visible, is_held, schedule)
    for rank in range(batch.ranks):
        target = server * ranks.head.size + rank
        for index in range(fleet.started[server, rank], ranks.started[rank]):
            i = ranks.running[rank, index]
            ranks.swap_s[rank] += read_adapter(caches.stores, caches.texts, target, log.trace.text[i], now)
            shared = start_using(caches.stores, caches.texts, target, log.trace.text[i])
            ranks.saved[rank] += shared - requests.shared[i]
            if served.preempted[i] == 0:
                served.cached[i] = requests.cached[i]
        ranks.adapters[rank] = caches.stores.adapters[target]
        if ranks.started[rank] > fleet.started[server, rank]:
            evict(caches.stores, caches.texts, target, used_tokens(batch, ranks, rank))
    return with_prompts


@inlined_kernel
def finish(
    batch: Batch, members: Members, scaling: Scaling, fleet: Fleet, caches: Caches, log: Log, server: int
) -> int:
    """End the iterations that run; returns how many requests ended."""
    requests, ranks, plans = fleet.requests, ranks_on(fleet.ranks, server), fleet.plans
    now, ended = plans.when[server], 0
    steps = Step(plans.passes[server], plans.first[server], plans.increase[server])
    with_prompts, is_held = plans.with_prompts[server], plans.is_held[server]
    add_totals(batch, ranks, steps, with_prompts, fleet.totals[server])
    last_start = plans.start[server] + (seconds_of(steps) - last_of(steps))
    note(batch, fleet.intake[server], last_start, steps.passes, with_prompts, is_held)
    pool, states = members.pool[server], fleet.servers
    if scaling.kind[pool] == BY_LATENCY:
        _count_first_tokens(batch, fleet, log, ranks, pool, now)
    for rank in range(batch.ranks):
        of_rank = advance(batch, requests, ranks, rank, steps.passes, now)
        target = server * ranks.head.size + rank
        for index in range(of_rank):
            i = ranks.ended[rank, index]
            answer, follower = log.trace.answer[i], log.trace.follower[i]
            while answer != NONE and answer != log.trace.text[i]:
                put(caches.stores, 0, target, caches.texts.room, answer)
                answer = caches.texts.parent[answer]
            _release(caches, log, ranks, rank, target, i)
            if follower != NONE:
                log.served.prefill_s[follower] = now - requests.admitted[i]
                add_follower(log.arrivals, follower, now + log.trace.sent[follower])
        if of_rank > 0:
            fleet.in_flight[target] -= of_rank
            evict(caches.stores, caches.texts, target, used_tokens(batch, ranks, rank))
        ended += of_rank
    fleet.pools.in_flight[pool] -= ended
    stride = ranks.head.size
    if ended > 0 and states.state[server] == DRAINING and not has_requests(fleet.in_flight, stride, server):
        turn_off(states, caches.stores, caches.texts, stride, server, now)
    plans.phase[server], plans.when[server] = READY, now
    return ended


@inlined_kernel
def _count_first_tokens(batch: Batch, fleet: Fleet, log: Log, ranks: Ranks, pool: int, now: float) -> None:
    """Count the requests whose first token comes with the iteration that ends."""
    requests, pools = fleet.requests, fleet.pools
    for rank in range(batch.ranks):
        begin = ranks.decoding[rank]
        for index in range(begin, begin + ranks.chunks[rank]):
            i = ranks.running[rank, index]
            computed = requests.cached[i] + requests.computed[i] + ranks.chunk[rank, index]
            if requests.first[i] < 0.0 and computed >= requests.prompt[i]:
                pools.first_tokens[pool] += 1
                pools.first_tokens_s[pool] += now - log.served.arrived[i]
