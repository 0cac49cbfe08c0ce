"""Which kernels run the experts of a server."""

import numpy as np
import pytest

from fastflow.performance.serving.expert_kernels import expert_kernels

HOPPER, BLACKWELL = "h100_sxm", "b200_sxm"


def kernels_of(compose, *overrides, tensor=1):
    point = compose("serve=decode", "model=deepseek_v3", "system=dgx_h100", *overrides)
    inputs = {key: np.array([value]) for key, value in point.items()}
    return str(expert_kernels(inputs, np.array([tensor]))[0])


@pytest.mark.parametrize(
    ("server", "chip", "dtype", "want"),
    [
        ("trtllm", HOPPER, "bf16", "cutlass"), ("trtllm", HOPPER, "fp8_block", "deepgemm"),
        ("trtllm", HOPPER, "mxfp4", "triton_kernels"), ("trtllm", BLACKWELL, "bf16", "cutlass"),
        ("trtllm", BLACKWELL, "fp8_block", "trtllm"), ("trtllm", BLACKWELL, "nvfp4", "trtllm"),
        ("vllm", HOPPER, "bf16", "triton"), ("vllm", HOPPER, "fp8", "triton"),
        ("vllm", HOPPER, "fp8_block", "deepgemm"), ("vllm", BLACKWELL, "fp8_block", "trtllm"),
        ("vllm", BLACKWELL, "mxfp4", "trtllm"), ("sglang", HOPPER, "fp8_block", "triton"),
        ("sglang", BLACKWELL, "nvfp4", "trtllm"), ("sglang", BLACKWELL, "bf16", "triton"),
    ],
)  # fmt: skip
def test_each_library_chooses_by_type_and_chip(compose, server, chip, dtype, want):
    assert kernels_of(compose, f"server={server}", f"chip={chip}", f"model.dtype={dtype}") == want


def test_thin_experts_of_vllm_are_not_of_deepgemm(compose):
    point = "server=vllm", f"chip={HOPPER}", "model.dtype=fp8_block"
    assert [kernels_of(compose, *point, tensor=tensor) for tensor in (4, 8)] == ["deepgemm", "triton"]


@pytest.mark.parametrize(
    ("asked", "before"), [("triton", "triton"), ("trtllm", "cutlass"), ("tuned", "cutlass")]
)
def test_kernels_that_are_asked_for_run_where_they_can(compose, asked, before):
    """Some need tensor memory."""
    got = [
        kernels_of(compose, "server=vllm", f"chip={chip}", "model.dtype=bf16", f"server.moe_backend={asked}")
        for chip in (HOPPER, BLACKWELL)
    ]
    assert got == [before, asked]
