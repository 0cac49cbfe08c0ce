"""Time of fused attention of few queries over a long cache: decode, and a few drafted tokens at once (6.1).

A block reads its keys and values once, so that a kernel is a matter of how many bundles read, and how fast.
Heads that share keys are rows of one tile of matrix units (TensorRT-LLM's XQA). Where every head has keys of
its own, or blocks are too few to be worth it, vector lanes do it head by head (its masked multi-head
attention). Heads wider than any layer's own are latent attention, absorbed: 64 rows that share all of the
cache (DeepSeek's FlashMLA; before Hopper the tile loop of prefill, which splits no sequence). Keys are split
into parts where blocks are too few, as these libraries do it. A block's time is

- *its beginning and end*: a chain of dependent trips through the memories (page, length, queries, first keys,
  output), and queries and outputs, which other kernels wrote and read;
- *its steps*: keys and values come at the bundle's share of L2's bandwidth, or one line of every row a step
  of the pipeline, and are multiplied after. Only where some warps load and others multiply both overlap;
- *its share of main memory*: what all blocks of a round read, whatever L2 has from before. It meets the
  others in a soft maximum.

Blocks run in rounds of as many as all bundles hold. Parts are merged by the last block, or by a second
kernel. Matrix units are far from busy, so that the clock is not lowered.

What runs beside is memory-bound: rotary embedding with the write of the cache, a kernel of its own but where
`rotates` says that this one does it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.tables import Bools, Floats, Ints
from fastflow.timing.attention_pairs import TRIPS
from fastflow.timing.blocks import ORDER, STAGES, STEP_BYTES, Launched, empty_launched
from fastflow.timing.boost import lift_of
from fastflow.timing.device import Device, Library
from fastflow.timing.tiles import PARTIAL_SUM_BYTES

# What kernels run: NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttention (XQA:
# decoderXQAImplJIT/kernelUtils.cpp, decoderXQAConstants.h, decoderXQAImplCommon.h)
WIDEST = 256  # head that is not latent attention
MOST_ROWS = 32  # heads of a query that share keys, for tiles
FEWEST_TOKENS = 128  # of a part
ENOUGH = 4.0  # times the possible parts, over bundles, for tiles
ROUNDS = 8.0  # of parts, at most
PARTS_AT_ONCE = 8.0  # no more parts than sqrt(so many times the parts possible)
ROWS, ROWS_OF_UNIT = 64.0, 16.0  # of a tile at most; of a matrix instruction
TOKENS, TOKENS_OF_TILE = 64.0, 128.0  # of a step: where units read L1 or heads are wide; otherwise
MOST_BLOCKS = 4.0  # on a bundle, of its registers (384 threads of 168 registers)
SHARE_OF_SUMS = 0.25  # of the registers, twice as much where units read L1 (as in blocks; FlashMLA)
# Masked multi-head attention (decoderMaskedMultiheadAttentionLaunch.h)
THREADS, MOST_THREADS = 256.0, 1024.0  # of a block; a bundle's registers hold as many as the latter
VECTOR_BYTES, UNROLLED = 16.0, 8.0  # that a thread loads at once, and how many times

# Dependent trips of a block, and those of merging before and after one block reads all parts. Calibrated on
# 11,792 decodes of A100 and H100 (ai-dynamo/aiconfigurator@095f58a)
TRIPS_OF_LANES, TRIPS_OF_TILES = 22.0, 12.5
MERGING_OF_LANES, MERGING_OF_TILES = 20.0, 7.0
# Main memory's bandwidth for reads in a row, over what products reach: 0.87 and 0.92 of the peak (the same)
READING = 1.12
CONVERSION = 2.0  # operations of vector lanes an element of a smaller type (the same)
# Of the soft maximum where loading and multiplying overlap: FlashMLA reaches 660 TFLOP/s on Hopper, of 989
# (its repository)
ORDER_INSIDE = 2.0


class Decodes(NamedTuple):
    """Attention of few queries, each on the machine of a point; shape (kernels,)."""

    point: Ints
    sequences: Ints
    q_len: Ints  # of every sequence: 1, or more with drafted tokens
    kv_len: Ints  # with those of the queries
    heads: Ints
    kv_heads: Ints
    head_dim: Ints  # of queries and keys
    value_dim: Ints
    window: Ints  # keys that a query sees, 0 for all
    shared: Bools  # values lie in the keys' cache, so that main memory is read once for both
    size: Floats  # of an element of Q [B]
    cache: Floats  # of one of the cache [B]
    output: Floats  # of one of the output [B]


class _Bundles(NamedTuple):
    """What blocks run on; shape (points,) where not said otherwise."""

    flops: Floats  # achievable by matrix units, all bundles [flop/s]
    exponentials: Floats  # [1/s]
    vector: Floats  # achievable by vector lanes [flop/s]
    bandwidth: Floats  # achievable, main memory last (points, levels + 1)
    capacity: Floats  # of one instance of each level (points, levels)
    dealt: Ints
    number: Floats
    threshold: Floats  # as `Device` has them
    headroom: Floats


class _Split(NamedTuple):
    """One kernel as blocks, and what a block does in a step."""

    blocks: float
    together: float  # on a bundle at once
    rows: float  # of a tile
    tokens: float  # of a step
    steps: float
    read: float  # keys and values of a step [B]
    least: float  # time of a step, however fast bytes come [s]
    work: float  # time of a step, all of a bundle's units [s]
    dealt: bool  # evenly, with steps from several sequences for a bundle; loading and multiplying overlap
    carried: float  # queries and outputs [B]
    fresh: float  # its share of those of all blocks, read and written once [B]
    begin: float  # [s]
    parts: float
    merging: float  # that the parts take beside being read [s]
    merged: float  # parts that one block reads [B]
    launches: float
    rereads: float  # keys' bytes that run at once, and are read again as values; 0 for none


@kernel
def _takes_tiles(work: Decodes, g: int, bundles: float, reads_l1: bool) -> bool:
    """Return whether a library takes matrix units for kernel g."""
    if work.head_dim[g] > WIDEST or work.q_len[g] > 1:
        return True
    if work.heads[g] == work.kv_heads[g] or work.heads[g] > MOST_ROWS * work.kv_heads[g]:
        return False
    if reads_l1 and work.cache[g] < work.size[g]:
        return True
    parts = max(1.0, np.floor(work.kv_len[g] / FEWEST_TOKENS))
    return bool(work.sequences[g] * work.kv_heads[g] * parts * ENOUGH >= bundles)


@kernel
def _seen(work: Decodes, g: int) -> float:
    """Return how many keys the queries of a sequence see."""
    keys = work.kv_len[g]
    if work.window[g] > 0:
        keys = min(keys, work.window[g] + work.q_len[g] - 1)
    return float(keys)


@kernel
def _convert(work: Decodes, g: int) -> float:
    """Return the operations of vector lanes that convert an element of the cache."""
    return CONVERSION if work.cache[g] < work.size[g] else 0.0


@kernel
def _lay_lanes(work: Decodes, g: int, bundles: _Bundles, library: Library) -> _Split:
    """Return the blocks of kernel g on vector lanes: a head each, with more threads where heads are few."""
    p = work.point[g]
    number, d, dv = bundles.number[p], float(work.head_dim[g]), float(work.value_dim[g])
    heads = float(work.sequences[g] * work.heads[g])
    threads, wanted = THREADS, THREADS * np.ceil(MOST_THREADS / THREADS * number / heads)
    while 2.0 * threads <= min(wanted, MOST_THREADS):
        threads *= 2.0
    together = MOST_THREADS / threads
    least = threads / max(1.0, d * work.size[g] / VECTOR_BYTES) * UNROLLED
    parts = min(np.ceil(number * together / heads), np.ceil((work.kv_len[g] + 1.0) / least))
    parts = max(1.0, parts)
    tokens = np.ceil(_seen(work, g) / parts)
    both, blocks = d + dv, heads * parts
    running = min(blocks, number * together) * work.kv_heads[g] / work.heads[g]
    carried = d * work.size[g] + dv * work.output[g]
    operations = (2.0 + _convert(work, g)) * both
    return _Split(
        blocks=blocks,
        together=together,
        rows=1.0,
        tokens=1.0,
        steps=tokens,
        read=both * work.cache[g],
        least=0.0,
        work=operations * number / bundles.vector[p],
        dealt=False,
        carried=carried,
        fresh=carried / parts,
        begin=TRIPS_OF_LANES * library.latency[p],
        parts=parts,
        merging=MERGING_OF_LANES * library.latency[p],
        merged=parts * PARTIAL_SUM_BYTES * dv,
        launches=1.0,
        rereads=running * tokens * d * work.cache[g],
    )


@kernel
def _count_parts(work: Decodes, g: int, units: float, number: float, reads_l1: bool) -> float:
    """Return the parts of a sequence's keys that different blocks read; units: blocks without parts."""
    if work.head_dim[g] > WIDEST:
        most = np.ceil(work.kv_len[g] / TOKENS) if reads_l1 else 1.0
        return float(max(1.0, min(number / units, most)))
    most = np.floor(work.kv_len[g] / FEWEST_TOKENS)
    parts = max(1.0, min(most, np.round(np.sqrt(PARTS_AT_ONCE * most))))
    return float(max(1.0, np.floor(min(parts, ROUNDS * number / units))))


