"""Times of sparse attention: every query attends to keys of its own, gathered one by one (6.1).

The queries of a token share no keys with those of the next token, so that a tile of matrix units has the
heads of a single token as rows. Kernels differ in their tiles:

- *whole tiles* (FlashMLA, deepseek-ai/FlashMLA), where keys are latent: 64 rows a bundle, padded; on chips
  whose bundles compute a tile in pairs, 128. A block has a token and loads its keys step by step, beside the
  products of the step before. In decode over a narrow cache it converts all keys that may be selected, and
  keys are divided evenly over the bundles;
- *narrow tiles* (TensorRT-LLM's generated kernels, in flashinfer-ai/flashinfer), where keys are latent: as
  many rows as heads, products in the cache's type, keys gathered as rows of a tensor (TMA), which takes them
  at a share of L2's bandwidth. vLLM runs them where bundles work in pairs, and the cache is narrow or heads
  are few;
- *tiles of heads that share keys*: whole instructions of 16 rows (native sparse attention, arXiv:2502.11089,
  section 3.4), and whole tiles of several queries where each attends to all keys.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.timing.attention.decode import ORDER_INSIDE
from fastflow.physics.timing.attention.decode_tiles import (
    MERGING_OF_TILES,
    READING,
    ROWS,
    ROWS_OF_UNIT,
    TOKENS,
    TRIPS_OF_TILES,
)
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import ORDER, Launched, empty_launched
from fastflow.physics.timing.tiling.tile_sets import PARTIAL_SUM_BYTES

FEWEST_ROWS = 8.0
"""Rows of the narrowest tile (tileSizeQ, TensorRT-LLM's generated kernels)."""
FEW_HEADS = 16
"""Heads up to which vLLM runs narrow tiles over a wide cache (vLLM 0.24, platforms/cuda.py)."""
SEPARATE_HEADS = 32
"""Heads from which prefill converts a narrow cache before the kernel (vLLM, MIN_HEADS_FOR_BF16_PREFILL)."""
GATHERING = 0.34
"""Share of L2's bandwidth at which rows of a tensor are gathered. Calibrated on 1,400 prefills of B200
(ai-dynamo/aiconfigurator@095f58a): 6.5 TB/s in bf16 and in fp8, whatever the heads."""
FEWEST_KEYS = 128.0
"""Keys of a part, at least, of narrow tiles."""
PART_KEYS, MOST_ROWS = 256.0, 32.0
"""Keys of a part of narrow tiles of up to so many rows, whatever the number of tokens: their sums go through
main memory, and another kernel merges them. Both follow from times that grow by 6.5 ns a head and token of
B200, in prefill as in decode (ai-dynamo/aiconfigurator@095f58a)."""
CONVERSION = 12.5
"""Instructions of a lane that convert an element of fp8 with a scale for 128: 50 cycles for 512 elements on
the 128 lanes of a bundle (deepseek-ai/FlashMLA, docs/20250929-hopper-fp8-sparse-deep-dive.md)."""
BACKWARD = 2.5
"""Products of the backward pass, over those of the forward pass: five for two."""
GRADIENT_BYTES = 4.0  # of an element of the keys' gradient, which blocks add up in fp32


class SparseAttentions(NamedTuple):
    """Sparse attention of tokens, each on the machine of a point; shape (kernels,)."""

    point: Ints
    sequences: Floats
    tokens: Floats  # queries of all sequences
    keys: Floats  # that a query attends to, in the mean
    most: Floats  # keys that a query may attend to
    stored: Floats  # keys of a sequence
    heads: Floats
    kv_heads: Floats
    head_dim: Floats  # of queries and keys
    value_dim: Floats
    latent: Bools  # values are columns of the keys, and one head of keys serves all
    selects: Bools  # a query has keys of its own
    size: Floats  # of an element of queries [B]
    cache: Floats  # of an element of the cache [B]
    output: Floats  # of an element of the output [B]
    decodes: Bools  # few tokens of each sequence

    @property
    def width(self) -> Floats:
        """Columns of a key and its value that are loaded, of one head."""
        columns: Floats = np.where(self.latent, self.head_dim, self.head_dim + self.value_dim)
        return columns


class _Blocks(NamedTuple):
    """Thread blocks of a kernel; shape (kernels,)."""

    number: Floats
    rows: Floats  # of a tile
    at_once: Floats  # blocks that run concurrently
    keys: Floats  # that a block computes
    work: Floats  # time of a key in a block [s]
    read: Floats  # the same for its load [s]
    divided: Bools  # keys are divided over idle bundles, and parts merged


def uses_narrow_tiles(device: Device, work: SparseAttentions) -> Bools:
    """Return whether each kernel has as many rows as heads, (kernels,)."""
    pairs = device.library.pair[work.point] > 1.0
    narrow: Bools = work.latent & pairs & ((work.cache < work.size) | (work.heads <= FEW_HEADS))
    return narrow


def converts_before(device: Device, work: SparseAttentions) -> Bools:
    """Return whether a pass before each kernel converts a narrow cache, (kernels,)."""
    many = ~work.decodes & ((work.heads >= SEPARATE_HEADS) | ~work.latent)
    before: Bools = (work.cache < work.size) & many & ~uses_narrow_tiles(device, work)
    return before


def time_sparse(device: Device, work: SparseAttentions) -> Launched:
    """Time one launch of every kernel [s]; tiles are rows, columns of a head, keys of a step."""
    return _run(device, work, np.ones(work.point.size), np.zeros(work.point.size))


def time_sparse_backward(device: Device, work: SparseAttentions) -> Launched:
    """Time the backward pass [s]: five products, and sums of the keys' gradients in L2, in fp32."""
    added = 2.0 * work.tokens * work.keys * work.kv_heads * work.width * GRADIENT_BYTES
    wide = work._replace(cache=work.size)  # in training, keys are activations
    return _run(device, wide, np.full(work.point.size, BACKWARD), added)


def _whole_tiles(device: Device, work: SparseAttentions, products: Floats) -> _Blocks:
    """Return blocks whose tiles are full for latent keys, and have whole instructions for others."""
    p, library = work.point, device.library
    number, pair = device.instances[p], np.where(work.latent, library.pair[p], 1.0)
    group = work.heads / work.kv_heads
    heads_alone = ROWS_OF_UNIT * np.ceil(np.minimum(group, ROWS) / ROWS_OF_UNIT)
    rows = np.where(work.latent | ~work.selects, ROWS, heads_alone)
    tiles = group / (rows * pair)
    tiles = np.where(work.latent | work.selects, np.ceil(tiles), tiles)
    converts = (work.cache < work.size) & ~converts_before(device, work)
    cache = np.where(converts, work.cache, work.size)
    at_once = number / pair
    key = 2.0 * rows * (work.head_dim + work.value_dim) * products / device.matrix_flops[p]
    computed = number * (key + rows / device.special_functions[p])
    # two blocks of a token share the conversion of its keys
    converted = CONVERSION * work.value_dim / np.minimum(2.0, tiles) * number / device.issue[p]
    keys = np.where(converts & work.latent, work.most, work.keys)
    return _Blocks(
        number=work.tokens * work.kv_heads * tiles,
        rows=rows * pair,
        at_once=at_once,
        keys=np.ceil(keys / TOKENS) * TOKENS,
        work=computed + np.where(converts, converted, 0.0),
        read=work.width * cache * at_once / _port(device, p),
        divided=converts | ~work.latent,
    )


def _narrow_tiles(device: Device, work: SparseAttentions, products: Floats) -> _Blocks:
    p = work.point
    number, rows = device.instances[p], np.maximum(work.heads, FEWEST_ROWS)
    rate = device.matrix_flops[p] * work.size / work.cache  # of the cache's type
    key = 2.0 * rows * (work.head_dim + work.value_dim) * products / rate
    return _Blocks(
        number=work.tokens,
        rows=rows,
        at_once=number,
        keys=work.keys,
        work=number * (key + rows / device.special_functions[p]),
        read=work.width * work.cache * number / (GATHERING * _port(device, p)),
        divided=np.ones(p.size, dtype=np.bool_),
    )


def _port(device: Device, point: Ints) -> Floats:
    """Return the bandwidth of the level beyond the bundles' own memories [B/s]."""
    level = np.maximum(device.memories.private[point], 0) + 1
    bandwidth: Floats = device.memories.bandwidth[point, level]
    return bandwidth


def _soft(a: Floats, b: Floats, order: float) -> Floats:
    longest = np.maximum(np.maximum(a, b), 1e-300)
    total: Floats = longest * ((a / longest) ** order + (b / longest) ** order) ** (1.0 / order)
    return total


class _Times(NamedTuple):
    """What a launch takes; shape (kernels,)."""

    inside: Floats  # time of all blocks [s]
    unique: Floats  # bytes of keys that main memory moves
    carried: Floats  # bytes of queries and outputs
    merge: Floats  # of parts [s]
    parts: Floats
    rounds: Floats


def _run(device: Device, work: SparseAttentions, products: Floats, added: Floats) -> Launched:
    """Return the launches; products: times those of a forward pass; added: further bytes of L2."""
    narrow = uses_narrow_tiles(device, work)
    columns = zip(_whole_tiles(device, work, products), _narrow_tiles(device, work, products), strict=True)
    blocks = _Blocks(*(np.where(narrow, few, whole) for whole, few in columns))
    p, library = work.point, device.library
    dram, port = READING * device.memories.bandwidth[p, -1], _port(device, p)
    parts = np.clip(blocks.at_once / blocks.number, 1.0, np.maximum(1.0, blocks.keys / FEWEST_KEYS))
    parts = np.where(blocks.divided, parts, 1.0)
    even = np.maximum(1.0, blocks.number * parts / blocks.at_once)
    rounds = np.where(blocks.divided, even, np.ceil(blocks.number / blocks.at_once))
    rows = blocks.rows * (work.head_dim * work.size + work.value_dim * work.output)
    begin = TRIPS_OF_TILES * library.latency[p] + rows * blocks.at_once / dram
    step = _soft(blocks.work, blocks.read, ORDER_INSIDE)
    sums = work.tokens * work.heads * work.value_dim * parts * PARTIAL_SUM_BYTES
    merging = library.launch[p] + MERGING_OF_TILES * library.latency[p]
    merging = merging + np.where(parts > 1.0, 2.0 * sums / port, 0.0)
    always = narrow & (work.heads <= MOST_ROWS)
    of_parts = work.tokens * work.heads * work.value_dim * np.ceil(work.most / PART_KEYS) * PARTIAL_SUM_BYTES
    merging = np.where(always, merging + 2.0 * of_parts / device.memories.bandwidth[p, -1], merging)
    stored = np.minimum(work.tokens * work.keys, work.sequences * work.stored)
    times = _Times(
        inside=rounds * (begin + blocks.keys / parts * step) + added / port,
        unique=stored * work.kv_heads * work.width * work.cache,
        carried=blocks.number * rows,
        merge=np.where(blocks.divided, merging, 0.0),
        parts=parts,
        rounds=rounds,
    )
    return _launched(device, work, blocks, times)


def _launched(device: Device, work: SparseAttentions, blocks: _Blocks, times: _Times) -> Launched:
    p, levels = work.point, device.levels
    out = empty_launched(p.size, levels)
    dram = READING * device.memories.bandwidth[p, -1]
    launch = device.library.launch[p] + times.merge
    out.time[:] = _soft(times.inside, times.unique / dram, ORDER) + launch
    gathered = blocks.number * blocks.keys * work.width * work.cache + times.carried
    private = np.maximum(device.memories.private[p], 0)
    for level in range(levels + 1):
        served = np.where(level <= private + 1, gathered, times.unique + times.carried)
        out.bytes[:, level] = served
        out.times[:, level + 1] = served / device.memories.bandwidth[p, level]
    out.times[:, 0] = blocks.number * blocks.keys * blocks.work / blocks.at_once
    out.times[:, levels + 2] = launch + times.rounds * TRIPS_OF_TILES * device.library.latency[p]
    out.parts[:] = times.parts.astype(np.int64)
    out.waves[:] = np.minimum(np.ceil(times.rounds), 2.0**62).astype(np.int64)
    out.busy[:] = np.clip(blocks.number * times.parts / (times.rounds * blocks.at_once), 0.0, 1.0)
    out.candidates[:] = 1
    for column, size in enumerate((blocks.rows, work.head_dim, np.full(p.size, TOKENS))):
        out.tile[:, :, column] = size.astype(np.int64)[:, None]
    return out
