"""The filter of top-p sampling: the most probable columns of a row, whose probabilities sum to p, stay.

Chats draw tokens so. Each device of a tensor-parallel group filters whole rows of logits, in fp32.

*Sort*: PyTorch sorts each row (`torch.sort`, a radix sort) and sums its softmax, as vLLM does before version
0.16 (vllm/v1/sample/ops/topk_topp_sampler.py). *Search*: kernels look for the least probability that stays,
in a few rounds (FlashInfer, arXiv:2501.01005).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.memory_bound import run_passes
from fastflow.physics.workload.network import KernelType
from fastflow.physics.workload.ops.rowwise import TYPE as ROWWISE
from fastflow.physics.workload.sharding_rules import Share


class Filter(NamedTuple):
    """Kernels of a filter, for each of the elements of its rows."""

    moved: float  # [B]
    bandwidth: float  # share of that of a pass which they reach
    flop: float
    launches: float


NO_FILTER, SORT, SEARCH = FILTER_NAMES = ("none", "sort", "search")
FILTERS: Mapping[str, Filter] = {
    # Cast and temperature 14 B, indices 8; six rounds of a sort by six bits, which read keys, then keys and
    # indices of 64 bits, and write both: 28 each; softmax, sum, mask and scatter 50; softmax, noise, quotient
    # and maximum 32. A round writes runs of a few numbers. The share is calibrated on the points of 2025 of
    # ../shared/measurements/energy_served.csv (H100, vLLM 0.11), whose clients ask for top-p sampling
    SORT: Filter(272.0, 0.4, 50.0, 30.0),
    SEARCH: Filter(38.0, 1.0, 20.0, 5.0),  # cast and temperature 14 B, softmax 12, three rounds of 4
}


def _time(name: str, device: Device, share: Share) -> tuple[Launched, Floats]:
    filtering, elements = FILTERS[name], share.elements
    flop, launches = filtering.flop * elements, np.full(elements.size, filtering.launches)
    launched = run_passes(
        device, share.device, moved=filtering.moved / filtering.bandwidth * elements, launches=launches,
        operations=flop, trips=launches, late=launches,
    )  # fmt: skip
    return launched._replace(bytes=filtering.bandwidth * launched.bytes), flop


TYPES: Mapping[str, KernelType] = {
    name: replace(ROWWISE, name=f"top_p_{name}", title=f"top-p {name}", time=partial(_time, name))
    for name in FILTERS
}
