"""Passes that a framework calls to quantise a product's operand: launches, operations, scales."""

import numpy as np
import pytest

import fastflow

SIZES = ("model.k=4096", "model.n=1024")
LAUNCH, LATE = 1.65e-6, 1.1e-6  # of a B200
LANES = 0.87 * 148 * 128 * 2 * 1.98e9  # its operations in fp32 [1/s]; to a percent


def product(dtype, *overrides, chip="b200_sxm"):
    frame = fastflow.evaluate("model=gemm", f"chip={chip}", f"model.dtype={dtype}", *SIZES, *overrides)
    return frame.time_s.to_numpy()


def quantising(dtype, *overrides, chip="b200_sxm"):
    """Time that quantising adds [s]."""
    first, then = product(dtype, "model.quantized=false,true", *overrides, chip=chip)
    return first - then


def test_products_that_read_activations_as_they_are_start_early():
    assert product("bf16", "chip.blocks.late_launch='0 s','10 us'").tolist() == pytest.approx(
        [product("bf16").item()] * 2
    )


@pytest.mark.parametrize(("dtype", "late"), [("fp8", 5), ("nvfp4", 2), ("fp8_block", 2)])
def test_a_late_launch_counts_for_each_pass_and_for_the_product(dtype, late):
    none, some = product(dtype, "model.m=64", "model.k=512", "chip.blocks.late_launch='0 s','10 us'")
    assert some - none == pytest.approx(late * 1e-5)


@pytest.mark.parametrize(("dtype", "operations"), [("fp8_block", 105), ("nvfp4", 49)])
def test_lanes_limit_the_passes_of_a_fast_memory(dtype, operations):
    small, large = (quantising(dtype, f"model.m={m}") for m in (8192, 16384))
    assert large - small == pytest.approx(8192 * 4096 * operations / LANES, rel=0.02)


@pytest.mark.parametrize("rows", [5, 63, 1025, 4095])
def test_scales_of_odd_rows_are_laid_out_anew(rows):
    even, odd = (quantising("fp8_block", f"model.m={m}") for m in (4 * -(-rows // 4), rows))
    assert 3 * (LAUNCH + LATE) < odd - even < 3 * (LAUNCH + LATE) + 4e-6


@pytest.mark.parametrize(
    ("rows", "overrides", "chip"),
    [(1, (), "b200_sxm"), (63, ("model.k=128",), "b200_sxm"), (63, (), "h100_sxm")],
)
def test_a_single_row_or_scale_and_lanes_that_scale_need_no_layout(rows, overrides, chip):
    even, odd = (quantising("fp8_block", f"model.m={m}", *overrides, chip=chip) for m in (64, rows))
    assert odd - even < 1e-6


def test_the_first_kernel_of_four_bits_is_slower_than_a_tuned_one():
    sizes = ("model.m=16", "model.k=65536", "tiling.tuned=true,false")
    tuned, first = product("nvfp4", *sizes)
    assert first > 5 * tuned
    for dtype in ("bf16", "fp8", "fp8_block"):
        assert np.ptp(product(dtype, *sizes)) == 0.0


def test_a_file_says_whether_its_products_were_tuned(tmp_path):
    path = tmp_path / "gemms.csv"
    row = "NVIDIA B200,nvfp4,16,512,65536,0.0001"
    path.write_text(f"device,dtype,m,n,k,time_s,tuned\n{row},\n{row},true\n{row},false\n")
    unsaid, tuned, first = fastflow.validate(f"measurements={path}", "system=dgx_b200").rows.predicted_s
    assert unsaid == first > 5 * tuned
    every = fastflow.validate(f"measurements={path}", "system=dgx_b200", "tiling.tuned=true").rows
    assert every.predicted_s.tolist()[:2] == [tuned, tuned]
