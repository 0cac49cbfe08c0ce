"""Types of weights alone: what products read, and what they compute in where a chip lacks a type."""

import numpy as np
import pytest

import fastflow
from fastflow.physics.workload.models.transformer.published import note_of_types
from fastflow.physics.workload.precision import expert_type, operands_of, product_type, wide_type

SERVED = ("serve=decode", "model=llama3_8b", "system.devices=1", "parallel.strategy=TP-1")
CACHES = {"bf16": 16, "fp8": 8, "int8": 8, "int4": 4 + 32 / 128, "nvfp4": 4 + 8 / 16}
"""Bits of a number in a cache: int4 has a scale and a zero point for a head, nvfp4 a scale for 16 numbers."""


def chips(*rates):
    """Return the inputs of chips that multiply in some types each."""
    names = {name for each in rates for name in each}
    return {f"chip.rate.{name}": np.array([float(name in each) for each in rates]) for name in names}


def of(dtype, *rates):
    types = np.full(len(rates), dtype)
    return chips(*rates) | {"model.dtype": types}, types


@pytest.mark.parametrize(
    ("dtype", "rates", "computed"),
    [
        ("w4a16", ("bf16", "fp16", "fp8"), "bf16"),
        ("w4a16", ("fp16", "fp32"), "fp16"),  # a V100
        ("w4a16", ("fp32",), "fp32"),
        ("w4a8", ("int8", "bf16"), "int8"),
        ("w4a8", ("fp8", "bf16"), "bf16"),
        ("w4afp8", ("int8", "bf16"), "bf16"),
        ("mxfp4_w4a8", ("fp8", "bf16"), "fp8"),
        ("bf16", ("fp16",), "bf16"),  # which is refused
    ],
)
def test_products_compute_in_the_type_of_activations_or_the_next_wider(dtype, rates, computed):
    inputs, types = of(dtype, rates)
    assert product_type(inputs, types).tolist() == [computed]
    operands = operands_of(inputs, types)
    assert operands.element[0] == pytest.approx({"int8": 1, "fp8": 1, "fp32": 4}.get(computed, 2), rel=0.04)


def test_units_that_read_both_types_convert_nothing():
    """Blackwell's multiply mxfp4 by mxfp8; Hopper's fp8 alone."""
    inputs, types = of("mxfp4_w4a8", ("mxfp4", "fp8", "bf16"), ("fp8", "bf16"))
    assert (operands_of(inputs, types).conversion > 0).tolist() == [False, True]


def test_experts_of_a_type_that_a_chip_lacks_are_weights_alone():
    inputs, _ = of("bf16", ("bf16",), ("fp16",), ("mxfp4", "bf16"))
    inputs |= {"precision.experts": np.full(3, "mxfp4"), "model.experts": np.full(3, 8)}
    assert expert_type(inputs).tolist() == ["bf16", "fp16", "mxfp4"]
    inputs, _ = of("w4a8", ("int8", "bf16"), ("int8", "fp16"))
    assert wide_type(inputs).tolist() == ["bf16", "fp16"]


def leaves(**more):
    rates = {f"chip.rate.{name}": 1.0 for name in ("bf16", "fp16", "int8")}
    return {"model.dtype": "bf16", "chip.name": "C", "model.experts": 8} | rates | more


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({}, ""),
        ({"model.dtype": "w4a16"}, ""),
        ({"model.dtype": "w4a8"}, ""),
        ({"model.dtype": "w4afp8"}, "model.dtype: w4afp8 is multiplied in bf16, since C has no units for it"),
        (
            {"precision.experts": "mxfp4"},
            "precision.experts: mxfp4 is multiplied in bf16, since C has no units for it",
        ),
        (
            {"model.dtype": "auto", "model.published.dtype": "nvfp4", "model.published.attention": "bf16"},
            "model.dtype: nvfp4_w4a16, since C has no nvfp4",
        ),
    ],
)
def test_one_line_says_what_is_computed_in_another_type(changed, note):
    assert note_of_types(leaves(**changed)) == note


def test_weights_of_two_bits_activations_of_eight_and_a_cache_of_four():
    """W2A8KV4, on a chip of today and on a generated one."""
    for chip in (("chip=a100",), ("tech=n3", "mem=hbm4")):
        wide, narrow = (
            fastflow.evaluate(*SERVED, *chip, f"model.dtype={dtype}", f"precision.cache={cache}").iloc[0]
            for dtype, cache in (("bf16" if chip[0] == "chip=a100" else "fp16", "operand"), ("w2a8", "int4"))
        )
        layers, hidden, ffn, keys, words = 32, 4096, 14336, 1024, 128256
        weights = layers * hidden * (2 * hidden + 2 * keys + 3 * ffn)
        expected = weights * (2 + 16 / 128) / 8 + 2 * 2 * words * hidden
        assert narrow.weight_B == pytest.approx(expected, rel=1e-6)
        assert narrow.kv_B / wide.kv_B == pytest.approx(CACHES["int4"] / 16)
        assert narrow.tpot_s < 0.75 * wide.tpot_s


@pytest.mark.parametrize("cache", CACHES)
def test_a_cache_has_the_bits_of_its_type(cache):
    row = fastflow.evaluate(*SERVED, "chip=h100_sxm", f"precision.cache={cache}", "serve.batch=3").iloc[0]
    bits = sum(2 * 8 * 128 * CACHES[cache] for _ in range(32))  # of a token: layers, heads, columns
    assert row.kv_token_B == pytest.approx(bits / 8)


def test_attention_in_a_type_of_its_own():
    """Its weights alone have other bytes, and its products another rate."""
    frame = fastflow.evaluate(
        *SERVED, "chip=b200_sxm", "model.dtype=nvfp4", "precision.attention_weights=operand,bf16"
    )
    attention = 32 * 4096 * (2 * 4096 + 2 * 1024)
    assert frame.weight_B[1] - frame.weight_B[0] == pytest.approx(attention * (2 - 0.5625), rel=1e-6)
    assert frame.tpot_s[1] > frame.tpot_s[0]
    assert frame["dtype"].tolist() == ["nvfp4", "nvfp4, attention bf16"]


def test_decode_gains_what_weights_are_smaller_and_prefill_nothing():
    """As Marlin: nearly fourfold for few rows (arXiv:2408.11743, figure 1), below 16-bit rates for many."""
    sides = ("model=gemm", "chip=a100", "model.k=8192", "model.n=28672")
    frame = fastflow.evaluate(*sides, "model.m=1,16,8192", "model.dtype=fp16,w4a16")
    times = frame.pivot(index="model.m", columns="model.dtype", values="time_s")
    one, few, many = (times.fp16 / times.w4a16).tolist()
    assert 2.7 < few < one < 3.88
    assert 0.8 < many < 1.0


@pytest.mark.parametrize(
    ("key", "allowed"),
    [("model.dtype=w4a16", "one of fp32, tf32, bf16, fp16"), ("precision.attention_weights=bf16", "operand")],
)
def test_nothing_trains_in_a_type_of_weights_alone(key, allowed):
    row = fastflow.evaluate("model=llama3_8b", "system=dgx_h100", key, "parallel.strategy=TP-8").iloc[0]
    assert not row.feasible
    assert allowed in row.reason
