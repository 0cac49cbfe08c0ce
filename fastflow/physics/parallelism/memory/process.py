"""What a process occupies of a device's memory beside tensors, and what of the memory it is offered.

A driver keeps a share of main memory for page tables, firmware and error correction. Of the rest a process
holds a context (the code of libraries' kernels, stacks), workspaces of libraries, and the buffers of every
communicator of its collectives. Its allocator holds pieces between tensors that no tensor fits into
(fragmentation).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints

OFFERED, RESERVE = "chip.dram_offered", "memory.reserve"
NCCL = "nccl"


class Process(NamedTuple):
    """Memory of a process on one device beside tensors; (points,)."""

    context: Floats  # [B]
    communicators: Floats  # buffers of all of them [B]
    workspace: Floats  # of libraries, which the allocator holds [B]
    fragmentation: Floats  # share of what the allocator has given out


def offered(inputs: Inputs, capacity: Floats) -> Floats:
    """Return the memory of a device that a process may fill [B], (points,).

    capacity: of main memory [B]; inputs: `chip.dram_offered`, `memory.reserve`.
    """
    available: Floats = capacity * inputs.get(OFFERED, 1.0) * (1.0 - inputs[RESERVE])
    return available


def process_of(inputs: Inputs, communicators: Ints) -> Process:
    """Return what every point's process occupies, (points,).

    communicators: parallel dimensions of more than one device, (points,); inputs: `memory.context`,
    `.communicator`, `.groups`, `.workspace`, `.fragmentation`, `system.library`.
    """
    return Process(
        context=inputs["memory.context"],
        communicators=buffers_of(inputs, communicators * inputs["memory.groups"]),
        workspace=inputs["memory.workspace"],
        fragmentation=inputs["memory.fragmentation"],
    )


def buffers_of(inputs: Inputs, communicators: Ints) -> Floats:
    """Return the buffers of every point's communicators, of which only NCCL has any [B], (points,)."""
    return np.where(inputs["system.library"] == NCCL, communicators * inputs["memory.communicator"], 0.0)


def count_communicators(degrees: Ints) -> Ints:
    """Return the parallel dimensions of more than one device that a device is in, (points,).

    degrees: of every dimension, by layouts of layers, (points, layouts, dimensions).
    """
    count: Ints = (degrees > 1).any(axis=1).sum(axis=1)
    return count
