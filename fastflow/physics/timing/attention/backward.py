"""The backward pass of fused attention of many queries (6.1).

It has five products instead of two: a block has a tile of keys, recomputes scores for one tile of queries
after the other, accumulates the gradients of its keys and values in registers, and those of queries in L2.
The rest is as in `forward.py`.

The kernels before and after this kernel are memory-bound: row sums of dO x O, with the clearing of the fp32
sums of dQ, and the conversion of these sums.

The model has no calibrated constant for this pass: 55% of an A100's peak, where FlashAttention-2 reaches
50 to 63% (arXiv:2307.08691), and 551 TFLOP/s on H100, where FlashAttention-3 reaches 561 and cuDNN 516
(arXiv:2407.08608, figure 6: 16,384 queries, heads of 128, no mask), without the memory-bound kernels
before and after it.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.physics.timing.attention.tile_pairs import (
    Attentions,
    Blocks,
    Pairs,
    PairWork,
    count_tiles,
    visible_keys,
)
from fastflow.physics.timing.tiling.tile_sets import PARTIAL_SUM_BYTES

KEYS = 128.0  # of a block of the backward pass (Dao-AILab/flash-attention, heads of up to 128)
QUERIES = 64.0
WARP = (16.0, 64.0)  # tile of a warp in its products (the same, eight warps)
FIRST_WARPS = 8.0  # of a block of FlashAttention 1 (the same, csrc/flash_attn/src/fmha_bwd_hdim128.cu)
PRODUCTS_OF_KEYS, PRODUCTS_OF_VALUES = 3.0, 2.0  # scores, dQ, dK; dP, dV
# Of vector lanes a score: scaled difference, two of dS = P (dP - row sum), conversions of P and dS to
# operands and their stores
OPERATIONS = 7.0


@lean_kernel
def make_backward_pairs(
    work: Attentions, g: int, shared: bool, warp: float, rate: float, accesses: float, holds_sums: bool
) -> Pairs:  # fmt: skip
    """Return the pairs of tiles of the backward pass of attention g; blocks have keys.

    holds_sums: whether matrix units do, instead of registers.
    """
    q, kv = float(work.q_len[g]), float(work.kv_len[g])
    d, dv = float(work.head_dim[g]), float(work.value_dim[g])
    size, dims = work.size[g], d + dv
    heads = float(work.sequences[g] * work.heads[g])
    a, b = KEYS, QUERIES
    behind, ahead = visible_keys(work, g)
    tiles, longest, _ = count_tiles(kv, q, a, b, -ahead, -behind)
    scores = a * b
    flop = 2.0 * scores * (PRODUCTS_OF_KEYS * d + PRODUCTS_OF_VALUES * dv)
    if shared:
        # A product of m x n over k reads k m of one operand and, for an instruction's rows, k n of the other
        rows = min(warp, b)
        of_queries = dims * (b + a * b / rows) + a * (b + d * b / rows)  # scores and dP, dQ
        of_keys = b * (2.0 * a + dims * a / rows)  # dV, dK
        inner = size * (of_queries + of_keys)
        registers = PARTIAL_SUM_BYTES * scores
        inner += 2.0 * PARTIAL_SUM_BYTES * b * d  # parts of dQ, on their way to L2
    else:
        registers = flop * size * accesses
        inner = 0.5 * flop * size * (1.0 / WARP[0] + 1.0 / WARP[1])
        if work.flash[g] == 1:  # each warp has a part of the keys: sums of dQ are added up in L1
            inner += 2.0 * FIRST_WARPS * PARTIAL_SUM_BYTES * b * d
    return Pairs(
        blocks=Blocks(
            rows=a,
            columns=b,
            number=heads * np.ceil(kv / a),
            per_head=np.ceil(kv / a),
            pairs=heads * tiles,
            longest=longest,
            masked=0.0,
            sums=PARTIAL_SUM_BYTES * a * (b + dims),
            tiles=(a + b) * dims * size,
        ),
        per_pair=PairWork(
            flop=flop,
            registers=registers,
            inner=inner + 2.0 * scores * size + b * dims * size,
            operations=OPERATIONS * scores,
            mask_operations=0.0,
            outer=b * dims * size,
            added=2.0 * PARTIAL_SUM_BYTES * b * d,  # read and written back
        ),
        rate=rate,
        block_bytes=2.0 * heads * kv * dims * size,
        streamed=heads * q * (dims * size + PARTIAL_SUM_BYTES * d),
        launches=1.0,
        ends=0.0,
        overlapped=holds_sums,
        hits=work.hits[g],
        power=1.0,
        executed=flop * heads * tiles,
    )
