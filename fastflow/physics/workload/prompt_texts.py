"""Prompts and answers of a trace as a forest of texts: what a prefix cache can share (docs/serving.md).

A node is a piece of text after the text of its parent. Prompts that begin with the same tokens end in nodes
with common ancestors. Where they have no hashes of blocks, a later turn of a session goes on from the answer
of the turn before, and all other prompts are new, but for a prefix that all share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.jit import kernel
from fastflow.core.tables import Ints
from fastflow.physics.workload.request_order import RequestTrace, previous_turns

NODE_TOKENS = 2048
"""Longer texts are chains of nodes, since caches evict whole nodes."""
ROOT = -1


class PromptTexts(NamedTuple):
    """Texts of requests: nodes, (nodes,), each after its parent, and where a request ends, (rows,).

    The prompt of request i is the text of node text[i] with all its ancestors:
    `isl[i] == before[text[i]] + tokens[text[i]]`.
    """

    parent: Ints  # ROOT where the text begins
    tokens: Ints  # of the node, 1 to NODE_TOKENS
    before: Ints  # tokens of all its ancestors
    text: Ints  # node of the last tokens of the prompt
    answer: Ints  # node of the last tokens of the answer, below `text`


def prompt_texts(trace: RequestTrace, shared_prefix: int = 0) -> PromptTexts:
    """Return the texts of all requests.

    shared_prefix: tokens that begin every new prompt that is longer, as a system prompt does. It is not read
    where prompts have hashes.

    - A prompt with hashes of blocks is a chain of blocks. Two blocks are one node where their hashes, their
      tokens and all blocks before them are equal. The last one has what is left of the prompt. Tokens after
      the last whole block that has a hash are of this prompt alone.
    - Another prompt of a later turn begins with prompt and answer of the turn before. If it is not longer
      than both, the context was cut: it is a new prompt.
    - An answer is of its request alone.
    """
    parent, tokens, before, text, answer = _nodes(
        trace.isl,
        trace.osl,
        previous_turns(trace),
        trace.hash_offsets,
        trace.hash_ids,
        trace.block_tokens,
        shared_prefix,
    )
    pieces = (tokens - 1) // NODE_TOKENS + 1
    last = np.cumsum(pieces) - 1
    if last.size == pieces.sum():  # none is longer
        return PromptTexts(parent, tokens, before, text, answer)
    node = np.repeat(np.arange(pieces.size), pieces)
    piece = np.arange(node.size) - (last - pieces + 1)[node]
    is_first = piece == 0
    above = np.where(parent[node] == ROOT, ROOT, last[parent[node]])
    return PromptTexts(
        parent=np.where(is_first, above, np.arange(node.size) - 1),
        tokens=np.minimum(tokens[node] - piece * NODE_TOKENS, NODE_TOKENS),
        before=before[node] + piece * NODE_TOKENS,
        text=last[text],
        answer=last[answer],
    )


def _nodes(
    isl: Ints, osl: Ints, previous: Ints, offsets: Ints, hash_ids: Ints, block_tokens: int, shared_prefix: int
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return parent, tokens and tokens before of nodes of any length, and text and answer of requests."""
    limit = 1 + 2 * isl.size + hash_ids.size
    parent, tokens, before = np.empty((3, limit), dtype=np.int64)
    text, answer = np.empty((2, isl.size), dtype=np.int64)
    nodes = _grow(
        isl,
        osl,
        previous,
        offsets,
        hash_ids,
        block_tokens,
        shared_prefix,
        (parent, tokens, before),
        hash_ids,
        text,
        answer,
    )
    return parent[:nodes], tokens[:nodes], before[:nodes], text, answer
