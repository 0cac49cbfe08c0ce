"""Training in fp8: what quantises, what stays in bf16, what is held; counted by hand."""

from functools import cache

import pytest

import fastflow
from fastflow.config.model_inputs import to_column
from fastflow.performance.crossflow import predict

BASE = ("model=llama3_8b", "model.layers=4", "model.batch=8", "chip=h100_sxm", "system=dgx_h100",
        "system.devices=8", "parallel.strategy=TP-2-d4")  # fmt: skip
TOKENS, HIDDEN, FFN, COLS = 8192, 4096, 14336, 6144  # of a micro-batch; COLS: queries, keys and values


@cache
def run(*overrides):
    return fastflow.evaluate(*BASE, *overrides).iloc[0]


def kernels(dtype):
    result = fastflow.explain_sharding(*BASE, f"model.dtype={dtype}")
    return result.drop_duplicates("kernel").set_index("kernel")


def test_what_a_norm_makes_is_quantised_there_and_all_else_by_a_pass():
    wide, narrow = kernels("bf16"), kernels("fp8")
    assert set(narrow.index) - set(wide.index) == {
        "projection quantise", "down quantise",
        *(f"{name} gradient quantise" for name in ("qkv", "projection", "gate and up", "down")),
    }  # fmt: skip
    assert not set(wide.index) - set(narrow.index)


def test_passes_read_two_bytes_and_write_two_copies(compose):
    """Each of two devices that share a layer has half of its columns, but all gradients of a sum's tokens."""
    inputs = compose(*BASE, "model.dtype=fp8")
    result = predict({key: to_column(key, [value]) for key, value in inputs.items()})
    names = result.graph.names[result.graph.label]
    moved = dict(zip(names, result.shards.kernels.elements * result.graph.per_element.bytes, strict=True))
    for name, cols in (
        ("projection", HIDDEN / 2), ("down", FFN / 2), ("qkv gradient", COLS / 2),
        ("projection gradient", HIDDEN), ("gate and up gradient", FFN), ("down gradient", HIDDEN),
    ):  # fmt: skip
        assert moved[f"{name} quantise"] == TOKENS * cols * (2 + 1 + 1)


@pytest.mark.parametrize("dtype", ["fp8", "fp8_block"])
def test_layers_compute_in_fp8_and_logits_in_bf16(dtype):
    wide, narrow = run(), run(f"model.dtype={dtype}")
    assert narrow["feed_forward_s"] < 0.85 * wide["feed_forward_s"]
    assert narrow["lm_head_s"] == pytest.approx(wide["lm_head_s"], rel=0.02)  # its norm is one of the layers'
    assert narrow["flop"] == pytest.approx(wide["flop"], rel=0.01)


def test_weights_lie_in_bf16_with_two_copies_to_multiply():
    wide, narrow = run(), run("model.dtype=fp8")
    assert narrow["weight_B"] - wide["weight_B"] == pytest.approx(narrow["parameters"] / 2 * 2, rel=1e-3)
    for same in ("gradient_B", "optimizer_B"):
        assert narrow[same] == wide[same]


def test_products_keep_what_they_read_in_a_byte():
    """Of a layer both norms and the gate make what products read; all in parts of tensor parallelism."""
    wide, narrow = run("parallel.microbatch=1"), run("parallel.microbatch=1", "model.dtype=fp8")
    saved = 4 * TOKENS * (2 * HIDDEN + FFN) / 2  # bytes of a micro-batch's sequence in 4 layers
    assert wide["activation_B"] - narrow["activation_B"] == pytest.approx(saved, rel=1e-6)


def test_four_bits_train_on_units_that_have_them():
    """Products in a quarter of the bytes of bf16; weights have two copies of 4 bits and a scale for 16."""
    blackwell = (*BASE[:3], "chip=b200_sxm", "system=dgx_b200", *BASE[5:])
    wide, eight, four = (
        fastflow.evaluate(*blackwell, f"model.dtype={dtype}").iloc[0] for dtype in ("bf16", "fp8", "nvfp4")
    )
    assert four["feed_forward_s"] < 0.8 * eight["feed_forward_s"] < 0.6 * wide["feed_forward_s"]
    assert four["lm_head_s"] == pytest.approx(wide["lm_head_s"], rel=0.02)
    copies = (0.5 + 1 / 16) * 2
    assert four["weight_B"] - wide["weight_B"] == pytest.approx(four["parameters"] / 2 * copies, rel=2e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("model=llama3_8b", "chip=a100", "model.dtype=fp8"), "a data type of chip"),
        (("model=llama3_8b", "chip=h100_sxm", "model.dtype=int8"), "fp16, fp8, fp8_block, nvfp4 where"),
        (("model=gemm", "model.training=true", "chip=h100_sxm", "model.dtype=fp8"), "bf16, fp16 where"),
    ],
)
def test_what_does_not_train_is_refused(given, message):
    assert message in fastflow.evaluate(*given)["reason"].iloc[0]


def test_types_are_an_axis_of_a_grid():
    types = ("fp8", "bf16", "fp8_block")
    alone = [run(f"model.dtype={dtype}")["time_s"] for dtype in types]
    together = fastflow.evaluate(*BASE, f"model.dtype={','.join(types)}")["time_s"].tolist()
    assert together == alone
