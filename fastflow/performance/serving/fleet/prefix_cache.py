"""Prefix caches: which texts are in the memory of ranks, and in tiers below it.

Nodes of the forest are cached and evicted as a whole, the least recently used first, as SGLang's radix cache
does (`RadixCache`, python/sglang/srt/mem_cache/radix_cache.py; Zheng et al., SGLang, 2024, section 3). A text
is released from its end on, so that a node of the first tier is evicted before its parent (vLLM frees the
blocks of a request in reverse order: `KVCacheManager.free`, vllm/v1/core/kv_cache_manager.py). What running
requests use is counted once, and not evicted.
"""

from __future__ import annotations

from fastflow.core.jit import inlined_kernel, lean_kernel
from fastflow.core.tables import Ints
from fastflow.performance.serving.fleet.state import NONE, Pools, Texts
from fastflow.performance.serving.simulator.scheduler import TOLERANCE

ABSENT, UNUSED = 0, 1
"""Of `Pools.uses`; more: one more than the running requests that use a node."""


@inlined_kernel
def _unlink(pools: Pools, pool: int, node: int) -> None:
    """Take an idle node from the list of its pool."""
    older, newer = pools.older[node, pool], pools.newer[node, pool]
    if older == NONE:
        pools.oldest[pool] = newer
    else:
        pools.newer[older, pool] = newer
    if newer == NONE:
        pools.newest[pool] = older
    else:
        pools.older[newer, pool] = older


@inlined_kernel
def _append(pools: Pools, pool: int, node: int) -> None:
    """Append a node to the list of its pool, as the most recently used one."""
    last = pools.newest[pool]
    pools.older[node, pool], pools.newer[node, pool] = last, NONE
    if last == NONE:
        pools.oldest[pool] = node
    else:
        pools.newer[last, pool] = node
    pools.newest[pool] = node


@inlined_kernel
def keep(pools: Pools, pool: int, tokens: Ints, node: int) -> None:
    """Make a node the most recently used one of a pool, where no running request uses it."""
    uses = pools.uses[node, pool]
    if uses > UNUSED:
        return
    if uses == ABSENT:
        pools.uses[node, pool] = UNUSED
        pools.idle[pool] += tokens[node]
    else:
        _unlink(pools, pool, node)
    _append(pools, pool, node)


@lean_kernel
def put(pools: Pools, tier: int, rank: int, tokens: Ints, node: int) -> None:
    """Put a node into a tier, and into those below that are written through, unless it is in use."""
    if pools.uses[node, pools.of[tier, rank]] > UNUSED:
        return
    keep(pools, pools.of[tier, rank], tokens, node)
    tier += 1
    while tier < pools.through.size and pools.through[tier]:
        keep(pools, pools.of[tier, rank], tokens, node)
        tier += 1


@lean_kernel
def evict(pools: Pools, texts: Texts, rank: int, used: float) -> None:
    """Evict what is too much in the tiers of a rank, to the tier below; used: tokens of running requests."""
    for tier in range(pools.through.size):
        pool = pools.of[tier, rank]
        room = pools.capacity[pool] - (used if tier == 0 else 0.0) + TOLERANCE
        while pools.idle[pool] > room and pools.oldest[pool] != NONE:
            node = pools.oldest[pool]
            _unlink(pools, pool, node)
            pools.uses[node, pool] = ABSENT
            pools.idle[pool] -= texts.tokens[node]
            if tier + 1 < pools.through.size and not pools.through[tier + 1]:
                put(pools, tier + 1, rank, texts.tokens, node)


@inlined_kernel
def count_hits(pools: Pools, texts: Texts, rank: int, text: int) -> int:
    """Return the tokens of a text that are in the first tier of a rank.

    A node is only there if its parent is.
    """
    pool, node = pools.of[0, rank], text
    while node != NONE and pools.uses[node, pool] == ABSENT:
        node = texts.parent[node]
    return 0 if node == NONE else int(texts.before[node] + texts.tokens[node])


