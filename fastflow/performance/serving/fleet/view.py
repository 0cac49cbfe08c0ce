"""What a router sees of a fleet."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.jit import inlined_kernel
from fastflow.core.tables import Ints
from fastflow.performance.serving.fleet.prefix_cache import count_hits_of_tiers, write_path
from fastflow.performance.serving.fleet.state import CHOICES, Stores, Texts, Trace
from fastflow.performance.serving.requests.load import ROUTES, random_bits


class View(NamedTuple):
    """A fleet as a router sees it: of a long trace, the requests and texts that are loaded (`loading`).

    So a request is a slot in tables, which another one has later. `number` lasts.
    """

    in_flight: Ints  # (ranks,) requests routed to a rank that have not ended
    home: NDArray[np.int32]  # (pools, sessions) rank of each session, which a router may set; -1: none yet
    counts: Ints  # of `Arrivals`
    choices: Ints  # (ranks,) those that may take the request, `number_of_choices` of them
    routed: Ints  # (pools,) requests so far
    trace: Trace
    texts: Texts
    stores: Stores
    number: Ints  # (requests,) of each request in the whole trace, as `stores.number` has it of each node


@inlined_kernel
def number_of_choices(view: View) -> int:
    """Return how many ranks may take the request."""
    return int(view.counts[CHOICES])


@inlined_kernel
def is_choice(view: View, rank: int) -> bool:
    """Say whether a rank may take the request."""
    hits = 0
    for index in range(number_of_choices(view)):
        hits += view.choices[index] == rank
    return hits > 0


@inlined_kernel
def least_loaded_of(view: View) -> int:
    """Return the rank with the fewest requests in flight; the first of several."""
    best = view.choices[0]
    for index in range(1, number_of_choices(view)):
        rank = view.choices[index]
        if view.in_flight[rank] < view.in_flight[best]:
            best = rank
    return int(best)


@inlined_kernel
def cached_prefixes(view: View, request: int) -> int:
    """Prepare the prompt of a request for `cached_prefix`; returns what that function needs."""
    return int(write_path(view.stores, view.texts, view.trace.text[request]))


@inlined_kernel
def cached_prefix(view: View, rank: int, depth: int) -> int:
    """Return the tokens at the start of a prompt that any tier of a rank has; depth: of `cached_prefixes`."""
    return int(count_hits_of_tiers(view.stores, view.texts, rank, depth))


@inlined_kernel
def rank_of_hash(view: View, key: int) -> int:
    """Return the rank that a key is mapped to, the same in every run."""
    index = random_bits(ROUTES, key) % np.uint64(number_of_choices(view))
    return int(view.choices[np.int64(index)])
