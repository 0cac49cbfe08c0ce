"""Kernels of linear-time mixers: their operations are those of the recurrences, their times those by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.physics.workload.autodiff import kernels
from fastflow.physics.workload.graph import BACKWARD, FORWARD, HIDDEN
from fastflow.physics.workload.models.linear_attention import CHUNKS, KERNELS, STEPS
from fastflow.physics.workload.network import INPUT, Layer, Node, connect
from fastflow.physics.workload.ops import TYPES
from fastflow.physics.workload.ops.linear_attention import Product, Sizes, steps_of
from fastflow.physics.workload.ops.recurrence import (
    RULES,
    RecurrenceSizes,
    convolution,
    recurrence,
    state_bytes,
    window_elements,
)
from fastflow.physics.workload.ops.recurrence.rule import Sides
from fastflow.physics.workload.precision import UNSIZED
from tests.naive import linear_kernels, mixers
from tests.support.checks import cases, near
from tests.support.devices import device_of

IN_CHUNKS = [name for name, rule in RULES.items() if not rule.on_lanes]
SUB_BLOCK = 32


@pytest.mark.parametrize("rule", IN_CHUNKS)
@given(st.integers(1, 3), st.integers(2, 9), st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
@cases(15)
def test_chunks_give_what_steps_give_with_the_operations_of_the_rule(rule, chunks, chunk, key, value, seed):
    sub_block = SUB_BLOCK if rule == "lightning" else 0
    chunk = chunk % 3 * SUB_BLOCK + SUB_BLOCK if sub_block else chunk
    given_inputs = mixers.inputs(rule, np.random.default_rng(seed), chunks * chunk, key, value)
    tally, times = mixers.Tally(), mixers.Counter()
    slow = mixers.by_steps(rule, given_inputs, tally)
    quick = mixers.by_chunks(rule, given_inputs, chunk, times, sub_block)
    assert np.allclose(slow, quick)
    flop = RULES[rule].flop(Sides(float(key), float(value), float(chunk), 1.0))
    assert near(chunks * chunk * flop, times.flop)


@pytest.mark.parametrize("rule", RULES)
@given(st.integers(1, 9), st.integers(1, 6), st.integers(1, 6))
@cases(5)
def test_a_step_reads_and_writes_the_state_once(rule, tokens, key, value):
    tally = mixers.Tally()
    mixers.by_steps(rule, mixers.inputs(rule, np.random.default_rng(0), tokens, key, value), tally)
    assert tally.flop == tokens * RULES[rule].step_flop * key * value
    state = state_bytes(RecurrenceSizes(1, 1, 1, key, 1, value, 4.0))
    assert tally.moved * 4.0 == tokens * 2 * state


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
@cases(15)
def test_the_selective_scan_is_a_scan_of_pairs(tokens, key, value, seed):
    inputs = mixers.inputs("selective_scan", np.random.default_rng(seed), tokens, key, value)
    tally = mixers.Tally()
    assert np.allclose(mixers.by_steps("selective_scan", inputs, tally), mixers.scan_of_pairs(inputs))
    flop = RULES["selective_scan"].flop(Sides(float(key), float(value), 1.0, 1.0))
    assert near(tokens * flop, tally.flop)


@pytest.mark.parametrize("rule", ["gated_delta", "state_space"])
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 300), st.integers(1, 300))
@cases(15)
def test_types_of_graph_files_have_the_operations_of_the_rules(rule, chunks, groups, heads, key, value):
    chunk, shared = RULES[rule].chunk, heads if rule == "state_space" else 1
    sizes = Sizes(2, chunks * chunk, groups * shared, groups, key, value, chunk)
    work = sum(
        2.0 * step.products * step.m * step.k * step.n if isinstance(step, Product) else 0.0
        for step in steps_of(rule, sizes)
    )
    inverse = chunk * chunk / 3 if rule == "gated_delta" else 0.0
    flop = RULES[rule].flop(Sides(float(key), float(value), float(chunk), float(shared))) - inverse
    assert near(2 * chunks * chunk * sizes.heads * flop, work)


# --- times


@st.composite
def points(draw):
    sizes = {
        "batch": draw(st.sampled_from([1, 3, 64, 1024])), "tokens": draw(st.integers(1, 5000)),
        "channels": draw(st.integers(1, 9000)), "conv_width": draw(st.integers(1, 8)),
        "key_heads": draw(st.sampled_from([1, 4, 16])), "key_dim": draw(st.sampled_from([16, 64, 128])),
        "value_dim": draw(st.sampled_from([1, 16, 64, 128])),
    }  # fmt: skip
    return sizes | {"value_heads": sizes["key_heads"] * draw(st.integers(1, 4))}


@pytest.mark.parametrize("chip", ["h100_sxm", "a100_sxm_80"])
@given(points(), st.sampled_from(["fp32", "bf16"]))
@cases(4)
def test_times_are_those_by_hand(chip, point, state):
    made = device_of(chip)
    simple = SimpleNamespace(
        bundles=made.instances[0], bandwidths=made.memories.bandwidth[0], issue=made.issue[0],
        launch=made.library.launch[0], latency=made.library.latency[0],
    )  # fmt: skip
    df = fastflow.evaluate(
        "model=linear_attention", f"model.kernel={','.join(KERNELS)}", "model.training=false,true",
        f"model.state_dtype={state}", f"chip={chip}",
        *(f"model.{name}={value}" for name, value in point.items()),
    )  # fmt: skip
    for row in df.to_dict("records"):
        kernel, trains = row["model.kernel"], row["model.training"]
        if trains and kernel.endswith("_step"):
            assert row["reason"].endswith("expected a kernel of prompts where model.training=true")
            continue
        expected = by_hand(simple, kernel, point, {"fp32": 4, "bf16": 2}[state], backward=False)
        if trains:
            expected += by_hand(simple, kernel, point, {"fp32": 4, "bf16": 2}[state], backward=True)
        assert near(row["time_s"], expected, rel=1e-9), kernel


def by_hand(chip, kernel, point, state_size, backward):
    if kernel == "convolution":
        return linear_kernels.convolution(
            chip, point["batch"], point["tokens"], point["channels"], 2, backward
        )
    if kernel == "convolution_step":
        sizes = (point["batch"], point["channels"], point["conv_width"])
        return linear_kernels.convolution_step(chip, *sizes, 2)
    heads = (point["key_heads"], point["key_dim"], point["value_heads"], point["value_dim"])
    if kernel in STEPS:
        return linear_kernels.step(chip, STEPS[kernel], point["batch"], *heads, state_size, 2)
    sizes = (point["batch"], point["tokens"], *heads, state_size, 2)
    if RULES[CHUNKS[kernel]].on_lanes:
        return linear_kernels.scan(chip, *sizes, backward)
    return linear_kernels.chunks(chip, CHUNKS[kernel], *sizes, backward)


def test_a_longer_prompt_never_takes_less_time():
    df = fastflow.evaluate(
        "model=linear_attention", f"model.kernel={','.join(KERNELS)}", "chip=h100_sxm",
        "model.tokens=range(8,4097,72)",
    )  # fmt: skip
    for _, times in df.groupby("model.kernel")["time_s"]:
        assert (np.diff(times) >= 0.0).all()


def test_heads_of_values_that_no_key_divides_are_a_reason():
    df = fastflow.evaluate(
        "model=linear_attention", "model.key_heads=3,4", "model.value_heads=8", "chip=h100_sxm"
    )
    assert df.reason[0] == "model.key_heads=3 is invalid: expected a divisor of model.value_heads, 8"
    assert df.reason.isna()[1] or df.reason[1] == ""


# --- the backward pass


def mixer(rule):
    """Return a product, a convolution, a recurrence that reads it, and a product, as a layer's nodes."""
    sizes = RecurrenceSizes(4, 512, 8, 32, 16, 64, 4.0)
    product = {"type": TYPES["gemm"], "rows": 4 * 512}
    columns = 2 * 8 * 32 + 16 * 64
    return (
        Node(name="in", cols=columns + 100, inner=256, reads=(INPUT,), **product),
        convolution("convolution", 4, 512, columns, 4, reads=("in",)),
        recurrence("recurrence", rule, sizes, reads=("convolution",)),
        Node(name="out", cols=256, inner=16 * 64, reads=("recurrence",), **product),
    )