@kernel
def _count_together(work: Decodes, g: int, bundles: _Bundles, own: bool, step: float) -> float:
    """Return how many blocks on matrix units a bundle holds; step: keys and values of a step [B]."""
    p, wide = work.point[g], work.head_dim[g] > WIDEST
    room, rows = bundles.capacity[p, max(bundles.dealt[p], 0)], ROWS * work.head_dim[g] * work.size[g]
    if own and not wide:
        return float(max(1.0, min(MOST_BLOCKS, np.floor(room / (rows + STAGES * step)))))
    return float(max(1.0, np.floor(room / rows))) if wide and not own else 1.0


@kernel
def _lay_tiles(work: Decodes, g: int, bundles: _Bundles, library: Library) -> _Split:
    """Return the blocks of kernel g on matrix units: rows are the queries of heads that share keys."""
    p = work.point[g]
    number, reads_l1 = bundles.number[p], library.shared[p]
    d, dv, wide = float(work.head_dim[g]), float(work.value_dim[g]), work.head_dim[g] > WIDEST
    own = reads_l1 and (wide or work.cache[g] < work.size[g])  # warps of their own load
    packed = work.q_len[g] * work.heads[g] / work.kv_heads[g]
    tiles = np.ceil(packed / ROWS)
    rows = ROWS if wide else ROWS_OF_UNIT * np.ceil(min(packed, ROWS) / ROWS_OF_UNIT)
    sums = SHARE_OF_SUMS * (2.0 if reads_l1 else 1.0) * library.registers[p]
    columns = np.ceil(PARTIAL_SUM_BYTES * rows * dv / sums)  # blocks that share a tile's values
    units = work.sequences[g] * work.kv_heads[g] * tiles * columns
    parts = _count_parts(work, g, units, number, reads_l1)
    tokens = TOKENS if wide or own else TOKENS_OF_TILE
    with_keys = min(parts, np.ceil(_seen(work, g) / tokens))  # others have only keys beyond the window
    steps = np.ceil(_seen(work, g) / with_keys / tokens)
    if own:
        parts = with_keys
    latent = own and wide
    # Numba takes this many keywords only where none of their values is a condition
    launches = 2.0 if latent else 1.0
    trips = TRIPS if wide and not own else TRIPS_OF_TILES  # prefill's tile loop, or decoding's
    merged = np.ceil(work.sequences[g] * work.kv_heads[g] * packed / number) if latent else packed / tiles
    width = (d if latent and work.shared[g] else d + dv / columns) * work.cache[g]
    scores = rows * tokens
    work_time = 2.0 * scores * (d + dv / columns) / bundles.flops[p] + scores / bundles.exponentials[p]
    if not wide:
        work_time += tokens * (d + dv) * _convert(work, g) / bundles.vector[p]
    queries, outputs = packed / tiles * d * work.size[g], packed / tiles * dv / columns * work.output[g]
    return _Split(
        blocks=units * parts,
        together=_count_together(work, g, bundles, own, tokens * width),
        rows=rows,
        tokens=tokens,
        steps=steps,
        read=tokens * width,
        least=library.step[p] * width / STEP_BYTES,
        work=work_time * number,
        dealt=latent,
        carried=queries + outputs,
        fresh=(queries / columns + outputs) / parts,
        begin=trips * library.latency[p],
        parts=parts,
        merging=MERGING_OF_TILES * library.latency[p],
        merged=parts * PARTIAL_SUM_BYTES * merged * dv / columns,
        launches=launches,
        rereads=0.0,
    )


