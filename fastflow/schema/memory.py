"""Inputs of a device's memory: what a process occupies beside tensors (docs/memory.md)."""

from __future__ import annotations

from fastflow.core.field import Column, bounded, count, fraction, nonnegative, text

_MEMORY: tuple[Column, ...] = (
    text("memory.name", "what occupies a device's memory beside tensors"),
    nonnegative(
        "memory.context", "B", "context of a process on a device: code of libraries' kernels, stacks, tables"
    ),
    nonnegative("memory.workspace", "B", "workspaces of libraries, such as cuBLAS's"),
    nonnegative(
        "memory.communicator",
        "B",
        "buffers of a communicator, where system.library=nccl",
    ),
    count(
        "memory.groups", "communicators of a parallel dimension of more than one device, in training", high=64
    ),
    fraction(
        "memory.fragmentation",
        "memory that the allocator holds and cannot use, over what it has given out",
    ),
    Column("memory.reserve", "float", "", "share of a device's memory that stays free", 0.0, 0.95),
)
MEMORY = tuple(map(bounded, _MEMORY))
