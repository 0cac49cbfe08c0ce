"""Simulation of a server: every request of a load, from sending to its last token.

An open loop at random times is extended until it is stationary, and measured without its ramp and its drain
(window.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.errors import CompositionError
from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.jit.dispatcher import Kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.encoder_pool.queue import Encoding, arrival_of, idle_encoders
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.table import PassTimes
from fastflow.performance.serving.requests.load import (
    STALLED,
    TOO_LONG,
    Loads,
    is_random,
    lengths_sent,
    sent_at,
    trip_share,
)
from fastflow.performance.serving.simulator.fast_forward import (
    CACHE,
    ITERATIONS,
    PREEMPTIONS,
    TOTALS,
    WITH_PREFILL,
    Span,
    add_totals,
    last_of,
    seconds_of,
    step,
)
from fastflow.performance.serving.simulator.intake import holds, look, new_state, note, window_of_intake
from fastflow.performance.serving.simulator.latencies import RequestMetrics, no_metrics, write_metrics
from fastflow.performance.serving.simulator.policies import built_in
from fastflow.performance.serving.simulator.preemption import preempt
from fastflow.performance.serving.simulator.scheduler import (
    Batch,
    Ranks,
    Requests,
    advance,
    batch_of,
    compose,
    is_full,
    next_sent,
    ranks_of,
    requests_of,
    send,
)
from fastflow.performance.serving.simulator.window import (
    EndedRequests,
    Window,
    bounds_of,
    longer_run,
    window_of,
)
from fastflow.schema.scheduling import KEY, Policy


class Simulated(NamedTuple):
    """Metrics of requests and of iterations; shape (points,).

    All are 0 where the server refuses the load. Of an open loop at random times, metrics are of its window:
    of requests that are sent in it, of ends, and of iterations that start in it.
    """

    refused: Ints  # load.TAKEN, or why a point has no result: TOO_LONG, STALLED
    metrics: RequestMetrics
    prefill_share: Floats  # share of iterations that compute prompts
    preemptions: Floats  # number of them
    cache: Floats  # share of the cache in use, mean over time


class _Parts(NamedTuple):
    """Parts of a simulation, by the start of iterations."""

    bounds: Floats  # when they start, and inf [s]; (parts + 1,)
    totals: Floats  # (parts, TOTALS)


def simulate(times: PassTimes, servers: Servers, loads: Loads, policy: Policy | None = None) -> Simulated:
    """Simulate every point's server.

    policy: by default `mixed` or `prefill_first`, as `servers` says. Raises InputError where it does not
    compile.
    """
    points = loads.isl.size
    out = Simulated(np.zeros(points, dtype=np.int64), no_metrics(points), *np.zeros((3, points)))
    if policy is None:
        _simulate(times, servers, loads, out)
        return out
    try:
        _simulation(policy)(times, servers, loads, out)
    except Exception as error:  # whatever a user's code does
        raise uncompilable(f"{KEY}={policy.name}", error) from error
    return out


def uncompilable(what: str, error: Exception) -> CompositionError:
    """Return the error of a function of a user that cannot be compiled or run."""
    name = type(error).__name__
    return CompositionError(
        f"{what}: its function cannot be compiled or run: {name}: {_first_line(error):.200}"
    )


def _first_line(error: Exception) -> str:
    """Return the line of an error that says what is wrong: of Numba's, the first below its headings."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("Failed in ")), "")


@kernel
def _simulate(times: PassTimes, servers: Servers, loads: Loads, out: Simulated) -> None:
    for point in range(loads.isl.size):
        requests = loads.requests[point]
        while requests > 0:
            requests = _simulate_requests(
                times, servers, loads, point, requests, out, built_in.schedule, True
            )


@lru_cache
def _simulation(policy: Policy) -> Callable[[PassTimes, Servers, Loads, Simulated], None]:
    """Return `_simulate` of another policy. As every kernel, it is compiled once for its source."""
    in_order, given = bool(policy.in_order), policy.schedule
    schedule = given if isinstance(given, Kernel) else lean_kernel(given)

    @kernel
    def simulate_policy(times: PassTimes, servers: Servers, loads: Loads, out: Simulated) -> None:
        for point in range(loads.isl.size):
            requests = loads.requests[point]
            while requests > 0:
                requests = _simulate_requests(times, servers, loads, point, requests, out, schedule, in_order)

    return simulate_policy