@pytest.mark.parametrize("rule", RULES)
def test_training_has_two_gradients_of_each_product(rule):
    nodes = mixer(rule)
    launched = kernels(connect([Layer("mixer", HIDDEN, nodes)]), True, UNSIZED)
    labels = [kernel.label for kernel in launched if kernel.phase == BACKWARD]
    assert labels.index("recurrence gradient") + 1 == labels.index("convolution gradient")
    assert labels.index("convolution gradient") < labels.index("in weight gradient")
    work = {
        (kernel.form.type.title, kernel.phase): float(kernel.per_element.flop) * kernel.rows * kernel.cols
        for kernel in launched
        if kernel.attributes
    }
    title = nodes[2].type.title
    assert work[title, BACKWARD] == 2 * work[title, FORWARD] > 0
    silu, weights = 4, 2 * 4  # operations of SiLU, and of the sum over four tokens, for each element
    ratio = work["causal convolution", BACKWARD] / work["causal convolution", FORWARD]
    assert near(ratio, (2 * weights + 2 * silu) / (weights + silu))


def test_frozen_inputs_have_no_gradient():
    nodes = mixer("gated_delta")[1:3]
    nodes = (nodes[0]._replace(reads=(INPUT,)), nodes[1])
    launched = kernels(connect([Layer("mixer", HIDDEN, nodes)]), True, UNSIZED)
    assert all(kernel.phase == FORWARD for kernel in launched)


