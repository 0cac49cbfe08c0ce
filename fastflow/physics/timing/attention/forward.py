"""The forward pass of fused attention of many queries: prefill, chunks over a cache, training (6.1).

A block has a tile of queries of one head and iterates over tiles of keys; fully masked tiles are skipped,
partly masked tiles are computed whole (Dao, FlashAttention-2, arXiv:2307.08691). A pair of tiles takes

- *matrix units*: scores and outputs, or L1 where it is slower. Before Hopper a warp loads all keys and
  values of a tile for its own 16 or 32 queries; since then the units read L1 themselves, once for as many
  rows as an instruction takes (NVIDIA PTX documentation);
- *softmax*: an exponential per score on special functions and a few operations on vector lanes, one after the
  other, and after the products, whose sums are in the same warps.

Where matrix units hold the sums, a block has two tiles of 128 queries if scores and sums of both have room.
Softmax of one tile then overlaps with products of the other (Zadouri et al., FlashAttention-4), except at a
block's ends.

Blocks differ in length under a mask. Their order is taken as random, so that the last block runs for half its
length after the others on average; the total is at least the time of the longest block. Blocks of equal
length run in waves. Each begins with a chain of dependent trips through the memories: its index, its
sequence's length and page, its queries, its first keys and values, and its output at the end.

Keys and values are read from L2 for every pair, and from the level beyond once, or for every round of blocks
where the cache does not hold those of the active heads. These times are combined in the soft maximum, the
sustained clock and the launch of `fastflow.physics.timing.library.thread_blocks`.

FlashAttention 1 and 2 are kernels of A100's instructions, also on chips whose units read L1: their warps load
operands there.

Rotary embedding and the write of the cache are memory-bound kernels.
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
    power_of_two,
    visible_keys,
)
from fastflow.physics.timing.tiling.tile_sets import PARTIAL_SUM_BYTES

# Of a tile of keys, in L1 twice on Hopper with one of values: TensorRT-LLM's kernels have 256 keys of 64 bf16
# or 128 fp8, 128 of 128 bf16, 64 of 192 bf16 (NVIDIA/TensorRT-LLM, cpp/kernels/fmha_v2/setup.py)
TILE_BYTES = 32_768.0
MAX_KEYS = 128.0  # of a tile, twice as many where units read L1 themselves (the same)
FEW_KEYS = 64.0  # of a tile at least, except for shorter sequences (the same)
LEAST_KEYS = 32.0
QUERIES = 64.0  # of a tile (the same); twice as many where units read L1, or a row of a head is short
SHORT_ROW = 128.0  # [B]
# Of a tile in FlashAttention-2 (Dao-AILab/flash-attention, csrc/flash_attn/src/flash_fwd_launch_template.h)
FLASH_QUERIES = 128.0
RESCALING = 3.0  # operations of an output for each tile of keys: two products and a sum
# Where matrix units hold the sums: the sides of a tile, of one instruction (tcgen05.mma), and operations of
# lanes at once (fma.rn.f32x2, both NVIDIA PTX documentation)
SIDE, PACKED = 128.0, 2.0
# Pairs of a block there that have nothing to overlap with: its first scores and its last outputs. Calibrated
# on 6,000 prefills of B200 (ai-dynamo/aiconfigurator@095f58a)
ENDS = 1.0
WARPS = 4.0  # of a block, which share its queries (the same)
# Of vector lanes a score: scaled difference to the maximum, new maximum, sum, half of a conversion of two
OPERATIONS = 3.5
LAUNCHES_OF_TILES = 2.0  # the counter is cleared before (TensorRT-LLM, fmhaRunner.cpp)
# Operations per score of tiles that a sliding window masks at their left; kernels of fp8 spill registers
# there (a remark in TensorRT-LLM's fmhaRunner.cpp). Calibrated on 1,971 prefills with windows of an H100 (the
# same)
CUT, CUT_OF_BYTES = 19.0, 60.0
# Where units read registers, fp8 has kernels alone that have all keys and values of a tile in registers. So
# has bf16 where an SM has little L1, except for heads of 256 and more (fmhaRunner.cpp: compute capabilities
# 8.6, 8.9 and 12.0 have 128 KiB, 8.0 has 192). Tiles are then 64 queries by 32 keys, 16 in bf16 for heads
# above 128, and 128 by 128 in fp8 for heads up to 64 (enumerate_hmma_flash_kernels and
# enumerate_qmma_flash_kernels, NVIDIA/TensorRT-LLM, cpp/kernels/fmha_v2/setup.py)
SMALL_L1, WIDE_HEAD, LONG_HEAD = 160.0 * 1024.0, 256.0, 64.0
# Lanes of a warp; bytes of registers that a thread has for this in fp8, of 255 registers (CUDA C++
# Programming Guide) less 40 for addresses and statistics; times that a pair stores or loads what has no
# room. The last two are calibrated on 1,500 prefills in fp8 of an L40S (ai-dynamo/aiconfigurator@095f58a)
LANES, REGISTERS, SPILLS = 32.0, (255.0 - 40.0) * 4.0, 22.0
# Power of an operation where each warp loads all keys and values for its 16 or 32 queries, over that of
# products, whose warps load for 64 rows. Calibrated on 3,000 prefills in bf16 of an L40S, whose clock falls,
# and 2,000 of an A100 (the same)
RELOADED = 1.6


@lean_kernel
def _make_flash1_pairs(work: Attentions, g: int, rate: float, accesses: float) -> Pairs:
    """Return the pairs of tiles of attention g by FlashAttention 1.

    Each warp has a part of the keys. So sums of outputs are added up in L1 over warps, in L2 over tiles of
    keys, in fp32, rescaled every time (FlashAttention-2, arXiv:2307.08691, sections 3.1 and 3.3).
    """
    q, kv = float(work.q_len[g]), float(work.kv_len[g])
    d, dv = float(work.head_dim[g]), float(work.value_dim[g])
    size, dims = work.size[g], d + dv
    heads = float(work.sequences[g] * work.heads[g])
    a, b = QUERIES, MAX_KEYS * (2.0 if d * size <= SHORT_ROW else 1.0)
    b = max(LEAST_KEYS, min(b, power_of_two(kv, True)))
    behind, ahead = visible_keys(work, g)
    tiles, longest, masked = count_tiles(q, kv, a, b, behind, ahead)
    scores, flop = a * b, 2.0 * a * b * dims
    parts = PARTIAL_SUM_BYTES * a * dv
    rescaled = parts if kv > b else 0.0
    return Pairs(
        blocks=Blocks(
            rows=a,
            columns=b,
            number=heads * np.ceil(q / a),
            per_head=np.ceil(q / a),
            pairs=heads * tiles,
            longest=longest,
            masked=heads * masked,
            sums=PARTIAL_SUM_BYTES * a * (b + dv),
            tiles=(a * d + b * dims) * size,
        ),
        per_pair=PairWork(
            flop=flop,
            registers=flop * size * accesses,
            inner=WARPS * a * d * size + b * dims * size + 2.0 * WARPS * parts,
            operations=OPERATIONS * scores + RESCALING * a * dv,
            mask_operations=CUT * scores,
            outer=b * dims * size,
            added=2.0 * rescaled,
        ),
        rate=rate,
        block_bytes=heads * q * (d * size + dv * work.output[g]),
        streamed=heads * kv * dims * size,
        launches=1.0,
        ends=0.0,
        overlapped=False,
        hits=work.hits[g],
        power=1.0,
        executed=flop * heads * tiles,
    )


@lean_kernel
def make_forward_pairs(
    work: Attentions, g: int, shared: bool, warp: float, rate: float, accesses: float, room: float,
    l1: float,
) -> Pairs:  # fmt: skip
    """Return the pairs of tiles of attention g.

    room: of matrix units that hold the sums [B], 0 where registers do.
    """
    if work.flash[g] == 1:
        return _make_flash1_pairs(work, g, rate, accesses)
    q, kv = float(work.q_len[g]), float(work.kv_len[g])
    d, dv = float(work.head_dim[g]), float(work.value_dim[g])
    size, cache, dims = work.size[g], work.cache[g], d + dv
    heads, kv_heads = float(work.sequences[g] * work.heads[g]), float(work.sequences[g] * work.kv_heads[g])
    a = 2.0 * QUERIES if q > QUERIES and (shared or d * size <= SHORT_ROW) else QUERIES
    fit = min(power_of_two(TILE_BYTES / (d * size), False), MAX_KEYS * (2.0 if shared else 1.0))
    if work.flash[g] == 2:
        a, fit = FLASH_QUERIES, MAX_KEYS if d * size <= SHORT_ROW else FEW_KEYS
    of_registers = not shared and work.flash[g] == 0
    # heads have the room of a power of two, unless keys are wider than values, or in fp8
    padded = power_of_two(d, True) / d if of_registers and size > 1.0 and d == dv else 1.0
    spills = of_registers and size == 1.0 and room == 0.0
    untiled = spills or (of_registers and room == 0.0 and l1 < SMALL_L1 and d < WIDE_HEAD)
    if untiled and (size > 1.0 or d > LONG_HEAD):
        a, fit = QUERIES, LEAST_KEYS if size == 1.0 or d <= 2.0 * LONG_HEAD else LEAST_KEYS / 2.0
    two_tiles = q > SIDE and 2.0 * PARTIAL_SUM_BYTES * SIDE * (SIDE + dv) <= room
    packed, cut, ends = 1.0, CUT if size > 1.0 else CUT_OF_BYTES, 0.0
    if room > 0.0:
        a, fit = SIDE * (2.0 if two_tiles else 1.0), SIDE
        packed, cut, ends = PACKED, 0.0, ENDS
    least = min(fit, FEW_KEYS) if untiled else FEW_KEYS
    b = max(min(fit, LEAST_KEYS), min(max(least, fit), power_of_two(kv, True)))
    behind, ahead = visible_keys(work, g)
    tiles, longest, masked = count_tiles(q, kv, a, b, behind, ahead)
    scores = a * b
    rows = min(warp, a) if shared else a / WARPS
    flop = 2.0 * scores * dims * padded
    executed = flop * heads * tiles
    if room > 0.0:  # of one instruction each, however few keys
        executed = 2.0 * SIDE * SIDE * dims * heads * count_tiles(q, kv, SIDE, SIDE, behind, ahead)[0]
    converted = b * dims if cache < size else 0.0
    buffers, spilled = 2.0 if shared else 1.0, 0.0
    rescaled = RESCALING * a * dv if untiled else 0.0
    if spills:
        bytes_of_thread = (PARTIAL_SUM_BYTES * a * (b + dv) + a * d * size) / (WARPS * LANES)
        bytes_of_thread += b * dims * size / LANES
        spilled = SPILLS * WARPS * LANES * max(0.0, bytes_of_thread - REGISTERS)
    return Pairs(
        blocks=Blocks(
            rows=a,
            columns=b,
            number=heads * np.ceil(q / a),
            per_head=heads / kv_heads * np.ceil(q / a),
            pairs=heads * tiles,
            longest=longest,
            masked=heads * masked,
            sums=PARTIAL_SUM_BYTES * a * (b + dv),
            tiles=(a * d + buffers * b * dims) * size,
        ),
        per_pair=PairWork(
            flop=flop,
            registers=PARTIAL_SUM_BYTES * scores if shared else flop * size * accesses,
            inner=b * dims * (a / rows * size * padded + cache) + spilled,
            operations=OPERATIONS / packed * scores + converted + rescaled,
            mask_operations=cut * scores,
            outer=b * dims * cache,
            added=0.0,
        ),
        rate=rate,
        block_bytes=heads * q * (d * size + dv * work.output[g]),
        streamed=kv_heads * kv * dims * cache,
        launches=LAUNCHES_OF_TILES if shared else 1.0,
        ends=ends,
        overlapped=two_tiles,
        hits=work.hits[g],
        power=RELOADED if of_registers else 1.0,
        executed=executed,
    )
