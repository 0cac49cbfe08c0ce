"""Times of the kernels of linear attention: short convolutions, chunks of a recurrence, single steps of it.

They multiply little and issue many instructions: of loads, conversions, exchanges between lanes, and waits
for each other. So the least time is that of the instructions that the schedulers of all bundles issue, or of
the bytes that main memory moves. The instructions of an element are calibrated on gated delta nets and the
convolutions of Mamba-2 on an A100, an H100 and a B200 together (ai-dynamo/aiconfigurator@095f58a); the three
chips, two generations apart, agree within 15% where their clocks are counted, and not where their bytes or
their matrix units are.

Kernels of other mixers, and backward kernels, have as many instructions for each use of a state, and for each
column that they load or store. None of them was measured.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.memory_bound import run_passes

# A block of Dao-AILab/causal-conv1d@22a4577 has 128 threads, each with 8 tokens of one channel and sequence;
# it computes whole segments, and loads single tokens where the tokens are no multiple of 8
SEGMENT, VECTOR = 1024, 8
CONVOLUTION = 34.0
"""Instructions of a token and channel of a segment. Calibrated."""
SINGLE_LOADS = 1.58
"""Factor of these where tokens are loaded one by one. Calibrated."""
BLOCK = 18_600.0
"""Further instructions of a block, of all its threads: its start, and its end. Calibrated."""
SEGMENT_TRIPS = 5.7
"""Dependent trips through the memories for a segment: loads, exchanges with barriers, stores. Calibrated."""
SHORT_STEP, SHORT_TRIPS = 260.0, 7.0
"""Instructions of a channel, and trips, in a step of one token, whose window is in memory. Calibrated."""
RECURRENT, RECURRENT_TRIPS = 61.0, 3.4
"""Instructions of an element of the state, and trips, in a step of a single token. Calibrated."""
STATE_VISIT = 36.0
"""Instructions each time that a kernel of chunks multiplies by, loads or stores an element of a state.
Calibrated on gated delta nets, whose kernels do so four times a chunk (144 instructions)."""
COLUMN_VISIT = 10.0
"""Instructions for each column of 2 bytes that kernels of chunks load or store for a token: conversions,
decays, addresses. Calibrated on gated delta nets, whose kernels do so with 7 of a key and 6 of a value (65
for a column of either)."""
CHUNK_TRIPS = 1.4
"""Dependent trips of a kernel of chunks. Calibrated."""
CHUNK_WAIT = 0.93e-6
"""Least time from the state of a chunk to that of the next [s]. Calibrated."""
SCAN = 14.0
"""Instructions for an element of the state and token of the selective scan: product and exponential of its
decay, product with the input, conversion and share of the loads of key and query (4), its part of the scan of
pairs (2 products and sums in a thread's tokens, up and down) and of that over threads (2), product with the
query. Counted in state-spaces/mamba@1200d6e, csrc/selective_scan/selective_scan_fwd_kernel.cuh; no selective
scan was measured."""
LEAST_SCAN, MOST_SCAN = 128.0, 2048.0
"""Tokens that a block of the selective scan computes at once, of short and of long sequences (same file)."""


def time_convolution(
    device: Device, point: Ints, *, sequences: Floats, tokens: Floats, channels: Floats, moved: Floats,
    products: Floats,
) -> Launched:  # fmt: skip
    """Time causal convolutions over few tokens, of whole sequences; all columns are (kernels,).

    tokens: of a sequence; moved: bytes of all inputs and outputs; products: with the weights, 1 forward.
    """
    segments = np.ceil(tokens / SEGMENT)
    single = np.where(tokens % VECTOR > 0, SINGLE_LOADS, 1.0)
    blocks = _on_the_busiest(device, point, sequences * channels)
    instructions = blocks * (BLOCK + segments * SEGMENT * CONVOLUTION * single * products)
    return _run(device, point, moved, instructions, 1.0 + SEGMENT_TRIPS * segments)


def time_short_step(device: Device, point: Ints, *, channels: Floats, moved: Floats) -> Launched:
    """Time a single token of causal convolutions; channels: of all sequences; all are (kernels,)."""
    return _run(device, point, moved, SHORT_STEP * channels, np.full(point.size, SHORT_TRIPS))


def time_recurrent_step(device: Device, point: Ints, *, states: Floats, moved: Floats) -> Launched:
    """Time a single token of a recurrence; states: elements of all states; all are (kernels,).

    moved: bytes, the states read and written among them.
    """
    return _run(device, point, moved, RECURRENT * states, np.full(point.size, RECURRENT_TRIPS))


class Chunks(NamedTuple):
    """Recurrences in chunks; shape (kernels,)."""

    heads: Floats  # of all sequences
    chunks: Floats  # of a sequence
    tokens: Floats  # of a sequence
    states: Floats  # visits of elements of states, for each chunk of a head
    columns: Floats  # visits of columns, for each token of a head
    moved: Floats  # bytes
    launches: Floats  # kernels
    passes: Floats  # from chunk to chunk, one after the other


def time_chunks(device: Device, point: Ints, work: Chunks) -> Launched:
    """Time recurrences in chunks, whose states pass from chunk to chunk; only the heads share the wait."""
    instructions = work.heads * (
        work.chunks * work.states * STATE_VISIT + work.tokens * work.columns * COLUMN_VISIT
    )
    launched = run_passes(
        device, point, moved=work.moved, launches=work.launches,
        operations=_as_operations(device, point, instructions), trips=CHUNK_TRIPS * work.launches,
        late=work.launches,
    )  # fmt: skip
    idle = np.minimum(1.0, device.instances[point] / work.heads)
    waiting = work.passes * work.chunks * CHUNK_WAIT * idle
    times = launched.times.copy()
    times[:, -1] += waiting
    return launched._replace(time=launched.time + waiting, times=times)


def time_scan(
    device: Device, point: Ints, *, heads: Floats, tokens: Floats, states: Floats, moved: Floats,
    passes: Floats,
) -> Launched:  # fmt: skip
    """Time a selective scan, a block of threads for each head (channel); all columns are (kernels,).

    heads: of all sequences; tokens: of a sequence; states: elements of a head's state; moved: bytes; passes:
    operations over those of the forward pass.
    """
    at_once = np.clip(np.exp2(np.ceil(np.log2(tokens))), LEAST_SCAN, MOST_SCAN)
    chunks = np.ceil(tokens / at_once)
    blocks = _on_the_busiest(device, point, heads)
    instructions = blocks * chunks * at_once * states * SCAN * passes
    return _run(device, point, moved, instructions, 1.0 + SEGMENT_TRIPS * chunks)


def _on_the_busiest(device: Device, point: Ints, blocks: Floats) -> Floats:
    """Return the blocks of all bundles, if each had as many as the busiest."""
    bundles = device.instances[point]
    busiest: Floats = np.ceil(blocks / bundles) * bundles
    return busiest


def _as_operations(device: Device, point: Ints, instructions: Floats) -> Floats:
    """Return as many operations of vector lanes as take the time of the instructions."""
    operations: Floats = instructions / device.issue[point] * device.vector_flops[point]
    return operations


def _run(device: Device, point: Ints, moved: Floats, instructions: Floats, trips: Floats) -> Launched:
    """Return a kernel of one launch."""
    return run_passes(
        device, point, moved=moved, launches=np.ones(point.size),
        operations=_as_operations(device, point, instructions), trips=trips, late=1.0,
    )  # fmt: skip
