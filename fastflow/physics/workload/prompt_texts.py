"""Prompts and answers of a trace as a forest of texts: what a prefix cache can share (docs/serving.md).

A node is a piece of text after the text of its parent. Prompts that begin with the same tokens end in nodes
with common ancestors. Where they have no hashes of blocks, a later turn of a session goes on from the answer
of the turn before, and all other prompts are new, but for a prefix that all share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Ints, narrow
from fastflow.physics.workload.request_order import NONE, RequestTrace, previous_turns

NODE_TOKENS = 2048
"""Longer texts are chains of nodes, since caches evict whole nodes."""
ROOT = -1
_ODD_1, _ODD_2, _ODD_3 = 0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9, 0x14D049BB133111EB  # any


class PromptTexts(NamedTuple):
    """Texts of requests: nodes, (nodes,), each after its parent, and where a request ends, (rows,).

    The prompt of request i is the text of node text[i] with all its ancestors:
    `isl[i] == before[text[i]] + tokens[text[i]]`.
    """

    parent: Ints  # ROOT where the text begins
    tokens: Ints  # of the node, 1 to NODE_TOKENS; 0: a root that stands for an adapter
    before: Ints  # tokens of all its ancestors
    text: Ints  # node of the last tokens of the prompt
    answer: Ints  # node of the last tokens of the answer, below `text`
    roots: Ints  # node of each adapter, and the last one of requests without; ROOT for none, (adapters + 1,)


def prompt_texts(
    trace: RequestTrace, shared_prefix: int = 0, adapters: bool = False, base: bool = False
) -> PromptTexts:
    """Return the texts of all requests.

    shared_prefix: tokens that begin every new prompt that is longer, as a system prompt does. It is not read
    where prompts have hashes.

    - A prompt with hashes of blocks is a chain of blocks. Two blocks are one node where their hashes, their
      tokens and all blocks before them are equal. The last one has what is left of the prompt. Tokens after
      the last whole block that has a hash are of this prompt alone.
    - Another prompt of a later turn begins with prompt and answer of the turn before. If it is not longer
      than both, the context was cut: it is a new prompt.
    - An answer is of its request alone.
    - With adapters, prompts share nothing with those of another adapter: each has a root without tokens. With
      base, requests without an adapter have such a root too.
    """
    rows = trace.isl.size
    of_adapter, roots = _adapters_of(trace, adapters)
    offsets = np.ascontiguousarray(trace.hash_offsets)
    prompts = _Prompts(trace.isl, trace.osl, previous_turns(trace), offsets, trace.hash_ids, of_adapter)
    longest, kind = 2 * rows + trace.hash_ids.size + 2 * roots.size, np.result_type(trace.isl, trace.osl)
    # memory is used as nodes are written, not before
    nodes = _Nodes(*(np.empty(longest, dtype=column) for column in (kind, kind, kind, np.int64)))
    text, answer = np.empty((2, rows), dtype=kind)
    shared = np.full(roots.size, ROOT)
    count = _write_roots(prompts.adapter, base, nodes, roots)
    count = _write_nodes(
        prompts, trace.block_tokens, shared_prefix, nodes, count, roots, shared, text, answer
    )
    parent, tokens, before = (column[:count] for column in nodes[:3])
    del prompts, nodes
    if tokens.max(initial=0) <= NODE_TOKENS:
        return PromptTexts(parent, tokens, before, text, answer, roots)
    pieces = np.maximum((tokens - 1) // NODE_TOKENS + 1, 1)
    last = narrow(np.cumsum(pieces) - 1)
    first = last - pieces + 1
    number = np.arange(pieces.sum(), dtype=last.dtype)
    whole, above = np.full(number.size, NODE_TOKENS, dtype=kind), number - 1
    whole[last] = tokens - (pieces - 1) * NODE_TOKENS
    above[first] = np.where(parent == ROOT, ROOT, last[parent])
    return PromptTexts(
        parent=above,
        tokens=whole,
        before=np.repeat(before, pieces) + (number - np.repeat(first, pieces)) * NODE_TOKENS,
        text=last[text],
        answer=last[answer],
        roots=np.where(roots == ROOT, ROOT, last[roots]),
    )


def separate_texts(trace: RequestTrace, adapters: bool = False, base: bool = False) -> PromptTexts:
    """Return the texts of requests that share nothing but adapters: a node for each prompt, none of answers.

    adapters, base: as of `prompt_texts`.
    """
    rows = trace.isl.size
    of_adapter, roots = _adapters_of(trace, adapters)
    nodes = _Nodes(*np.empty((4, roots.size), dtype=np.int64))
    count = _write_roots(of_adapter, base, nodes, roots)
    parent = narrow(np.append(np.full(count, ROOT), roots[of_adapter]))
    tokens = np.append(np.zeros(count, dtype=trace.isl.dtype), trace.isl)
    text, answer = narrow(count + np.arange(rows)), np.broadcast_to(NONE, rows)
    return PromptTexts(parent, tokens, np.zeros_like(tokens), text, answer, roots)


def _adapters_of(trace: RequestTrace, adapters: bool) -> tuple[Ints, Ints]:
    """Return the number of the adapter of each request, the last one for none, and room for their roots."""
    of_adapter = trace.adapter if adapters else np.broadcast_to(NONE, trace.isl.size)
    number = int(of_adapter.max(initial=NONE)) + 1
    return narrow(np.where(of_adapter < 0, number, of_adapter)), np.full(number + 1, ROOT)


class _Prompts(NamedTuple):
    """Requests as the kernel takes them."""

    isl: Ints
    osl: Ints
    previous: Ints  # index of the turn before; negative for none
    offsets: Ints  # of hashes
    hash_ids: Ints
    adapter: Ints  # the last number: none


class _Nodes(NamedTuple):
    """Nodes of any length, in order; (most nodes,)."""

    parent: Ints
    tokens: Ints
    before: Ints
    hash_id: Ints  # of a block that has one, else 0


def _write_roots(adapter: Ints, base: bool, nodes: _Nodes, roots: Ints) -> int:
    """Write the nodes of adapters that requests have, and with base that of the others; returns how many."""
    used = np.unique(adapter)
    used = used if base else used[used < roots.size - 1]
    roots[used] = np.arange(used.size)
    for column, value in zip(nodes, (ROOT, 0, 0, 0), strict=True):
        column[: used.size] = value
    return used.size


@kernel
def _write_nodes(
    prompts: _Prompts, block_tokens: int, shared_prefix: int, nodes: _Nodes, count: int, roots: Ints,
    shared: Ints, text: Ints, answer: Ints,
) -> int:  # fmt: skip
    """Write nodes, and the last ones of each request, and return the number of nodes.

    count: of nodes that are written already; roots: of adapters; shared: that of the shared prefix of each.
    """
    blocks = 0
    table = np.zeros(1024, dtype=np.int64)  # 1 + node of a block by its parent, hash and tokens; 0: none
    for i in range(prompts.isl.size):
        isl = prompts.isl[i]
        adapter = prompts.adapter[i]
        above, done = roots[adapter], 0
        first, last, previous = prompts.offsets[i], prompts.offsets[i + 1], prompts.previous[i]
        if last > first:
            for k in range(first, last):
                hash_id, tokens = prompts.hash_ids[k], min(block_tokens, isl - done)
                slot = _slot(table, nodes, above, hash_id, tokens)
                if table[slot] == 0:
                    _write(nodes, count, above, tokens, hash_id)
                    count, blocks = count + 1, blocks + 1
                    table[slot] = count
                above, done = table[slot] - 1, done + tokens
                if 2 * blocks > table.size:
                    table = _doubled(table, nodes)
        elif (
            previous >= 0
            and prompts.adapter[previous] == adapter
            and isl > prompts.isl[previous] + prompts.osl[previous]
        ):
            above, done = answer[previous], prompts.isl[previous] + prompts.osl[previous]
        elif 0 < shared_prefix < isl:
            if shared[adapter] == ROOT:
                _write(nodes, count, above, shared_prefix, 0)
                shared[adapter], count = count, count + 1
            above, done = shared[adapter], shared_prefix
        if done < isl:
            _write(nodes, count, above, isl - done, 0)
            above, count = count, count + 1
        text[i], answer[i] = above, count
        _write(nodes, count, above, prompts.osl[i], 0)
        count += 1
    return count


@lean_kernel
def _write(nodes: _Nodes, node: int, parent: int, tokens: int, hash_id: int) -> None:
    nodes.parent[node], nodes.tokens[node], nodes.hash_id[node] = parent, tokens, hash_id
    nodes.before[node] = nodes.before[parent] + nodes.tokens[parent] if parent >= 0 else 0


@lean_kernel
def _slot(table: Ints, nodes: _Nodes, parent: int, hash_id: int, tokens: int) -> int:
    """Return the entry of a block in the table, or the empty one for it; the size is a power of two."""
    mixed = (parent + 1) * _ODD_1 + hash_id * _ODD_2 + tokens * _ODD_3  # wraps
    mixed ^= mixed >> 29
    slot = ((mixed * _ODD_1) >> 20) & (table.size - 1)
    while table[slot] != 0:
        node = table[slot] - 1
        if nodes.parent[node] == parent and nodes.hash_id[node] == hash_id and nodes.tokens[node] == tokens:
            break
        slot = (slot + 1) & (table.size - 1)
    return slot


@kernel
def _doubled(table: Ints, nodes: _Nodes) -> Ints:
    """Return a table of twice the size with the same entries."""
    result = np.zeros(2 * table.size, dtype=np.int64)
    for entry in table:
        if entry != 0:
            node = entry - 1
            slot = _slot(result, nodes, nodes.parent[node], nodes.hash_id[node], nodes.tokens[node])
            result[slot] = entry
    return result
