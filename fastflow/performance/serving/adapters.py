"""Adapters, or whole models, that requests of a trace name, and that share servers.

*LoRA*: the requests of an iteration have different adapters, and kernels multiply the rows of each with its
own narrow products (Punica, arXiv:2310.18547; S-LoRA, arXiv:2311.03285). Adapters are in the memory of
caches, as S-LoRA's unified paging has them. An iteration reads each adapter in use once, and has two further
kernels for each adapted product. Operations of adapters are left out: a hundredth of the model's at a rank
of 16.

*Models* of one architecture with weights of their own, as in a composition of experts (SambaNova SN40L,
arXiv:2405.07518): a pass computes with one model. An iteration with requests of several has a pass for each.
A further one is taken to need what a pass of one token takes beside attention: it reads all weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import map_values
from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.passes.parts import Passes
from fastflow.performance.serving.passes.step_time import Adapters
from fastflow.physics.workload.models.transformer.adapter_size import adapter_size
from fastflow.physics.workload.precision import OUTPUT_BYTES
from fastflow.schema.servers import ADAPTERS, LORA_RANK, OF_LORA, OF_MODELS

KERNELS = 2
"""Of each adapted product: A, and B with its sum (lora_shrink and lora_expand, vllm/lora/ops/triton_ops)."""


class ServedAdapters(NamedTuple):
    """Adapters of servers; (points,)."""

    bytes: Floats  # of a device [B]; 0: there are none
    time: Adapters  # in an iteration


def served_adapters(
    inputs: Inputs, layouts: ServerLayouts, passes: Passes, server: Ints, weights: Floats
) -> ServedAdapters:
    """Return the adapters of points; weights: of a model on a device [B], (points,).

    server: the row of each point in the passes.
    """
    kind = inputs[ADAPTERS]
    device_bytes, each_s, any_s = np.zeros((3, kind.size))
    rows = np.flatnonzero(kind == OF_LORA)
    if rows.size:
        weights_of_rank, products = adapter_size(inputs, rows, LORA_RANK)
        wide_bytes = map_values(OUTPUT_BYTES, inputs["model.dtype"][rows])
        of_rank = weights_of_rank * wide_bytes / layouts.tensor[rows]  # of all stages
        device_bytes[rows] = of_rank / layouts.slots[rows]
        bandwidth = passes.chip.dram.bandwidth[server[rows]] * inputs["chip.dram_utilization"][rows]
        each_s[rows] = of_rank / bandwidth
        any_s[rows] = KERNELS * products * inputs["chip.launch_overhead"][rows]
    rows = np.flatnonzero(kind == OF_MODELS)
    device_bytes[rows] = weights[rows]
    each_s[rows] = passes.times.shared[server[rows], 0] + passes.times.head[server[rows], 0]
    any_s[rows] = -each_s[rows]
    return ServedAdapters(device_bytes, Adapters(each_s, any_s))
