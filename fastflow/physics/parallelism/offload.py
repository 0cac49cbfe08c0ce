"""Offloading to the host: which tensors are in its memory or on its drives, and who updates the weights.

Offloaded tensors move over the link to the host, in both directions at once, during the kernels: the
optimizer's states and masters in and out for the update (Rajbhandari et al., ZeRO-Infinity,
arXiv:2104.07857), activations out after a layer's forward pass and in before its backward pass. Hidden layers
move their activations, or their checkpoints where they are recomputed (DeepSpeed's cpu_checkpointing,
deepspeed/runtime/activation_checkpointing/checkpointing.py). Activations of embedding and head are on the
device alone. Of weights that ZeRO 3 shards, each device gets its shard before a layer's forward pass and
before its backward pass, and puts its shard of the gradients out after it. Where the host updates weights
(DeepSpeedCPUAdam, Ren et al., ZeRO-Offload, arXiv:2101.06840), its memory is read and written instead, and
only gradients and new weights move.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import Reasons
from fastflow.core.tables import Bools, Floats, Inputs
from fastflow.physics.parallelism.defaults import frees_weights, zero_stage
from fastflow.physics.parallelism.options import OFFLOAD_DEVICES, OFFLOAD_UPDATES, OFFLOADS
from fastflow.physics.workload.optimizers import KEY as OPTIMIZER_KEY
from fastflow.physics.workload.optimizers import OPTIMIZERS

_, OPTIMIZER, ACTIVATIONS, WEIGHTS, ALL = OFFLOADS
NVME, HOST = OFFLOAD_DEVICES[1], OFFLOAD_UPDATES[1]


class Offload(NamedTuple):
    """Tensors in the host's memory; (points,)."""

    optimizer: Bools
    activations: Bools
    weights: Bools  # and their gradients
    updates: Bools  # whether the host updates the weights whose optimizer state it has
    bandwidth: Floats  # of a device's link to the host, one direction [B/s]
    nvme: Floats  # of drives where weights and optimizer state are, one direction; infinite without [B/s]
    host_memory: Floats  # that an update on the host reaches [B/s]


def offload_of(inputs: Inputs) -> Offload:
    """Return which tensors points offload, and where to.

    All of them are weights too where ZeRO 3 shards these, and frees them after each pass. inputs:
    `parallel.offload`, `.offload_device`, `.offload_update`, `.zero_stage`, `.reshard_after_forward`,
    `.host_bandwidth`, `.nvme_bandwidth`, `.host_memory_bandwidth`.
    """
    offloaded = inputs["parallel.offload"]
    weights = (offloaded == WEIGHTS) | ((offloaded == ALL) & frees_weights(inputs))
    optimizer = (offloaded == OPTIMIZER) | (offloaded == ALL) | weights
    on_drives = inputs["parallel.offload_device"] == NVME
    return Offload(
        optimizer=optimizer,
        activations=offloads_activations(offloaded),
        weights=weights,
        updates=optimizer & (inputs["parallel.offload_update"] == HOST),
        bandwidth=np.array(inputs["parallel.host_bandwidth"]),  # a column that kernels take
        nvme=np.where(on_drives, inputs["parallel.nvme_bandwidth"], np.inf),
        host_memory=inputs["parallel.host_memory_bandwidth"],
    )


def offloads_activations(offloaded: Any) -> Any:
    """Say whether activations are offloaded; offloaded: `parallel.offload`, of one point or of several."""
    return (offloaded == ACTIVATIONS) | (offloaded == ALL)


def refuse_offloads(inputs: Inputs, reason: Reasons) -> None:
    """Say for every point why it cannot offload weights, or update them on the host, (points,)."""
    key, offloaded, zero = "parallel.offload", inputs["parallel.offload"], zero_stage(inputs)
    for i in reason.without((offloaded == WEIGHTS) & (zero != 3)):
        allowed = "none, optimizer, activations or all, unless parallel.zero_stage=3 shards the weights"
        conflicts = [("parallel.zero_stage", zero[i])]
        reason.add(i, rejected(Code.SCHEDULE, key, offloaded[i], allowed, conflicts=conflicts))
    for i in reason.without((offloaded == WEIGHTS) & ~inputs["parallel.reshard_after_forward"]):
        allowed, conflicts = f"true where {key}={WEIGHTS}", [(key, WEIGHTS)]
        name = "parallel.reshard_after_forward"
        reason.add(i, rejected(Code.SCHEDULE, name, "false", allowed, conflicts=conflicts))
    offload, optimizer = offload_of(inputs), inputs[OPTIMIZER_KEY]
    if not offload.updates.any():
        return
    able = [name for name in OPTIMIZERS if OPTIMIZERS[name].on_host]
    for i in reason.without(offload.updates & ~np.isin(optimizer, able)):
        allowed = f"device where {OPTIMIZER_KEY}={optimizer[i]} (host: {', '.join(able)})"
        conflicts = [(OPTIMIZER_KEY, optimizer[i])]
        value = inputs["parallel.offload_update"][i]
        reason.add(i, rejected(Code.SCHEDULE, "parallel.offload_update", value, allowed, conflicts=conflicts))
