"""Which kernels run the experts of a server: `server.moe_backend`, or what its library takes by itself.

Libraries choose by the type of the experts and by the chip: some kernels are for tensor memory (Blackwell).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.tables import Bools, Inputs, Ints, Texts
from fastflow.physics.workload.models.transformer.served_experts import (
    CUTLASS,
    DEEPGEMM,
    TRITON,
    TRITON_KERNELS,
    TRTLLM,
    TUNED,
)
from fastflow.physics.workload.precision import stored_experts
from fastflow.schema.servers import AUTO, MOE_BACKEND, MOE_LIBRARY

PADDED = "fp8_block"
"""Type of experts that DeepGEMM multiplies."""
THIN = 8  # devices that share an expert
OF_TENSOR_MEMORY = (TRTLLM, TUNED)
BEFORE_BLACKWELL: Mapping[str, Mapping[str, str]] = {
    "trtllm": {"": CUTLASS, PADDED: DEEPGEMM, "mxfp4": TRITON_KERNELS},
    "vllm": {"": TRITON, PADDED: DEEPGEMM},
    "sglang": {"": TRITON},
}
"""By library and type of the experts ("": any other)."""
ON_BLACKWELL: Mapping[str, Mapping[str, str]] = {
    "trtllm": {"": CUTLASS, PADDED: TRTLLM, "nvfp4": TRTLLM, "mxfp4": TRTLLM},
    "vllm": {"": TRITON, PADDED: TRTLLM, "nvfp4": TRTLLM, "mxfp4": TRTLLM},
    "sglang": {"": TRITON, PADDED: TRTLLM, "nvfp4": TRTLLM, "mxfp4": TRTLLM},
}


def expert_kernels(inputs: Inputs, tensor: Ints) -> Texts:
    """Return the kernels of every server's experts, (servers,); tensor: devices that share a layer.

    Where experts are so thin that blocks of DeepGEMM are mostly empty, vLLM takes Triton's kernels
    (vllm-project/vllm#29346).
    """
    types, chosen, library = stored_experts(inputs), inputs[MOE_BACKEND], inputs[MOE_LIBRARY]
    has_tensor_memory: Bools = inputs["chip.blocks.pair"] > 1.0
    names, number = factorize(np.char.add(np.char.add(library.astype(np.str_), " "), types.astype(np.str_)))
    kernels = np.full(types.size, CUTLASS, dtype=np.dtype("<U16"))
    for i, name in enumerate(names):
        library_name, _, dtype = str(name).partition(" ")
        for table, rows in ((BEFORE_BLACKWELL, ~has_tensor_memory), (ON_BLACKWELL, has_tensor_memory)):
            of_library = table[library_name]
            kernels[(number == i) & rows] = of_library.get(dtype, of_library[""])
    is_thin = (library == "vllm") & (tensor >= THIN) & (kernels == DEEPGEMM)
    kernels[is_thin] = TRITON
    is_named = chosen != AUTO
    kernels[is_named] = chosen[is_named]
    kernels[~has_tensor_memory & np.isin(kernels, OF_TENSOR_MEMORY)] = CUTLASS
    return kernels
