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

How many parts and threads these libraries take, and when tiles, goes by the number of bundles of their own
chips. Where idle bundles leave their power (`timing/boost.py`), a library takes what is quickest instead: tiles
wherever heads share keys, one of several numbers of parts and threads up to these, and rounds of equal length.
There idle bundles leave their part of L2's bandwidth as well, as those of products do. So more bundles slow
no kernel.

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
FINENESS = 0.25  # of numbers of parts that are compared: 1 to 8, 10, 12, 15, 18, 22, ...
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
    boosts: Bools


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
    sums: float  # all parts [B]
    launches: float
    rereads: float  # keys' bytes that run at once, and are read again as values; 0 for none


@kernel
def _takes_tiles(work: Decodes, g: int, bundles: float, boosts: bool, reads_l1: bool) -> bool:
    """Return whether a library takes matrix units for kernel g."""
    if work.head_dim[g] > WIDEST or work.q_len[g] > 1:
        return True
    if work.heads[g] == work.kv_heads[g] or work.heads[g] > MOST_ROWS * work.kv_heads[g]:
        return False
    if boosts or (reads_l1 and work.cache[g] < work.size[g]):
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
def _count_threads(work: Decodes, g: int, number: float) -> float:
    """Return the threads of a block on vector lanes: more where heads are few."""
    wanted = THREADS * np.ceil(MOST_THREADS / THREADS * number / (work.sequences[g] * work.heads[g]))
    threads = THREADS
    while 2.0 * threads <= min(wanted, MOST_THREADS):
        threads *= 2.0
    return threads


@kernel
def _part_lanes(work: Decodes, g: int, number: float, threads: float) -> float:
    """Return the parts of a head's keys that different blocks of so many threads read."""
    heads = float(work.sequences[g] * work.heads[g])
    least = threads / max(1.0, work.head_dim[g] * work.size[g] / VECTOR_BYTES) * UNROLLED
    parts = min(np.ceil(number * MOST_THREADS / threads / heads), np.ceil((work.kv_len[g] + 1.0) / least))
    return float(max(1.0, parts))


@kernel
def _all_parts(work: Decodes, g: int, parts: float) -> float:
    """Return the bytes of the sums of all parts, each of all rows."""
    rows = float(work.sequences[g] * work.q_len[g] * work.heads[g])
    return PARTIAL_SUM_BYTES * rows * work.value_dim[g] * parts


@kernel
def _lay_lanes(
    work: Decodes, g: int, bundles: _Bundles, library: Library, threads: float, parts: float
) -> _Split:
    """Return the blocks of kernel g on vector lanes: of a part of a head's keys each."""
    p = work.point[g]
    number, d, dv = bundles.number[p], float(work.head_dim[g]), float(work.value_dim[g])
    heads, together = float(work.sequences[g] * work.heads[g]), MOST_THREADS / threads
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
        sums=_all_parts(work, g, parts),
        launches=1.0,
        rereads=running * tokens * d * work.cache[g],
    )


@kernel
def _cut_rows(work: Decodes, g: int, library: Library) -> tuple[float, float, float]:
    """Return the rows of a tile on matrix units, the tiles of heads that share keys, and blocks of a tile.

    Several blocks share a tile where its sums need more registers than one has.
    """
    p, wide = work.point[g], work.head_dim[g] > WIDEST
    packed = work.q_len[g] * work.heads[g] / work.kv_heads[g]
    rows = ROWS if wide else ROWS_OF_UNIT * np.ceil(min(packed, ROWS) / ROWS_OF_UNIT)
    sums = SHARE_OF_SUMS * (2.0 if library.shared[p] else 1.0) * library.registers[p]
    return rows, np.ceil(packed / ROWS), np.ceil(PARTIAL_SUM_BYTES * rows * work.value_dim[g] / sums)


