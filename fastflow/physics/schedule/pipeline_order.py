"""The stages of a pipeline: which layers they have, and in which order they work (3.3).

A stage works through *blocks*, the forward or the backward pass of one micro-batch:

- GPipe (Huang et al., GPipe, NeurIPS 2019, figure 2): all forwards, then all backwards, the last
  micro-batch first.
- 1F1B (PipeDream-Flush; Narayanan et al., Efficient large-scale language model training on GPU
  clusters, SC 2021): min(microbatches, stages - stage) - 1 forwards to warm up, then a forward and a
  backward in turns, then the backwards that are left.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.workload.graph import BACKWARD, FORWARD

GPIPE, ONE_F_ONE_B = 0, 1
INTERLEAVED, ZERO_BUBBLE = 2, 3
"""Orders of blocks of chunks, see `block_order`; the functions here have one chunk a stage."""


@kernel
def in_flight(order: int, stages: int, stage: int, microbatches: int) -> int:
    """Return how many micro-batches a stage has begun and not yet gone back through, at most."""
    if order == GPIPE:
        return microbatches
    return min(microbatches, stages - stage)


@kernel
def block_at(order: int, stages: int, stage: int, microbatches: int, place: int) -> tuple[int, int]:
    """Return the phase and the micro-batch of a stage's block; place: 0 to 2 micro-batches."""
    if order == GPIPE:
        if place < microbatches:
            return FORWARD, place
        return BACKWARD, 2 * microbatches - 1 - place
    warm = min(microbatches, stages - stage) - 1
    if place < warm:
        return FORWARD, place
    turn = (place - warm) // 2
    if warm + turn >= microbatches:
        return BACKWARD, place - microbatches
    return (FORWARD, warm + turn) if (place - warm) % 2 == 0 else (BACKWARD, turn)


@kernel
def balance(layer_s: Floats, stages: int) -> Ints:
    """Cut layers into stages so that the longest stage is as short as can be; exact.

    layer_s: time of each layer [s], (layers,), none negative. Returns the first layer of each stage,
    (stages,); every stage has a layer. Of several such cuts, the one whose last stages begin soonest.

    Raises ValueError where there are more stages than layers.
    """
    layers = layer_s.size
    if stages < 1 or stages > layers:
        raise ValueError("a stage needs a layer")
    until = np.zeros(layers + 1)
    for layer in range(layers):
        until[layer + 1] = until[layer] + layer_s[layer]
    longest = until.copy()  # of the first stages so far, up to a layer
    begins = np.zeros((stages, layers + 1), dtype=np.int64)
    for stage in range(1, stages):
        before, cut = longest.copy(), stage
        for end in range(stage + 1, layers + 1):
            # a later cut lengthens what is before it and shortens the stage; the best one moves with the end
            while cut + 1 < end and before[cut] < until[end] - until[cut]:
                cut += 1
            begins[stage, end], longest[end] = cut, max(before[cut], until[end] - until[cut])
            if cut > stage and max(before[cut - 1], until[end] - until[cut - 1]) <= longest[end]:
                begins[stage, end] = cut - 1
                longest[end] = max(before[cut - 1], until[end] - until[cut - 1])
    first, end = np.zeros(stages, dtype=np.int64), layers
    for stage in range(stages - 1, 0, -1):
        first[stage] = begins[stage, end]
        end = first[stage]
    return first
