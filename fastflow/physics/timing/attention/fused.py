"""Times of fused attention of many queries: the forward and the backward pass (6.1)."""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.physics.timing.attention.backward import make_backward_pairs
from fastflow.physics.timing.attention.forward import make_forward_pairs
from fastflow.physics.timing.attention.tile_pairs import (
    Attentions,
    Bundles,
    bundles_of,
    instruction_rate,
    run_pairs,
)
from fastflow.physics.timing.device import Device, Library
from fastflow.physics.timing.library.thread_blocks import Launched, empty_launched


@kernel
def _run_attentions(
    work: Attentions, bundles: Bundles, library: Library, is_backward: bool, out: Launched
) -> None:
    """Write the launch of one pass of each attention by a library."""
    limits = np.empty(out.times.shape[1])
    for g in range(work.q_len.size):
        p, q, kv = work.point[g], work.q_len[g], work.kv_len[g]
        shared, rate = instruction_rate(library.shared[p], work.flash[g])
        warp, accesses = library.warp_m[p], bundles.accesses[p]
        holds_sums = library.persistent[p] and work.flash[g] == 0
        if is_backward:
            pairs, rows, columns = (
                make_backward_pairs(work, g, shared, warp, rate, accesses, holds_sums),
                kv,
                q,
            )
        else:
            room = library.registers[p] if holds_sums else 0.0
            l1 = bundles.memories.capacity[p, max(bundles.memories.private[p], 0)]
            pairs, rows, columns = make_forward_pairs(work, g, shared, warp, rate, accesses, room, l1), q, kv
        run_pairs(pairs, bundles, library, p, (rows, work.head_dim[g], columns), limits, out, g)


def _time_pass(device: Device, work: Attentions, is_backward: bool) -> Launched:
    out = empty_launched(work.point.size, device.levels)
    _run_attentions(work, bundles_of(device), device.library, is_backward, out)
    return out


def time_attention(device: Device, work: Attentions) -> Launched:
    """Time one launch of every attention [s]; tiles are queries, head and keys."""
    return _time_pass(device, work, is_backward=False)


def time_attention_backward(device: Device, work: Attentions) -> Launched:
    """Time the backward pass of every attention [s]; tiles are keys, head and queries."""
    return _time_pass(device, work, is_backward=True)
