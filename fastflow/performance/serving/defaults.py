"""Settings of servers that depend on the device."""

from __future__ import annotations

import numpy as np

from fastflow.core.dedupe import compute_unique
from fastflow.core.tables import Inputs
from fastflow.performance.kernel_times import HARDWARE
from fastflow.physics.hardware.chip import generate
from fastflow.physics.parallelism.memory.process import offered

REQUESTS, PINNED = "server.max_num_seqs", "chip.pinned.dram_capacity_B"
LARGE, SMALL = 1024, 256
LARGE_MEMORY = 70 * 2.0**30
_AS_SMALL = "A100"


def with_defaults(inputs: Inputs) -> Inputs:
    """Return the inputs of points that serve, with the largest number of requests where it is auto.

    It is 1,024 on a device of 70 GiB and more, but 256 on an A100 (vllm/engine/arg_utils.py, an API server).
    """
    is_auto = inputs[REQUESTS] == 0
    if not is_auto.any():
        return inputs
    if PINNED in inputs:
        capacity = inputs[PINNED]
    else:
        capacity = compute_unique(generate, inputs, *HARDWARE, cached=True).dram.capacity
    is_large = (offered(inputs, capacity) >= LARGE_MEMORY) & (
        np.char.find(inputs["chip.name"], _AS_SMALL) < 0
    )
    return {**inputs, REQUESTS: np.where(is_auto, np.where(is_large, LARGE, SMALL), inputs[REQUESTS])}