@kernel
def _part_tiles(work: Decodes, g: int, number: float, library: Library) -> float:
    """Return the parts of a sequence's keys that different blocks on matrix units read."""
    reads_l1 = library.shared[work.point[g]]
    _, tiles, columns = _cut_rows(work, g, library)
    units = work.sequences[g] * work.kv_heads[g] * tiles * columns
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
def _lay_tiles(work: Decodes, g: int, bundles: _Bundles, library: Library, parts: float) -> _Split:
    """Return the blocks of kernel g on matrix units: rows are the queries of heads that share keys.

    parts: of a sequence's keys; as many as see a key where warps of their own load.
    """
    p = work.point[g]
    number, reads_l1 = bundles.number[p], library.shared[p]
    d, dv, wide = float(work.head_dim[g]), float(work.value_dim[g]), work.head_dim[g] > WIDEST
    own = reads_l1 and (wide or work.cache[g] < work.size[g])  # warps of their own load
    packed = work.q_len[g] * work.heads[g] / work.kv_heads[g]
    rows, tiles, columns = _cut_rows(work, g, library)
    units = work.sequences[g] * work.kv_heads[g] * tiles * columns
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
        blocks=np.round(units * parts),
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
        sums=_all_parts(work, g, parts),
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
def _time_even(
    split: _Split, bandwidth: float, carry: float, beyond: float, p: int, bundles: _Bundles
) -> tuple[float, float, float]:
    """Return the time of blocks in rounds of equal length [s], and how many rounds and waves these are.

    All of bandwidth serves the blocks at work. carry, beyond: as `_time_round` has them.
    """
    number, at_once = bundles.number[p], bundles.number[p] * split.together
    if split.dealt:
        rounds = max(1.0, split.blocks / at_once)
        blocks, waves = min(split.blocks, at_once), max(1.0, split.blocks / number)
    else:
        rounds = np.ceil(split.blocks / at_once)
        blocks = split.blocks / rounds
        waves = rounds * np.ceil(blocks / number)
    pace, _ = lift_of(waves * number / split.blocks, bundles.threshold[p], bundles.headroom[p])
    port = np.ceil(blocks / number) * bandwidth / blocks
    once = _time_round(split, split.work * pace, blocks, number, port, carry, beyond)
    return rounds * once, rounds, waves


@kernel
def _time_rounds(
    split: _Split, bandwidth: float, carry: float, beyond: float, p: int, bundles: _Bundles
) -> tuple[float, float, float]:
    """Return the same of rounds of as many blocks as there is room for, on bundles of a part of it each."""
    number = bundles.number[p]
    at_once, port = number * split.together, bandwidth / number
    rounds = np.floor(split.blocks / at_once)
    rest = split.blocks - rounds * at_once
    total, begins = 0.0, rounds
    if rounds > 0.0:
        whole = rounds + (rest / at_once if split.dealt else 0.0)
        total += whole * _time_round(split, split.work, at_once, number, port, carry, beyond)
    if rest > 0.0 and not (split.dealt and rounds > 0.0):
        total += _time_round(split, split.work, rest, number, port, carry, beyond)
        begins += 1.0
    return total, begins, np.ceil(split.blocks / number)


@kernel
def _time_split(
    work: Decodes, g: int, split: _Split, bundles: _Bundles, launch: float, times: Floats, moved: Floats
) -> tuple[float, float]:
    """Time kernel g as these blocks [s], and return how many waves these are.

    Writes `times` and `moved` as `Launched` has them.
    """
    p, last = work.point[g], len(moved) - 1
    number, bandwidth, dealt = bundles.number[p], bundles.bandwidth[p], max(bundles.dealt[p], 0)
    sequences = float(work.sequences[g] * work.kv_heads[g]) * _seen(work, g)
    keys = sequences * work.head_dim[g] * work.cache[g]
    streamed = keys if work.shared[g] else keys + sequences * work.value_dim[g] * work.cache[g]
    port = bandwidth[dealt + 1]
    cached = bundles.capacity[p, last - 1] if last - 1 > dealt else 0.0
    if work.shared[g] and split.rereads > cached:
        streamed *= 2.0
    merge, reads = 0.0, split.blocks * (split.steps * split.read + split.carried)
    if split.parts > 1.0:  # written, and read
        merge = split.sums / port if bundles.boosts[p] else split.merged / (port / number)
        merge += split.merging
        reads += 2.0 * split.sums
    for level in range(last + 1):
        moved[level] = reads if level <= dealt + 1 else streamed + split.blocks * split.fresh
        times[level + 1] = moved[level] / bandwidth[level]
    outer = READING * bandwidth[last]
    has_cache = last > dealt + 1
    if has_cache:
        times[last + 1] /= READING
    carry = split.fresh / outer if has_cache else 0.0
    beyond = streamed / split.blocks / outer if has_cache else 0.0

    if bundles.boosts[p]:
        total, begins, waves = _time_even(split, port, carry, beyond, p, bundles)
    else:
        total, begins, waves = _time_rounds(split, port, carry, beyond, p, bundles)
    pace, _ = lift_of(waves * number / split.blocks, bundles.threshold[p], bundles.headroom[p])
    times[0] = split.blocks * split.steps * split.work * pace / number
    times[last + 2] = split.launches * launch + merge + begins * split.begin
    return float(merge + total + split.launches * launch), waves


