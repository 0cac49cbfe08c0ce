"""What frameworks do beside a layer's kernels, which the notation of splits does not say."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fastflow
from fastflow.physics.workload.graph import (
    ALL_GATHER,
    BACKWARD,
    ON_WEIGHTS,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    UPDATE,
    WEIGHT_GRADIENT,
)
from tests.support.checks import near

SMALL = (
    "model=transformer", "chip=h100_sxm", "system=dgx_h100", "system.devices=8", "model.layers=4",
    "model.hidden=1024", "model.heads=16", "model.ffn=4096", "model.vocabulary=32000", "model.sequence=512",
    "model.batch=32",
)  # fmt: skip


@pytest.mark.parametrize("block", ["pre", "post", "sandwich"])
def test_what_is_kept_in_parts_is_gathered_again(block):
    """For both products that read tokens, beside the gradients that two others read.

    Megatron-LM does so whatever has made what is read: a norm, or a sum in models that normalise branches.
    """
    table = fastflow.explain_sharding(*SMALL, "parallel.strategy=TP-4-d2", f"model.block={block}")
    own = table[table.layer == 1]
    gathers = own.exchange.str.count("all-gather along tp")
    assert gathers[own.phase == "backward"].sum() == 4


@pytest.mark.parametrize("kind", ["embedding", "hidden", "softmax"])
def test_a_cut_of_a_layer_deals_no_experts_of_its_own(kind):
    row = fastflow.evaluate(*SMALL, "parallel.strategy=TP-2-d4", f"parallel.{kind}=TP-2-e3-d4").iloc[0]
    assert np.isnan(row["time_s"])
    assert re.search(rf"parallel\.{kind}=TP-2-e3-d4 is invalid: expected a cut without e", row["reason"])


def sharded(zero, reduce, overlaps="true"):
    """The result of a small model on eight devices in four micro-batches."""
    return fastflow.evaluate(
        *SMALL, "parallel.strategy=d8", "parallel.microbatch=1", f"parallel.zero_stage={zero}",
        f"parallel.grad_reduce={reduce}", f"parallel.overlap.data={overlaps}",
    ).iloc[0]  # fmt: skip


@pytest.mark.parametrize("zero", [2, 3])
def test_gradients_that_are_dealt_out_are_summed_for_every_micro_batch(zero):
    """As FSDP and DeepSpeed do: four sums in place of one, and no device has all gradients in between."""
    each, once = sharded(zero, "auto"), sharded(zero, "step")
    assert each["microbatches"] == 4
    assert near(once["gradient_B"], 8 * each["gradient_B"], 1e-3)
    more = each["comm_s"] - once["comm_s"]
    apart, together = sharded(zero, "auto", "false"), sharded(zero, "step", "false")
    assert near(apart["time_s"] - together["time_s"], more)
    assert near(together["grad_reduce_exposed_s"], more / 3)
    assert each["time_s"] < apart["time_s"]
    if zero == 2:
        assert once["time_s"] == sharded(1, "auto")["time_s"]


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("strategy", ["d4-p2", "TP-2-d2-p2", "TP-1-d2-p2x2", "d2-p4"])
def test_a_pipeline_sums_gradients_once(zero, strategy):
    """Whatever is dealt out: all gradients stay until the last micro-batch, and are summed behind it."""
    said = (*SMALL, f"parallel.strategy={strategy}", "parallel.microbatches=8", "model.batch=64")
    rows = {
        reduce: fastflow.evaluate(
            *said, f"parallel.zero_stage={zero}", f"parallel.grad_reduce={reduce}"
        ).iloc[0]
        for reduce in ("auto", "step", "buffer", "microbatch")
    }
    for name in ("time_s", "comm_s", "gradient_B", "footprint_B"):
        assert rows["auto"][name] == rows["step"][name] == rows["buffer"][name], name
    assert rows["microbatch"]["comm_s"] > rows["auto"]["comm_s"]
    assert rows["microbatch"]["gradient_B"] < rows["auto"]["gradient_B"]
    if zero == 2:
        one = fastflow.evaluate(*said, "parallel.zero_stage=1").iloc[0]
        assert (one["time_s"], one["gradient_B"]) == (rows["auto"]["time_s"], rows["auto"]["gradient_B"])


@pytest.mark.parametrize(
    ("framework", "zero", "like"),
    [
        ("megatron_core", 2, "step"), ("nemo", 2, "step"), ("megatron_core", 3, "microbatch"),
        ("deepspeed", 2, "microbatch"), ("deepspeed", 3, "microbatch"), ("fsdp", 2, "microbatch"),
        ("torchtitan", 3, "microbatch"), ("megatron_deepspeed", 2, "microbatch"), ("none", 2, "microbatch"),
    ],
)  # fmt: skip
def test_how_often_a_framework_sums_gradients_without_a_pipeline(framework, zero, like):
    said = (*SMALL, "parallel.strategy=d8", "parallel.microbatch=1", f"framework={framework}")
    own, same = (
        fastflow.evaluate(*said, f"parallel.zero_stage={zero}", *more).iloc[0]
        for more in ((), (f"parallel.grad_reduce={like}",))
    )
    assert (own["time_s"], own["gradient_B"]) == (same["time_s"], same["gradient_B"])
    other = "step" if like == "microbatch" else "microbatch"
    assert (
        own["comm_s"]
        != fastflow.evaluate(*said, f"parallel.zero_stage={zero}", f"parallel.grad_reduce={other}")["comm_s"][
            0
        ]
    )


def test_gradients_are_summed_once_where_all_have_them():
    same = sharded(1, "auto")
    assert same["time_s"] == sharded(1, "step")["time_s"] < sharded(1, "microbatch")["time_s"]
    assert same["gradient_B"] == sharded(1, "microbatch")["gradient_B"]


@pytest.mark.parametrize("strategy", ["d8", "TP-4-d2"])
def test_products_add_to_wider_sums_of_gradients_themselves(compose, predict, strategy):
    """Megatron-LM's gradient_accumulation_fusion: 4 bytes in and out, in place of 2 out."""
    plain, summed = (
        predict([compose(*SMALL, f"parallel.strategy={strategy}", f"precision={one}")])
        for one in ("mixed", "fp32_gradients")
    )
    rows = plain.graph.kind == WEIGHT_GRADIENT
    assert rows.sum() == 4 + 1  # of the head
    made = (plain.shards.kernels.m * plain.shards.kernels.n)[rows]
    more = (summed.timing.bytes - plain.timing.bytes)[rows, -1]
    assert np.allclose(more, (2 * 4 - 2) * made, rtol=1e-12)
    assert (summed.timing.time > plain.timing.time)[rows].all()
    others = ~rows & (plain.graph.phase != UPDATE)
    assert (summed.timing.time == plain.timing.time)[others].all()


