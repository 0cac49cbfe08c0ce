"""Thread blocks of fused attention of few queries: on tiles of matrix units, or on vector lanes.

Heads that share keys are rows of one tile of matrix units (TensorRT-LLM's XQA). Where heads share no keys, or
blocks are too few, vector lanes compute head by head (its masked multi-head attention). Heads above
`WIDEST` are latent attention, absorbed: 64 rows that share all of the
cache (DeepSeek's FlashMLA; before Hopper the tile loop of prefill, which splits no sequence). Keys are split
into parts where blocks are too few, as in these libraries.

Where matrix units hold the sums (`Library.persistent`), they multiply keys by queries instead of queries by
keys, so that a tile has the rows of 8 queries or more, and heads that share no keys are on tiles, too. Parts
fill the bundles once. A kernel's chain of trips is before its first blocks; those that follow begin while
the ones before end (TensorRT-LLM's trtllm-gen kernels, cpp/tensorrt_llm/kernels/trtllmGenKernels/fmha).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.timing.attention.tile_pairs import TRIPS, power_of_two
from fastflow.physics.timing.device import STAGES, Boost, Library, Memories
from fastflow.physics.timing.library.thread_blocks import STEP_BYTES
from fastflow.physics.timing.tiling.tile_sets import PARTIAL_SUM_BYTES

# From NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttention (XQA:
# decoderXQAImplJIT/kernelUtils.cpp, decoderXQAConstants.h, decoderXQAImplCommon.h)
WIDEST = 256  # head that is not latent attention
MAX_ROWS = 32  # heads of a query that share keys, for tiles
FEWEST_TOKENS = 128  # of a part
ENOUGH = 4.0  # times the possible parts, over bundles, for tiles
ROUNDS = 8.0  # of parts, at most
PARTS_AT_ONCE = 8.0  # no more parts than sqrt(so many times the parts possible)
ROWS, ROWS_OF_UNIT = 64.0, 16.0  # of a tile at most; of a matrix instruction
TOKENS, TOKENS_OF_TILE = 64.0, 128.0  # of a step: where units read L1 or heads are wide; otherwise
MAX_BLOCKS = 4.0  # on a bundle, of its registers (384 threads of 168 registers)
SHARE_OF_SUMS = 0.25  # of the registers, twice as much where units read L1 (as in blocks; FlashMLA)
# Masked multi-head attention (decoderMaskedMultiheadAttentionLaunch.h)
THREADS, MAX_THREADS = 256.0, 1024.0  # of a block; a bundle's registers hold as many as the latter
VECTOR_BYTES, UNROLLED = 16.0, 8.0  # that a thread loads at once, and how many times

# Dependent trips of a block, and of the merge before and after a block reads all parts. Calibrated on
# 11,792 decodes of A100 and H100 (ai-dynamo/aiconfigurator@095f58a)
TRIPS_OF_LANES, TRIPS_OF_TILES = 22.0, 12.5
MERGING_OF_LANES, MERGING_OF_TILES = 20.0, 7.0
CONVERSION = 2.0  # operations of vector lanes an element of a smaller type (the same)
# Kernels of narrow caches for matrix units that read operands from registers (TensorRT-LLM's for compute
# capability 8.9): operations that convert an element, on tiles and on lanes, and further trips of a block
# on lanes. On tiles a sequence is not split, and heads have the room of a power of two: times rise with its
# tokens, however few sequences there are. Calibrated on 1,319 decodes of an L40S over caches of fp8 (the
# same)
SLOW_ON_TILES, SLOW_ON_LANES, SLOW_TRIPS = 14.0, 75.0, 34.0
# Main memory's bandwidth for contiguous reads, over that of GEMMs: 0.87 and 0.92 of the peak (the same).
# Where matrix units hold the sums there is no such gain
READING = 1.12
# Where matrix units hold the sums: rows of a tile, and dependent trips of a kernel's first blocks, of blocks
# after them, and of those if a tile of keys by queries is latent. Calibrated on 6,900 decodes of B200
# (ai-dynamo/aiconfigurator@095f58a)
LEAST_ROWS, MOST_ROWS = 8.0, 128.0
FIRST_TRIPS, TRIPS_BETWEEN, SWAPPED_LATENT = 11.0, 3.0, 8.0
# Latent attention there (selectMlaGenerationKernel of TensorRT-LLM's trtllmGenKernels/fmha/fmhaKernels.h):
# most rows of a tile of keys by queries, most heads that always take such tiles, most keys of a block for
# which others do, and least keys of a part
SWAPPED_ROWS, MOST_SWAPPED, MOST_KEYS, KEYS_OF_PART = 16.0, 32.0, 1024.0, 256.0
# Instructions of vector lanes there for a score and for an output, if a tile has fewer than `ROWS` rows (the
# same): it is keys by queries, so that lanes exchange a row's scores and outputs
SWAPPED = (34.0, 66.0)


class Decodes(NamedTuple):
    """Attention of few queries, each on the machine of a point; shape (kernels,)."""

    point: Ints
    sequences: Ints
    q_len: Ints  # of every sequence: 1, or more with drafted tokens
    kv_len: Ints  # includes the queries' tokens
    heads: Ints
    kv_heads: Ints
    head_dim: Ints  # of queries and keys
    value_dim: Ints
    window: Ints  # keys that a query sees, 0 for all
    shared: Bools  # values are stored in the keys' cache: main memory is read once for both
    size: Floats  # of an element of Q [B]
    cache: Floats  # of an element of the cache [B]
    output: Floats  # of an element of the output [B]
    hits: Floats  # share of all bytes that the last cache holds from the run before (`timing.warm_cache`)


class DecodeBundles(NamedTuple):
    """The bundles that blocks run on; shape (points,)."""

    flops: Floats  # achievable by matrix units, all bundles [flop/s]
    exponentials: Floats  # [1/s]
    vector: Floats  # achievable by vector lanes [flop/s]
    instructions: Floats  # of single lanes [1/s]
    memories: Memories
    number: Floats
    boost: Boost


class Steps(NamedTuple):
    """The steps of a block, each over the same number of tokens."""

    number: float
    tokens: float  # of a step
    read: float  # keys and values of a step [B]
    least: float  # least time of a step at any bandwidth [s]
    work: float  # time of a step, all of a bundle's units [s]
    overlapped: bool  # loading and multiplying overlap
    even: bool  # steps are evenly distributed over bundles


class Merge(NamedTuple):
    """The merge of the parts of the keys."""

    parts: float
    time: float  # without its reads [s]
    read: float  # parts that one block reads [B]
    sums: float  # all parts [B]


class Split(NamedTuple):
    """The thread blocks of one kernel."""

    blocks: float
    resident: float  # blocks on a bundle
    rows: float  # of a tile
    steps: Steps
    carried: float  # queries and outputs [B]
    fresh: float  # the block's share of queries and outputs read and written once [B]
    begin: float  # [s]
    merge: Merge
    launches: float
    rereads: float  # bytes of keys in flight that are read a second time as values; 0 for none
    once: float  # before a kernel's first blocks, beyond `begin` [s]
    reading: float  # main memory's bandwidth, over that of GEMMs


@kernel
def uses_tiles(work: Decodes, g: int, bundles: float, boosts: bool, library: Library) -> bool:
    """Return whether a library uses matrix units for kernel g."""
    p = work.point[g]
    if work.head_dim[g] > WIDEST or work.q_len[g] > 1:
        return True
    if work.heads[g] > MAX_ROWS * work.kv_heads[g]:
        return False
    if library.persistent[p]:
        return True
    if work.heads[g] == work.kv_heads[g]:
        return False
    if boosts or work.cache[g] < work.size[g]:
        return True
    parts = max(1.0, np.floor(work.kv_len[g] / FEWEST_TOKENS))
    return bool(work.sequences[g] * work.kv_heads[g] * parts * ENOUGH >= bundles)


@kernel
def count_visible(work: Decodes, g: int) -> float:
    """Return the number of keys that the queries of a sequence attend to."""
    keys = work.kv_len[g]
    if work.window[g] > 0:
        keys = min(keys, work.window[g] + work.q_len[g] - 1)
    return float(keys)


@kernel
def converts_slowly(work: Decodes, g: int, bundles: DecodeBundles, library: Library) -> bool:
    """Return whether a kernel converts a narrow cache for matrix units that read operands from registers.

    Chips that boost are not bound to these kernels.
    """
    p = work.point[g]
    is_narrow = work.cache[g] < work.size[g]
    return bool(is_narrow and not library.shared[p] and not bundles.boost.enabled[p])


@kernel
def _conversions(work: Decodes, g: int, bundles: DecodeBundles, library: Library, slow: float) -> float:
    """Return the operations of vector lanes that convert an element of the cache; slow: in slow kernels."""
    if converts_slowly(work, g, bundles, library):
        return slow
    return CONVERSION if work.cache[g] < work.size[g] else 0.0


@kernel
def count_threads(work: Decodes, g: int, number: float) -> float:
    """Return the threads of a block on vector lanes: more where heads are few."""
    target = THREADS * np.ceil(MAX_THREADS / THREADS * number / (work.sequences[g] * work.heads[g]))
    threads = THREADS
    while 2.0 * threads <= min(target, MAX_THREADS):
        threads *= 2.0
    return float(threads)


@kernel
def count_lane_parts(work: Decodes, g: int, number: float, threads: float) -> float:
    """Return the number of parts of a head's keys, one for each block of `threads` threads."""
    heads = float(work.sequences[g] * work.heads[g])
    least = threads / max(1.0, work.head_dim[g] * work.size[g] / VECTOR_BYTES) * UNROLLED
    parts = min(np.ceil(number * MAX_THREADS / threads / heads), np.ceil((work.kv_len[g] + 1.0) / least))
    return float(max(1.0, parts))


