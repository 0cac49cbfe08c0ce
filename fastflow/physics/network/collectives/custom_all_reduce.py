"""Exchanges as serving libraries run them: kernels of their own that load and store in peers' memory.

NCCL passes pieces on from rank to rank. Between few ranks and for few bytes it is faster that a kernel reads
what all others have straight from their memory, as vLLM (csrc/custom_all_reduce.cuh), SGLang and TensorRT-LLM
(customAllReduceKernels.cu) do, of which none is needed beyond a package that links all ranks with all others.

- One-shot: a barrier, loads of all of S from every peer, a barrier, so that nobody overwrites what others
  still read. All-reduce, as the next.
- Two-shot: a barrier, loads of S / n from every peer, whose sum a rank writes, a barrier behind a fence, and
  loads of the others' sums.
- Stores: a barrier, stores of S / n to every peer, a barrier behind a fence. All-to-all (TensorRT-LLM's
  one-sided kernels over NVLink).

A barrier is a flag that a rank stores with every peer and polls: a step of NCCL's LL, whose flags are the
same. Behind a fence it is a step of Simple. Loads take a step by LL before the first bytes are there. The
kernel's launch is that of any kernel in a graph. Loads reach but a share of the links, as few blocks of
threads wait for them; stores wait for nothing. What moves in a rank's own memory does so meanwhile.

NCCL's ways stay on offer: where they are faster, which is where S is large, the libraries call NCCL.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import InputError
from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints, Texts, broadcast_column, where_read
from fastflow.physics.network.collectives import nccl
from fastflow.physics.network.collectives.algorithms import WAYS
from fastflow.physics.network.collectives.nccl import LL0, MACHINES, PAIRS0, RANKS, REACHES, SIMPLE0
from fastflow.physics.workload.graph import ALL_REDUCE, ALL_TO_ALL, COLLECTIVES

NAMES = ("one-shot", "two-shot", "stores")
"""Of the ways, as results name them; numbered from nccl.ALL_WAYS on."""
ONE_SHOT, TWO_SHOT, STORES = range(nccl.ALL_WAYS, nccl.ALL_WAYS + len(NAMES))
ALL_WAYS = nccl.ALL_WAYS + len(NAMES)

EXCHANGE, LIBRARY, PEER = "net.exchange", "library", "peer"
MOST_RANKS = 8.0  # that an all-reduce is among: vLLM's, SGLang's and TensorRT-LLM's kernels are for no more

KEYS = ("chip.launch_overhead", "net.library.load")
"""What the scalars of these ways are read from; in a row of a library they follow nccl.KEYS."""
LAUNCH, LOAD = range(len(nccl.KEYS), len(nccl.KEYS) + len(KEYS))
OFFERS = len(nccl.KEYS) + len(KEYS)  # 1 where these ways are offered, else 0
SCALARS = OFFERS + 1  # of a row


def exchange_of(inputs: Inputs) -> Texts:
    """Return what runs every point's exchanges beside the library, (points,)."""
    if EXCHANGE in inputs:
        return inputs[EXCHANGE]
    return broadcast_column(np.array([LIBRARY]), inputs["system.library"].size)


def check_exchange(library: str, exchange: str) -> None:
    """Refuse these ways without a library beside them; raises InputError."""
    if exchange == PEER and library != "nccl":
        raise InputError(EXCHANGE, exchange, f"{LIBRARY}; peer takes system.library=nccl")


def libraries_of(inputs: Inputs) -> tuple[Ints, Floats]:
    """Return the row of every point's scalars, -1 where no library is meant, and the rows.

    Shapes (points,) and (libraries, SCALARS): nccl.KEYS, KEYS, and OFFERS. Raises KeyError where a network
    lacks the scalars.
    """
    name = inputs["system.library"]
    runs: Bools = name == "nccl"
    if not runs.any():
        return broadcast_column(np.full(1, -1), name.size), np.zeros((0, SCALARS))
    ours = runs & (exchange_of(inputs) == PEER)
    columns = [
        *(where_read(runs, inputs, key, 0.0) for key in nccl.KEYS),
        *(where_read(ours, inputs, key, 0.0) for key in KEYS),
        ours.astype(np.float64),
    ]
    first, place = unique_rows(columns, name.size)
    return np.where(runs, place, -1), np.stack([column[first] for column in columns], axis=1)


def ways_of(libraries: Floats) -> int:
    """Return how many ways are priced: NCCL's and these too, where anyone has them."""
    if not libraries.size:
        return WAYS
    return ALL_WAYS if libraries[:, OFFERS].any() else nccl.ALL_WAYS


@kernel
def price_peers(where: Floats, library: Floats, bandwidth: float, latency: Floats, per_byte: Floats) -> None:
    """Write the latency [s] and the time per byte of S [s/B] of these ways, beside those of NCCL.

    where: an nccl.Spread; library: scalars as `libraries_of` returns them; bandwidth: of a device's links
    within the package, one direction [B/s]; latency, per_byte: shape (collectives, ALL_WAYS), or fewer ways
    where nobody has these. Writes nothing where they are not offered, and nothing for a single rank.
    """
    ranks = where[RANKS]
    if library[OFFERS] == 0.0 or ranks == 1.0 or where[MACHINES] > 1.0 or where[REACHES] == 0.0:
        return
    flag, fenced, launch = library[LL0], library[SIMPLE0], library[LAUNCH]
    moving = where[PAIRS0] / bandwidth  # a byte from every peer
    latency[ALL_TO_ALL, STORES] = launch + flag + fenced
    per_byte[ALL_TO_ALL, STORES] = moving / ranks
    if ranks <= MOST_RANKS:
        loading = moving / library[LOAD]
        latency[ALL_REDUCE, ONE_SHOT] = launch + flag + flag + flag
        per_byte[ALL_REDUCE, ONE_SHOT] = loading
        latency[ALL_REDUCE, TWO_SHOT] = launch + flag + flag + fenced + flag
        per_byte[ALL_REDUCE, TWO_SHOT] = 2.0 * loading / ranks


@lru_cache(maxsize=1024)
def sent(ranks: int) -> Floats:
    """Return what a rank sends on average [share of S], shape (collectives, ways from nccl.ALL_WAYS on)."""
    found = np.zeros((len(COLLECTIVES), len(NAMES)))
    once = (ranks - 1) / ranks
    found[ALL_REDUCE] = ranks - 1, 2.0 * once, 0.0
    found[ALL_TO_ALL, STORES - nccl.ALL_WAYS] = once
    return found
