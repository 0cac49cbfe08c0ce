"""Fine-tuning with adapters (LoRA, QLoRA): operations, memory and exchanges, against counts by hand."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics import workload
from fastflow.physics.workload.graph import (
    BACKWARD,
    BASE,
    FORWARD,
    INPUT_GRADIENT,
    ON_WEIGHTS,
    PRODUCT,
    TRAINED,
    UPDATE,
    WEIGHT_GRADIENT,
)
from fastflow.physics.workload.models.transformer.lora import BASE_TYPES
from tests.naive import lora as naive
from tests.support.checks import cases, refusal
from tests.support.transformers import points, precision

LLAMA = naive.Llama(
    hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocabulary=128256, layers=32
)  # fmt: skip
ON_ONE = ("model=llama3_8b", "chip=h100_sxm", "system.devices=1", "parallel.strategy=d1")
KEYS = ("rank", "targets", "dropout", "base_dtype")
BASES, TARGETS = ("operand", *BASE_TYPES), tuple(naive.TARGETS)

sizes = st.builds(
    lambda dim, kv, group, ffn, vocabulary, layers: naive.Llama(
        kv * group * dim, kv * group, kv, dim, ffn, vocabulary, layers
    ),
    st.sampled_from((2, 4, 16)), st.integers(1, 3), st.integers(1, 3), st.integers(1, 60),
    st.integers(2, 90), st.integers(1, 4),
)  # fmt: skip
adapters = st.tuples(
    st.integers(1, 2), st.sampled_from(TARGETS), st.booleans(), st.sampled_from(BASES)
)  # fmt: skip


def graph_of(model, adapter=None, **changed):
    """The graph of a model with 16 tokens, whose weights have 2 bytes."""
    fields = model._asdict() | changed
    if adapter is not None:
        fields |= {f"lora.{key}": value for key, value in zip(KEYS, adapter, strict=True)}
    numbers = precision(1)
    two = np.array([2.0])
    return workload.build_graph(points(**fields), numbers._replace(weight=two, operand=two, activation=two))


def flop(graph, *kinds):
    """Operations of products of some kinds."""
    rows = np.isin(graph.kind, kinds)
    sides = 2.0 * graph.rows * graph.inner * graph.cols * graph.launches.times
    return sides[rows].sum()


def owned(graph, which):
    """Weights of a kind."""
    rows = graph.memory.weights == which
    return (graph.inner * graph.cols * graph.launches.products * graph.launches.times)[rows].sum()


@cases(60)
@given(sizes, adapters)
def test_operations_and_weights_are_counted_by_hand(model, adapter):
    rank, targets, _, base = adapter
    graph = graph_of(model, adapter)
    forward, backward = naive.product_flop(model, 16, targets, rank)
    assert flop(graph, PRODUCT) == forward
    assert flop(graph, INPUT_GRADIENT, WEIGHT_GRADIENT) == backward
    trained = naive.adapter_weights(model, targets, rank)
    assert owned(graph, TRAINED) == trained
    assert flop(graph, WEIGHT_GRADIENT) == 2 * 16 * trained
    assert owned(graph, BASE) == model.frozen + model.tables
    passes = (graph.kind == ON_WEIGHTS) & (graph.phase < UPDATE)
    moved = (graph.per_element.bytes * graph.inner * graph.cols * graph.launches.times)[passes].sum()
    skipped = 0.0  # of a single layer, whose first products need no gradient of their input
    if model.layers == 1 and base != "operand":
        each = naive.STORED[base] + 2.0
        skipped = each * sum(np.prod(model.matrices[name]) for name in naive.below(targets))
    assert moved == pytest.approx(naive.converted(model, base) - skipped, rel=2e-4)  # 4.127 is rounded


@cases(60)
@given(sizes, adapters)
def test_what_a_layer_keeps_is_counted_by_hand(model, adapter):
    rank, targets, dropout, _ = adapter
    graph = graph_of(model._replace(layers=2), adapter)
    saved = graph.memory.saved_cols + graph.memory.saved_whole_cols
    elements = graph.rows * graph.launches.repeat * graph.launches.batch * saved
    in_layer = graph.layer.number == 1
    even = np.array([k % 2 for k, _ in model.matrices.values()]).sum() == 0  # masks of whole elements
    expected = 16 * naive.kept(model, targets, rank, dropout)
    got = 2.0 * elements[in_layer].sum()
    if even or not dropout:
        assert got == expected
    else:
        assert expected <= got <= expected + 16 * 2 * 7


@cases(40)
@given(sizes, adapters)
def test_frozen_weights_have_no_gradient_and_no_update(model, adapter):
    graph = graph_of(model, adapter)
    labels = graph.names[graph.label]
    updates = labels[graph.phase == UPDATE]
    assert all(" lora " in label for label in updates)
    assert all(" lora " in label for label in labels[graph.gradient > 0])
    assert not (graph.phase[graph.memory.weights > 0] > FORWARD).any()
    assert "embedding gradient" not in labels
    names = set(labels[graph.phase == BACKWARD])
    assert ("attention norm gradient" in names) == (model.layers > 1)  # below the first trained weights


@pytest.mark.parametrize("targets", TARGETS)
def test_a_frozen_weight_has_four_operations_a_token(targets):
    """And a trained one six; the rest is attention."""
    fields = LLAMA._asdict()
    frozen, whole = (
        graph_of(LLAMA, (1, targets, False, "operand")), workload.build_graph(points(**fields), precision(1))
    )  # fmt: skip
    kinds = PRODUCT, INPUT_GRADIENT, WEIGHT_GRADIENT
    weights = LLAMA.frozen + LLAMA.vocabulary * LLAMA.hidden
    assert flop(frozen, *kinds) / (16 * weights) == pytest.approx(4.0, rel=1e-3)
    assert flop(whole, *kinds) / (16 * weights) == 6.0


def test_without_a_rank_nothing_changes():
    """To the bit, and a grid may mix both."""
    run = (*ON_ONE, "model.batch=2", "model.sequence=512")
    plain = fastflow.evaluate(*run)
    grid = fastflow.evaluate(*run, "model.lora.rank=0,8,64")
    for column in ("time_s", "flop", "footprint_B", "energy_J", "parameters"):
        assert grid[column][0] == plain[column][0]
    assert grid.time_s[0] > grid.time_s[2] > grid.time_s[1]
    assert grid.parameters.nunique() == 1  # adapters do not count
    assert (np.diff(grid.gradient_B[1:]) > 0).all()


@cache
def row(*overrides):
    made = fastflow.evaluate(*overrides).iloc[0]
    assert made.reason == ""
    return made


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("targets", TARGETS)
def test_memory_is_counted_by_hand(targets, base):
    asked = f"model.lora.rank=16 model.lora.targets={targets} model.lora.base_dtype={base}".split()
    got = row(*ON_ONE, "model.batch=1", "model.sequence=2048", *asked)
    expected = naive.memory(LLAMA, targets, 16, base)
    for part, column in zip(expected, ("weight_B", "gradient_B", "optimizer_B", "buffer_B"), strict=True):
        assert got[column] == pytest.approx(part, rel=1e-5)  # 4.127 is rounded


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("strategy", "replicas"), [("d8", 8), ("TP-2-d4", 8), ("TP-8", 8)])
def test_fully_sharded_devices_have_a_share_of_the_base(strategy, replicas, base):
    """Tensor parallelism has copies of adapters' narrow sides, which ZeRO shards too."""
    asked = f"model.lora.rank=16 model.lora.base_dtype={base} parallel.zero_stage=3".split()
    got = row("model=llama3_8b", "system=dgx_h100", f"parallel.strategy={strategy}", "model.batch=8", *asked)
    expected = naive.memory(LLAMA, "all_linear", 16, base, replicas, sharded=True)
    assert got.weight_B == pytest.approx(expected.weights, rel=1e-5)
    assert got.gradient_B == pytest.approx(expected.gradients, rel=1e-5)
    assert got.optimizer_B == pytest.approx(expected.optimizer, rel=1e-5)


