"""Times of an indexer's kernels: its scores of all visible keys, and the selection of the highest ones.

*Scores* (DeepGEMM's fp8_mqa_logits, deepseek-ai/DeepGEMM): a product of all index heads with each key, whose
results pass a ReLU and are summed by weights on vector lanes. The accumulators that hold them are in use
until then, so that both times are added. Keys of a block of queries come in blocks of 256.

*Selection* (vLLM's top_k_per_row, persistent_topk): a block has a row. It counts the scores by their leading
bits, finds the bin that holds the k-th, and goes on in this bin. Where no more keys are visible than
selected, it writes all of them.
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.timing.attention.decode_tiles import READING, TRIPS_OF_TILES
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.memory_bound import run_passes

SCORE = 7.0
"""Instructions of a lane for a head's score of a key: maximum, multiply-add, and their share of moving and
adding. Calibrated on the prefills of H100 and B200 (ai-dynamo/aiconfigurator@095f58a): 7.1 and 6.5."""
BLOCK_KEYS = 256.0
"""Keys of a block (BLOCK_KV, deepseek-ai/DeepGEMM)."""
SCORE_BYTES, INDEX_BYTES = 4.0, 4.0  # a score in fp32, an index in int32
READS = 2.0
"""Times that a row's scores are read: to count them, and to write those above the bin of the k-th."""
RESIDENT_ROWS = 4.0
"""Rows at once on a bundle: blocks of 512 threads, 2,048 threads a bundle (NVIDIA CUDA programming guide)."""
BUNDLES_OF_ROW = 8.0
"""Bundles that have a row together in decode (vLLM's cooperative_topk and persistent_topk)."""
WRITING_TRIPS, SHARED_TRIPS, SELECTING_TRIPS = 4.0, 4.0, 30.0
"""Dependent trips of a row's block that writes all keys, of a row that bundles share, and of a block that
selects: four passes, with barriers. Calibrated on the decodes of H100 and B200 together
(ai-dynamo/aiconfigurator@095f58a)."""


def time_scores(
    device: Device, point: Ints, *, pairs: Floats, heads: Floats, dim: Floats, keys_moved: Floats,
    tokens: Floats,
) -> Launched:  # fmt: skip
    """Time the scores of all visible keys [s]; all columns are (kernels,).

    pairs: of queries and visible keys; keys_moved: bytes of keys that main memory moves;
    dim: columns of a head.
    """
    padded = pairs + 0.5 * BLOCK_KEYS * tokens
    products = 2.0 * padded * heads * dim / device.matrix_flops[point]
    instructions = padded * heads * SCORE / device.issue[point]
    written = pairs * SCORE_BYTES
    read = tokens * heads * (dim + SCORE_BYTES)
    return run_passes(
        device, point, moved=keys_moved / READING + written + read, launches=np.ones(point.size),
        operations=(products + instructions) * device.vector_flops[point],
        trips=np.full(point.size, TRIPS_OF_TILES), late=1.0,
    )  # fmt: skip


def time_selection(
    device: Device, point: Ints, *, tokens: Floats, visible: Floats, most: Floats, shared: Bools
) -> Launched:
    """Time the selection of the `most` highest of the visible scores of every token [s]; (kernels,).

    shared: several bundles have a row together, as in decode.
    """
    selects: Bools = visible > most
    at_once = np.where(shared, 1.0 / BUNDLES_OF_ROW, RESIDENT_ROWS) * device.instances[point]
    rounds = np.ceil(tokens / at_once)
    trips = np.where(selects, SELECTING_TRIPS, np.where(shared, SHARED_TRIPS, WRITING_TRIPS))
    trips = np.where(shared & selects, SELECTING_TRIPS + SHARED_TRIPS * (rounds - 1.0), rounds * trips)
    moved = np.where(selects, READS * visible * SCORE_BYTES, 0.0) + most * INDEX_BYTES
    return run_passes(
        device, point, moved=tokens * moved, launches=np.ones(point.size),
        operations=np.zeros(point.size), trips=trips, late=1.0,
    )  # fmt: skip