@kernel
def _partial_sum_bytes(work: Decodes, g: int, parts: float) -> float:
    """Return the bytes of the partial sums of all parts and rows."""
    rows = float(work.sequences[g] * work.q_len[g] * work.heads[g])
    return float(PARTIAL_SUM_BYTES * rows * work.value_dim[g] * parts)


@kernel
def split_on_lanes(
    work: Decodes, g: int, bundles: DecodeBundles, library: Library, threads: float, parts: float
) -> Split:
    """Return the blocks of kernel g on vector lanes: each has a part of a head's keys."""
    p = work.point[g]
    number, d, dv = bundles.number[p], float(work.head_dim[g]), float(work.value_dim[g])
    heads, resident = float(work.sequences[g] * work.heads[g]), MAX_THREADS / threads
    tokens = np.ceil(count_visible(work, g) / parts)
    dims, blocks = d + dv, heads * parts
    running = min(blocks, number * resident) * work.kv_heads[g] / work.heads[g]
    carried = d * work.size[g] + dv * work.output[g]
    operations = (2.0 + _conversions(work, g, bundles, library, SLOW_ON_LANES)) * dims
    trips = TRIPS_OF_LANES + (SLOW_TRIPS if converts_slowly(work, g, bundles, library) else 0.0)
    return Split(
        blocks=blocks,
        resident=resident,
        rows=1.0,
        steps=Steps(
            number=tokens,
            tokens=1.0,
            read=dims * work.cache[g],
            least=0.0,
            work=operations * number / bundles.vector[p],
            overlapped=False,
            even=False,
        ),
        carried=carried,
        fresh=carried / parts,
        begin=trips * library.latency[p],
        merge=Merge(
            parts=parts,
            time=MERGING_OF_LANES * library.latency[p],
            read=parts * PARTIAL_SUM_BYTES * dv,
            sums=_partial_sum_bytes(work, g, parts),
        ),
        launches=1.0,
        rereads=running * tokens * d * work.cache[g],
        once=0.0,
        reading=READING,
    )


