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
from fastflow.performance.serving.fleet.state import NONE, Stores, Texts
from fastflow.performance.serving.simulator.scheduler import TOLERANCE

ABSENT, UNUSED = 0, 1
"""Of `Stores.uses`; more: one more than the running requests that use a node."""


@inlined_kernel
def _unlink(stores: Stores, store: int, node: int) -> None:
    """Take an idle node from the list of its store."""
    older, newer = stores.older[node, store], stores.newer[node, store]
    if older == NONE:
        stores.oldest[store] = newer
    else:
        stores.newer[older, store] = newer
    if newer == NONE:
        stores.newest[store] = older
    else:
        stores.older[newer, store] = older


@inlined_kernel
def _append(stores: Stores, store: int, node: int) -> None:
    """Append a node to the list of its store, as the most recently used one."""
    last = stores.newest[store]
    stores.older[node, store], stores.newer[node, store] = last, NONE
    if last == NONE:
        stores.oldest[store] = node
    else:
        stores.newer[last, store] = node
    stores.newest[store] = node


@inlined_kernel
def _drop(stores: Stores, store: int, room: Ints, node: int) -> None:
    """Take an idle node out of its store."""
    _unlink(stores, store, node)
    stores.uses[node, store] = ABSENT
    stores.idle[store] -= room[node]


@inlined_kernel
def keep(stores: Stores, store: int, room: Ints, node: int) -> None:
    """Make a node the most recently used one of a store, where no running request uses it."""
    uses = stores.uses[node, store]
    if uses > UNUSED:
        return
    if uses == ABSENT:
        stores.uses[node, store] = UNUSED
        stores.idle[store] += room[node]
    else:
        _unlink(stores, store, node)
    _append(stores, store, node)


@lean_kernel
def put(stores: Stores, tier: int, rank: int, room: Ints, node: int) -> None:
    """Put a node into a tier, and into those below that are written through, unless it is in use."""
    if stores.uses[node, stores.of[tier, rank]] > UNUSED:
        return
    keep(stores, stores.of[tier, rank], room, node)
    tier += 1
    while tier < stores.through.size and stores.through[tier]:
        keep(stores, stores.of[tier, rank], room, node)
        tier += 1


@lean_kernel
def evict(stores: Stores, texts: Texts, rank: int, used: float) -> None:
    """Evict what is too much in the tiers of a rank, to the tier below; used: tokens of running requests."""
    for tier in range(stores.through.size):
        store = stores.of[tier, rank]
        free = stores.capacity[store] - (used if tier == 0 else 0.0) + TOLERANCE
        while stores.idle[store] > free and stores.oldest[store] != NONE:
            node = stores.oldest[store]
            _drop(stores, store, texts.room, node)
            if tier + 1 < stores.through.size and not stores.through[tier + 1]:
                put(stores, tier + 1, rank, texts.room, node)


@inlined_kernel
def clear(stores: Stores, texts: Texts, rank: int) -> None:
    """Lose what no running request uses in the tiers of a rank that are its server's own."""
    for tier in range(stores.through.size):
        store = stores.of[tier, rank]
        while not stores.is_shared[tier] and stores.oldest[store] != NONE:
            node = stores.oldest[store]
            _drop(stores, store, texts.room, node)


@inlined_kernel
def count_hits(stores: Stores, texts: Texts, rank: int, text: int) -> int:
    """Return the tokens of a text that are in the first tier of a rank, and from whose end it may go on.

    A node is only there if its parent is.
    """
    store, node = stores.of[0, rank], text
    while node != NONE and (stores.uses[node, store] == ABSENT or not texts.resumes[node]):
        node = texts.parent[node]
    return 0 if node == NONE else int(texts.before[node] + texts.tokens[node])


@inlined_kernel
def count_in_use(stores: Stores, texts: Texts, rank: int, text: int) -> int:
    """Return the room of a text that running requests of a rank use, less that of an adapter not in use."""
    store, node, root = stores.of[0, rank], text, text
    while node != NONE and stores.uses[node, store] <= UNUSED:
        root, node = node, texts.parent[node]
    if node != NONE:
        return int(texts.above[node] + texts.weight[node])
    return -int(texts.room[root]) if texts.tokens[root] == 0 else 0


@inlined_kernel
def start_using(stores: Stores, texts: Texts, rank: int, text: int) -> int:
    """Let a running request use a text, which is all there then; returns the room that others use too.

    An adapter that no other request uses takes room of its own: that is subtracted.
    """
    store, node, shared = stores.of[0, rank], text, 0
    while node != NONE:
        uses, parent = stores.uses[node, store], texts.parent[node]
        if uses > UNUSED:
            shared += texts.weight[node]
        else:
            if parent == NONE and texts.tokens[node] == 0:
                shared -= texts.room[node]
                stores.adapters[rank] += 1
            if uses == UNUSED:
                _unlink(stores, store, node)
                stores.idle[store] -= texts.room[node]
        stores.uses[node, store] = max(uses, UNUSED) + 1
        node = parent
    return shared