@kernel
def _soft(a: float, b: float, order: float) -> float:
    """Return the soft maximum of two times, of order 2 or 4."""
    longest = max(a, b)
    if longest == 0.0 or longest == np.inf:
        return longest
    share = (min(a, b) / longest) ** 2
    return float(longest * (np.sqrt(1.0 + share) if order == 2.0 else np.sqrt(np.sqrt(1.0 + share * share))))


@kernel
def _time_round(
    split: _Split, work: float, blocks: float, number: float, port: float, carry: float, beyond: float
) -> float:
    """Return the time of blocks that run at once [s].

    work: time of a step on a bundle's units [s]; port: bandwidth of a bundle [B/s]; carry, beyond: times of a
    block's queries and outputs, and of its keys and values, in main memory [s].
    """
    each = np.ceil(blocks / number)  # on the fullest bundle
    read, own = max(each * split.read / port, split.least), each * work
    step = _soft(read, own, ORDER_INSIDE) if split.dealt else read + own
    ends = split.begin + each * split.carried / port + blocks * carry
    return _soft(ends + split.steps * step, blocks * beyond, ORDER)


@kernel
def _time_split(
    work: Decodes, g: int, split: _Split, idle: float, bundles: _Bundles, launch: float, times: Floats,
    moved: Floats,
) -> float:  # fmt: skip
    """Time kernel g as these blocks [s]; writes `times` and `moved` as `Launched` has them.

    idle: bundles there for each that works.
    """
    p, last = work.point[g], len(moved) - 1
    number, bandwidth, dealt = bundles.number[p], bundles.bandwidth[p], max(bundles.dealt[p], 0)
    sequences = float(work.sequences[g] * work.kv_heads[g]) * _seen(work, g)
    keys = sequences * work.head_dim[g] * work.cache[g]
    streamed = keys if work.shared[g] else keys + sequences * work.value_dim[g] * work.cache[g]
    port = bandwidth[dealt + 1] / number
    cached = bundles.capacity[p, last - 1] if last - 1 > dealt else 0.0
    if work.shared[g] and split.rereads > cached:
        streamed *= 2.0
    merge = split.merging + split.merged / port if split.parts > 1.0 else 0.0
    reads = split.blocks * (split.steps * split.read + split.carried)
    if split.parts > 1.0:  # written, and read
        rows = float(work.sequences[g] * work.q_len[g] * work.heads[g])
        reads += 2.0 * PARTIAL_SUM_BYTES * rows * work.value_dim[g] * split.parts
    for level in range(last + 1):
        moved[level] = reads if level <= dealt + 1 else streamed + split.blocks * split.fresh
        times[level + 1] = moved[level] / bandwidth[level]
    outer = READING * bandwidth[last]
    has_cache = last > dealt + 1
    if has_cache:
        times[last + 1] /= READING
    carry = split.fresh / outer if has_cache else 0.0
    beyond = streamed / split.blocks / outer if has_cache else 0.0

    pace, _ = lift_of(idle, bundles.threshold[p], bundles.headroom[p])
    step = split.work * pace
    at_once = number * split.together
    rounds = np.floor(split.blocks / at_once)
    rest = split.blocks - rounds * at_once
    total, begins = merge, rounds
    if rounds > 0.0:
        whole = rounds + (rest / at_once if split.dealt else 0.0)
        total += whole * _time_round(split, step, at_once, number, port, carry, beyond)
    if rest > 0.0 and not (split.dealt and rounds > 0.0):
        total += _time_round(split, step, rest, number, port, carry, beyond)
        begins += 1.0
    times[0] = split.blocks * split.steps * step / number
    times[last + 2] = split.launches * launch + merge + begins * split.begin
    return float(total + split.launches * launch)


