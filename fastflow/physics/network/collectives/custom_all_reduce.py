"""Custom all-reduce of serving libraries: kernels that load from and store to peers' memory.

NCCL passes pieces on from rank to rank. Between few ranks and for few bytes a kernel is faster that reads the
tensors of all other ranks straight from their memory: vLLM and SGLang (csrc/custom_all_reduce.cuh) and
TensorRT-LLM (allReduceFusionKernels.cu) have these kernels, which need a package that links all ranks to all.

- One-shot: a barrier, loads of all of S from every peer, a barrier, so that no rank overwrites a buffer that
  others still read. All-reduce, as the next.
- Two-shot: a barrier, loads of S / n from every peer, whose sum a rank writes, a barrier behind a fence, and
  loads of the others' sums.
- Stores: a barrier, stores of S / n to every peer, a barrier behind a fence. All-to-all (TensorRT-LLM's
  one-sided kernels over NVLink).
- Pushed: TensorRT-LLM's one-shot. A rank stores all of S in a buffer of every peer, which polls the bytes
  themselves (Lamport); buffers take turns, so that no barrier follows. On LATER architectures it starts
  before the end of the kernel before, which hides its launch; earlier it has its launch and two steps.
- Pushed twice: its two-shot. A copy into a buffer, a barrier behind a fence, loads of S / n from every peer,
  stores of the sum to every peer, a barrier behind a fence, a copy out.
- Multimem: PyTorch's symmetric memory as vLLM uses it where a switch reduces, among three ranks or more. A
  copy in, a barrier behind a fence, sums in the switch, a copy out: three kernels.

A backend has its own of them: `trtllm` the pushes, `custom` (vLLM, SGLang) the other all-reduces, both the
stores.

A barrier is a flag that a rank stores with every peer and polls: a step of NCCL's LL, whose flags are the
same. Behind a fence it is FENCE of a step of Simple. Loads take a step by LL before the first bytes are
there. The kernel's launch is that of a kernel that waits for the end of the one before.

Loads: BLOCKS blocks of threads have 16 B a thread on the way, from every peer at a time, and wait for a round
trip, ROUND_TRIP steps by LL. So long messages are loaded IN_FLIGHT bytes a round trip, however fast the links
are, and no faster than `net.library.load` of the links. The sums of a two-shot kernel are gathered from one
peer after the other (each load's use is behind a condition), so that this takes n - 1 round trips at least:
most of the time of a two-shot kernel among eight ranks. Stores wait for nothing. Copies in a rank's memory
overlap with these.

NCCL's algorithms are offered too: where they are faster, which is where S is large, the libraries call NCCL.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import InputError
from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints, Texts, broadcast_column, where_read
from fastflow.physics.network.collectives import nccl
from fastflow.physics.network.collectives.algorithms import NUM_ALGORITHMS
from fastflow.physics.network.collectives.nccl import (
    ALL_ADJACENT,
    HAS_SWITCH,
    LL0,
    MACHINES,
    PAIRS0,
    RANKS,
    REDUCE,
    SIMPLE0,
)
from fastflow.physics.workload.graph import ALL_REDUCE, ALL_TO_ALL, COLLECTIVES

NAMES = ("one-shot", "two-shot", "stores", "pushed", "pushed twice", "multimem")
"""Of the algorithms, as results name them; numbered from nccl.TOTAL_ALGORITHMS on."""
ONE_SHOT, TWO_SHOT, STORES, PUSHED, PUSHED_TWICE, MULTIMEM = range(
    nccl.TOTAL_ALGORITHMS, nccl.TOTAL_ALGORITHMS + len(NAMES)
)
TOTAL_ALGORITHMS = nccl.TOTAL_ALGORITHMS + len(NAMES)

BACKEND, NCCL, CUSTOM, TRTLLM = "net.all_reduce_backend", "nccl", "custom", "trtllm"
LATER = ("hopper", "blackwell")
"""Architectures whose kernels start before the end of the one before (programmatic dependent launch), and
which the libraries have thresholds for."""
MAX_RANKS = 8.0  # that an all-reduce is among: vLLM's, SGLang's and TensorRT-LLM's kernels are for no more

BLOCKS, THREADS, LOAD_BYTES = 36, 512, 16  # of a kernel, a block, a load (csrc/custom_all_reduce.cuh of vLLM)
IN_FLIGHT = float(BLOCKS * THREADS * LOAD_BYTES)  # bytes of a tensor whose loads are on the way at a time
ROUND_TRIP = 1.39  # of a load from a peer's memory, in steps of LL
FENCE = 0.75  # of a barrier behind a fence, in steps of Simple
PUSH = 3.8  # of a pushed all-reduce whose launch is hidden, in steps of LL
"""Calibrated, with `net.library.load`: all-reduces of vLLM, SGLang and TensorRT-LLM on A100, H100 and B200
(ai-dynamo/aiconfigurator@095f58a); one value for all."""
STAIRS = 0.75  # of 1 + x, instead of x rounded up: prices are lines
COPIES = 4.0  # bytes of memory traffic for each of S that is copied in and out
SUM_COPIES = 3.0  # the same, where peers store what is copied out

KEYS = ("chip.launch_overhead", "chip.blocks.late_launch", "net.library.load")
"""Inputs of the scalars of these algorithms; in a row of a library they follow nccl.KEYS."""
LAUNCH, LATE_LAUNCH, LOAD = range(len(nccl.KEYS), len(nccl.KEYS) + len(KEYS))
OFFERS, IS_LATE = range(len(nccl.KEYS) + len(KEYS), len(nccl.KEYS) + len(KEYS) + 2)
"""Which algorithms are offered, of OF_CUSTOM and OF_TRTLLM, 0 for none; 1 for an architecture of LATER."""
OF_CUSTOM, OF_TRTLLM = 1.0, 2.0
SCALARS = IS_LATE + 1  # of a row


def backend_of(inputs: Inputs) -> Texts:
    """Return the all-reduce backend of every point, (points,): the library alone, or custom kernels too."""
    if BACKEND in inputs:
        return inputs[BACKEND]
    return broadcast_column(np.array([NCCL]), inputs["system.library"].size)


def check_backend(library: str, backend: str) -> None:
    """Refuse custom kernels without NCCL; raises InputError."""
    if backend != NCCL and library != "nccl":
        raise InputError(BACKEND, backend, f"{NCCL}; {backend} takes system.library=nccl")


def libraries_of(inputs: Inputs) -> tuple[Ints, Floats]:
    """Return the row of every point's scalars, -1 for no library, and the rows.

    Shapes (points,) and (libraries, SCALARS): nccl.KEYS, KEYS, OFFERS, IS_LATE. Raises KeyError where a
    network lacks the scalars.
    """
    library = inputs["system.library"]
    is_nccl: Bools = library == "nccl"
    if not is_nccl.any():
        return broadcast_column(np.full(1, -1), library.size), np.zeros((0, SCALARS))
    backend = backend_of(inputs)
    is_custom = is_nccl & (backend != NCCL)
    architecture = inputs.get("chip.architecture", np.full(library.size, ""))
    columns = [
        *(where_read(is_nccl, inputs, key, 0.0) for key in nccl.KEYS),
        *(where_read(is_custom, inputs, key, 0.0) for key in KEYS),
        np.where(is_custom, np.where(backend == TRTLLM, OF_TRTLLM, OF_CUSTOM), 0.0),
        (is_custom & np.isin(architecture, LATER)).astype(np.float64),
    ]
    first, inverse = unique_rows(columns, library.size)
    return np.where(is_nccl, inverse, -1), np.stack([column[first] for column in columns], axis=1)


def count_algorithms(libraries: Floats) -> int:
    """Return the number of priced algorithms: NCCL's, and these where any library has them."""
    if not libraries.size:
        return NUM_ALGORITHMS
    return TOTAL_ALGORITHMS if libraries[:, OFFERS].any() else nccl.TOTAL_ALGORITHMS


