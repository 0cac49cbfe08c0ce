"""The state of a fleet over time: samples at equal distances, as many as a figure needs.

The end of a run is not known before. So samples are taken at a short distance, and where there are
MAX_SAMPLES, each second one is dropped and the distance doubled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import inlined_kernel
from fastflow.core.tables import Floats, Ints
from fastflow.performance.serving.fleet.members import OPEN, STARTING
from fastflow.performance.serving.fleet.state import Fleet, Stores

MAX_SAMPLES = 512
SAMPLED = ("waiting", "running", "open", "starting", "used_tokens", "cached_tokens")
"""Of a sample: requests that wait at the router, for reads or in queues, and that run; servers that take
requests, and that start; tokens of running requests in the devices' memory; and further tokens that
each tier keeps, from the first one on."""
WAITING, RUNNING, OPENED, STARTS, USED, CACHED = range(6)


class Samples(NamedTuple):
    """Samples of a fleet."""

    values: Floats  # (MAX_SAMPLES, fields) as SAMPLED; CACHED stands for as many as there are tiers
    distance: Floats  # (1,) [s]
    taken: Ints  # (1,)


class Timeline(NamedTuple):
    """The state of a fleet over time; (samples,)."""

    time: Floats  # [s]
    waiting: Floats
    running: Floats
    open: Floats
    starting: Floats
    used_tokens: Floats
    cached_tokens: Floats  # (samples, tiers)


def no_samples(tiers: int, span_s: float) -> Samples:
    """Return a table without samples; tiers: with the first one, span_s: least duration of the run [s]."""
    distance = max(span_s / (MAX_SAMPLES - 1), 1e-3)
    return Samples(np.zeros((MAX_SAMPLES, CACHED + tiers)), np.full(1, distance), np.zeros(1, dtype=np.int64))


def timeline_of(samples: Samples) -> Timeline:
    """Return the samples that were taken."""
    count = int(samples.taken[0])
    values = samples.values[:count]
    time = np.arange(count) * samples.distance[0]
    waiting, running, opened, starting, used = values[:, :CACHED].T
    return Timeline(time, waiting, running, opened, starting, used, values[:, CACHED:])


@inlined_kernel
def take_samples(samples: Samples, fleet: Fleet, stores: Stores, now: float) -> None:
    """Take the samples before an event, in the state since the event before it."""
    while samples.taken[0] * samples.distance[0] < now:
        if samples.taken[0] == samples.values.shape[0]:
            _drop_every_second(samples.values)
            samples.taken[0] //= 2
            samples.distance[0] *= 2.0
        else:
            _write(samples.values[samples.taken[0]], fleet, stores)
            samples.taken[0] += 1


@inlined_kernel
def _drop_every_second(values: Floats) -> None:
    for row in range(values.shape[0] // 2):
        for field in range(values.shape[1]):
            values[row, field] = values[2 * row, field]


@inlined_kernel
def _write(row: Floats, fleet: Fleet, stores: Stores) -> None:
    """Write a sample."""
    ranks, states, pools = fleet.ranks, fleet.servers, fleet.pools
    row[:] = 0.0
    for pool in range(pools.waiting.size):
        row[WAITING] += pools.waiting[pool]
    for server in range(states.state.size):
        row[OPENED] += states.state[server] == OPEN
        row[STARTS] += states.state[server] == STARTING
        for rank in range(ranks.head.shape[1]):
            row[WAITING] += ranks.tail[server, rank] - ranks.head[server, rank]
            row[RUNNING] += ranks.started[server, rank]
            contexts = ranks.base[server, rank] + fleet.per_pass[server] * (
                ranks.passes[server, rank] * ranks.decoding[server, rank]
            )
            row[USED] += contexts + ranks.prompts[server, rank] - ranks.saved[server, rank]
    for store in range(stores.tier.size):
        row[CACHED + stores.tier[store]] += stores.idle[store]