@kernel
def run_decodes(work: Decodes, bundles: _Bundles, library: Library) -> Launched:
    """Return how a library runs each kernel."""
    kernels, levels = work.kv_len.size, bundles.capacity.shape[1]
    out = empty_launched(kernels, levels)
    out.candidates[:] = 1
    for g in range(kernels):
        p = work.point[g]
        number = bundles.number[p]
        if _takes_tiles(work, g, number, library.shared[p]):
            split = _lay_tiles(work, g, bundles, library)
        else:
            split = _lay_lanes(work, g, bundles, library)
        waves = np.ceil(split.blocks / number)
        idle = waves * number / split.blocks
        out.time[g] = _time_split(
            work, g, split, idle, bundles, library.launch[p], out.times[g], out.bytes[g]
        )
        _, out.lift[g] = lift_of(idle, bundles.threshold[p], bundles.headroom[p])
        out.parts[g], out.waves[g] = int(split.parts), int(min(waves, 2.0**62))
        out.busy[g] = split.blocks / (waves * number)
        for level in range(levels):
            whole = level > bundles.dealt[p]
            out.tile[g, level, 0] = work.q_len[g] * work.heads[g] if whole else int(split.rows)
            out.tile[g, level, 1] = work.head_dim[g]
            out.tile[g, level, 2] = work.kv_len[g] if whole else int(split.tokens)
    return out


