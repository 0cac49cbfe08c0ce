"""Data types by role (the group `precision`): what is held, moved and summed in which, counted by hand."""

import numpy as np
import pandas as pd
import pytest

import fastflow
from tests.support.checks import near
from tests.support.networks import MLP, MLP_WEIGHTS

DEVICES = 8
HELD = ["weight_B", "gradient_B", "optimizer_B"]
EXCHANGES = ("sync", "relayout", "fetch", "gradient", "send")


@pytest.fixture(scope="module")
def overrides(tmp_path_factory):
    path = tmp_path_factory.mktemp("precision") / "mlp.yaml"
    path.write_text(MLP, encoding="utf-8")
    return (
        "model=graph", f"model.file={path}", f"system.devices={DEVICES}", "model.optimizer=adam",
        f"parallel.strategy=d{DEVICES}",
    )  # fmt: skip


@pytest.fixture(scope="module")
def exchanged(overrides):
    """A function from overrides to bytes exchanged in an iteration, by kind of exchange, and the table."""

    def explain(*further):
        table = fastflow.explain_sharding(*overrides, *further)
        return {name: (table[f"{name}_B"] * table["repeat"]).sum() for name in EXCHANGES}, table

    return explain


@pytest.mark.parametrize(
    ("further", "whole", "part"),
    [
        # by stage of ZeRO, what every device has whole, and what devices share
        (("precision=fp32_gradients", "model.dtype=bf16"), (18, 6, 2, 0), (0, 12, 16, 18)),
        (("model.dtype=fp32",), (16, 8, 4, 0), (0, 8, 12, 16)),
        (("precision=fp32_gradients", "model.dtype=fp32"), (16, 8, 4, 0), (0, 8, 12, 16)),
        (("precision.master=none",), (12, 4, 2, 0), (0, 8, 10, 12)),
        (("precision.state=bf16",), (12, 4, 2, 0), (0, 8, 10, 12)),
        (("precision.weight=fp32",), (14, 6, 4, 0), (0, 8, 10, 14)),
        (("precision.gradient=bf16", "model.dtype=fp32"), (14, 6, 4, 0), (0, 8, 10, 14)),
    ],
)
def test_bytes_a_weight_are_those_of_megatron(overrides, further, whole, part):
    """Its distributed optimizer, stage 1: 6 + 12 / d with fp32 gradients, 8 + 8 / d where all is fp32."""
    frame = fastflow.evaluate(*overrides, "parallel.zero_stage=0,1,2,3", *further)
    expected = MLP_WEIGHTS * (np.array(whole) + np.array(part) / DEVICES)
    assert np.allclose(frame[HELD].sum(axis=1), expected, rtol=1e-12)


@pytest.mark.parametrize(("zero", "gathers"), [(0, 0), (1, 1), (2, 1), (3, 2)])
def test_gradients_are_summed_in_their_type(exchanged, zero, gathers):
    """And weights gathered in theirs: after the update, or before each pass."""
    moved, table = exchanged("precision=fp32_gradients", f"parallel.zero_stage={zero}")
    assert moved["gradient"] == 4 * MLP_WEIGHTS
    collective = "reduce-scatter" if zero else "all-reduce"
    assert table["exchange"].str.contains(collective).sum() == 3
    first = 512 * 2048 if zero == 3 else 0  # nothing asks for the gradient of its input
    assert moved["fetch"] == 2 * (gathers * MLP_WEIGHTS - first)


CUT = ("parallel.strategy=RC-1-2-d2-p2", "parallel.microbatches=2", "parallel.zero_stage=1")


@pytest.mark.parametrize(
    ("role", "doubled", "kept"),
    [
        ("weight", {"fetch"}, ()),
        ("activation", {"sync", "send"}, ("activation_B",)),
        ("gradient", {"gradient"}, ("gradient_B",)),
        ("state", set(), ()),
        ("master", set(), ()),
    ],
)
def test_every_role_moves_its_bytes(overrides, exchanged, role, doubled, kept):
    """In fp32 instead of fp16 it moves twice as much, and no other role any more or less."""
    wide = f"precision.{role}=fp32"
    usual, now = exchanged(*CUT)[0], exchanged(*CUT, wide)[0]
    assert {name for name in EXCHANGES if usual[name] > 0} == {"sync", "fetch", "gradient", "send"}
    for name in EXCHANGES:
        assert now[name] == usual[name] * (2 if name in doubled else 1), name
    before, after = (fastflow.evaluate(*overrides, *CUT, *more).iloc[0] for more in ((), (wide,)))
    for name in ("activation_B", "gradient_B", "optimizer_B"):
        assert near(after[name], before[name] * (2 if name in kept else 1)), name
    # products read and write operands, whatever is in memory
    assert after["gemm_dram_moved_B"] == before["gemm_dram_moved_B"]


def test_relayouts_move_activations():
    def moved(*types):
        apart = ("system.devices=8", "parallel.strategy=d8", "parallel.softmax=RC-1-8", *types)
        return fastflow.explain_sharding(*apart)["relayout_B"].sum()

    assert moved("precision.activation=fp32") == 2 * moved() > 0
    assert moved("precision.gradient=fp32", "precision.weight=fp32") == moved()


def test_the_default_is_mixed_precision(overrides):
    """Every role named as `mixed` has it changes nothing, in a grid over types too."""
    alone = fastflow.evaluate(*overrides)
    types = ("precision.weight=fp16", "precision.activation=fp16", "precision.gradient=fp16,fp32")
    both = fastflow.evaluate(*overrides, *types, "precision.master=fp32")
    other = fastflow.evaluate(*overrides, "precision=fp32_gradients")
    apart = pd.concat([alone, other])
    for name in apart.columns.difference(["point"]):
        assert str(both[name].tolist()) == str(apart[name].tolist()), name  # as text: NaN differs from NaN
    assert both["time_s"].nunique() == 2


def test_without_training_there_are_weights_alone(overrides):
    frame = fastflow.evaluate(*overrides, "model.training=false", "precision.master=fp32,auto")
    assert frame["weight_B"].tolist() == [2 * MLP_WEIGHTS] * 2
    assert not frame[["gradient_B", "optimizer_B"]].any(axis=None)


@pytest.mark.parametrize("given", ["precision.gradient=fp8", "precision.state=none", "precision.master=yes"])
def test_what_is_no_type_is_one_line(overrides, given):
    with pytest.raises(fastflow.InputError, match=given.partition("=")[0]) as error:
        fastflow.evaluate(*overrides, given)
    assert "\n" not in str(error.value)