def test_passes_add_where_products_do_not(compose, predict):
    """What the product makes in, the sum in and out, of all weights of the device, for each micro-batch."""
    point = compose(*SMALL, "parallel.strategy=d8", "precision=fp32_gradients", "model.fused_gradients=false")
    prediction = predict([point])
    graph, shards = prediction.graph, prediction.shards
    rows = (graph.kind == ON_WEIGHTS) & (graph.phase == BACKWARD)
    products = graph.kind == WEIGHT_GRADIENT
    assert rows.sum() == products.sum()
    moved = prediction.timing.bytes[rows, -1]
    assert np.allclose(moved, (2 + 2 * 4) * (shards.kernels.m * shards.kernels.n)[products], rtol=1e-12)
    assert (prediction.pipeline.launches[rows] == prediction.pipeline.launches[products]).all()


STAGES = (*SMALL, "model.vocabulary=128000", "model.batch=64")


@pytest.mark.parametrize("strategy", ["TP-1-d2-p4", "TP-2-d1-p4", "TP-1-d4-p2x2"])
def test_the_last_stage_has_a_copy_of_a_tied_embedding(strategy):
    """As large as the head of its own that an untied model has there, and no parameters of the model."""
    own = (*STAGES, f"parallel.strategy={strategy}")
    tied, untied = (fastflow.evaluate(*own, f"model.tied={one}").iloc[0] for one in ("true", "false"))
    assert tied["peak_memory_stage"] == untied["peak_memory_stage"] > 0
    for part in ("weight_B", "gradient_B", "optimizer_B", "activation_B"):
        assert near(tied[part], untied[part])
    assert untied["parameters"] - tied["parameters"] == 128000 * 1024
    alone = fastflow.evaluate(*STAGES, "parallel.strategy=TP-1-d8", "model.tied=true").iloc[0]
    assert near(alone["gradient_B"], 2 * alone["parameters"], 1e-3)