@kernel
def _rotate(work: Decodes, number: Floats, reads_l1: Bools) -> Bools:
    """Return whether the kernel itself does the rotary embedding."""
    fused = np.empty(work.kv_len.size, dtype=np.bool_)
    for g in range(work.kv_len.size):
        p = work.point[g]
        tiles = _takes_tiles(work, g, number[p], reads_l1[p])
        narrow = work.head_dim[g] <= WIDEST and work.q_len[g] == 1
        fused[g] = narrow and (not tiles or (reads_l1[p] and work.cache[g] < work.size[g]))
    return fused


def rotates(device: Device, work: Decodes) -> Bools:
    """Return whether each kernel does the rotary embedding and writes the cache itself, (kernels,).

    TensorRT-LLM's do on vector lanes, and on Hopper over caches of fp8.
    """
    return _rotate(work, device.instances, device.library.shared)


def time_decoding(device: Device, work: Decodes) -> Launched:
    """Time one launch of every attention [s], with what merges its parts, as `Launched` has it.

    Tiles are queries (those of heads that share keys), head and tokens; parts are those of the keys.
    """
    bundles = _Bundles(
        flops=device.matrix_flops,
        exponentials=device.special_functions,
        vector=device.vector_flops,
        bandwidth=np.stack([*device.bandwidth, device.dram_bandwidth], axis=1),
        capacity=np.stack(device.capacity, axis=1),
        dealt=device.dealt_level,
        number=device.instances,
        threshold=device.threshold,
        headroom=device.headroom,
    )
    return run_decodes(work, bundles, device.library)
