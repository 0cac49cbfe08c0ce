"""Distillation: a frozen teacher's forward pass beside the training of a student."""

import pytest

import fastflow
from fastflow.core.errors import InputError

LAYERS, HIDDEN, HEADS, KV, FFN, VOCABULARY, TOKENS = 6, 2048, 16, 4, 8192, 32000, 1024
STUDENT = (
    "model=llama3_8b", "model.layers=4", "model.hidden=1024", "model.heads=8", "model.kv_heads=4",
    "model.ffn=4096", f"model.vocabulary={VOCABULARY}", f"model.sequence={TOKENS}", "model.batch=8",
    "chip=h100_sxm", "system=dgx_h100", "system.devices=4", "memory=tensors",
)  # fmt: skip
TEACHER = (
    f"model.teacher.layers={LAYERS}", f"model.teacher.hidden={HIDDEN}", f"model.teacher.heads={HEADS}",
    f"model.teacher.kv_heads={KV}", f"model.teacher.ffn={FFN}",
)  # fmt: skip
ALONE = (
    *STUDENT, f"model.layers={LAYERS}", f"model.hidden={HIDDEN}", f"model.heads={HEADS}",
    f"model.kv_heads={KV}", f"model.ffn={FFN}", "model.training=false",
)  # fmt: skip
WEIGHTS = LAYERS * (HIDDEN * (2 * HIDDEN + 2 * 128 * KV) + 3 * HIDDEN * FFN) + 2 * VOCABULARY * HIDDEN
"""Of products and tables."""


def row(*overrides):
    return fastflow.evaluate(*overrides).iloc[0]


@pytest.mark.parametrize("strategy", ["d4", "TP-4", "TP-2-d2"])
def test_a_teacher_costs_its_forward_pass_and_the_divergence(strategy):
    asked = (f"parallel.strategy={strategy}", "parallel.microbatch=1")
    student, both, alone = row(*STUDENT, *asked), row(*STUDENT, *TEACHER, *asked), row(*ALONE, *asked)
    added = both["time_s"] - student["time_s"]
    # less the loss of the teacher's logits, and with the divergence of both
    assert added == pytest.approx(alone["time_s"], rel=0.2)
    assert both["flop"] - student["flop"] == pytest.approx(alone["flop"], rel=0.01)
    assert both["parameters"] == student["parameters"]


@pytest.mark.parametrize(("strategy", "devices"), [("d4", 1), ("TP-4", 4), ("TP-2-d2", 2)])
def test_a_teacher_has_weights_alone(strategy, devices):
    asked = (f"parallel.strategy={strategy}", "parallel.microbatch=1")
    student, both = row(*STUDENT, *asked), row(*STUDENT, *TEACHER, *asked)
    assert both["weight_B"] - student["weight_B"] == pytest.approx(2 * WEIGHTS / devices)
    for name in ("gradient_B", "optimizer_B"):
        assert both[name] == student[name]
    # log-probabilities of both in fp32
    kept = 8 * TOKENS * VOCABULARY / devices
    assert both["activation_B"] - student["activation_B"] == pytest.approx(kept)


def test_devices_shard_a_teacher_as_a_frozen_base():
    asked = ("parallel.strategy=d4", "parallel.zero_stage=3")
    student, both = row(*STUDENT, *asked), row(*STUDENT, *TEACHER, *asked)
    assert both["weight_B"] - student["weight_B"] == pytest.approx(2 * WEIGHTS / 4, rel=1e-3)
    assert both["param_gather_exposed_s"] >= student["param_gather_exposed_s"]


def test_a_teacher_of_experts_and_recomputation():
    """Recomputation is the student's; a mixture has its experts' weights on the devices that share them."""
    asked = ("parallel.strategy=TP-1-e4-d4", "model.teacher.experts=8", "model.teacher.topk=2")
    mixed = row(*STUDENT, *TEACHER, *asked)
    dense = row(*STUDENT, *TEACHER, "parallel.strategy=d4")
    assert mixed["weight_B"] > dense["weight_B"]
    assert mixed["ep_comm_exposed_s"] > 0.0
    full = ("parallel.strategy=d4", "parallel.recompute=full")
    again = row(*STUDENT, *TEACHER, *full)["recompute_s"]
    assert again == pytest.approx(row(*STUDENT, *full)["recompute_s"])


def test_without_layers_there_is_no_teacher():
    plain = row(*STUDENT, "parallel.strategy=d4")
    none = row(*STUDENT, *TEACHER, "parallel.strategy=d4", "model.teacher.layers=0")
    assert none["time_s"] == plain["time_s"]
    assert none["footprint_B"] == plain["footprint_B"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("model.training=false",), "0 with model.training=false"),
        (("model.latent=512", "model.rotary=64"), "attention without latent keys"),
        (("model.teacher.experts=8",), "from 1 to model.teacher.experts"),
        (("model.preference=dpo",), "0 with model.preference=dpo"),
        (("model.loss=fused",), "never all in memory"),
        (("model.teacher.heads=3",), "a divisor of model.teacher.hidden"),
        (("model.teacher.kv_heads=3",), "a divisor of model.teacher.heads"),
        (("parallel.strategy=d2-p2",), "the number of stages with a teacher"),
        (("parallel.strategy=TP-4", "model.teacher.heads=2", "model.teacher.kv_heads=2"),
         "model.teacher.heads=2"),
        (("model.teacher.experts=4", "model.teacher.topk=8"), "from 1 to model.teacher.experts"),
    ],
)  # fmt: skip
def test_what_contradicts_a_teacher_is_said(asked, says):
    found = row(*STUDENT, *TEACHER, "parallel.strategy=d4", *asked)
    assert says in found["reason"]


@pytest.mark.parametrize("value", ["-1", "x", "1.5", "10001"])
def test_a_number_that_is_none(value):
    with pytest.raises(InputError, match=r"model\.teacher\.layers"):
        fastflow.evaluate(*STUDENT, f"model.teacher.layers={value}")
