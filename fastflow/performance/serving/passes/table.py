"""Tables of pass times: an iteration of a server is a pass of its model over some tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints


class Overlap(NamedTuple):
    """Time that s servers hide by overlap inside a device (`serving.overlap`), tabulated.

    Between entries it is linear along each axis, beyond the last ratio it is that of the last one.
    """

    decode: Floats  # (U,) time of attention of decoding requests, over that of all other layers; from 0
    prefill: Floats  # (V,) the same of attention of prompts
    hidden: Floats  # (s, K, U, V) of an iteration of these tokens [s]
    overlaps: Bools  # (s,) whether a server has nano-batches

    def of_servers(self, rows: Ints) -> Overlap:
        """Return the tables of some servers, in order; none has any where `overlaps` is empty."""
        if not self.overlaps.size:
            return self
        return self._replace(hidden=self.hidden[rows], overlaps=self.overlaps[rows])


NO_OVERLAP = Overlap(np.zeros(0), np.zeros(0), np.zeros((0, 0, 0, 0)), np.zeros(0, dtype=np.bool_))
"""Of servers that all run their kernels one after the other."""


class PassTimes(NamedTuple):
    """Times of passes of s servers, tabulated. All times in seconds; axes are ascending.

    Between entries a time is linear in each axis; beyond the last entry it is extrapolated from the last two.
    Without tokens it is 0.
    """

    tokens: Ints  # (K,) tokens of an iteration on one attention rank, from 1
    shared: Floats  # (s, K) all layers but the core of attention, collectives included
    experts: Floats  # (s, K) of these, kernels of the experts that attention ranks share
    head: Floats  # (s, K) last norm and logits of some rows
    requests: Ints  # (B,) from 1
    context: Ints  # (C,) tokens in the cache, from 1
    decode: Floats  # (s, B, C) attention's core of some requests with a mean context, all layers
    chunk: Ints  # (P,) tokens of one prompt in this iteration, from 1
    before: Ints  # (Q,) tokens of it before them, from 0
    prefill: Floats  # (s, P, Q) attention's core of a chunk, all layers
    prefill_more: Floats  # (s, P, Q) time of each further chunk of that size in the same iteration
    overlap: Overlap = NO_OVERLAP
