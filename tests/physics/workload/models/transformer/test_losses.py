"""Losses: what they keep of the logits, what each repeats or moves, and in how many chunks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastflow
from fastflow.physics.workload.models.transformer.losses import LOSSES, liger_chunks
from tests.naive import footprint

# 131,072 tokens of a model with 151,936 words, in bf16
LONG = (
    "model=qwen3_8b", "chip=b200_sxm", "system.devices=1", "parallel.strategy=TP-1", "model.batch=1",
    "model.sequence=131072", "model.positions=131072", "parallel.recompute=full",
)  # fmt: skip
LLAMA = ("model=llama3_8b", "system=dgx_h100", "model.layers=2", "model.batch=8", "parallel.strategy=TP-2-d4")
LOGITS = 131072 * 151936


def run(*overrides):
    return fastflow.evaluate(*overrides).iloc[0]


def test_what_losses_keep_of_a_long_sequence():
    """Megatron's fp32 logits are 80 GB, PyTorch's two copies 120 GB; the fused ones keep next to nothing."""
    rows = {name: run(*LONG, f"model.loss={name}") for name in LOSSES}
    rest = rows["fused"]["activation_B"]
    kept = {name: row["activation_B"] - rest for name, row in rows.items()}
    assert kept == pytest.approx(
        {"whole": 4 * LOGITS, "eager": 6 * LOGITS, "chunked": 2 * LOGITS, "fused": 0, "cut": 4 * 131072}
    )
    assert 79e9 < kept["whole"] < 80e9
    assert 119e9 < kept["eager"] < 120e9
    assert rows["eager"]["buffer_B"] == pytest.approx(4 * LOGITS)  # a further tensor in fp32 meanwhile


def test_a_chunk_is_there_only_meanwhile():
    gradient = run(*LLAMA, "model.loss=cut")["buffer_B"]  # that is made before it is added
    meanwhile = {
        (name, count): run(*LLAMA, f"model.loss={name}", f"model.loss_chunks={count}")["buffer_B"] - gradient
        for name, count in (("fused", 1), ("fused", 4), ("chunked", 4))
    }
    logits = 8192 * 128256 // 2  # of a micro-batch, over two devices
    assert meanwhile == pytest.approx(
        {("fused", 1): 2 * logits, ("fused", 4): 2 * logits / 4, ("chunked", 4): 6 * logits / 4}
    )


@settings(max_examples=50, deadline=None)
@given(hidden=st.integers(1, 20000), vocabulary=st.integers(1, 300_000))
def test_liger_has_chunks_as_large_as_the_heads_input(hidden, vocabulary):
    model = footprint.Model(hidden, 1, 1, 1, vocabulary, 1)
    assert liger_chunks(model) == footprint.liger_chunks(model)


def head_of(loss, *overrides):
    """Return the kernels of the head of a point, by label."""
    table = fastflow.explain_sharding(*LLAMA, f"model.loss={loss}", *overrides)
    return table[table["kernel"].str.contains("logits|loss")]


def test_the_head_works_in_chunks_or_once_more():
    whole, fused, cut = (head_of(name) for name in ("whole", "fused", "cut"))

    def launches(table):  # in an iteration of two micro-batches
        return set(table[table["kernel"].isin(["logits", "loss", "logits input gradient"])]["repeat"])

    assert (launches(whole), launches(cut), launches(fused)) == ({2}, {2}, {2 * 32})
    assert "logits weight gradient by chunk" in set(fused["kernel"])
    assert set(cut["kernel"]) - set(whole["kernel"]) == {"logits recomputed"}
    # what is summed over devices is the same
    for table in (fused, cut):
        assert table["gradient_B"].sum() == whole["gradient_B"].sum() > 0


def test_operations_of_the_model_are_the_same_and_those_of_the_hardware_are_not():
    rows = {name: run(*LLAMA, f"model.loss={name}") for name in LOSSES}
    model_flop = {name: row["model_flops_per_device"] * row["time_s"] for name, row in rows.items()}
    assert max(model_flop.values()) == pytest.approx(min(model_flop.values()), rel=1e-3)
    done = {name: row["hardware_flops_per_device"] * row["time_s"] for name, row in rows.items()}
    again = 2.0 * 8 * 8192 * 4096 * 128256 / 8  # the head's product, once more
    assert done["cut"] - done["whole"] == pytest.approx(again, rel=1e-6)
    # no pass over logits in fp32: faster in all but the smallest chunks
    assert rows["chunked"]["lm_head_s"] < rows["whole"]["lm_head_s"] < rows["fused"]["lm_head_s"]


def test_megatrons_loss_is_the_default():
    named, default = run(*LLAMA, "model.loss=whole"), run(*LLAMA)
    for name in ("time_s", "footprint_B", "lm_head_s", "energy_J"):
        assert named[name] == default[name]


def test_more_chunks_than_tokens_are_one_line():
    reason = run(*LLAMA, "model.sequence=64", "model.loss=fused", "model.loss_chunks=65")["reason"]
    assert reason == "model.loss_chunks=65 is invalid: expected at most the 64 tokens of model.sequence"


def test_times_are_near_those_of_the_authors_of_cut_cross_entropy():
    """Of Gemma 2 2B, 8,192 tokens, A100 (arXiv:2411.09009, table 1); nothing is fitted to them."""
    base = ("model=gemma2_2b", "chip=a100", "system.devices=1", "parallel.strategy=TP-1", "model.batch=1")
    measured = {"eager": 0.208, "chunked": 0.169, "fused": 0.304, "cut": 0.145}
    for name, seconds in measured.items():
        row = run(*base, "model.sequence=8192", "parallel.recompute=full", f"model.loss={name}")
        # the kernel of `cut` skips most gradients, which is not counted
        assert row["lm_head_s"] == pytest.approx(seconds, rel=0.35 if name == "cut" else 0.15), name