@pytest.mark.parametrize("gradient", ["bf16", "fp32"])
def test_both_stages_sum_the_gradient_of_a_tied_embedding(compose, predict, gradient):
    """Once an iteration, before the norm of the gradients: each sends its part of the table."""
    point = compose(
        *STAGES, "parallel.strategy=TP-2-d1-p4", "model.tied=true", f"precision.gradient={gradient}"
    )
    prediction = predict([point])
    edges, graph = prediction.shards.relayout, prediction.graph
    (row,) = np.flatnonzero(edges.collective)
    assert graph.names[graph.label[row]] == "embedding gradient norm"
    assert graph.phase[row] == UPDATE
    assert edges.collective[row] == POINT_TO_POINT
    assert near(edges.bytes[row], (4 if gradient == "fp32" else 2) * 128000 * 1024 / 2)
    took = prediction.communication.exchanges.sync_s[row]
    assert took > 1e-4
    assert prediction.pipeline_blocks.update[0] >= took


def test_gradients_of_a_tied_table_have_all_rows(compose, predict):
    """Those of a table that is looked up alone have one a token, which can be fewer."""
    found = {}
    for tied in (True, False):
        prediction = predict(
            [compose(*STAGES, "model.sequence=16", "parallel.strategy=d8", f"model.tied={tied}")]
        )
        (row,) = np.flatnonzero(prediction.graph.names[prediction.graph.label] == "embedding gradient")
        found[tied] = prediction.shards.gradient.bytes[row]
    assert found[True] == 2 * 128000 * 1024 > found[False]


@pytest.mark.parametrize(("heads", "devices"), [(2, 8), (4, 8), (8, 8), (1, 2), (2, 2)])
def test_heads_of_keys_that_are_fewer_than_devices_are_gathered(compose, predict, heads, devices):
    """Megatron-LM cuts all columns of the product evenly, and gathers them before attention."""
    strategy = f"parallel.strategy=TP-{devices}-d{8 // devices}"
    prediction = predict([compose(*SMALL, strategy, f"model.kv_heads={heads}", "parallel.microbatch=2")])
    edges, graph = prediction.shards.relayout, prediction.graph
    rows = np.flatnonzero(edges.collective)
    if heads >= devices:
        assert not rows.size
        return
    assert graph.names[graph.label[rows]].tolist() == ["rotary", "attention query gradient"]
    assert edges.collective[rows].tolist() == [ALL_GATHER, REDUCE_SCATTER]
    assert edges.ranks[rows].tolist() == [devices] * 2
    assert (edges.bytes[rows] == 2 * 2 * 512 * (16 + 2 * heads) * 64).all()
    weights = prediction.shards.kernels.m * prediction.shards.kernels.n
    (product,) = np.flatnonzero(graph.names[graph.label] == "qkv weight gradient")
    assert weights[product] == 1024 * (16 + 2 * heads) * 64 / devices