@kernel
def _rows_of_latent(work: Decodes, g: int, number: float, packed: float) -> float:
    """Return the rows of a tile of latent attention where matrix units hold the sums.

    packed: queries that share keys. Few of them, or few keys for each block, take tiles of keys by queries.
    """
    if packed > MOST_SWAPPED:
        blocks = work.sequences[g] * work.kv_heads[g] * np.ceil(packed / SWAPPED_ROWS)
        parts = min(np.ceil(work.kv_len[g] / KEYS_OF_PART), max(1.0, np.floor(number / blocks)))
        if blocks > number or np.ceil(work.kv_len[g] / parts) > MOST_KEYS:
            return ROWS
    return LEAST_ROWS if packed <= LEAST_ROWS else SWAPPED_ROWS


@kernel
def _split_rows(work: Decodes, g: int, number: float, library: Library) -> tuple[float, float, float]:
    """Return the rows of a tile on matrix units, tiles of heads that share keys, and blocks of a tile.

    Several blocks share a tile where its sums exceed the registers of a block.
    """
    p, wide = work.point[g], work.head_dim[g] > WIDEST
    packed = work.q_len[g] * work.heads[g] / work.kv_heads[g]
    if library.persistent[p] and wide:
        rows = _rows_of_latent(work, g, number, packed)
        return rows, np.ceil(packed / rows), 1.0
    if library.persistent[p]:
        rows = power_of_two(min(packed, MOST_ROWS), True)
        return max(LEAST_ROWS, rows), np.ceil(packed / MOST_ROWS), 1.0
    rows = ROWS if wide else ROWS_OF_UNIT * np.ceil(min(packed, ROWS) / ROWS_OF_UNIT)
    sums = SHARE_OF_SUMS * (2.0 if library.shared[p] else 1.0) * library.registers[p]
    return rows, np.ceil(packed / ROWS), np.ceil(PARTIAL_SUM_BYTES * rows * work.value_dim[g] / sums)


