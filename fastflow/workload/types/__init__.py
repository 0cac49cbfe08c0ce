"""Types of kernel: a file each, which ends in its entry and has its name here."""

from fastflow.workload.layers import KernelType
from fastflow.workload.types import (
    attention,
    batched_product,
    elementwise,
    expert_passes,
    experts,
    kv_cache,
    linear_time,
    lookup,
    operators,
    product,
    quantise,
    rowwise,
)

_EVERY = (product, batched_product, lookup, elementwise, rowwise, quantise, attention, kv_cache, experts)
TYPES: dict[str, KernelType] = (
    {one.TYPE.name: one.TYPE for one in _EVERY} | expert_passes.TYPES | linear_time.TYPES | operators.TYPES
)
"""By their names in files."""
