"""Types of kernel: a file each, which ends in its entry and is registered here."""

from fastflow.core.registry import Registry
from fastflow.physics.workload.network import KernelType
from fastflow.physics.workload.ops import (
    attention,
    batched_gemm,
    elementwise,
    embedding,
    gemm,
    grouped_gemm,
    kv_cache,
    linear_attention,
    moe_passes,
    pointwise,
    quantize,
    rowwise,
)

_MODULES = (gemm, batched_gemm, embedding, elementwise, rowwise, quantize, attention, kv_cache, grouped_gemm)
TYPES: Registry[KernelType] = Registry(
    "type",
    "kernel_types",
    lambda thing: isinstance(thing, KernelType),
    "a fastflow.physics.workload.network.KernelType",
    {module.TYPE.name: module.TYPE for module in _MODULES}
    | moe_passes.TYPES
    | linear_attention.TYPES
    | pointwise.TYPES,
)
"""By their names in graph files."""
