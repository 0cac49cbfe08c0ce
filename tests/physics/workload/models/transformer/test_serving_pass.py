"""Passes of serving libraries: what they compute, read and hold, against counts by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.performance.crossflow import predict
from fastflow.performance.serving.kv_cache import room_of_fullest_stage
from fastflow.performance.serving.layout import server_layouts
from fastflow.performance.serving.pipeline_stages import Stages, parts_of_model
from fastflow.physics.workload.graph import BATCHED, PRODUCT
from fastflow.physics.workload.models.transformer import serving_pass as served
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, kinds_of, times
from tests.naive import served_pass as naive

PARTS = ("tokens", "head", "decode", "prefill")
SIZES = {
    "expert_rows": 0,
    "sampler": "none",
    "expert_kernels": "cutlass",
    "latent": 0,
    "query_latent": 0,
    "rotary": 0,
    "window": 0,
    "experts": 0,
    "topk": 0,
    "shared_ffn": 0,
}
BASE = SIZES | {
    "layers": 4, "hidden": 512, "heads": 8, "kv_heads": 2, "head_dim": 64, "value_dim": 64, "ffn": 1024,
    "expert_ffn": 0, "vocabulary": 32000, "gated": True,
}  # fmt: skip
LATENT = {"latent": 128, "rotary": 32, "query_latent": 192}
SERVER = {key: np.array([value]) for key, value in (
    ("server.gpu_memory_utilization", 0.9), ("server.memory_fraction_of", "total"),
    ("server.shared_pages", False),
    ("server.max_num_batched_tokens", 8192),
)}  # fmt: skip
MIXTURE = {"experts": 16, "topk": 4, "expert_ffn": 256, "shared_ffn": 256}


@pytest.fixture(scope="module")
def inputs_of(compose):
    given_by = compose(
        "model=transformer", "chip=h100_sxm", "system=dgx_h100", "system.devices=1",
        "system.package.devices=1", "parallel.strategy=TP-1", "parallel.microbatches=1",
        "parallel.sequence_parallel=false", "model.training=false", "model.dtype=bf16",
    )  # fmt: skip

    def inputs(model, part, batch, sequence, before):
        columns = {f"model.{name}": value for name, value in model.items()}
        columns |= {
            "model.name": "served_pass", "model.pass": part, "model.batch": batch,
            "model.sequence": sequence, "model.before": before,
            "model.pattern": pattern_of(model),
        }  # fmt: skip
        return {key: np.array([value]) for key, value in (given_by | columns).items()}

    return inputs


def pattern_of(model):
    if model["experts"]:
        return "experts"
    return "window dense, dense" if model["window"] else "dense"


def flop_of(prediction):
    graph = prediction.graph
    assert prediction.reason.at(0) is None
    products = (graph.kind == PRODUCT) | (graph.kind == BATCHED)
    return float((prediction.pipeline.launches * prediction.timing.flop * products).sum())


@pytest.mark.parametrize("more", [{}, {"window": 96}, {"gated": False}, LATENT, MIXTURE, LATENT | MIXTURE])
@pytest.mark.parametrize("part", PARTS)
def test_operations_are_those_counted_by_hand(inputs_of, more, part):
    model = BASE | more
    batch, sequence, before = {"decode": (3, 2, 150), "prefill": (2, 200, 100)}.get(part, (24, 1, 0))
    result = flop_of(predict(inputs_of(model, part, batch, sequence, before)))
    want = {
        "tokens": lambda: naive.tokens_flop(model, batch),
        "head": lambda: naive.head_flop(model, batch),
        "decode": lambda: naive.decode_flop(model, batch, sequence, before),
        "prefill": lambda: naive.prefill_flop(model, batch, sequence, before),
    }[part]()
    assert result == pytest.approx(want, rel=1e-9)


def test_experts_without_tokens_are_read_where_a_library_pads_their_rows(inputs_of):
    def moved(rows, tokens):
        result = predict(inputs_of(BASE | MIXTURE | {"expert_rows": rows}, "tokens", tokens, 1, 0))
        graph = result.graph
        labels = [str(graph.names[one]) for one in graph.label]
        (up,) = [
            i for i, label in enumerate(labels) if "gate and up" in label and graph.launches.products[i] > 1
        ]
        return result.timing.bytes[up, -1]

    def of(experts, rows):
        return 2.0 * experts * (512 * 512 + rows * (512 + 512))

    # a token chooses four of sixteen experts
    assert (moved(0, 1), moved(128, 1)) == (of(4, 1), of(16, 128))
    assert moved(128, 2048) == moved(0, 2048) == of(16, 512)


@given(
    tokens=st.integers(1, 4000), tp=st.sampled_from([1, 2, 4, 8]),
    more=st.sampled_from([{}, {"window": 96}, LATENT]),
)  # fmt: skip
def test_the_cache_of_a_request_is_that_counted_by_hand(inputs_of, tokens, tp, more):
    model = BASE | more
    inputs = inputs_of(model, "decode", 1, 1, 0)
    inputs |= {"parallel.strategy": np.array([f"TP-{tp}"]), "system.devices": np.array([tp])}
    servers = server_layouts(inputs)
    pattern = str(inputs[KEY][0])
    kinds = np.array([[times(pattern, 4)[kind] for kind in kinds_of(pattern)]])
    stages = Stages(layers=kinds[:, None, :], widest=np.zeros(1), last=np.ones(1))
    lengths, weights = np.array([1.0 * tokens]), np.zeros((1, parts_of_model(inputs[KEY])))
    _, cache = room_of_fullest_stage(inputs | SERVER, servers, stages, weights, np.array([80e9]), lengths)
    result = cache.of(lengths)
    heads = max(1, -(-model["kv_heads"] // tp))
    want = naive.cache_bytes(model | {"kv_heads": heads}, tokens, 2)
    assert result[0] == pytest.approx(want, rel=1e-12)


def test_sums_are_made_with_the_norms_behind_them(inputs_of):
    result = predict(inputs_of(BASE, "tokens", 24, 1, 0))
    graph = result.graph
    passes = np.flatnonzero((graph.layer.kind == 1) & (graph.kind != PRODUCT))
    # a layer's two sums, and its activation
    assert passes.size == 3
    moved = graph.per_element.bytes[passes]
    assert sorted(moved) == [6.0, 8.0, 8.0]


def test_sums_make_no_norm_where_layers_begin_with_none(inputs_of):
    """Norms after each branch are separate kernels, and so is each sum: two tensors in, one out."""
    inputs = inputs_of(BASE, "tokens", 24, 1, 0) | {"model.block": np.array(["post"])}
    graph = predict(inputs).graph
    passes = np.flatnonzero((graph.layer.kind == 1) & (graph.kind != PRODUCT))
    # two norms, two sums, an activation
    assert sorted(graph.per_element.bytes[passes]) == [4.0, 4.0, 6.0, 6.0, 6.0]


@pytest.mark.parametrize(
    ("pattern", "layers", "want"),
    [
        ("dense", 4, [2.0 + 2.0, 4.0 + (2.0 + 2.0 + 2.0 + 1.0) / 4.0]),
        ("dense", 1, [2.0 + 2.0, 4.0 + 1.0]),
        ("no_ffn, 2*dense", 6, [2.0 + 1.0, 3.0 + 2.0, 4.0 + (2.0 + 1.0 + 2.0 + 1.0) / 4.0]),
    ],
)
def test_sums_make_both_norms_that_the_next_layer_reads(inputs_of, pattern, layers, want):
    """A tensor each, with the sum's own; a layer with one branch, and the head, begin with one norm."""
    model = BASE | {"layers": layers, "block": "parallel_norms"}
    inputs = inputs_of(model, "tokens", 24, 1, 0) | {KEY: np.array([pattern])}
    assert [layer.nodes[-1].cost.moves for layer in served.network(inputs).layers] == want