@kernel
def count_tile_parts(work: Decodes, g: int, bundles: DecodeBundles, library: Library) -> float:
    """Return the number of parts of a sequence's keys, one for each block on matrix units."""
    number = bundles.number[work.point[g]]
    reads_l1 = library.shared[work.point[g]]
    _, tiles, columns = _split_rows(work, g, number, library)
    units = work.sequences[g] * work.kv_heads[g] * tiles * columns
    if library.persistent[work.point[g]]:
        tokens = KEYS_OF_PART if work.head_dim[g] > WIDEST else TOKENS_OF_TILE
        tiles = np.ceil(count_visible(work, g) / tokens)
        parts = max(1.0, min(np.floor(number / units), tiles))
        return float(np.ceil(tiles / np.ceil(tiles / parts)))
    if work.head_dim[g] > WIDEST:
        most = np.ceil(work.kv_len[g] / TOKENS) if reads_l1 else 1.0
        return float(max(1.0, min(number / units, most)))
    if converts_slowly(work, g, bundles, library):
        return 1.0
    most = np.floor(work.kv_len[g] / FEWEST_TOKENS)
    parts = max(1.0, min(most, np.round(np.sqrt(PARTS_AT_ONCE * most))))
    return float(max(1.0, np.floor(min(parts, ROUNDS * number / units))))


@kernel
def _resident_blocks(work: Decodes, g: int, bundles: DecodeBundles, specialised: bool, step: float) -> float:
    """Return how many blocks on matrix units are resident on a bundle; step: keys and values [B]."""
    p, wide = work.point[g], work.head_dim[g] > WIDEST
    room = bundles.memories.capacity[p, max(bundles.memories.private[p], 0)]
    rows = ROWS * work.head_dim[g] * work.size[g]
    if specialised and not wide:
        return float(max(1.0, min(MAX_BLOCKS, np.floor(room / (rows + STAGES * step)))))
    return float(max(1.0, np.floor(room / rows))) if wide and not specialised else 1.0


