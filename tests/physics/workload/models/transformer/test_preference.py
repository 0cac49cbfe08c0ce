"""Training on pairs of sequences, with a reference model or without one."""

from functools import cache

import numpy as np
import pytest

import fastflow
from fastflow.physics import workload
from fastflow.physics.workload.graph import BASE, FORWARD, OTHERS_BASE, PRODUCTS, TRAINED
from tests.naive import preference as naive
from tests.support.checks import refusal
from tests.support.transformers import points, precision

RUN = ("model=llama3_8b", "chip=h200_sxm", "system=dgx_h200", "model.batch=16", "model.sequence=1024")
STRATEGIES = ["d8", "TP-2-d4", "TP-8", "TP-2-c2-d2", "TP-2-d2-p2", "TP-1-d4-p2x2"]
TIMES = ("time_s", "flop", "footprint_B", "weight_B", "activation_B", "energy_J")
ADAPTED = {f"lora.{key}": value for key, value in zip(
    ("rank", "targets", "dropout", "base_dtype"), (2, "all_linear", False, "nf4"), strict=True
)}  # fmt: skip
WEIGHTS = 8_029_995_008  # without gains of norms, which memory leaves out


@cache
def row(*overrides):
    made = fastflow.evaluate(*RUN, *overrides).iloc[0]
    assert made.reason == ""
    return made


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_a_reference_pairs_are_a_batch_twice_as_large(strategy):
    run = (f"parallel.strategy={strategy}", "parallel.zero_stage=1")
    pairs = row(*run, "model.preference=reference_free", "parallel.microbatch=1")
    plain = row(*run, "model.batch=32", "parallel.microbatch=2")
    for column in (*TIMES, "tokens_per_s"):
        assert pairs[column] == plain[column]
    assert row(*run, "model.preference=none").time_s == row(*run).time_s


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_reference_has_one_more_forward_pass(strategy, recompute):
    """Which recomputation does not repeat; exposed communication adds up."""
    run = (f"parallel.strategy={strategy}", f"parallel.recompute={recompute}", "parallel.zero_stage=1")
    pairs, dpo = (row(*run, f"model.preference={method}") for method in ("reference_free", "dpo"))
    served = row(f"parallel.strategy={strategy}", "parallel.microbatch=2", "model.batch=32",
                 "model.training=false")  # fmt: skip
    assert dpo.flop - pairs.flop == pytest.approx(served.flop, rel=1e-9)
    assert dpo.recompute_s == pytest.approx(pairs.recompute_s, rel=1e-9)
    assert dpo.time_s - pairs.time_s == pytest.approx(served.time_s, rel=0.12)  # and bubbles of pipelines
    assert abs(dpo.joint_exposed_s) <= 1e-9 * dpo.time_s
    ratio = naive.passes("dpo") / naive.passes("reference_free")
    assert dpo.flop / pairs.flop == pytest.approx(ratio, rel=0.02)
    assert dpo.activation_B == pytest.approx(pairs.activation_B, rel=0.03)  # and the input of a stage


@pytest.mark.parametrize("zero", [1, 3])
@pytest.mark.parametrize("strategy", ["d8", "TP-2-d4", "TP-8"])
def test_a_reference_has_frozen_weights(strategy, zero):
    run = (f"parallel.strategy={strategy}", f"parallel.zero_stage={zero}")
    pairs, dpo = (row(*run, f"model.preference={method}") for method in ("reference_free", "dpo"))
    assert (dpo.gradient_B, dpo.optimizer_B) == (pairs.gradient_B, pairs.optimizer_B)
    tensor = {"d8": 1, "TP-2-d4": 2, "TP-8": 8}[strategy]
    copies = naive.copies("dpo") - 1
    expected = copies * 2.0 * WEIGHTS / (8 if zero == 3 else tensor)
    assert dpo.weight_B - pairs.weight_B == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("base", ["operand", "nf4"])
def test_adapters_are_switched_off_for_the_reference(base):
    asked = ("parallel.strategy=d8", "model.lora.rank=8", f"model.lora.base_dtype={base}")
    pairs, dpo = (row(*asked, f"model.preference={method}") for method in ("reference_free", "dpo"))
    assert dpo.weight_B == pairs.weight_B
    assert dpo.gradient_B == pairs.gradient_B
    ratio = naive.passes("dpo", frozen=True) / naive.passes("reference_free", frozen=True)
    assert dpo.flop / pairs.flop == pytest.approx(ratio, rel=0.03)
    gathered = ("parallel.zero_stage=3", "parallel.overlap.data=false")
    sharded = [row(*asked, *gathered, f"model.preference={method}") for method in ("reference_free", "dpo")]
    assert 1.4 < sharded[1].comm_s / sharded[0].comm_s < 1.51  # three gathers for two


@pytest.mark.parametrize(
    "changed",
    [
        {}, {"tied": True}, {"position": "learned", "dropout": True}, {"fused_attention": False},
        {"pattern": "window dense, dense", "window": 4}, {"layer_embedding": 8},
        {"pattern": "dense, experts", "experts": 4, "topk": 2, "layers": 4}, {"streams": 2},
        {"block": "parallel"}, ADAPTED,
    ],
    ids=str,
)  # fmt: skip
def test_every_product_has_its_reference(changed):
    model = {"preference": "dpo"} | changed
    graph = workload.build_graph(points(**model), precision(1))
    labels = graph.names[graph.label]
    forward = (graph.phase == FORWARD) & np.isin(graph.kind, PRODUCTS)
    of_reference = np.char.startswith(labels.astype(str), "reference ")
    names = {label.removeprefix("reference ") for label in labels[forward & of_reference]}
    assert names == {label for label in labels[forward & ~of_reference] if " lora " not in label}
    assert not of_reference[graph.phase != FORWARD].any()
    assert (graph.memory.saved_cols + graph.memory.saved_whole_cols)[of_reference].sum() == 0
    owners = {*graph.memory.weights[of_reference].tolist()} - {0}
    assert owners == {OTHERS_BASE if "lora.rank" in changed else BASE}
    assert (graph.memory.weights[graph.memory.weights == TRAINED]).size
    plain = workload.build_graph(points(**changed, batch=4), precision(1))
    assert (~of_reference).sum() == plain.point.size


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("model.preference=dpo", "model.training=false"), "expected none with model.training=false"),
        (("model.preference=dpo", "model.mtp=1"), "model.preference=dpo is invalid: expected none with"),
        (("model.preference=ppo",), "one of none, dpo, reference_free"),
    ],
)
def test_what_contradicts_is_named(overrides, message):
    assert message in refusal(*RUN, "parallel.strategy=d8", *overrides)