@kernel
def loaded(library: Floats, moving: float) -> float:
    """Return the time of loading from all peers at once, for a byte of each [s/B].

    library: scalars as of `libraries_of`; moving: time of a byte from every peer over the links [s/B].
    """
    waiting: float = ROUND_TRIP * library[LL0] / IN_FLIGHT
    on_links: float = moving / library[LOAD]
    return max(waiting, on_links)


@kernel
def latency_of(library: Floats, shots: int) -> float:
    """Return the latency of a one-shot or a two-shot kernel, without what grows with ranks or bytes [s]."""
    latency: float = library[LAUNCH] + library[LATE_LAUNCH] + 3.0 * library[LL0]
    if shots > 1:
        latency += FENCE * library[SIMPLE0]
    return latency


@kernel
def pushed(library: Floats, moving: float) -> tuple[float, float]:
    """Return the latency [s] and the time per byte [s/B] of a pushed all-reduce; arguments as of `loaded`."""
    hidden = PUSH * library[LL0]
    waited = library[LAUNCH] + library[LATE_LAUNCH] + 2.0 * library[LL0]
    return hidden if library[IS_LATE] > 0.0 else waited, moving / library[LOAD]


@kernel
def pushed_twice(ranks: float, library: Floats, moving: float, memory: float) -> tuple[float, float]:
    """Return the same of one that is pushed twice; memory: bandwidth of main memory [B/s]."""
    latency = library[LAUNCH] + 2.0 * FENCE * library[SIMPLE0] + ROUND_TRIP * library[LL0]
    return latency, 2.0 * moving / ranks / library[LOAD] + SUM_COPIES / memory