def test_saved_activations_and_weights():
    """Inputs are saved, and what the authors' kernels save: squares of a chunk's tokens, of each head."""
    for rule, pairs in (("gated_delta", 64), ("kimi_delta", 3 * 64), ("gated_linear", 2 * 64)):
        _, conv, node, _ = mixer(rule)
        assert node.keeps == 16 * 64 + 16 * pairs
    assert mixer("retention")[2].keeps is None
    assert conv.vectors == 4 * conv.cols
    assert window_elements(100, 4) == 300
    assert window_elements(100, 0) == 0


# --- sharding

MODEL = (
    "model=transformer", "model.layers=2", "model.hidden=1024", "model.heads=8", "model.ffn=2048",
    "model.linear_heads=16", "model.linear_key_heads=8", "model.linear_key_dim=64", "model.conv_width=4",
    "model.batch=16", "model.sequence=4096", "model.dtype=bf16", "chip=h100_sxm", "system.devices=8",
    "model.training=true", "model.vocabulary=1024",
)  # fmt: skip
RECURRENT = ("convolution", "recurrence")


@pytest.mark.parametrize("kind", ["gated_delta dense", "mamba2 dense"])
@pytest.mark.parametrize(
    ("strategy", "makes", "exchanged"),
    [
        ("d8", "dp: S(rows)", ""),
        ("TP-8", "tp: S(heads)", ""),
        ("TP-1-c8", "cp: S(heads)", "all-to-all along cp"),
        ("TP-2-c4", "tp: S(heads), cp: S(heads)", "all-to-all along cp"),
    ],
)
def test_sequences_and_heads_are_sharded_and_tokens_exchanged_for_heads(kind, strategy, makes, exchanged):
    """Ring attention and all-to-all alike; with the latter the norm after a recurrence has heads, too."""
    between = {"p2p": ("recurrence", "gated norm gradient"), "a2a": ("gated norm",)}
    for context, kernels_between in between.items():
        explained = fastflow.explain_sharding(
            *MODEL, f"model.pattern='{kind}'", f"parallel.strategy={strategy}",
            f"parallel.cp_comm_type={context}",
        ).set_index("kernel")  # fmt: skip
        assert set(explained.loc[[*RECURRENT], "makes"].str.replace("batch", "rows")) == {makes}
        exchanges = explained["exchange"]
        for kernel in ("mixer in", "convolution gradient", *kernels_between):
            assert exchanges[kernel].startswith(exchanged) if exchanged else "cp" not in exchanges[kernel]
        assert exchanges["convolution"] == exchanges["recurrence gradient"] == ""


def test_tokens_for_heads_move_a_share_of_each_tensor():
    """An all-to-all is of a device's tokens: of the columns of the product, and of the recurrence."""
    explained = fastflow.explain_sharding(
        *MODEL, "model.pattern='gated_delta dense'", "parallel.strategy=TP-2-c4"
    ).set_index("kernel")
    sent, tokens = explained["sync_B"], 4096 // 4
    values, keys = 16 * 64, 8 * 64
    assert sent["mixer in"] == 2 * tokens * (2 * keys + 2 * values + 2 * 16) // 2
    assert sent["recurrence"] == 2 * tokens * values // 2
    assert sent["convolution gradient"] == 2 * tokens * (2 * keys + values) // 2


def test_a_sequence_is_never_cut_for_free():
    """A device has at least a sequence; tokens over devices take messages, and the waits of all chunks."""
    costs = {
        strategy: fastflow.evaluate(
            *MODEL, "model.pattern='gated_delta no_ffn'", f"parallel.strategy={strategy}"
        ).comm_s[0]
        for strategy in ("d8", "TP-1-c8")
    }
    assert costs["TP-1-c8"] > costs["d8"]
    for kernel in ("gated_delta_chunks", "selective_scan_chunks", "convolution"):
        two, eight, rows = (
            recurrent_time(f"model.kernel={kernel}", "model.batch=2", *strategy)
            for strategy in (
                ("parallel.strategy=d2", "system.devices=2"),
                ("parallel.strategy=d8", "system.devices=8"),
                ("parallel.strategy=RC-8-1", "system.devices=8"),
            )
        )
        assert two == eight == rows


def recurrent_time(*overrides):
    """Return the seconds of chunks of a recurrence."""
    return fastflow.evaluate("model=linear_attention", "chip=h100_sxm", *overrides).time_s[0]
