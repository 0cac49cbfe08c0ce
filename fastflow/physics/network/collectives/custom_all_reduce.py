"""Custom all-reduce of serving libraries: kernels that load from and store to peers' memory.

NCCL passes pieces on from rank to rank. Between few ranks and for few bytes a kernel is faster that reads the
tensors of all other ranks straight from their memory: vLLM (csrc/custom_all_reduce.cuh), SGLang and
TensorRT-LLM (customAllReduceKernels.cu) have these kernels, which need a package that links all ranks to all.

- One-shot: a barrier, loads of all of S from every peer, a barrier, so that no rank overwrites a buffer that
  others still read. All-reduce, as the next.
- Two-shot: a barrier, loads of S / n from every peer, whose sum a rank writes, a barrier behind a fence, and
  loads of the others' sums.
- Stores: a barrier, stores of S / n to every peer, a barrier behind a fence. All-to-all (TensorRT-LLM's
  one-sided kernels over NVLink).

A barrier is a flag that a rank stores with every peer and polls: a step of NCCL's LL, whose flags are the
same. Behind a fence it is a step of Simple. Loads take a step by LL before the first bytes are there. The
kernel's launch is that of any kernel in a graph. Loads reach but a share of the links, as few blocks of
threads wait for them; stores wait for nothing. Copies in a rank's memory overlap with these.

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
from fastflow.physics.network.collectives.nccl import ALL_ADJACENT, LL0, MACHINES, PAIRS0, RANKS, SIMPLE0
from fastflow.physics.workload.graph import ALL_REDUCE, ALL_TO_ALL, COLLECTIVES

NAMES = ("one-shot", "two-shot", "stores")
"""Of the algorithms, as results name them; numbered from nccl.TOTAL_ALGORITHMS on."""
ONE_SHOT, TWO_SHOT, STORES = range(nccl.TOTAL_ALGORITHMS, nccl.TOTAL_ALGORITHMS + len(NAMES))
TOTAL_ALGORITHMS = nccl.TOTAL_ALGORITHMS + len(NAMES)

BACKEND, NCCL, CUSTOM = "net.all_reduce_backend", "nccl", "custom"
MAX_RANKS = 8.0  # that an all-reduce is among: vLLM's, SGLang's and TensorRT-LLM's kernels are for no more

KEYS = ("chip.launch_overhead", "net.library.load")
"""Inputs of the scalars of these algorithms; in a row of a library they follow nccl.KEYS."""
LAUNCH, LOAD = range(len(nccl.KEYS), len(nccl.KEYS) + len(KEYS))
OFFERS = len(nccl.KEYS) + len(KEYS)  # 1 where these algorithms are offered, else 0
SCALARS = OFFERS + 1  # of a row


def backend_of(inputs: Inputs) -> Texts:
    """Return the all-reduce backend of every point, (points,): the library alone, or custom kernels too."""
    if BACKEND in inputs:
        return inputs[BACKEND]
    return broadcast_column(np.array([NCCL]), inputs["system.library"].size)


def check_backend(library: str, backend: str) -> None:
    """Refuse custom kernels without NCCL; raises InputError."""
    if backend == CUSTOM and library != "nccl":
        raise InputError(BACKEND, backend, f"{NCCL}; {CUSTOM} takes system.library=nccl")


def libraries_of(inputs: Inputs) -> tuple[Ints, Floats]:
    """Return the row of every point's scalars, -1 for no library, and the rows.

    Shapes (points,) and (libraries, SCALARS): nccl.KEYS, KEYS, and OFFERS. Raises KeyError where a network
    lacks the scalars.
    """
    library = inputs["system.library"]
    is_nccl: Bools = library == "nccl"
    if not is_nccl.any():
        return broadcast_column(np.full(1, -1), library.size), np.zeros((0, SCALARS))
    is_custom = is_nccl & (backend_of(inputs) == CUSTOM)
    columns = [
        *(where_read(is_nccl, inputs, key, 0.0) for key in nccl.KEYS),
        *(where_read(is_custom, inputs, key, 0.0) for key in KEYS),
        is_custom.astype(np.float64),
    ]
    first, inverse = unique_rows(columns, library.size)
    return np.where(is_nccl, inverse, -1), np.stack([column[first] for column in columns], axis=1)


def count_algorithms(libraries: Floats) -> int:
    """Return the number of priced algorithms: NCCL's, and these where any library has them."""
    if not libraries.size:
        return NUM_ALGORITHMS
    return TOTAL_ALGORITHMS if libraries[:, OFFERS].any() else nccl.TOTAL_ALGORITHMS


@kernel
def price_custom(group: Floats, library: Floats, bandwidth: float, latency: Floats, per_byte: Floats) -> None:
    """Write the latency [s] and the time per byte of S [s/B] of these algorithms, after NCCL's.

    group: an nccl.NcclTopology; library: scalars as of `libraries_of`; bandwidth: of a device's links
    within the package, one direction [B/s]; latency, per_byte: shape (collectives, TOTAL_ALGORITHMS), or
    fewer algorithms where no library has these. Writes nothing where they are not offered, or for one rank.
    """
    ranks = group[RANKS]
    if library[OFFERS] == 0.0 or ranks == 1.0 or group[MACHINES] > 1.0 or group[ALL_ADJACENT] == 0.0:
        return
    barrier, fenced_barrier, launch = library[LL0], library[SIMPLE0], library[LAUNCH]
    moving = group[PAIRS0] / bandwidth  # a byte from every peer
    latency[ALL_TO_ALL, STORES] = launch + barrier + fenced_barrier
    per_byte[ALL_TO_ALL, STORES] = moving / ranks
    if ranks <= MAX_RANKS:
        loading = moving / library[LOAD]
        latency[ALL_REDUCE, ONE_SHOT] = launch + barrier + barrier + barrier
        per_byte[ALL_REDUCE, ONE_SHOT] = loading
        latency[ALL_REDUCE, TWO_SHOT] = launch + barrier + barrier + fenced_barrier + barrier
        per_byte[ALL_REDUCE, TWO_SHOT] = 2.0 * loading / ranks


@lru_cache(maxsize=1024)
def sent(ranks: int) -> Floats:
    """Return the bytes that a rank sends on average [share of S], shape (collectives, NAMES)."""
    shares = np.zeros((len(COLLECTIVES), len(NAMES)))
    fraction = (ranks - 1) / ranks
    shares[ALL_REDUCE] = ranks - 1, 2.0 * fraction, 0.0
    shares[ALL_TO_ALL, STORES - nccl.TOTAL_ALGORITHMS] = fraction
    return shares
