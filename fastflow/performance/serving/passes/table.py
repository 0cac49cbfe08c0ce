"""What passes of servers take, as tables: a server's iteration is one pass of its model over some tokens."""

from __future__ import annotations

from typing import NamedTuple

from fastflow.core.tables import Floats, Ints


class PassTimes(NamedTuple):
    """What passes of s servers take, tabulated. All times in seconds; axes are ascending.

    Between entries a time is linear in each axis; beyond the last one it goes on as between the last two. Of
    nothing it is 0.
    """

    tokens: Ints  # (K,) tokens of an iteration on one attention rank, from 1
    shared: Floats  # (s, K) all layers but the core of attention, exchanges included
    head: Floats  # (s, K) last norm and logits of so many rows
    requests: Ints  # (B,) from 1
    context: Ints  # (C,) tokens in the cache, from 1
    decode: Floats  # (s, B, C) attention's core of so many requests of that mean context, all layers
    chunk: Ints  # (P,) tokens of one prompt in this iteration, from 1
    before: Ints  # (Q,) tokens of it before them, from 0
    prefill: Floats  # (s, P, Q) attention's core of one such chunk, all layers
    prefill_more: Floats  # (s, P, Q) what each further chunk of that size in the same iteration adds