@kernel
def _simulate_requests(
    times: PassTimes,
    servers: Servers,
    loads: Loads,
    point: int,
    requests: int,
    out: Simulated,
    schedule: Callable[..., Any],
    in_order: bool,
) -> int:
    """Simulate some requests of a point, slot by slot, and write its row of `Simulated`.

    Returns 0; or how many requests a longer run has, which is needed: then nothing is written. schedule,
    in_order: of a policy.
    """
    concurrency = loads.concurrency[point]
    isl, osl = lengths_sent(loads, point, requests)
    capacity = servers.capacity[point] // servers.slots[point]
    if (isl + osl).max() > capacity:
        out.refused[point] = TOO_LONG
        return 0
    is_closed = concurrency > 0
    sent = sent_at(loads, point, requests)
    bounds = bounds_of(sent, is_random(loads, point))
    slots = min(servers.slots[point], requests, concurrency if is_closed else requests)
    parts = _Parts(bounds, np.zeros((bounds.size - 1, TOTALS)))
    ended = empty_ended(requests)
    clients = concurrency if is_closed else requests
    number, num_ended = np.arange(requests), 0
    for slot in range(slots):
        members = np.flatnonzero(number % clients % slots == slot)
        batch = batch_of(servers, point, is_closed)
        share = concurrency // slots + (1 if slot < concurrency % slots else 0)
        slot_requests = requests_of(isl[members], osl[members], sent[members], loads.prefix[point])
        ranks = ranks_of(batch.ranks, members.size, batch.most)
        at_once = share if is_closed else members.size
        encoding = idle_encoders(batch.intake, members.size)
        if not _run(times, batch, slot_requests, ranks, encoding, at_once, parts, schedule, in_order):
            out.refused[point] = STALLED
            return 0
        _append_ended(ended, slot_requests, encoding.sent, members, num_ended)
        num_ended += members.size
    window = window_of(ended, bounds, loads.rate[point])
    next_run = longer_run(window, loads, point, requests)
    if next_run == 0:
        write_metrics(ended, window, loads, point, out.metrics)
        _write_iterations(servers, point, parts.totals[window.first : window.last], window, out)
    return next_run


@kernel
def empty_ended(requests: int) -> EndedRequests:
    """Return an empty table for some requests."""
    number, osl = np.empty(requests, dtype=np.int64), np.empty(requests, dtype=np.int64)
    sent, arrived, admitted, first = (
        np.empty(requests),
        np.empty(requests),
        np.empty(requests),
        np.empty(requests),
    )
    end, service = np.empty(requests), np.empty(requests)
    return EndedRequests(number, osl, sent, arrived, admitted, first, first, end, service)


@kernel
def _append_ended(ended: EndedRequests, requests: Requests, sent: Floats, number: Ints, start: int) -> None:
    """Append a slot's requests to those of the slots before it; sent: by their clients [s]."""
    stop = start + number.size
    ended.number[start:stop], ended.osl[start:stop] = number, requests.osl
    ended.sent[start:stop], ended.arrived[start:stop] = sent, requests.sent
    ended.admitted[start:stop] = requests.admitted
    ended.first[start:stop], ended.end[start:stop] = requests.first, requests.end
    ended.service[start:stop] = requests.end - requests.admitted


@kernel
def _write_iterations(servers: Servers, point: int, rows: Floats, window: Window, out: Simulated) -> None:
    """Write the metrics of iterations that start in the window; rows: of totals, (parts, TOTALS)."""
    totals, duration = rows.sum(axis=0), window.end - window.start
    out.prefill_share[point] = totals[WITH_PREFILL] / max(totals[ITERATIONS], 1.0)
    out.preemptions[point] = totals[PREEMPTIONS]
    out.cache[point] = totals[CACHE] / (duration * servers.ranks[point] * servers.capacity[point])


@lean_kernel
def _run(
    times: PassTimes,
    batch: Batch,
    requests: Requests,
    ranks: Ranks,
    encoding: Encoding,
    at_once: int,
    parts: _Parts,
    schedule: Callable[..., Any],
    in_order: bool,
) -> bool:
    """Run a slot until all of its requests have ended; adds to the totals of parts.

    at_once: requests that are sent at the start; schedule, in_order: of a policy. Returns False where the
    policy leaves requests waiting though none runs and none will arrive.
    """
    bounds, totals = parts
    count, part = requests.isl.size, 0
    sent, ended, now = 0, 0, 0.0
    state, is_idle, first_use_s = new_state(), True, batch.host.first_use_s
    row, until = totals[part], bounds[part + 1]
    while sent < min(at_once, count):
        requests.sent[sent] = arrival_of(encoding, sent, requests.sent[sent])
        send(batch, requests, ranks, sent)
        sent += 1
    while ended < count:
        while until <= now < np.inf:
            part += 1
            row, until = totals[part], bounds[part + 1]
        if not batch.reserves:
            for rank in range(batch.ranks):
                row[PREEMPTIONS] += preempt(batch, requests, ranks, rank)
        look(batch, state, now, is_idle)
        is_held = holds(batch, requests, ranks, state)
        window = window_of_intake(batch, requests, ranks, state, now, is_held)
        with_prompts = compose(batch, requests, ranks, now, window.visible, is_held, schedule)
        span = Span(now, until if in_order else now, window.most)
        steps = step(times, batch, requests, ranks, with_prompts, span)
        if steps.passes == 0:
            if not is_idle:  # an idle server takes at once what has come
                is_idle = True
                continue
            now = next_sent(batch, requests, ranks, now)
            if now >= 1e300:
                return False
            continue
        add_totals(batch, ranks, steps, with_prompts, row)
        # exact for a single pass: requests that were sent at its start are seen by the next
        last_start = now + (seconds_of(steps) - last_of(steps))
        now += seconds_of(steps)
        if first_use_s > 0.0 and with_prompts and is_full(batch, ranks):
            now, first_use_s = now + first_use_s, 0.0
        is_idle = False
        note(batch, state, last_start, steps.passes, with_prompts, is_held)
        before = ended
        for rank in range(batch.ranks):
            ended += advance(batch, requests, ranks, rank, steps.passes, now)
        for _ in range(min(ended - before, count - sent)):  # an open loop has sent all
            trip_s = trip_share(sent) * batch.intake.round_trip_s
            requests.sent[sent] = arrival_of(encoding, sent, now + trip_s)
            send(batch, requests, ranks, sent)
            sent += 1
    return True
