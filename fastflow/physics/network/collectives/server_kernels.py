"""All-reduce kernels of a serving library, and which of them it runs: by ranks, bytes and architecture.

A library chooses by thresholds, not by the fastest: this module has the times of its kernels as they are, and
the thresholds of each library. In use, serving takes the fastest of a backend's and NCCL's
(`custom_all_reduce`).

Kernels are those of `custom_all_reduce`, two-shot with whole round trips; and `symmetric`: PyTorch's
symmetric memory between two ranks, where copies are around loads and stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Ints
from fastflow.physics.network.collectives.custom_all_reduce import (
    IN_FLIGHT,
    LATER,
    LOAD,
    ROUND_TRIP,
    latency_of,
    loaded,
    pushed,
    pushed_twice,
    staged,
    summed_in_switch,
)
from fastflow.physics.network.collectives.nccl import LL0, PAIRS0, RANKS, REDUCE

NAMES = ("nccl", "one-shot", "two-shot", "pushed", "pushed twice", "multimem", "symmetric")
NCCL, ONE_SHOT, TWO_SHOT, PUSHED, PUSHED_TWICE, MULTIMEM, SYMMETRIC = range(len(NAMES))
KIB, MIB = 1024, 1024 * 1024


@kernel
def kernel_time(
    number: int, size: float, group: Floats, library: Floats, bandwidth: float, memory: float
) -> float:
    """Return the time of one of a library's kernels over `size` bytes [s]; infinity for NCCL's.

    group: an nccl.NcclTopology within a package; library: scalars as of custom_all_reduce.libraries_of;
    bandwidth: of a device's links, one direction [B/s]; memory: of its main memory [B/s].
    """
    ranks, moving = group[RANKS], group[PAIRS0] / bandwidth
    part: float = size / ranks
    if number == ONE_SHOT:
        return latency_of(library, 1) + size * loaded(library, moving)
    if number == TWO_SHOT:
        trips: float = np.ceil(part / IN_FLIGHT) * (ranks - 1.0) * ROUND_TRIP * library[LL0]
        on_links: float = part * moving / library[LOAD]
        return latency_of(library, 2) + part * loaded(library, moving) + max(trips, on_links)
    latency, byte_s = np.inf, 0.0
    if number == PUSHED:
        latency, byte_s = pushed(library, moving)
    elif number == PUSHED_TWICE:
        latency, byte_s = pushed_twice(ranks, library, moving, memory)
    elif number == MULTIMEM and library[REDUCE] > 0.0:
        latency, byte_s = staged(library, summed_in_switch(ranks, library, bandwidth), memory)
    elif number in (MULTIMEM, SYMMETRIC):
        latency, byte_s = staged(library, 2.0 * moving / ranks / library[LOAD], memory)
    return latency + size * byte_s


def _shots(size: Floats, ranks: int) -> Ints:
    """Return one-shot up to what two-shot is for, as vLLM and SGLang have it (csrc/custom_all_reduce.cuh)."""
    limit = np.inf if ranks == 2 else 512 * KIB if ranks <= 4 else 256 * KIB
    return np.where(size < limit, ONE_SHOT, TWO_SHOT)


def _sglang(size: Floats, ranks: int, architecture: str) -> Ints:
    """SGLang: up to 8 MiB (custom_all_reduce.py); its symmetric memory is off by default."""
    return np.where(size <= 8 * MIB, _shots(size, ranks), NCCL)


_VLLM_CUSTOM = {
    "hopper": {2: 64 * MIB, 4: 32 * MIB, 6: MIB // 2, 8: MIB // 4},
    "blackwell": {2: 2 * MIB, 4: 2 * MIB, 6: MIB, 8: MIB},
}
_VLLM_SYMMETRIC = {
    "hopper": {2: 64 * MIB, 4: 32 * MIB, 6: 64 * MIB, 8: 64 * MIB},
    "blackwell": {2: 8 * MIB, 4: 32 * MIB, 6: 128 * MIB, 8: 128 * MIB},
}


def _vllm(size: Floats, ranks: int, architecture: str) -> Ints:
    """Return vLLM's choice: below 8 MiB, less where symmetric memory takes over (all_reduce_utils.py)."""
    custom = min(8 * MIB, _VLLM_CUSTOM.get(architecture, {}).get(ranks, 8 * MIB))
    symmetric = _VLLM_SYMMETRIC.get(architecture, {}).get(ranks, 0)
    summed = MULTIMEM if ranks > 2 else SYMMETRIC
    return np.where(size < custom, _shots(size, ranks), np.where(size < symmetric, summed, NCCL))


_TRTLLM_TWICE = {
    "hopper": {2: 32 * MIB, 4: 2 * MIB, 8: MIB // 2},
    "blackwell": {2: 32 * MIB, 4: 4 * MIB, 8: 2 * MIB},
}
_TRTLLM_EARLIER = {2: 2.0e6, 4: 1.0e6, 8: 0.5e6}


def _trtllm(size: Floats, ranks: int, architecture: str) -> Ints:
    """Return TensorRT-LLM's choice, AUTO without its tuner (customAllReduceUtils.h, 2-byte elements).

    Before Hopper: one-shot below 1 MB among four and 0.5 MB among eight (allreduceOp.cpp of 1.0); between two
    ranks the source has its workspace of 16 MB as the limit, and A100 as measured 2 MB.
    """
    if architecture not in LATER:
        return np.where(size < _TRTLLM_EARLIER.get(ranks, 0.5e6), PUSHED, NCCL)
    workspace = 16.0e6 if ranks == 2 else 8.0e6
    twice = _TRTLLM_TWICE[architecture].get(ranks, MIB // 2)
    return np.where(size <= workspace, np.where(size < twice, PUSHED, PUSHED_TWICE), NCCL)


SERVERS: Mapping[str, Callable[[Floats, int, str], Ints]] = {
    "sglang": _sglang,
    "trtllm": _trtllm,
    "vllm": _vllm,
}
"""Name of a serving library to the kernels that it runs, of NAMES: by sizes [B], ranks, and architecture."""
