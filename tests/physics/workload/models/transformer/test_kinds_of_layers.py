"""Kinds of layers with sizes of their own, hyper-connections, per-layer embeddings, latent experts."""

import numpy as np
import pytest

import fastflow
from fastflow.physics import workload
from fastflow.physics.workload import parameters_of
from fastflow.physics.workload.models.transformer import serving_pass as served
from fastflow.physics.workload.models.transformer.dimensions import sizes_of
from fastflow.physics.workload.models.transformer.layer_kind import NO_FEED_FORWARD, OWN_SIZES, LayerKind
from fastflow.physics.workload.models.transformer.layer_pattern import kinds_of, unused_sizes
from fastflow.physics.workload.models.transformer.mixer import MIXERS
from fastflow.physics.workload.models.transformer.network import block, network
from fastflow.physics.workload.models.transformer.parameters import parameters
from fastflow.physics.workload.network import INPUT
from fastflow.physics.workload.precision import precision
from fastflow.reporting.terminal.point import SHOWN_PREFIXES, title_parts
from tests.naive import layer_kinds as naive
from tests.support.transformers import points

BASE = {
    "layers": 6, "hidden": 256, "heads": 8, "kv_heads": 4, "head_dim": 32, "ffn": 512, "vocabulary": 1000,
}  # fmt: skip
CASES = [
    {"pattern": "5*window dense(heads=4 kv_heads=2 head_dim=64), dense", "window": 128},
    {"pattern": "dense, shared_kv dense, equal_kv dense(ffn=300)"},
    {"pattern": "no_ffn, no_mixer dense"},
    {"pattern": "2*dense, experts(experts=16 expert_ffn=96)", "experts": 8, "topk": 2, "expert_ffn": 64},
    {"pattern": "experts", "experts": 8, "topk": 2, "expert_ffn": 64, "expert_latent": 48, "shared_ffn": 100},
    {"streams": 4},
    {"layer_embedding": 24},
    {"query_latent": 40},
    {"query_latent": 40, "position": "none", "pattern": "window dense, dense", "window": 64},
    {"output_gate": "full"},
    {"output_gate": "head"},
    {"pattern": "chunked dense, dense", "window": 64},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parameters_are_those_of_every_tensor(case):
    model = BASE | case
    total, active = parameters(points(**model))
    expected = naive.tensors(model)
    assert total[0] == sum(np.prod(shape) for shape in expected.values())
    assert active[0] <= total[0]


def attention_flop(**changed):
    """Operations of attention in a layer that trains."""
    (node,) = (
        node
        for layer in network(points(**BASE | {"sequence": 4096, "batch": 1} | changed)).layers
        for node in layer.nodes
        if node.name == "attention"
    )
    return float(np.max(node.cost.flop * node.rows * node.cols * node.batch))


@pytest.mark.parametrize("density", [0.05, 0.25, 0.8])
def test_a_mask_keeps_its_share_of_the_keys(density):
    assert attention_flop(density=density) == pytest.approx(density * attention_flop(), rel=0.01)


@pytest.mark.parametrize("sequence", [4096, 5000, 64])
@pytest.mark.parametrize("chunk", [64, 1000, 4096])
def test_a_query_sees_the_keys_before_it_in_its_chunk(chunk, sequence):
    """Each token of a sequence, one after the other."""
    seen, full = sum(token % chunk + 1 for token in range(sequence)), sum(range(1, sequence + 1))
    flop = attention_flop(pattern="chunked dense", window=chunk, sequence=sequence)
    assert flop == pytest.approx(attention_flop(sequence=sequence) * seen / full, rel=0.02)


UNFUSED = (
    "model=transformer", "model.fused_attention=false", "model.layers=4", "model.batch=8", "chip=h100_sxm",
    "parallel.strategy=d8", "system.devices=8",
)  # fmt: skip


@pytest.mark.parametrize(
    ("masked", "keys"),
    [
        (("model.pattern='window dense'", "model.window=64"), "model.window"),
        (("model.pattern='chunked dense'", "model.window=64"), "model.window"),
        (("model.density=0.1",), "model.density"),
    ],
)
def test_unfused_attention_scores_all_keys_and_says_so(masked, keys):
    """As in Megatron-LM: a mask saves nothing, and the softmax reads what it masks, and the mask."""
    whole, some = (fastflow.evaluate(*UNFUSED, *more).iloc[0] for more in ((), masked))
    assert some["flop"] == whole["flop"]
    assert 1.0 < some["time_s"] / whole["time_s"] < 1.2
    shown = {"model.fused_attention": False, "model.pattern": "dense"}
    shown |= {key: value.strip("'") for key, value in (override.split("=") for override in masked)}
    shown |= {keys: float(shown[keys])}
    assert all(key.startswith(SHOWN_PREFIXES) for key in shown)
    assert f"unfused attention to all keys, whatever {keys}" in [*title_parts(some.to_dict() | shown)][-1]


def test_a_window_that_reaches_all_keys_is_no_mask():
    whole, wide = (
        fastflow.evaluate(*UNFUSED, *more) for more in ((), ("model.pattern=window", "model.window=4096"))
    )
    assert whole["time_s"][0] == wide["time_s"][0]


MANY = {"pattern": "compressed dense", "window": 16, "index_heads": 2, "index_dim": 32}


@pytest.mark.parametrize(
    "changed",
    [
        MANY | {"compression": [1, 4]}, MANY | {"compression": 4, "index_topk": [0, 64]},
        {"latent": [0, 64], "rotary": [0, 16]}, {"query_latent": [0, 40]},
        {"streams": [1, 4]}, {"density": [0.0, 0.5]},
        {"conv_width": [0, 4], "pattern": "gated_delta dense", "linear_heads": 4, "linear_key_dim": 32},
        {"expert_latent": [0, 48], "pattern": "experts", "experts": 8, "topk": 2},
    ],
    ids=str,
)  # fmt: skip
def test_points_of_a_grid_are_what_they_are_alone(changed):
    """Parameters and caches of a point do not depend on the other points of a call."""
    both = points(**BASE | changed)
    both |= {key: np.full(2, value) for key, value in SERVING.items()}
    together = [parameters_of(both)[0], *cache_of(both)]
    for i in range(2):
        alone = {key: column[[i]] for key, column in both.items()}
        assert [column[i] for column in together] == [
            column[0] for column in (parameters_of(alone)[0], *cache_of(alone))
        ]


SERVING = {
    "precision.cache": "operand", "precision.weight": "operand", "precision.activation": "operand",
    "precision.gradient": "operand", "precision.state": "operand", "precision.master": "none",
    "precision.fp8_param_gather": "false",
    "precision.attention": "auto", "precision.experts": "operand",
}  # fmt: skip


def cache_of(inputs):
    """Bytes of a request in the layers of a kind."""
    (kind,) = kinds_of(str(inputs["model.pattern"][0]))
    tensor = np.ones(inputs["model.layers"].size, dtype=np.int64)
    (mixer,) = kind.mixers
    return MIXERS[mixer].cache(inputs, sizes_of(inputs, kind), kind, precision(inputs), tensor)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"streams": 4, "block": "parallel"}, "0 with model.block=parallel"),
        ({"streams": 4, "layer_embedding": 8}, "0 with model.streams=4"),
        ({"streams": 4, "dropout": True}, "0 with model.dropout"),
        ({"latent": 64, "rotary": 16, "pattern": "shared_kv dense"}, "where keys are latent"),
        ({"query_latent": 40, "pattern": "shared_kv dense"}, "where queries are latent"),
        ({"query_latent": 40, "pattern": "no_mixer dense"}, "0, unless model.pattern has layers with"),
        ({"density": 0.5, "pattern": "window dense", "window": 8}, "0, unless model.pattern has layers with"),
        (MANY | {"compression": 4, "index_topk": 8, "index_heads": 0}, "at least 1, since an indexer"),
        ({"pattern": "dense(heads=1000000000 head_dim=1000000000)"}, "so small that all heads"),
    ],
    ids=str,
)  # fmt: skip
def test_what_would_do_nothing_is_refused(changed, says):
    reason = workload.invalid_model_dims(points(**BASE | changed)).reason[0]
    assert says in str(reason)


