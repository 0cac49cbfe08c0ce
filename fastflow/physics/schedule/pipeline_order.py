"""The stages of a pipeline: which layers they have, and in which order they work (3.3).

A stage works through *blocks*, the forward or the backward pass of one micro-batch:

- GPipe (Huang et al., GPipe, NeurIPS 2019, figure 2): all forwards, then all backwards, the last
  micro-batch first.
- 1F1B (PipeDream-Flush; Narayanan et al., Efficient large-scale language model training on GPU
  clusters, SC 2021): min(microbatches, stages - stage) - 1 forwards to warm up, then a forward and a
  backward in turns, then the remaining backwards.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.workload.graph import BACKWARD, FORWARD

GPIPE, ONE_F_ONE_B = 0, 1
INTERLEAVED, ZERO_BUBBLE, ZERO_BUBBLE_2P, ZERO_BUBBLE_V, DUALPIPE_V = 2, 3, 4, 5, 6
"""Further orders, see `stage_order`; the functions here are for the first two, of one chunk a stage."""


@kernel
def block_at(order: int, stages: int, stage: int, microbatches: int, index: int) -> tuple[int, int]:
    """Return the phase and the micro-batch of a stage's block; index: 0 to 2 micro-batches."""
    if order == GPIPE:
        if index < microbatches:
            return FORWARD, index
        return BACKWARD, 2 * microbatches - 1 - index
    warm = min(microbatches, stages - stage) - 1
    if index < warm:
        return FORWARD, index
    turn = (index - warm) // 2
    if warm + turn >= microbatches:
        return BACKWARD, index - microbatches
    return (FORWARD, warm + turn) if (index - warm) % 2 == 0 else (BACKWARD, turn)


@kernel
def balance(layer_s: Floats, stages: int) -> Ints:
    """Partition layers into stages so that the longest stage is as short as possible; exact.

    layer_s: time of each layer [s], (layers,), none negative. Returns the first layer of each stage,
    (stages,); every stage has a layer. Of several equally short ones, that whose last stages begin soonest.

    Raises ValueError where there are more stages than layers.
    """
    layers = layer_s.size
    if stages < 1 or stages > layers:
        raise ValueError("a stage needs a layer")
    sums = np.zeros(layers + 1)
    for layer in range(layers):
        sums[layer + 1] = sums[layer] + layer_s[layer]
    longest = sums.copy()  # of the first stages so far, up to a layer
    boundaries = np.zeros((stages, layers + 1), dtype=np.int64)
    for stage in range(1, stages):
        previous, boundary = longest.copy(), stage
        for end in range(stage + 1, layers + 1):
            # a later boundary lengthens the stages before and shortens this one; the best moves with the end
            while boundary + 1 < end and previous[boundary] < sums[end] - sums[boundary]:
                boundary += 1
            boundaries[stage, end], longest[end] = (
                boundary,
                max(previous[boundary], sums[end] - sums[boundary]),
            )
            if (
                boundary > stage
                and max(previous[boundary - 1], sums[end] - sums[boundary - 1]) <= longest[end]
            ):
                boundaries[stage, end] = boundary - 1
                longest[end] = max(previous[boundary - 1], sums[end] - sums[boundary - 1])
    first, end = np.zeros(stages, dtype=np.int64), layers
    for stage in range(stages - 1, 0, -1):
        first[stage] = boundaries[stage, end]
        end = first[stage]
    return first
