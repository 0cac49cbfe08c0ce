"""Gradients beside the accumulated ones, against shapes by hand."""

import numpy as np
import pytest

import fastflow

SIZE = 2  # bytes of bf16
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, WORDS = 512, 8, 2, 64, 1024, 3000
BASE = (
    "model=llama3_8b", "model.layers=4", f"model.hidden={HIDDEN}", f"model.heads={HEADS}",
    f"model.kv_heads={KV_HEADS}", f"model.ffn={FFN}", f"model.vocabulary={WORDS}", "system=dgx_h100",
    "system.devices=4", "model.batch=16", "model.sequence=512",
)  # fmt: skip


def buffers(*overrides):
    return fastflow.evaluate(*BASE, *overrides).iloc[0]["buffer_B"]


def shapes(tensor):
    """Inner dimension and columns of each product of a layer on a device."""
    return {
        (HIDDEN, HEAD_DIM * (HEADS + 2 * KV_HEADS) // tensor), (HEAD_DIM * HEADS // tensor, HIDDEN),
        (HIDDEN, 2 * FFN // tensor), (FFN // tensor, HIDDEN),
    }  # fmt: skip


@pytest.mark.parametrize(("strategy", "tensor"), [("d4", 1), ("TP-2-d2", 2), ("TP-4", 4)])
def test_fused_products_have_a_tensor_for_each_shape(strategy, tensor):
    made = buffers(f"parallel.strategy={strategy}", "framework=megatron_core", "parallel.zero_stage=1")
    assert made == SIZE * sum(inner * columns for inner, columns in shapes(tensor))


def test_layers_with_the_same_shapes_share_a_tensor():
    """A feed-forward part as wide as half of the hidden columns has a projection's shape twice over."""
    made = buffers("parallel.strategy=d4", "framework=megatron_core", f"model.ffn={HIDDEN}")
    qkv, square, pair = HIDDEN * HEAD_DIM * (HEADS + 2 * KV_HEADS), HIDDEN * HIDDEN, HIDDEN * 2 * HIDDEN
    assert made == SIZE * (qkv + square + pair)  # projection and down have one shape


def test_experts_of_one_shape_share_a_tensor():
    mixed = ("model.pattern=experts", "model.experts=8", "model.topk=2", "model.expert_ffn=128")
    made = buffers("parallel.strategy=TP-1-e4-d4", "framework=megatron_core", *mixed)
    router = HIDDEN * 8
    attention = HIDDEN * HEAD_DIM * (HEADS + 2 * KV_HEADS) + HIDDEN * HIDDEN
    assert made == SIZE * (attention + router + HIDDEN * 256 + 128 * HIDDEN)


@pytest.mark.parametrize(("microbatches", "again"), [(1, 0), (2, 1)])
def test_other_products_make_the_largest_gradient_before_it_is_added(microbatches, again):
    """The first micro-batch's gradient is the accumulated one."""
    made = buffers(
        "parallel.strategy=d4", "parallel.zero_stage=0", f"parallel.microbatches={microbatches}",
        "precision=mixed",
    )  # fmt: skip
    assert made == again * SIZE * HIDDEN * WORDS


def test_sharded_gradients_are_scattered_instead():
    zero2, zero3 = (
        buffers("parallel.strategy=d4", f"parallel.zero_stage={stage}", "framework=none", "precision=mixed")
        for stage in (2, 3)
    )
    assert zero2 == SIZE * HIDDEN * WORDS
    assert zero3 == 2 * zero2


def test_without_training_there_are_none():
    assert not buffers("parallel.strategy=d4", "model.training=false", "parallel.zero_stage=0")
    assert np.isfinite(buffers("parallel.strategy=d4"))