LINEAR = {"linear_heads": 4, "linear_key_dim": 32, "conv_width": 4}
MIXED = {"experts": 8, "topk": 2}


@pytest.mark.parametrize(
    ("pattern", "more", "says"),
    [
        ("mamba2 no_ffn(ffn=5)", LINEAR, "no ffn in mamba2 no_ffn(ffn=5), since only layers with zamba,"),
        ("dense(experts=8)", {}, "no experts in dense(experts=8), since only layers with experts use it"),
        ("gated_delta(kv_heads=2)", LINEAR, "only layers with attention, window, chunked, sparse,"),
        ("no_mixer dense(heads=2)", {}, "no heads in no_mixer dense(heads=2)"),
        ("dense(linear_heads=2)", {}, "only layers with gated_delta, kimi_delta,"),
        ("compressed(kv_heads=2)", MANY, "no kv_heads in compressed dense(kv_heads=2)"),
        ("mamba(linear_value_dim=8)", LINEAR, "no linear_value_dim in mamba"),
        ("dense(shared_ffn=8)", {}, "no shared_ffn in dense"),
        ("experts(ffn=64)", MIXED | {"expert_ffn": 32}, "no ffn in experts(ffn=64), whose experts have"),
        ("experts(ffn=64 expert_ffn=32)", MIXED, ", dense, or experts without expert_ffn use it"),
        (
            "window(kv_heads=2)",
            {"latent": 64, "rotary": 16, "window": 8},
            "no kv_heads in window dense(kv_heads=2), wh",
        ),
        ("local_linear", {"density": 0.5}, "0, unless model.pattern has layers with attention"),
    ],
)
def test_a_size_that_its_kind_does_not_use_is_refused(pattern, more, says):
    reason = str(workload.invalid_model_dims(points(**BASE | more | {"pattern": pattern})).reason[0])
    assert says in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("pattern", "more"),
    [
        ("attention mamba2 dense(heads=4 linear_heads=2 ffn=64)", LINEAR), ("experts(ffn=64)", MIXED),
        ("dense(ffn=64), no_mixer dense(ffn=32)", {}), ("equal_kv dense(value_dim=64 head_dim=64)", {}),
        ("local_linear(kv_heads=2)", {"latent": 64}),
        ("shared_kv experts(experts=4 topk=1 shared_ffn=16)", MIXED),
    ],
)  # fmt: skip
def test_a_size_that_its_kind_uses_is_not(pattern, more):
    assert workload.invalid_model_dims(points(**BASE | more | {"pattern": pattern})).reason[0] is None