def test_models_of_several_depths_have_the_norms_of_each(inputs_of):
    inputs = inputs_of(BASE | {"block": "parallel_norms"}, "tokens", 24, 1, 0)
    both = {key: np.repeat(column, 2) for key, column in inputs.items()} | {"model.layers": np.array([1, 4])}
    assert served.network(both).layers[1].nodes[-1].cost.moves.tolist() == [5.0, 5.75]


@pytest.mark.parametrize(
    ("text", "devices", "want"),
    [
        ("TP-4", 4, (4, 1, 1, 1)), ("TP-4-d2", 8, (4, 1, 1, 2)), ("TP-2-p2", 8, (2, 1, 2, 2)),
        ("TP-1-e8-d8", 8, (1, 8, 1, 1)), ("TP-8-e8", 8, (8, 1, 1, 1)), ("TP-2-e8-d8", 16, (2, 4, 1, 2)),
        ("d4", 4, (1, 1, 1, 4)), ("TP-2-p3", 6, (2, 1, 3, 1)),
    ],
)  # fmt: skip
def test_server_layouts_a_strategy(inputs_of, text, devices, want):
    model = BASE | MIXTURE if "-e" in text else BASE
    inputs = inputs_of(model, "tokens", 1, 1, 0)
    inputs |= {"parallel.strategy": np.array([text]), "system.devices": np.array([devices])}
    result = server_layouts(inputs)
    assert result.reason.at(0) is None
    assert (result.tensor[0], result.ranks[0], result.slots[0], result.replicas[0]) == want


@pytest.mark.parametrize("text", ["RC-2-2", "TP-2-c2", "TP-1-p8", "TP-3"])
def test_what_makes_no_server_says_why(inputs_of, text):
    inputs = inputs_of(BASE, "tokens", 1, 1, 0)
    inputs |= {"parallel.strategy": np.array([text]), "system.devices": np.array([8])}
    result = server_layouts(inputs)
    assert str(result.reason.at(0)).startswith("parallel.strategy=")