@kernel
def staged(library: Floats, summed: float, memory: float) -> tuple[float, float]:
    """Return the same of copies around sums that take `summed` [s/B]."""
    launches = 3.0 * (library[LAUNCH] + library[LATE_LAUNCH])
    return launches + FENCE * library[SIMPLE0], COPIES / memory + summed


@kernel
def summed_in_switch(ranks: float, library: Floats, bandwidth: float) -> float:
    """Return the time of sums in a switch that reduces [s/B], on links of a bandwidth [B/s]."""
    reached: float = library[REDUCE] * bandwidth
    return (1.0 + 1.0 / ranks) / reached


@kernel
def price_custom(
    group: Floats, library: Floats, bandwidth: float, memory: float, latency: Floats, per_byte: Floats
) -> None:
    """Write the latency [s] and the time per byte of S [s/B] of these algorithms, after NCCL's.

    group: an nccl.NcclTopology; library: scalars as of `libraries_of`; bandwidth: of a device's links
    within the package, one direction [B/s]; memory: of its main memory [B/s]; latency, per_byte: shape
    (collectives, TOTAL_ALGORITHMS), or fewer algorithms where no library has these. Writes nothing where they
    are not offered, or for one rank.
    """
    ranks, offers = group[RANKS], library[OFFERS]
    if offers == 0.0 or ranks == 1.0 or group[MACHINES] > 1.0 or group[ALL_ADJACENT] == 0.0:
        return
    moving = group[PAIRS0] / bandwidth  # a byte from every peer
    latency[ALL_TO_ALL, STORES] = library[LAUNCH] + library[LL0] + FENCE * library[SIMPLE0]
    per_byte[ALL_TO_ALL, STORES] = moving / ranks
    if ranks > MAX_RANKS:
        return
    latencies, bytes_s = latency[ALL_REDUCE], per_byte[ALL_REDUCE]
    if offers == OF_TRTLLM:
        latencies[PUSHED], bytes_s[PUSHED] = pushed(library, moving)
        latencies[PUSHED_TWICE], bytes_s[PUSHED_TWICE] = pushed_twice(ranks, library, moving, memory)
        return
    loading, gather = loaded(library, moving), STAIRS * (ranks - 1.0) * ROUND_TRIP * library[LL0]
    latencies[ONE_SHOT], bytes_s[ONE_SHOT] = latency_of(library, 1), loading
    latencies[TWO_SHOT] = latency_of(library, 2) + gather
    bytes_s[TWO_SHOT] = (loading + max(gather / IN_FLIGHT, moving / library[LOAD])) / ranks
    if ranks > 2.0 and group[HAS_SWITCH] > 0.0 and library[REDUCE] > 0.0:
        summed = summed_in_switch(ranks, library, bandwidth)
        latencies[MULTIMEM], bytes_s[MULTIMEM] = staged(library, summed, memory)


@lru_cache(maxsize=1024)
def sent(ranks: int) -> Floats:
    """Return the bytes that a rank sends on average [share of S], shape (collectives, NAMES)."""
    shares = np.zeros((len(COLLECTIVES), len(NAMES)))
    if ranks == 1:
        return shares
    fraction = (ranks - 1) / ranks
    shares[ALL_REDUCE] = ranks - 1, 2.0 * fraction, 0.0, ranks - 1, 2.0 * fraction, 1.0 + 1.0 / ranks
    shares[ALL_TO_ALL, STORES - nccl.TOTAL_ALGORITHMS] = fraction
    return shares