def test_weights_are_gathered_as_they_are_stored():
    run = ("model=llama3_8b", "system=dgx_h100", "parallel.strategy=d8", "model.batch=8",
           "model.lora.rank=16", "parallel.zero_stage=3", "parallel.overlap.data=false")  # fmt: skip
    wide, narrow = (row(*run, f"model.lora.base_dtype={base}").comm_s for base in ("operand", "nf4"))
    assert 0.25 < narrow / wide < 0.5


def test_devices_sum_gradients_of_adapters_alone():
    run = ("model=llama3_8b", "system=dgx_h100", "parallel.strategy=d8", "model.batch=8",
           "parallel.zero_stage=1", "model.layers=8")  # fmt: skip
    whole, adapted = row(*run), row(*run, "model.lora.rank=16")
    assert adapted.comm_s < 0.1 * whole.comm_s


@pytest.mark.parametrize("strategy", ["TP-2-d4", "TP-8", "TP-2-c2-d2", "TP-2-d2-p2", "TP-1-d4-p2x2"])
def test_every_layout_does_the_same_work(strategy):
    asked = ("model.lora.rank=16", "model.lora.base_dtype=nf4", "model.lora.dropout=true", "model.batch=8")
    run = ("model=llama3_8b", "system=dgx_h100")
    one, other = (row(*run, *asked, f"parallel.strategy={each}") for each in ("d8", strategy))
    assert other.flop == one.flop
    plain = row(*run, "model.batch=8", f"parallel.strategy={strategy}")
    assert other.footprint_B < plain.footprint_B