ALL_SIZES = BASE | MANY | MIXED | {
    "value_dim": 32, "expert_ffn": 48, "shared_ffn": 40, "compression": 4, "index_topk": 64,
    "linear_heads": 8, "linear_key_heads": 4, "linear_key_dim": 32, "linear_value_dim": 64, "conv_width": 4,
}  # fmt: skip


@pytest.mark.parametrize("word", [*MIXERS.built_in, "dense", "experts"])
def test_what_a_mixer_uses_is_what_its_kernels_depend_on(word):
    """Of sizes that every model has, or that the layers of a kind may have as the only ones."""
    kind = LayerKind((word,), NO_FEED_FORWARD) if word in MIXERS.built_in else LayerKind((), word)
    inputs = points(**ALL_SIZES)
    size = sizes_of(inputs)
    plain = repr(block(inputs, size, kind, INPUT))
    for name in OWN_SIZES:
        own = kind._replace(sizes=((name, 2 * size._asdict()[name]),))
        is_used = name not in unused_sizes(own)
        if is_used or not name.startswith("linear_") or not is_linear(kind):
            changes = plain != repr(block(inputs, size, own, INPUT))
            assert changes == is_used or (name, word) == ("ffn", "experts"), name


def is_linear(kind):
    """Of linear-time mixers each takes sizes for those that it has under another name."""
    return any("model.linear_heads" in MIXERS[name].uses for name in kind.mixers)


def test_a_latent_layer_sees_its_window_in_serving():
    more = {"latent": 64, "rotary": 16, "window": 128, "before": 100_000, "sequence": 1, "pass": "decode"}
    flops = []
    for pattern in ("window dense", "dense"):
        inputs = points(**BASE | {key: value for key, value in more.items() if key not in ("before", "pass")})
        inputs |= {"model.before": np.array([100_000]), "model.pass": np.array(["decode"])}
        inputs |= {"model.expert_rows": np.array([0]), "model.pattern": np.array([pattern])}
        (node,) = (n for layer in served.network(inputs).layers for n in layer.nodes if n.name == "attention")
        flops.append(float(np.max(node.cost.flop)))
    assert flops[1] / flops[0] == pytest.approx(100_001 / 128, rel=1e-6)