@inlined_kernel
def count_in_use(pools: Pools, texts: Texts, rank: int, text: int) -> int:
    """Return the tokens of a text that running requests of a rank use."""
    pool, node = pools.of[0, rank], text
    while node != NONE and pools.uses[node, pool] <= UNUSED:
        node = texts.parent[node]
    return 0 if node == NONE else int(texts.before[node] + texts.tokens[node])


@inlined_kernel
def start_using(pools: Pools, texts: Texts, rank: int, text: int) -> int:
    """Let a running request use a text, which is all there then; returns the tokens that others use too."""
    pool, node, shared = pools.of[0, rank], text, 0
    while node != NONE:
        uses = pools.uses[node, pool]
        if uses > UNUSED:
            shared += texts.tokens[node]
        elif uses == UNUSED:
            _unlink(pools, pool, node)
            pools.idle[pool] -= texts.tokens[node]
        pools.uses[node, pool] = max(uses, UNUSED) + 1
        node = texts.parent[node]
    return shared


@inlined_kernel
def stop_using(pools: Pools, texts: Texts, rank: int, text: int) -> int:
    """Release a text from its end on; returns the tokens that other running requests use."""
    pool, node, shared = pools.of[0, rank], text, 0
    while node != NONE:
        pools.uses[node, pool] -= 1
        if pools.uses[node, pool] > UNUSED:
            shared += texts.tokens[node]
        else:
            pools.idle[pool] += texts.tokens[node]
            _append(pools, pool, node)
            if pools.through.size > 1 and pools.through[1]:
                put(pools, 1, rank, texts.tokens, node)
        node = texts.parent[node]
    return shared


@inlined_kernel
def _tier_of(pools: Pools, rank: int, node: int) -> int:
    """Return the first tier that has a node; the number of tiers: none has it."""
    tier = 0
    while tier < pools.through.size and pools.uses[node, pools.of[tier, rank]] == ABSENT:
        tier += 1
    return tier


@inlined_kernel
def write_path(pools: Pools, texts: Texts, text: int) -> int:
    """Write the nodes of a text, from its end on; returns how many."""
    node, depth = text, 0
    while node != NONE:
        pools.path[depth] = node
        depth += 1
        node = texts.parent[node]
    return depth


@inlined_kernel
def count_hits_of_tiers(pools: Pools, texts: Texts, rank: int, depth: int) -> int:
    """Return the tokens at the start of the written path that some tier of a rank has."""
    hits = 0
    for index in range(depth - 1, -1, -1):
        node = pools.path[index]
        if _tier_of(pools, rank, node) == pools.through.size:
            break
        hits += texts.tokens[node]
    return hits


@lean_kernel
def read_tiers(pools: Pools, texts: Texts, rank: int, text: int, now: float) -> tuple[int, float]:
    """Read what lower tiers have of a text into the first one; returns (tokens, when they are there [s]).

    What is read is there for others at once. Reads of a rank from a tier follow each other. Nodes that are
    there become the most recently used ones, from the end of the text on.
    """
    depth = write_path(pools, texts, text)
    first, tiers = depth, pools.through.size
    while first > 0 and _tier_of(pools, rank, pools.path[first - 1]) < tiers:
        first -= 1
    read, ready = 0, now
    for tier in range(1, tiers):
        tokens = 0
        for index in range(first, depth):
            node = pools.path[index]
            if _tier_of(pools, rank, node) == tier:
                tokens += texts.tokens[node]
        if tokens > 0:
            begin = max(now, pools.free_at[tier, rank])
            pools.free_at[tier, rank] = begin + pools.latency_s[tier] + tokens * pools.token_s[tier]
            ready = max(ready, pools.free_at[tier, rank])
            read += tokens
    for index in range(first, depth):
        node = pools.path[index]
        tier = _tier_of(pools, rank, node)
        if tier > 0:
            keep(pools, pools.of[tier, rank], texts.tokens, node)
        keep(pools, pools.of[0, rank], texts.tokens, node)
    return read, ready
