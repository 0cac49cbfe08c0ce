"""Times of the kernels of linear attention: short convolutions, chunks of a recurrence, single steps of it.

They multiply little and issue many instructions: of loads, conversions, exchanges between lanes, and waits
for each other. So the least time is that of the instructions that the schedulers of all bundles issue, or of
the bytes that main memory moves. The instructions of an element are calibrated on gated delta nets and the
convolutions of Mamba-2 on an A100, an H100 and a B200 together (ai-dynamo/aiconfigurator@095f58a); the three
chips, two generations apart, agree within 15% where their clocks are counted, and not where their bytes or
their matrix units are.
"""

from __future__ import annotations

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
CHUNK = 144.0
"""Instructions of an element of the state for each chunk of tokens. Calibrated."""
TOKEN = 65.0
"""Instructions of a key's and a value's column for each token of a chunk. Calibrated."""
CHUNK_TRIPS = 1.4
"""Dependent trips of a kernel of chunks. Calibrated."""


def time_convolution(
    device: Device, point: Ints, *, sequences: Floats, tokens: Floats, channels: Floats, moved: Floats
) -> Launched:
    """Time causal convolutions over few tokens, of whole sequences; all columns are (kernels,).

    tokens: of a sequence; moved: bytes of all inputs and outputs.
    """
    segments = np.ceil(tokens / SEGMENT)
    single = np.where(tokens % VECTOR > 0, SINGLE_LOADS, 1.0)
    blocks = _on_the_busiest(device, point, sequences * channels)
    instructions = blocks * (BLOCK + segments * SEGMENT * CONVOLUTION * single)
    return _run(device, point, moved, instructions, 1.0 + SEGMENT_TRIPS * segments)


def time_short_step(device: Device, point: Ints, *, channels: Floats, moved: Floats) -> Launched:
    """Time a single token of causal convolutions; channels: of all sequences; all are (kernels,)."""
    return _run(device, point, moved, SHORT_STEP * channels, np.full(point.size, SHORT_TRIPS))


def time_recurrent_step(device: Device, point: Ints, *, states: Floats, moved: Floats) -> Launched:
    """Time a single token of a recurrence; states: elements of all states; all are (kernels,).

    moved: bytes, the states read and written among them.
    """
    return _run(device, point, moved, RECURRENT * states, np.full(point.size, RECURRENT_TRIPS))


def time_chunks(
    device: Device, point: Ints, *, heads: Floats, chunks: Floats, tokens: Floats, key: Floats, value: Floats,
    moved: Floats, launches: Floats, step: float,
) -> Launched:  # fmt: skip
    """Time a recurrence in chunks, whose states pass from chunk to chunk; all columns are (kernels,).

    heads: of all sequences; chunks, tokens: of a sequence; key, value: columns of a head; moved: bytes;
    launches: kernels; step: least time of a chunk, which only the heads share [s].
    """
    instructions = heads * (chunks * key * value * CHUNK + tokens * (key + value) * TOKEN)
    launched = run_passes(
        device, point, moved=moved, launches=launches, operations=_as_operations(device, point, instructions),
        trips=CHUNK_TRIPS * launches,
    )  # fmt: skip
    idle = np.minimum(1.0, device.instances[point] / heads)
    waiting = chunks * step * idle
    times = launched.times.copy()
    times[:, -1] += waiting
    return launched._replace(time=launched.time + waiting, times=times)


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
        operations=_as_operations(device, point, instructions), trips=trips,
    )  # fmt: skip