def test_heads_of_keys_go_evenly_to_devices():
    own = ("model.kv_heads=3", "model.heads=48", "model.head_dim=64")
    row = fastflow.evaluate(*SMALL, *own, "parallel.strategy=TP-8-d1").iloc[0]
    assert np.isnan(row["time_s"])
    assert "expected a divisor or a multiple of model.kv_heads=3" in row["reason"]


# Causal, heads of 128, 16,384 tokens, 2,048 columns, bf16: rates by sequence length, 512 to 16k, of
# FlashAttention-2 on H100 SXM5 [TFLOP/s] (arXiv:2407.08608, figure 5)
RATES = {512: 191, 1024: 260, 2048: 298, 4096: 319, 8192: 333, 16384: 335}


@pytest.mark.parametrize("length", RATES)
def test_flash_attention_2_is_as_fast_as_published_on_h100(compose, predict, length):
    """Without a fit: the instructions of A100, whose operands each warp loads."""
    sequences = 16384 // length
    own = (
        "model=transformer", "chip=h100_sxm", "parallel.strategy=d1", "model.layers=1", "model.hidden=2048",
        "model.heads=16", f"model.sequence={length}", f"model.batch={sequences}", "model.dtype=bf16",
        f"parallel.microbatch={sequences}", "system.devices=1",
    )  # fmt: skip
    took = {}
    for kernel in ("library", "flash2", "flash1"):
        prediction = predict([compose(*own, f"model.attention_kernel={kernel}")])
        (row,) = np.flatnonzero(prediction.graph.names[prediction.graph.label] == "attention")
        took[kernel] = prediction.timing.time[row]
    rate = 2 * sequences * length**2 * 2048 / took["flash2"] / 1e12
    assert rate == pytest.approx(RATES[length], rel=0.08)
    assert took["library"] < took["flash2"] < took["flash1"]


@pytest.mark.parametrize("strategy", ["d8", "d4-p2"])
def test_weights_are_gathered_once_for_what_is_computed_again(compose, predict, strategy):
    """FSDP around a checkpointed block: its weights are there then (facebookresearch/fairscale#777)."""
    given = (
        *SMALL, f"parallel.strategy={strategy}", "parallel.microbatch=1", "parallel.zero_stage=3",
        "parallel.overlap.data=false",
    )  # fmt: skip
    kept, again = (
        fastflow.evaluate(*given, f"parallel.recompute={which}").iloc[0] for which in ("none", "full")
    )
    assert near(again["param_gather_exposed_s"], kept["param_gather_exposed_s"])
    assert near(again["grad_reduce_exposed_s"], kept["grad_reduce_exposed_s"])
    assert again["recompute_s"] > 0.0
    sent = [
        predict([compose(*given, f"parallel.recompute={which}")]).communication.sent
        for which in ("none", "full")
    ]
    assert near(sent[0][0][0], sent[1][0][0])
    assert near(sent[0][1][0], sent[1][1][0])
    if strategy == "d8":
        assert near(again["time_s"] - kept["time_s"], again["recompute_s"])
        assert near(again["comm_s"], kept["comm_s"])


@pytest.mark.parametrize("strategy", ["TP-2-d4", "TP-2-p4", "TP-1-c2-p4", "TP-2-p4x2", "TP-1-d2-p4x4"])
@pytest.mark.parametrize("recompute", ["none", "full", "3"])
def test_a_forward_pass_keeps_nothing_and_computes_nothing_again(strategy: str, recompute: str) -> None:
    work = ("model=qwen3_32b", "system=dgx_h100", "model.training=false", f"parallel.strategy={strategy}")
    found = fastflow.evaluate(*work, f"parallel.recompute={recompute}", "model.batch=64")
    assert found["activation_B"][0] == 0.0
    assert found["recompute_s"][0] == 0.0
    assert found["time_s"][0] == fastflow.evaluate(*work, "model.batch=64")["time_s"][0]
