"""Time of fused attention of few queries over a long cache: decode, and a few drafted tokens at once (6.1).

A block (`decode_tiles.py`) reads its keys and values once, so that the number of bundles that read and their
bandwidth decide. A block's time is

- *prologue and epilogue*: a chain of dependent trips through the memories (page, length, queries, first keys,
  output), and the transfer of queries and outputs;
- *steps*: keys and values arrive at the bundle's share of L2's bandwidth, or one line of every row per step
  of the pipeline, and are multiplied afterwards. Loading and multiplying overlap only with specialised warps;
- *main memory*: the bytes that all blocks of a round read, regardless of what L2 holds before. Its time is
  combined with the others in a soft maximum. Kernels whose matrix units hold the sums copy whole pages of the
  cache, however few keys the last one has.

Blocks run in rounds that fill all bundles. Parts are merged by the last block, or by a second kernel. Matrix
units are far from busy, so that the clock is not lowered.

The numbers of parts and threads of these libraries, and their use of tiles, depend on the number of bundles
of existing chips. Where active bundles use the resources of idle ones (`Boost.enabled`), the fastest option
is taken instead: tiles wherever heads share keys, one of several numbers of parts and threads up to the
library's, and rounds of equal length. Active blocks have all of L2's bandwidth there, as those of GEMMs do.
So more bundles slow no kernel.

Rotary embedding with the write of the cache is a memory-bound kernel, or a part of this kernel where
`fuses_rotary` is true.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats
from fastflow.physics.timing.attention.decode_tiles import (
    THREADS,
    WIDEST,
    DecodeBundles,
    Decodes,
    Split,
    count_lane_parts,
    count_threads,
    count_tile_parts,
    count_visible,
    split_on_lanes,
    split_on_tiles,
    split_with_held_sums,
    uses_tiles,
)
from fastflow.physics.timing.device import Device, Library
from fastflow.physics.timing.library.thread_blocks import ORDER, Launched, empty_launched
from fastflow.physics.timing.tiling.boost import boost_of

# Of the soft maximum where loading and multiplying overlap: FlashMLA reaches 660 TFLOP/s on Hopper, of 989
# (its repository)
ORDER_INSIDE = 2.0
# Keys of a page of the cache: of TensorRT-LLM's trtllm-gen kernels (ai-dynamo/aiconfigurator@095f58a,
# collector/trtllm/collect_attn.py and collect_mla.py, tokens_per_block)
PAGE, LATENT_PAGE = 64.0, 32.0
FINENESS = 0.25  # of numbers of parts that are compared: 1 to 8, 10, 12, 15, 18, 22, ...


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
    split: Split, work: float, blocks: float, number: float, port: float, carry: float, beyond: float
) -> float:
    """Return the time of blocks that run concurrently [s].

    work: time of a step on a bundle's units [s]; port: bandwidth of a bundle [B/s]; carry, beyond: times of a
    block's queries and outputs, and of its keys and values, in main memory [s].
    """
    steps, blocks_per_bundle = split.steps, np.ceil(blocks / number)  # on the fullest bundle
    read, work_time = max(blocks_per_bundle * steps.read / port, steps.least), blocks_per_bundle * work
    step = _soft(read, work_time, ORDER_INSIDE) if steps.overlapped else read + work_time
    ends = split.begin + blocks_per_bundle * split.carried / port + blocks * carry
    return _soft(ends + steps.number * step, blocks * beyond, ORDER)


@kernel
def _time_even(
    split: Split, bandwidth: float, carry: float, beyond: float, p: int, bundles: DecodeBundles
) -> tuple[float, float, float]:
    """Return the time of blocks in rounds of equal length [s], and the numbers of rounds and waves.

    All of `bandwidth` serves the active blocks. carry, beyond: as in `_time_round`.
    """
    number, at_once = bundles.number[p], bundles.number[p] * split.resident
    if split.steps.even:
        rounds = max(1.0, split.blocks / at_once)
        blocks, waves = min(split.blocks, at_once), max(1.0, split.blocks / number)
    else:
        rounds = np.ceil(split.blocks / at_once)
        blocks = split.blocks / rounds
        waves = rounds * np.ceil(blocks / number)
    pace, _ = boost_of(waves * number / split.blocks, bundles.boost.threshold[p], bundles.boost.headroom[p])
    port = np.ceil(blocks / number) * bandwidth / blocks
    round_time = _time_round(split, split.steps.work * pace, blocks, number, port, carry, beyond)
    return rounds * round_time, rounds, waves


@kernel
def _time_rounds(
    split: Split, bandwidth: float, carry: float, beyond: float, p: int, bundles: DecodeBundles
) -> tuple[float, float, float]:
    """Return the same for rounds that fill all bundles, each with an equal share of `bandwidth`."""
    number = bundles.number[p]
    at_once, port = number * split.resident, bandwidth / number
    rounds = np.floor(split.blocks / at_once)
    rest = split.blocks - rounds * at_once
    total, begins = 0.0, rounds
    if rounds > 0.0:
        whole = rounds + (rest / at_once if split.steps.even else 0.0)
        total += whole * _time_round(split, split.steps.work, at_once, number, port, carry, beyond)
    if rest > 0.0 and not (split.steps.even and rounds > 0.0):
        total += _time_round(split, split.steps.work, rest, number, port, carry, beyond)
        begins += 1.0
    return total, begins, np.ceil(split.blocks / number)


@kernel
def _count_read(work: Decodes, g: int, in_pages: bool) -> float:
    """Return the keys of a sequence that main memory serves; in_pages: whether whole pages are read."""
    visible = count_visible(work, g)
    page = LATENT_PAGE if work.head_dim[g] > WIDEST else PAGE
    return float(np.ceil(visible / page) * page if in_pages else visible)


@kernel
def _time_split(
    work: Decodes, g: int, split: Split, in_pages: bool, bundles: DecodeBundles, launch: float,
    times: Floats, moved: Floats,
) -> tuple[float, float]:  # fmt: skip
    """Return the time of kernel g as these blocks [s], and the number of waves.

    in_pages: whether it reads whole pages. Writes `times` and `moved`, columns of `Launched`.
    """
    p, last = work.point[g], len(moved) - 1
    number, memories, boosts = bundles.number[p], bundles.memories, bundles.boost.enabled[p]
    bandwidth, private = memories.bandwidth[p], max(memories.private[p], 0)
    sequences = float(work.sequences[g] * work.kv_heads[g]) * _count_read(work, g, in_pages)
    keys = sequences * work.head_dim[g] * work.cache[g]
    streamed = keys if work.shared[g] else keys + sequences * work.value_dim[g] * work.cache[g]
    port = bandwidth[private + 1] * (1.0 + (split.reading - 1.0) * work.hits[g])
    cached = memories.capacity[p, last - 1] if last - 1 > private else 0.0
    if work.shared[g] and split.rereads > cached:
        streamed *= 2.0
    steps, merge = split.steps, split.merge
    merge_time, reads = 0.0, split.blocks * (steps.number * steps.read + split.carried)
    if merge.parts > 1.0:  # written, and read
        merge_time = merge.sums / port if boosts else merge.read / (port / number)
        merge_time += merge.time
        reads += 2.0 * merge.sums
    misses = 1.0 - work.hits[g]
    for level in range(last + 1):
        moved[level] = reads if level <= private + 1 else streamed + split.blocks * split.fresh
        if level == last:
            moved[level] *= misses
        times[level + 1] = moved[level] / bandwidth[level]
    outer = split.reading * bandwidth[last]
    has_cache = last > private + 1
    if has_cache:
        times[last + 1] /= split.reading
    carry = split.fresh * misses / outer if has_cache else 0.0
    beyond = streamed * misses / split.blocks / outer if has_cache else 0.0

    if boosts:
        total, begins, waves = _time_even(split, port, carry, beyond, p, bundles)
    else:
        total, begins, waves = _time_rounds(split, port, carry, beyond, p, bundles)
    pace, _ = boost_of(waves * number / split.blocks, bundles.boost.threshold[p], bundles.boost.headroom[p])
    times[0] = split.blocks * steps.number * steps.work * pace / number
    before = split.launches * launch + split.once
    times[last + 2] = before + merge_time + begins * split.begin
    return float(merge_time + total + before), waves


@kernel
def run_decodes(work: Decodes, bundles: DecodeBundles, library: Library, out: Launched) -> None:
    """Write how a library runs each kernel."""
    levels = out.tile.shape[1]
    times, moved = np.empty(levels + 3), np.empty(levels + 1)
    for g in range(work.kv_len.size):
        p = work.point[g]
        number, boosts = bundles.number[p], bundles.boost.enabled[p]
        on_tiles = uses_tiles(work, g, number, boosts, library)
        holds_sums = on_tiles and library.persistent[p]
        most_threads = THREADS if on_tiles else count_threads(work, g, number)
        threads = THREADS if boosts else most_threads
        out.candidates[g] = 0
        while threads <= most_threads:
            most_parts = (
                count_tile_parts(work, g, bundles, library)
                if on_tiles
                else count_lane_parts(work, g, number, threads)
            )
            parts = 1.0 if boosts else most_parts
            while True:
                if holds_sums:
                    split = split_with_held_sums(work, g, bundles, library, parts)
                elif on_tiles:
                    split = split_on_tiles(work, g, bundles, library, parts)
                else:
                    split = split_on_lanes(work, g, bundles, library, threads, parts)
                time, waves = _time_split(
                    work, g, split, holds_sums, bundles, library.launch[p], times, moved
                )
                if out.candidates[g] == 0 or time < out.time[g]:
                    _write_split(work, g, split, time, waves, bundles, out)
                    out.times[g], out.bytes[g] = times, moved
                out.candidates[g] += 1
                if parts >= most_parts:
                    break
                parts = min(parts + max(1.0, np.floor(parts * FINENESS)), most_parts)
            threads *= 2.0


@kernel
def _write_split(
    work: Decodes, g: int, split: Split, time: float, waves: float, bundles: DecodeBundles, out: Launched
) -> None:
    """Write the row of kernel g that runs as these blocks."""
    p = work.point[g]
    slots, boost = waves * bundles.number[p], bundles.boost
    _, out.energy_ratio[g] = boost_of(slots / split.blocks, boost.threshold[p], boost.headroom[p])
    out.time[g], out.busy[g] = time, split.blocks / slots
    out.parts[g], out.waves[g] = int(split.merge.parts), int(min(np.ceil(waves), 2.0**62))
    for level in range(out.tile.shape[1]):
        is_shared = level > bundles.memories.private[p]
        out.tile[g, level, 0] = work.q_len[g] * work.heads[g] if is_shared else int(split.rows)
        out.tile[g, level, 1] = work.head_dim[g]
        out.tile[g, level, 2] = work.kv_len[g] if is_shared else int(split.steps.tokens)


@kernel
def _rotate(work: Decodes, number: Floats, boosts: Bools, library: Library) -> Bools:
    """Return whether each kernel contains the rotary embedding."""
    fused = np.empty(work.kv_len.size, dtype=np.bool_)
    for g in range(work.kv_len.size):
        p = work.point[g]
        tiles = uses_tiles(work, g, number[p], boosts[p], library)
        narrow = work.head_dim[g] <= WIDEST and work.q_len[g] == 1
        on_bytes = library.shared[p] and not library.persistent[p] and work.cache[g] < work.size[g]
        fused[g] = narrow and (not tiles or on_bytes)
    return fused


def fuses_rotary(device: Device, work: Decodes) -> Bools:
    """Return whether each kernel contains the rotary embedding and the write of the cache, (kernels,).

    TensorRT-LLM's kernels do on vector lanes, and on Hopper over caches of fp8.
    """
    return _rotate(work, device.instances, device.boost.enabled, device.library)


def time_decoding(device: Device, work: Decodes) -> Launched:
    """Time one launch of every attention [s], with the merge of its parts.

    Tiles are queries (of heads that share keys), head and tokens; parts are parts of the keys.
    """
    bundles = DecodeBundles(
        flops=device.matrix_flops,
        exponentials=device.special_functions,
        vector=device.vector_flops,
        instructions=device.issue,
        memories=device.memories,
        number=device.instances,
        boost=device.boost,
    )
    out = empty_launched(work.point.size, device.levels)
    run_decodes(work, bundles, device.library, out)
    return out
