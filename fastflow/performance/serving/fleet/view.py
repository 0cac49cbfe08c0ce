"""What a router sees of a fleet."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import inlined_kernel
from fastflow.core.tables import Ints
from fastflow.performance.serving.fleet.prefix_cache import count_hits_of_tiers, write_path
from fastflow.performance.serving.fleet.state import Pools, Texts, Trace
from fastflow.performance.serving.requests.load import ROUTES, random_bits


class View(NamedTuple):
    """A fleet as a router sees it."""

    in_flight: Ints  # (ranks,) requests routed to a rank that have not ended
    home: Ints  # (sessions,) rank of each session, which a router may set; -1: none yet
    counts: Ints  # of `Arrivals`
    trace: Trace
    texts: Texts
    pools: Pools


@inlined_kernel
def least_loaded_of(view: View) -> int:
    """Return the rank with the fewest requests in flight; the first of several."""
    best = 0
    for rank in range(1, view.in_flight.size):
        if view.in_flight[rank] < view.in_flight[best]:
            best = rank
    return best


@inlined_kernel
def cached_prefixes(view: View, request: int) -> int:
    """Prepare the prompt of a request for `cached_prefix`; returns what that function needs."""
    return int(write_path(view.pools, view.texts, view.trace.text[request]))


@inlined_kernel
def cached_prefix(view: View, rank: int, depth: int) -> int:
    """Return the tokens at the start of a prompt that any tier of a rank has; depth: of `cached_prefixes`."""
    return int(count_hits_of_tiers(view.pools, view.texts, rank, depth))


@inlined_kernel
def rank_of_hash(view: View, key: int) -> int:
    """Return the rank that a key is mapped to, the same in every run."""
    return np.int64(random_bits(ROUTES, key) % np.uint64(view.in_flight.size))  # type: ignore[return-value]
