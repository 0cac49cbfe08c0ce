"""Optimizers: the memory of published runs, states of matrices and of others, and those that others add."""

import numpy as np
import pytest

import fastflow
from fastflow.physics.workload.optimizers import OPTIMIZERS, Optimizer, Rule, index_of, of_rules

# torchtune's recipe for one device: bf16 throughout, 2 sequences of 512 tokens, everything recomputed
TORCHTUNE = (
    "model=llama2_7b", "chip=h100_sxm", "system.devices=1", "parallel.strategy=TP-1", "model.batch=2",
    "parallel.microbatch=2", "model.sequence=512", "parallel.recompute=full", "precision.master=none",
)  # fmt: skip
MEMORY = ["weight_B", "gradient_B", "optimizer_B"]


def states(*overrides):
    return fastflow.evaluate(*TORCHTUNE, *overrides).iloc[0][MEMORY].sum()


def test_states_of_8_bits_are_a_quarter_smaller():
    """Weights, gradients and AdamW's states of 7B parameters: 54 GB in bf16, 40.5 GB with 8-bit states."""
    assert states("precision.state=operand") == pytest.approx(54e9, rel=0.01)
    assert states("precision.state=int8") == pytest.approx(40.5e9, rel=0.01)
    assert states("precision.state=fp8") == states("precision.state=int8")


@pytest.mark.parametrize(("optimizer", "least", "most"), [
    ("lion", 4, 4), ("lamb", 8, 8), ("adafactor", 0.001, 0.01), ("muon", 4, 4.2),
])  # fmt: skip
def test_bytes_of_state_a_weight(optimizer, least, most):
    row = fastflow.evaluate(*TORCHTUNE, f"model.optimizer={optimizer}").iloc[0]
    assert least <= row["optimizer_B"] / (row["gradient_B"] / 2) <= most


def test_what_is_no_optimizer_is_one_line():
    with pytest.raises(fastflow.InputError, match=r"optimizer=adamw .*one of sgd, momentum, adam, lion"):
        states("model.optimizer=adamw")


def test_one_that_a_package_adds(monkeypatch):
    """It has a number after those of fastflow, and every figure of its rules."""
    monkeypatch.setattr(OPTIMIZERS, "_things", dict(OPTIMIZERS._things))
    monkeypatch.setattr(OPTIMIZERS, "built_in", OPTIMIZERS.built_in)
    OPTIMIZERS.register("three", Optimizer("three", Rule(states=3.0, flop=20.0)))
    names = np.array(["adam", "three", "muon"])
    assert index_of(names).tolist() == [2.0, float(len(OPTIMIZERS) - 1), 6.0]
    assert of_rules(index_of(names), True, "states").tolist() == [2.0, 3.0, 1.0]
    row = fastflow.evaluate(*TORCHTUNE, "model.optimizer=three").iloc[0]
    assert row["optimizer_B"] == 12 * row["gradient_B"] / 2


@pytest.mark.parametrize("model", ["deepseek_v3", "gemma2_2b", "qwen3_vl_8b", "vit_l_16", "flan_t5_xxl"])
def test_models_of_all_kinds_train_with_muon_and_lean_losses(model):
    base = (f"model={model}", "system=superpod_h100", "system.devices=128", "parallel.strategy=TP-8-d16")
    base = (*base, "model.batch=128", "parallel.recompute=full", "precision.state=int8")
    adam, muon = fastflow.evaluate(*base, "model.optimizer=adam,muon").to_dict("records")
    assert adam["reason_code"] == muon["reason_code"]
    assert muon["optimizer_B"] < adam["optimizer_B"]
    assert muon["optimizer_s"] > adam["optimizer_s"]
    assert muon["time_s"] > adam["time_s"]
