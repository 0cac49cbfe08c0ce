"""A pass of a framework's small kernel: a block of a row waits for dependent trips through the memories.

An elementwise pass, as an operator of PyTorch or a kernel of vLLM runs it: no other kernel starts before its
end, and its loads follow each other (indices, data, sums between threads, stores).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from fastflow.core.tables import Floats
from fastflow.physics.timing.device import Device
from fastflow.physics.timing.library.thread_blocks import Launched
from fastflow.physics.timing.linear_attention import SHORT_TRIPS
from fastflow.physics.timing.memory_bound import run_passes
from fastflow.physics.workload.network import forward_with_attributes
from fastflow.physics.workload.ops.elementwise import TYPE as PASS
from fastflow.physics.workload.precision import wide_type
from fastflow.physics.workload.sharding_rules import Share

INSTRUCTIONS = 61.0
"""Instructions of a lane for an element that a pass moves, where it computes addresses, converts or sums.
Calibrated on prefills of H100 and B200 together (ai-dynamo/aiconfigurator@095f58a), whose clocks and bundles
are alike and whose memories differ by 2.3 times."""


def _time(device: Device, share: Share) -> tuple[Launched, Floats]:
    elements, attributes = share.elements, share.attributes
    issued = elements * attributes["moves"] * attributes["instructions"]
    as_flop = issued / device.issue[share.device] * device.vector_flops[share.device]
    launched = run_passes(
        device, share.device, moved=elements * attributes["moves"] * share.bytes.activation,
        launches=np.ones(elements.size), operations=as_flop,
        trips=np.full(elements.size, SHORT_TRIPS), late=1.0,
    )  # fmt: skip
    return launched, elements * attributes["flop"]


TYPE = replace(
    PASS, name="short_pass", title="short pass", forward=partial(forward_with_attributes, PASS), time=_time,
    dtype=wide_type,
)  # fmt: skip
