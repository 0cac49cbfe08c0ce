"""Updates that iterate on whole matrices: the type of their kernel, from that of the weights' product."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from fastflow.core.tables import Floats, Inputs, Texts
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.newton_schulz import time_iterations
from fastflow.physics.workload.data_types import WIDE
from fastflow.physics.workload.optimizers import MOVED, NEWTON_SCHULZ, PASSED
from fastflow.physics.workload.precision import first_type
from fastflow.physics.workload.sharding_rules import ShardingRule, Share


@lru_cache
def orthogonalized(rule: ShardingRule) -> ShardingRule:
    """Return the type of the update of a product's weights, sharded as they are."""
    return replace(rule, title="orthogonalised update", time=_time, times_update=True, dtype=_dtype,
                   stored=None, lanes=None, times_backward=False)  # fmt: skip


def _dtype(inputs: Inputs) -> Texts:
    """Return the type of the iterations: bf16, or the nearest wide type that a chip has; (points,)."""
    return first_type(inputs, WIDE, inputs["model.dtype"].size)


def _time(device: Device, share: Share) -> tuple[Launched, Floats]:
    """Time the passes and iterations of a device's matrices, with their share of the iterations' work."""
    size = share.attributes
    return time_iterations(
        device, share.device, sides=(np.minimum(share.m, share.n), np.maximum(share.m, share.n)),
        matrices=share.elements / (1.0 * share.m * share.n), iterations=size[NEWTON_SCHULZ],
        element=share.bytes.operand, moved=size[MOVED] * share.elements, passed=size[PASSED] * share.elements,
    )  # fmt: skip