@pytest.mark.parametrize("tensor", [2, 4, 8])
@pytest.mark.parametrize("targets", TARGETS)
def test_bytes_of_a_layer_are_counted_by_hand(targets, tensor):
    """What all but sums of gradients move, of a micro-batch of a sequence."""
    kernels = fastflow.explain_sharding(
        "model=llama3_8b", "system=dgx_h100", f"parallel.strategy=TP-{tensor}-d{8 // tensor}",
        "parallel.microbatch=1", "model.batch=8", "model.sequence=1024", "model.layers=4",
        "model.lora.rank=16", f"model.lora.targets={targets}",
    )  # fmt: skip
    result = Counter()
    for each in kernels[(kernels.layer == 1) & (kernels.phase != "update")].to_dict("records"):
        moved = (each["sync_B"], each.get("sync2_B", 0.0))
        for collective, amount in zip(each["exchange"].split("; "), moved, strict=False):
            if collective and not each["kernel"].endswith("weight gradient"):
                result[collective.partition(", ")[0]] += amount
    assert result == naive.exchanged(LLAMA, 1024, targets, 16)


def test_dropout_of_adapters_takes_memory_and_time():
    run = (*ON_ONE, "model.batch=1", "model.sequence=2048", "model.lora.rank=16")
    dry, dropped = row(*run), row(*run, "model.lora.dropout=true")
    more = naive.kept(LLAMA, "all_linear", 16, True) - naive.kept(LLAMA, "all_linear", 16, False)
    assert dropped.activation_B - dry.activation_B == pytest.approx(2048 * 32 * more)
    assert dropped.forward_s > dry.forward_s
    assert dropped.backward_s > dry.backward_s


def test_narrow_weights_take_time_to_convert():
    run = (*ON_ONE, "model.batch=1", "model.sequence=2048", "model.lora.rank=16")
    one = row(*run)
    for base in BASE_TYPES:
        other = row(*run, f"model.lora.base_dtype={base}")
        least = naive.converted(LLAMA, base) / 3.35e12
        assert least < other.time_s - one.time_s < 2.0 * least