@kernel
def run_decodes(work: Decodes, bundles: _Bundles, library: Library) -> Launched:
    """Return how a library runs each kernel."""
    kernels, levels = work.kv_len.size, bundles.capacity.shape[1]
    out = empty_launched(kernels, levels)
    times, moved = np.empty(levels + 3), np.empty(levels + 1)
    for g in range(kernels):
        p = work.point[g]
        number, boosts = bundles.number[p], bundles.boosts[p]
        on_tiles = _takes_tiles(work, g, number, boosts, library.shared[p])
        most_threads = THREADS if on_tiles else _count_threads(work, g, number)
        threads = THREADS if boosts else most_threads
        out.candidates[g] = 0
        while threads <= most_threads:
            most = _part_tiles(work, g, number, library) if on_tiles else _part_lanes(work, g, number, threads)
            parts = 1.0 if boosts else most
            while True:
                if on_tiles:
                    split = _lay_tiles(work, g, bundles, library, parts)
                else:
                    split = _lay_lanes(work, g, bundles, library, threads, parts)
                time, waves = _time_split(work, g, split, bundles, library.launch[p], times, moved)
                if out.candidates[g] == 0 or time < out.time[g]:
                    _write(work, g, split, time, waves, bundles, out)
                    out.times[g], out.bytes[g] = times, moved
                out.candidates[g] += 1
                if parts >= most:
                    break
                parts = min(parts + max(1.0, np.floor(parts * FINENESS)), most)
            threads *= 2.0
    return out


@kernel
def _write(
    work: Decodes, g: int, split: _Split, time: float, waves: float, bundles: _Bundles, out: Launched
) -> None:
    """Write that kernel g runs as these blocks."""
    p = work.point[g]
    idle = waves * bundles.number[p] / split.blocks
    _, out.lift[g] = lift_of(idle, bundles.threshold[p], bundles.headroom[p])
    out.time[g], out.busy[g] = time, 1.0 / idle
    out.parts[g], out.waves[g] = int(split.parts), int(min(np.ceil(waves), 2.0**62))
    for level in range(out.tile.shape[1]):
        whole = level > bundles.dealt[p]
        out.tile[g, level, 0] = work.q_len[g] * work.heads[g] if whole else int(split.rows)
        out.tile[g, level, 1] = work.head_dim[g]
        out.tile[g, level, 2] = work.kv_len[g] if whole else int(split.tokens)


@kernel
def _rotate(work: Decodes, number: Floats, boosts: Bools, reads_l1: Bools) -> Bools:
    """Return whether the kernel itself does the rotary embedding."""
    fused = np.empty(work.kv_len.size, dtype=np.bool_)
    for g in range(work.kv_len.size):
        p = work.point[g]
        tiles = _takes_tiles(work, g, number[p], boosts[p], reads_l1[p])
        narrow = work.head_dim[g] <= WIDEST and work.q_len[g] == 1
        fused[g] = narrow and (not tiles or (reads_l1[p] and work.cache[g] < work.size[g]))
    return fused


def rotates(device: Device, work: Decodes) -> Bools:
    """Return whether each kernel does the rotary embedding and writes the cache itself, (kernels,).

    TensorRT-LLM's do on vector lanes, and on Hopper over caches of fp8.
    """
    return _rotate(work, device.instances, device.boosts, device.library.shared)


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
        boosts=device.boosts,
    )
    return run_decodes(work, bundles, device.library)
