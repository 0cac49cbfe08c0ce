"""The rank that has most of a prompt in its caches, unless it has little of it or loads are unequal.

As the router of SGLang does (`CacheAwarePolicy` of sgl-router, --cache-threshold, --balance-abs-threshold and
--balance-rel-threshold), which approximates the servers' caches; here it knows them.
"""

from __future__ import annotations

from fastflow.core.jit import inlined_kernel
from fastflow.performance.serving.fleet.view import (
    View,
    cached_prefix,
    cached_prefixes,
    least_loaded_of,
    number_of_choices,
)
from fastflow.schema.routing import Limits, Router


@inlined_kernel
def choose(view: View, limits: Limits, request: int, now: float) -> int:
    """Return the rank with the longest prefix in any of its tiers, or the least loaded one."""
    least = least_loaded_of(view)
    fewest, most = view.in_flight[least], view.in_flight[least]
    for index in range(number_of_choices(view)):
        most = max(most, view.in_flight[view.choices[index]])
    if most - fewest > limits.balance_abs_threshold and most > limits.balance_rel_threshold * fewest:
        return least
    depth, best, longest = cached_prefixes(view, request), least, 0
    for index in range(number_of_choices(view)):
        rank = view.choices[index]
        hits = cached_prefix(view, rank, depth)
        is_less_loaded = view.in_flight[rank] < view.in_flight[best]
        if hits > longest or (hits == longest and hits > 0 and is_less_loaded):
            best, longest = rank, hits
    return best if longest > limits.cache_threshold * view.trace.isl[request] else least


ROUTER = Router("prefix_aware", choose)