@kernel
def split_on_tiles(work: Decodes, g: int, bundles: DecodeBundles, library: Library, parts: float) -> Split:
    """Return the blocks of kernel g on matrix units: rows are the queries of heads that share keys.

    parts: of a sequence's keys; with specialised warps, parts outside the window are left out.
    """
    p = work.point[g]
    number, reads_l1 = bundles.number[p], library.shared[p]
    d, dv, wide = float(work.head_dim[g]), float(work.value_dim[g]), work.head_dim[g] > WIDEST
    specialised = reads_l1 and (wide or work.cache[g] < work.size[g])  # some warps load, others multiply
    packed = work.q_len[g] * work.heads[g] / work.kv_heads[g]
    rows, tiles, columns = _split_rows(work, g, number, library)
    units = work.sequences[g] * work.kv_heads[g] * tiles * columns
    tokens = TOKENS if wide or specialised else TOKENS_OF_TILE
    visible_parts = min(
        parts, np.ceil(count_visible(work, g) / tokens)
    )  # others have only keys beyond the window
    steps = np.ceil(count_visible(work, g) / visible_parts / tokens)
    if specialised:
        parts = visible_parts
    latent = specialised and wide
    trips = TRIPS if wide and not specialised else TRIPS_OF_TILES  # prefill's tile loop, or decoding's
    merged = np.ceil(work.sequences[g] * work.kv_heads[g] * packed / number) if latent else packed / tiles
    width = (d if latent and work.shared[g] else d + dv / columns) * work.cache[g]
    scores = rows * tokens
    work_time = 2.0 * scores * (d + dv / columns) / bundles.flops[p] + scores / bundles.exponentials[p]
    if not wide:
        slow = SLOW_ON_TILES * power_of_two(d, True) / d
        work_time += tokens * (d + dv) * _conversions(work, g, bundles, library, slow) / bundles.vector[p]
    queries, outputs = packed / tiles * d * work.size[g], packed / tiles * dv / columns * work.output[g]
    return Split(
        blocks=np.round(units * parts),
        resident=_resident_blocks(work, g, bundles, specialised, tokens * width),
        rows=rows,
        steps=Steps(
            number=steps,
            tokens=tokens,
            read=tokens * width,
            least=library.step[p] * width / STEP_BYTES,
            work=work_time * number,
            overlapped=latent,
            even=latent,
        ),
        carried=queries + outputs,
        fresh=(queries / columns + outputs) / parts,
        begin=trips * library.latency[p],
        merge=Merge(
            parts=parts,
            time=MERGING_OF_TILES * library.latency[p],
            read=parts * PARTIAL_SUM_BYTES * merged * dv / columns,
            sums=_partial_sum_bytes(work, g, parts),
        ),
        launches=2.0 if latent else 1.0,
        rereads=0.0,
        once=0.0,
        reading=READING,
    )


@kernel
def split_with_held_sums(
    work: Decodes, g: int, bundles: DecodeBundles, library: Library, parts: float
) -> Split:  # fmt: skip
    """Return the blocks of kernel g on matrix units that hold the sums.

    parts: of a sequence's visible keys.
    """
    p = work.point[g]
    number, d, dv = bundles.number[p], float(work.head_dim[g]), float(work.value_dim[g])
    packed = work.q_len[g] * work.heads[g] / work.kv_heads[g]
    rows, tiles, _ = _split_rows(work, g, number, library)
    # of a score; products are in the type of the cache
    flop = 2.0 * (d + dv) * min(1.0, work.cache[g] / work.size[g])
    units = work.sequences[g] * work.kv_heads[g] * tiles
    steps = np.ceil(np.ceil(count_visible(work, g) / TOKENS_OF_TILE) / parts)
    width, scores = (d + dv) * work.cache[g], rows * TOKENS_OF_TILE
    instructions, is_wide = number / bundles.instructions[p], work.head_dim[g] > WIDEST
    kept, pair = is_wide and rows == ROWS, min(library.pair[p], tiles)
    multiplying = scores * flop * number / bundles.flops[p]
    exponentials = scores * number / bundles.exponentials[p]
    if kept:  # its sums take half of the tensor memory: exponentials overlap
        width = (d if work.shared[g] else d + dv) * work.cache[g] / pair
        multiplying *= library.pair[p] / pair  # so few rows take half of the units of a bundle alone
    of_score, of_output = SWAPPED if rows < ROWS else (0.0, 0.0)
    between = SWAPPED_LATENT if is_wide and not kept else TRIPS_BETWEEN
    queries, outputs = packed / tiles * d * work.size[g], packed / tiles * dv * work.output[g]
    return Split(
        blocks=units * parts,
        resident=1.0,
        rows=rows,
        steps=Steps(
            number=steps,
            tokens=TOKENS_OF_TILE,
            read=TOKENS_OF_TILE * width,
            least=library.step[p] * width / STEP_BYTES,
            work=(max(multiplying, exponentials) if kept else multiplying + exponentials)
            + scores * of_score * instructions,
            overlapped=True,
            even=False,
        ),
        carried=queries + outputs,
        fresh=(queries + outputs) / parts,
        begin=between * library.latency[p] + of_output * rows * min(dv, WIDEST) * instructions,
        merge=Merge(
            parts=parts,
            time=MERGING_OF_TILES * library.latency[p],
            read=parts * PARTIAL_SUM_BYTES * np.ceil(units * packed / tiles / number) * dv,
            sums=_partial_sum_bytes(work, g, parts),
        ),
        launches=1.0,
        rereads=0.0,
        once=((FIRST_TRIPS if is_wide else TRIPS_OF_TILES) - between) * library.latency[p],
        reading=1.0,
    )
