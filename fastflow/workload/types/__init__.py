"""Types of kernel: a file each, which ends in its entry and has its name here."""

from fastflow.workload.layers import KernelType
from fastflow.workload.types import batched_product, elementwise, lookup, product, rowwise

_EVERY = (product, batched_product, lookup, elementwise, rowwise)
TYPES: dict[str, KernelType] = {one.TYPE.name: one.TYPE for one in _EVERY}
"""By their names in files."""