@inlined_kernel
def stop_using(stores: Stores, texts: Texts, rank: int, text: int) -> int:
    """Release a text from its end on; returns the same as `start_using` did."""
    store, node, shared = stores.of[0, rank], text, 0
    while node != NONE:
        stores.uses[node, store] -= 1
        parent = texts.parent[node]
        if stores.uses[node, store] > UNUSED:
            shared += texts.weight[node]
        else:
            if parent == NONE and texts.tokens[node] == 0:
                shared -= texts.room[node]
                stores.adapters[rank] -= 1
            stores.idle[store] += texts.room[node]
            _append(stores, store, node)
            if stores.through.size > 1 and stores.through[1]:
                put(stores, 1, rank, texts.room, node)
        node = parent
    return shared


@inlined_kernel
def _tier_of(stores: Stores, rank: int, node: int) -> int:
    """Return the first tier that has a node; the number of tiers: none has it."""
    tier = 0
    while tier < stores.through.size and stores.uses[node, stores.of[tier, rank]] == ABSENT:
        tier += 1
    return tier


@inlined_kernel
def write_path(stores: Stores, texts: Texts, text: int) -> int:
    """Write the nodes of a text, from its end on; returns how many."""
    node, depth = text, 0
    while node != NONE:
        stores.path[depth] = node
        depth += 1
        node = texts.parent[node]
    return depth


@inlined_kernel
def count_hits_of_tiers(stores: Stores, texts: Texts, rank: int, depth: int) -> int:
    """Return the tokens at the start of the written path that some tier of a rank has."""
    hits = 0
    for index in range(depth - 1, -1, -1):
        node = stores.path[index]
        if _tier_of(stores, rank, node) == stores.through.size:
            break
        hits += texts.tokens[node]
    return hits


@inlined_kernel
def _lacks_adapter(stores: Stores, texts: Texts, rank: int, depth: int) -> bool:
    """Say whether the written path begins with an adapter that no tier of a rank has."""
    root = stores.path[depth - 1]
    return texts.tokens[root] == 0 and _tier_of(stores, rank, root) == stores.through.size


@inlined_kernel
def _load(stores: Stores, texts: Texts, rank: int, adapter: int, now: float) -> float:
    """Load an adapter from where all of them lie; returns when it is there [s]. Loads follow each other.

    One without room is the base model, which is always there.
    """
    keep(stores, stores.of[0, rank], texts.room, adapter)
    if texts.room[adapter] == 0:
        return now
    took = stores.load_latency_s[0] + texts.room[adapter] * stores.load_token_s[0]
    stores.loaded_at[rank] = max(now, stores.loaded_at[rank]) + took
    stores.loads[rank] += 1
    stores.loads_s[rank] += stores.loaded_at[rank] - now
    return float(stores.loaded_at[rank])


@lean_kernel
def read_adapter(stores: Stores, texts: Texts, rank: int, text: int, now: float) -> float:
    """Read the adapter of a text where the first tier of a rank lacks it; returns the time [s]."""
    if not stores.has_adapters[0]:
        return 0.0
    root = text
    while texts.parent[root] != NONE:
        root = texts.parent[root]
    if texts.tokens[root] > 0 or stores.uses[root, stores.of[0, rank]] != ABSENT:
        return 0.0
    return read_tiers(stores, texts, rank, root, now)[2] - now


@inlined_kernel
def read_tiers(stores: Stores, texts: Texts, rank: int, text: int, now: float) -> tuple[int, int, float]:
    """Read what lower tiers have of the start of a text into the first one.

    Returns (tokens at its start that are there then, those that are read, when they are there [s]). What is
    read is there for others at once. Reads of a rank from a tier follow each other. Nodes that are there
    become the most recently used ones, from the end of the text on. An adapter that no tier has is loaded.
    """
    depth = write_path(stores, texts, text)
    first, tiers, ready = depth, stores.through.size, now
    if _lacks_adapter(stores, texts, rank, depth):
        ready = _load(stores, texts, rank, stores.path[depth - 1], now)
    while first > 0 and _tier_of(stores, rank, stores.path[first - 1]) < tiers:
        first -= 1
    there, read = 0, 0
    for tier in range(1, tiers):
        tokens, size = 0, 0
        for index in range(first, depth):
            node = stores.path[index]
            if _tier_of(stores, rank, node) == tier:
                tokens += texts.tokens[node]
                # of states, the last one alone
                is_whole = index == first or (index == depth - 1 and texts.tokens[node] == 0)
                size += texts.room[node] if is_whole else texts.weight[node]
        if size > 0:
            begin = max(now, stores.free_at[tier, rank])
            stores.free_at[tier, rank] = begin + stores.latency_s[tier] + size * stores.token_s[tier]
            ready = max(ready, stores.free_at[tier, rank])
            read += tokens
    for index in range(first, depth):
        node = stores.path[index]
        tier = _tier_of(stores, rank, node)
        if tier > 0:
            keep(stores, stores.of[tier, rank], texts.room, node)
        keep(stores, stores.of[0, rank], texts.room, node)
        there += texts.tokens[node]
    return there, read, ready
