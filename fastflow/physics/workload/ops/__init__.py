"""Types of kernel: a file each, which ends in its entry and has its name here."""

from fastflow.physics.workload.network import KernelType
from fastflow.physics.workload.ops import attention, elementwise, kv_cache, rowwise
from fastflow.physics.workload.ops import batched_gemm as batched_product
from fastflow.physics.workload.ops import embedding as lookup
from fastflow.physics.workload.ops import gemm as product
from fastflow.physics.workload.ops import grouped_gemm as experts
from fastflow.physics.workload.ops import linear_attention as linear_time
from fastflow.physics.workload.ops import moe_passes as expert_passes
from fastflow.physics.workload.ops import pointwise as operators
from fastflow.physics.workload.ops import quantize as quantise

_EVERY = (product, batched_product, lookup, elementwise, rowwise, quantise, attention, kv_cache, experts)
TYPES: dict[str, KernelType] = (
    {one.TYPE.name: one.TYPE for one in _EVERY} | expert_passes.TYPES | linear_time.TYPES | operators.TYPES
)
"""By their names in files."""
