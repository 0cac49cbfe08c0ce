"""The LSTM language model against hand formulas (Sections 8 and 9)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.naive import lstm_lm, sharding
from tests.support.checks import cases, near

ELEMENT = {"fp16": 2, "bf16": 2, "fp32": 4}


@pytest.fixture(scope="module")
def base(compose):
    return compose("model=lstm_lm")


@given(
    st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 100_000), st.integers(1, 4),
    st.integers(1, 50), st.booleans(), st.sampled_from(["fp16", "bf16", "fp32"]),
    st.sampled_from(["adam", "momentum", "sgd"]), st.sampled_from([1, 2, 7, 512]),
)  # fmt: skip
@example(16384, 16384, 800_000, 2, 20, True, "fp16", "sgd", 512)
@example(16384, 16384, 800_000, 2, 20, False, "fp16", "sgd", 512)
@example(1, 1, 1, 1, 1, True, "fp16", "adam", 1)
@cases(150)
def test_memory(
    base, predict, hidden, batch, vocabulary, layers, sequence, training, dtype, optimizer, replicas
):
    point = base | {
        "model.hidden": hidden, "model.batch": batch, "model.vocabulary": vocabulary, "model.layers": layers,
        "model.sequence": sequence, "model.training": training, "model.dtype": dtype,
        "model.optimizer": optimizer, "system.devices": replicas, "parallel.strategy": f"d{replicas}",
        "tiling.samples": 1,
    }  # fmt: skip
    prediction = predict([point])
    memory = prediction.footprint
    weights = lstm_lm.parameters(hidden, vocabulary, layers)
    element = ELEMENT[dtype]
    # mixed precision: 2-byte weights and gradients, a 4-byte master copy, 4 bytes for every optimizer state
    master = 4 if training and element == 2 else 0
    states = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    assert memory.weights[0] == weights * (element + master)
    assert memory.gradients[0] == (weights * element if training else 0)
    assert memory.optimizer[0] == (weights * 4 * states if training else 0)
    # every step of a device's share of the sequences, and of its tokens
    rows, tokens = sharding.shard(batch, replicas), sharding.shard(batch * sequence, replicas)
    kept = lstm_lm.kept(hidden, rows, tokens, vocabulary, layers, sequence)
    assert near(memory.activations[0], kept * element if training else 0)


@pytest.mark.parametrize(
    ("strategy", "cut", "rows", "columns"),
    [
        ("d64", 1, 64, 1),
        ("RC-4-2-d8", 2, 32, 2),  # weights by KP2, sequences by DP and KP1, activations by KP2
        ("RC-1-8-d8", 8, 8, 8),
        ("RC-8-1-d8", 1, 64, 1),
        ("CR-8-d8", 8, 8, 8),  # weights by KP1, activations by the scatter of the sums
    ],
)
def test_memory_of_a_sharded_layer(base, predict, strategy, cut, rows, columns):
    """On sides that divide evenly: a sharded tensor is held once among the devices that share it."""
    hidden, batch, vocabulary, layers, sequence = 1024, 2048, 64_000, 2, 10
    point = base | {
        "model.hidden": hidden, "model.batch": batch, "model.vocabulary": vocabulary, "model.layers": layers,
        "model.sequence": sequence, "system.devices": 64, "parallel.strategy": strategy,
    }  # fmt: skip
    memory = predict([point]).footprint
    weights = lstm_lm.parameters(hidden, vocabulary, layers) / cut
    assert near(memory.weights[0], weights * 6)
    assert near(memory.gradients[0], weights * 2)
    # RC gathers what the next product reads whole: h of every step, and the embedding
    whole = 1 if strategy.startswith("RC") else columns
    tokens = batch * sequence / rows
    kept = tokens * layers * ((4 + 1) * hidden / columns + hidden / whole)
    kept += tokens * (hidden / whole + vocabulary / columns)
    assert near(memory.activations[0], kept * 2)


@given(
    st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 100_000), st.integers(1, 4),
    st.integers(1, 50), st.booleans(), st.sampled_from(["adam", "momentum", "sgd"]),
)  # fmt: skip
@example(16384, 16384, 800_000, 2, 20, True, "sgd")
@example(16384, 16384, 800_000, 2, 20, True, "adam")
@example(16384, 16384, 800_000, 2, 20, False, "sgd")
@cases(100)
def test_flop(base, summary, hidden, batch, vocabulary, layers, sequence, training, optimizer):
    point = base | {
        "model.hidden": hidden, "model.batch": batch, "model.vocabulary": vocabulary, "model.layers": layers,
        "model.sequence": sequence, "model.training": training, "model.optimizer": optimizer,
        "tiling.samples": 1,
    }  # fmt: skip
    got = summary([point])["flop"][0]
    assert near(got, lstm_lm.flop(hidden, batch, vocabulary, layers, sequence, training, optimizer))


def test_the_published_model_by_hand(base, predict, summary):
    """Hidden 16384, batch 16384, vocabulary 800 000, 2 layers, sequence 20, 512 nodes."""
    got = summary([base])
    cell = 2 * 16384 * 32768 * 65536  # one fused 4-gate GEMM
    projection = 2 * 16384 * 20 * 16384 * 800_000
    assert got["flop"][0] == pytest.approx(3 * (2 * 20 * cell + projection), rel=1e-3)
    assert lstm_lm.parameters(16384, 800_000, 2) == 2 * 800_000 * 16384 + 2 * 32768 * 65536
    assert predict([base]).footprint.weights[0] == 6 * lstm_lm.parameters(16384, 800_000, 2)
    assert got["devices"][0] == 512


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_kernels_of_the_graph(base, predict, layers):
    """Forward and backward of every layer and step, once each; a gradient for every tensor."""
    prediction = predict([base | {"model.layers": layers}])
    graph = prediction.graph
    launches = {}
    for row in range(graph.offset[1]):
        name = str(graph.names[graph.label[row]])
        launches[name] = launches.get(name, 0) + int(graph.launches.repeat[row])
    steps = base["model.sequence"]
    assert launches["lstm cell"] == launches["lstm cell input gradient"] == layers * steps
    assert launches["lstm cell weight gradient"] == layers
    assert (
        launches["softmax"] == launches["softmax input gradient"] == launches["softmax weight gradient"] == 1
    )
    assert launches["embedding"] == launches["embedding gradient"] == 1
    summed = (prediction.shards.gradient.collective > 0).sum()
    assert summed == layers + 2