def test_experts_may_have_adapters():
    run = ("model=mixtral_8x7b", "chip=h200_sxm", "system.devices=8", "parallel.strategy=TP-4-d2",
           "model.batch=8", "model.sequence=1024", "model.lora.rank=8")  # fmt: skip
    without, having = row(*run), row(*run, "model.lora.targets=experts")
    each = 8 * 8 * (2 * (4096 + 14336) + 14336 + 4096) * 32
    assert having.gradient_B - without.gradient_B >= 2.0 * each / 8
    assert having.time_s > without.time_s


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("model.lora.rank=0", "model.lora.base_dtype=nf4"), "model.lora.base_dtype=nf4 is invalid"),
        (("model.lora.base_dtype=nf4",), "model.lora.base_dtype=nf4 is invalid: expected operand with"),
        (("model.lora.rank=0", "model.lora.dropout=true"), "expected false with model.lora.rank=0"),
        (("model.lora.rank=5000",), "model.lora.rank=5000 is invalid: expected at most the 4096"),
        (("model.lora.rank=8", "model.training=false"), "expected 0 with model.training=false"),
        (("model.lora.rank=8", "model.lora.targets=experts"), "layer has: experts in a mixture"),
        (("model.lora.rank=8", "model.lora.base_dtype=nf4", "model.dtype=fp8"), "operand where products are"),
        (("model.lora.rank=8", "model.lora.targets=head"), "one of qv, attention, mlp, all_linear, experts"),
        (("model.lora.rank=8", "model.lora.targets=mlp", "model.pattern=no_ffn"), "mlp where a dense"),
        (("model.lora.rank=8", "model.lora.targets=qv", "model.latent=64"), "where queries or keys"),
        (("model.lora.rank=8", "serve=prefill", "parallel.strategy=TP-1"), "model.lora.rank=8 is invalid"),
    ],
)
def test_what_contradicts_is_named(overrides, message):
    assert message in refusal(*ON_ONE, "model.batch=1", "model.sequence=512", *overrides)


@pytest.mark.parametrize(
    "key", ["model.lora.rank=8", "model.document_length=64", "model.preference=dpo"]
)  # fmt: skip
def test_encoders_have_no_such_training(key):
    run = ("model=bert_base", "chip=h100_sxm", "system.devices=1", "parallel.strategy=d1", "model.batch=8")
    assert f"{key} is invalid: expected" in refusal(*run, key)


def test_qlora_fits_where_its_authors_say():
    """65 billion parameters on a card of 48 GB, with a paged optimizer (arXiv:2305.14314, section 3)."""
    llama_65b = (
        "model=transformer", "model.layers=80", "model.hidden=8192", "model.heads=64", "model.ffn=22016",
        "model.vocabulary=32000", "chip=a6000", "system.devices=1", "parallel.strategy=d1", "model.batch=16",
        "parallel.microbatch=1", "model.sequence=512", "parallel.recompute=full", "model.lora.rank=64",
    )  # fmt: skip
    assert row(*llama_65b, "model.lora.base_dtype=nf4", "parallel.offload=optimizer").footprint_B < 48 * 2**30
    assert row(*llama_65b, "chip=b300_sxm").footprint_B > 130e9


def test_memory_is_near_that_of_torchtune():
    """Llama 3.1 8B, two sequences of 2048 tokens (pytorch/torchtune, README.md at 0031bfb).

    It makes the loss in chunks, so that logits in fp32 are not kept.
    """
    run = (*ON_ONE, "model.batch=2", "parallel.microbatch=2", "model.sequence=2048", "model.lora.rank=8",
           "parallel.recompute=full")  # fmt: skip
    logits = 4.0 * 2 * 2048 * LLAMA.vocabulary
    for base, gib in (("operand", 16.2), ("nf4", 7.4)):
        got = row(*run, f"model.lora.base_dtype={base}").allocated_B - logits
        assert got == pytest.approx(gib * 2**30, rel=0.08)
