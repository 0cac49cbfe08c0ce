"""Every mixer: parameters against its tensors and published models, operations, states, strategies, serving.

A mixer that is registered is tested here, or the tests fail.
"""

import json

import numpy as np
import pytest

import fastflow
from fastflow.physics import workload
from fastflow.physics.workload.graph import FORWARD, PRODUCTS
from fastflow.physics.workload.models.transformer.dimensions import sizes_of
from fastflow.physics.workload.models.transformer.layer_pattern import kinds_of
from fastflow.physics.workload.models.transformer.mixer import MIXERS, PROJECTION
from fastflow.physics.workload.models.transformer.network import network
from fastflow.physics.workload.models.transformer.parameters import parameters
from fastflow.physics.workload.ops.recurrence.nodes import CHUNKED
from fastflow.physics.workload.ops.recurrence.rules import RULES
from fastflow.physics.workload.precision import precision as bytes_of
from tests.naive import mixer_tensors as naive
from tests.naive.sparse_attention import of_compressed, of_native_sparse, of_sparse
from tests.support.checks import mixed
from tests.support.transformers import points, precision

HIDDEN = 96
# of each mixer: sizes as its authors name them
HEADS = {"heads": 6, "key_heads": 6, "key": 8, "value": 8, "width": 0, "rank": 0}
SIZES = {
    "gated_delta": HEADS | {"key_heads": 3, "value": 16, "width": 4},
    "kimi_delta": HEADS | {"value": 16, "width": 4},
    "mamba": HEADS | {"heads": 192, "key_heads": 1, "value": 1, "width": 4, "rank": 7},
    "normed_mamba": HEADS | {"heads": 192, "key_heads": 1, "value": 1, "width": 4},
    "mamba2": HEADS | {"key_heads": 2, "key": 32, "value": 16, "width": 4},
    "gated_linear": HEADS | {"value": 16, "width": 3, "rank": 5},
    "retention": HEADS | {"value": 16},
    "rwkv7": HEADS | {"heads": 12},
    "lightning": HEADS,
    "short_conv": HEADS | {"width": 3},
    "rg_lru": HEADS | {"key": 1, "width": 4},
}
ATTENTION = {"attention_heads": 4, "kv_heads": 2, "head_dim": 24}
BLOCK = ATTENTION | {"ffn": 160, "adapter": 12}
HYBRID = {
    "zamba": SIZES["mamba"] | BLOCK, "zamba2": SIZES["mamba2"] | BLOCK,
    "adapted_zamba2": SIZES["mamba2"] | BLOCK,
}  # fmt: skip
"""Mixers with a cache and a state."""
LINEAR = [name for name in MIXERS.built_in if name in SIZES]
SPARSE = {"index_heads": 2, "index_dim": 16, "index_topk": 8}
KEYS = {
    "window": {"window": 4}, "chunked": {"window": 4}, "sparse": SPARSE,
    "compressed": SPARSE | {
        "window": 8, "compression": 4, "query_latent": 40, "rotary": 8, "output_groups": 2,
        "output_latent": 24,
    },
    "native_sparse": {"window": 8, "compression": 2, "index_topk": 16, "index_block": 4},
}  # fmt: skip
"""Keys of mixers that attend, beside those of heads."""
SHAPES = {
    "sparse": of_sparse, "compressed": of_compressed, "native_sparse": of_native_sparse,
}  # fmt: skip


def keys_of(name):
    """The keys that describe a mixer's sizes."""
    keys = {"hidden": HIDDEN, "heads": 4, "kv_heads": 2, "head_dim": 24}
    if name not in SIZES | HYBRID:
        return keys | KEYS.get(name, {})
    size = (SIZES | HYBRID)[name]
    keys |= {"ffn": size["ffn"]} if "ffn" in size else {}
    of_key = {
        "linear_heads": "heads", "linear_key_heads": "key_heads", "linear_key_dim": "key",
        "linear_value_dim": "value", "linear_rank": "rank", "conv_width": "width",
        "adapter_rank": "adapter",
    }  # fmt: skip
    uses = MIXERS[name].uses
    return keys | {key: size[of] for key, of in of_key.items() if f"model.{key}" in uses}


def model_of(name, **changed):
    """The columns of a model of one layer, which has a mixer alone."""
    return points(**keys_of(name) | {"pattern": f"{name} no_ffn", "layers": 1, "position": "none"} | changed)


def size_of(name):
    """A mixer's sizes, for the oracle."""
    return (SIZES | HYBRID).get(name, ATTENTION)


def expected_tensors(name):
    """A mixer's tensors; those of RWKV's channel mixing are in layers with a feed-forward part."""
    if name in SHAPES:
        return SHAPES[name](keys_of(name))
    shapes = dict(naive.TENSORS[name](HIDDEN, size_of(name)))
    return {key: shape for key, shape in shapes.items() if key != "ffn.x_k"}


def test_every_mixer_has_its_tensors_written_down():
    assert {*naive.TENSORS} | {*SHAPES} == {*MIXERS.built_in}
    assert {*SIZES} == {*LINEAR}


@pytest.mark.parametrize("name", MIXERS.built_in)
def test_parameters_are_those_of_every_tensor(name):
    columns = model_of(name)
    assert not workload.invalid_model_dims(columns).exists[0]
    around = 50 * HIDDEN * 2 + 2 * HIDDEN  # embedding, head, their norm and the layer's
    assert parameters(columns)[0][0] - around == naive.weights_of(expected_tensors(name))


def test_channel_mixing_of_rwkv_has_its_own_mixture():
    """Its feed-forward part has a key and a value, and weights of a mixture with the token before."""
    dense, alone = (
        parameters(model_of("rwkv7", pattern=f"rwkv7 {ffn}", gated=False, ffn=200))[0][0]
        for ffn in ("dense", "no_ffn")
    )
    assert dense - alone == 2 * 200 * HIDDEN + HIDDEN + HIDDEN  # and the norm before it


@pytest.mark.parametrize("name", naive.TENSORS)
@pytest.mark.parametrize("training", [False, True])
def test_products_multiply_every_token_with_every_weight(name, training):
    """Forward two operations for each; gradients of inputs and weights as many each."""
    columns = model_of(name, training=training)
    graph = workload.build_graph(columns, precision(1))
    weighted = np.isin(graph.kind, PRODUCTS) & (graph.layer.kind == 1) & (graph.kind != 5)
    flop = (2.0 * graph.rows * graph.inner * graph.cols * graph.launches.batch)[weighted].sum()
    per_token = sum(np.prod(shape) for shape in naive.products(HIDDEN, size_of(name), name).values())
    assert flop == pytest.approx(2 * 16 * per_token * (3 if training else 1))


@pytest.mark.parametrize("name", [name for name in LINEAR if "model.linear_rank" in MIXERS[name].uses])
def test_a_rank_is_the_models(name):
    narrow, wide = (parameters(model_of(name, linear_rank=rank))[0][0] for rank in (4, 8))
    expected = [
        naive.weights_of(naive.TENSORS[name](HIDDEN, SIZES[name] | {"rank": rank})) for rank in (4, 8)
    ]
    assert wide - narrow == expected[1] - expected[0] > 0


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("tensor", [1, 2, 3])
@pytest.mark.parametrize("drafts", [0, 3])
def test_a_request_keeps_states_and_last_tokens(name, tensor, drafts):
    columns = model_of(name, training=False) | mixed(1)
    columns["serve.num_speculative_tokens"] = np.array([drafts])
    (kind,) = kinds_of(str(columns["model.pattern"][0]))
    kept = MIXERS[name].cache(columns, sizes_of(columns, kind), kind, bytes_of(columns), np.array([tensor]))
    expected = naive.state_bytes(HIDDEN, SIZES[name], name, tensor, drafts=drafts) / (1 + drafts)
    assert (kept.token[0], kept.windowed[0], kept.state[0]) == (0.0, 0.0, expected)


def test_a_state_is_as_large_as_that_of_a_server():
    """Qwen3.5-4B on two devices in vLLM: 3 x 4,096 numbers in 16 bits and 16 x 128 x 128 in fp32."""
    columns = points(
        hidden=2560, pattern="gated_delta dense", linear_heads=32, linear_key_heads=16, linear_key_dim=128,
        conv_width=4, training=False,
    ) | mixed(1)  # fmt: skip
    (kind,) = kinds_of("gated_delta dense")
    kept = MIXERS["gated_delta"].cache(columns, sizes_of(columns), kind, bytes_of(columns), np.array([2]))
    assert kept.state[0] == 2 * 3 * 4096 + 4 * 16 * 128 * 128


# --- what a backward pass keeps


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        # of a token all of the product; q, k, v; inverses of 64 tokens for each head; the output and its norm
        ("gated_delta", (2 * 24 + 2 * 96 + 12) + (2 * 24 + 96) + 6 * 64 + 96 + 96),
        # all of the product, the scan's output, and its norm (MambaSplitConv1dScanCombinedFn)
        ("mamba2", (2 * 64 + 2 * 96 + 6) + 96 + 96),
        # both copies, the low-rank step with key and query, and the output (MambaInnerFn)
        ("mamba", 2 * 192 + (7 + 16) + 192),
        # three copies, what goes in and comes out of the convolution, and the output
        ("short_conv", 3 * 96 + 96 + 96 + 96),
    ],
)
def test_saved_activations_are_those_of_the_authors_functions(name, columns):
    layer = network(model_of(name)).layers[1]
    graph = workload.build_graph(model_of(name), precision(1))
    own = (graph.phase == FORWARD) & (graph.layer.number == 1)
    saved = (graph.memory.saved_cols + graph.memory.saved_whole_cols)[own]
    names = [node.name for node in layer.nodes]
    around = saved[[names.index("attention norm"), names.index("add")]].sum()
    # a product with a block for each head has as many rows
    rows = graph.rows[own] / 16
    assert (saved * rows).sum() - around == columns


# --- every mixer on every strategy, and in serving


SMALL = (
    "model=transformer", "chip=h100_sxm", "system.devices=8", "model.layers=2", "model.batch=16",
    "model.sequence=64", "parallel.microbatch=2", "model.vocabulary=512", "model.ffn=128",
)  # fmt: skip
STRATEGIES = ("d8", "TP-2-d4", "TP-2-c2-d2", "TP-1-c8-d1", "TP-2-d2-p2", "TP-2-c2-d1-p2")


def overrides(name, pattern):
    return (
        *SMALL,
        f"model.pattern={pattern}",
        *(f"model.{key}={value}" for key, value in keys_of(name).items()),
    )


@pytest.mark.parametrize("name", MIXERS.built_in)
def test_every_mixer_trains_with_every_strategy(name):
    rows = fastflow.evaluate(*overrides(name, f"{name} dense"), f"parallel.strategy={','.join(STRATEGIES)}")
    assert (rows["reason"] == "").all(), rows["reason"].tolist()
    assert (rows["time_s"] > 0.0).all()
    assert rows["flop"].nunique() == 1
    assert rows["parameters"].nunique() == 1
    whole, halved = rows["activation_B"][0], rows["activation_B"][1]
    assert 0.4 * whole < halved < 0.75 * whole  # small parts of all ranks are on both devices


@pytest.mark.parametrize("name", MIXERS.built_in)
def test_every_mixer_is_served(name):
    common = (*overrides(name, f"{name} dense"), "parallel.strategy=TP-2", "system.devices=2")
    common += ("server.shared_pages=false",) * (name in HYBRID)  # which rounds states up
    served = fastflow.evaluate(
        *common, "serve=continuous", "server=vllm", "serve.isl=48", "serve.osl=16", "serve.concurrency=1,8"
    )
    assert (served["reason"] == "").all(), served["reason"].tolist()
    assert (served["tpot_s"] > 0.0).all()
    assert (served["ttft_s"] > 0.0).all()
    expected = 2 * naive.state_bytes(HIDDEN, size_of(name), name, 2) if name in SIZES | HYBRID else 0
    assert (served["kv_state_B"] == expected).all()


@pytest.mark.parametrize("name", LINEAR)
def test_a_request_keeps_a_state_for_each_draft_token(name):
    (served,) = fastflow.evaluate(
        *overrides(name, f"{name} dense"), "parallel.strategy=TP-2", "system.devices=2", "serve=continuous",
        "serve.isl=48", "serve.osl=16", "serve.num_speculative_tokens=3", "serve.mean_acceptance_length=2",
        "serve.speculative_method=model", "serve.draft_cost_ratio=0.1", "serve.concurrency=8",
    )["kv_state_B"]  # fmt: skip
    assert served == 2 * naive.state_bytes(HIDDEN, SIZES[name], name, 2, drafts=3)


@pytest.mark.long
@pytest.mark.parametrize("name", LINEAR)
def test_a_token_takes_as_long_after_few_tokens_as_after_many(name):
    """A state does not grow with the tokens of its request."""
    rows = fastflow.evaluate(
        *overrides(name, f"{name} dense"), "serve=decode", "parallel.strategy=TP-1", "system.devices=1",
        "serve.isl=64,4096",
    )  # fmt: skip
    assert rows["tpot_s"][0] == rows["tpot_s"][1]
    assert rows["kv_B"][0] == rows["kv_B"][1]


@pytest.mark.parametrize("name", [name for name in LINEAR if name != "short_conv"])
def test_verifying_draft_tokens_reads_a_state_once(name):
    def moved(tokens):
        columns = model_of(name, training=False, batch=512, sequence=tokens) | {
            "model.before": np.array([64])
        }
        (kind,) = kinds_of(str(columns["model.pattern"][0]))
        *_, step = MIXERS[name].core(columns, sizes_of(columns, kind), kind, True)
        states = step.attributes["heads"] * step.attributes["key_dim"] * step.attributes["value_dim"]
        return float(2.0 * step.attributes["state_bytes"] * states * step.rows / 512)

    one = naive.state_bytes(HIDDEN, SIZES[name] | {"width": 0}, name) - 2 * 2 * HIDDEN * (name == "rwkv7")
    assert [moved(1), moved(4)] == [2 * one, 5 * one]


def test_mixers_side_by_side_have_the_weights_of_both():
    """Falcon-H1: attention and Mamba-2 read the same norm, and their outputs are added."""
    keys = keys_of("mamba2")
    both, one, other = (
        points(**keys, pattern=f"{words} dense", layers=1, position="none")
        for words in ("attention mamba2", "attention", "mamba2")
    )
    around = parameters(one)[0][0] - naive.weights_of(naive.attention(HIDDEN, ATTENTION))
    assert parameters(both)[0][0] - parameters(other)[0][0] == naive.weights_of(
        naive.attention(HIDDEN, ATTENTION)
    )
    assert parameters(other)[0][0] - around == naive.weights_of(naive.mamba2(HIDDEN, SIZES["mamba2"]))
    block = network(both).layers[1].nodes
    ends = [node.name for node in block if node.name.endswith(PROJECTION)]
    assert next(node for node in block if node.name == "attention add").reads[:2] == tuple(ends)
    rows = fastflow.evaluate(
        *overrides("mamba2", "attention mamba2 dense"), f"parallel.strategy={','.join(STRATEGIES)}"
    )
    assert (rows["reason"] == "").all()


@pytest.mark.parametrize("name", naive.UNSHARED)
def test_tied_layers_have_weights_of_their_own_beside_the_block(name):
    one, two = (
        parameters(model_of(name, pattern=f"{name} no_ffn, {name} tied no_ffn", layers=layers))[0][0]
        for layers in (2, 3)
    )
    first = parameters(model_of(name))[0][0]
    own = naive.weights_of(naive.UNSHARED[name](HIDDEN, HYBRID[name]))
    assert one - first == own
    assert two - one == own + naive.weights_of(naive.shared_block(HIDDEN, HYBRID[name])) + HIDDEN


@pytest.mark.parametrize("kind", ["no_ffn", "dense", "mamba2 dense"])
def test_tied_layers_compute_as_others_and_have_no_weights(kind):
    mixer = "mamba2" if "mamba2" in kind else "attention"

    def rows(pattern, layers):
        common = (*overrides(mixer, f"'{pattern}'"), f"model.layers={layers}")
        return fastflow.evaluate(*common, "parallel.strategy=d8,TP-2-d4")

    plain, tied, single = rows(kind, 2), rows(f"{kind}, tied {kind}", 2), rows(kind, 1)
    assert (tied["reason"] == "").all(), tied["reason"].tolist()
    assert tied["flop"].to_numpy() == pytest.approx(plain["flop"].to_numpy(), rel=2e-3)  # but updates
    assert (tied["parameters"] == single["parameters"]).all()
    assert (tied["weight_B"] == single["weight_B"]).all()
    assert (tied["time_s"] < plain["time_s"]).all()  # fewer gradients to sum, fewer weights to update


def test_a_server_holds_the_weights_of_tied_layers_once():
    def weights(pattern, layers):
        return fastflow.evaluate(
            *overrides("attention", f"'{pattern}'"), f"model.layers={layers}", "serve=decode",
            "parallel.strategy=TP-2", "system.devices=2",
        )  # fmt: skip

    tied, single = weights("dense, tied dense", 2), weights("dense", 1)
    assert tied["weight_B"][0] == single["weight_B"][0]
    assert tied["kv_token_B"][0] == 2 * single["kv_token_B"][0]
    assert tied["tpot_s"][0] > 1.5 * single["tpot_s"][0]


def test_tied_layers_are_in_one_stage():
    columns = overrides("attention", "'dense, tied dense'")
    (reason,) = fastflow.evaluate(*columns, "parallel.strategy=TP-2-d2-p2")["reason"]
    assert "pp=2 is invalid: expected 1, since the number of stages with tied layers" in reason


def test_every_rule_is_some_mixers():
    """No recurrence is without a mixer."""
    used = {node.type for name in LINEAR for layer in network(model_of(name)).layers for node in layer.nodes}
    assert {CHUNKED[rule] for rule in RULES} <= used


# --- what is refused


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"pattern": "rwkv7", "linear_heads": 4}, "model.linear_key_dim"),
        ({"pattern": "short_conv"}, "model.conv_width"),
        ({"pattern": "rg_lru", "linear_heads": 4, "conv_width": 4}, "model.linear_value_dim"),
        ({"pattern": "dense", "conv_width": 4}, "model.conv_width"),
        ({"pattern": "dense", "linear_rank": 4}, "model.linear_rank"),
        (
            {"pattern": "retention", "linear_heads": 4, "linear_key_dim": 8, "conv_width": 4},
            "model.conv_width",
        ),
    ],
)
def test_sizes_that_a_mixer_lacks_or_does_not_use_are_refused(changed, says):
    reason = workload.invalid_model_dims(points(**changed))
    assert reason.exists[0]
    assert says in str(reason.at(0))


# --- published models

# billions of parameters as they are reported for these models; none of their files was at hand here
MAMBA = {"position": "none", "norm": "rms", "linear_key_dim": 16, "conv_width": 4}
MAMBA2 = {"position": "none", "linear_key_dim": 128, "linear_value_dim": 64, "conv_width": 4}
PUBLISHED = {
    "tiiuae/falcon-mamba-7b": ("7.273", {
        **MAMBA, "hidden": 4096, "layers": 64, "pattern": "mamba no_ffn", "linear_heads": 8192,
        "vocabulary": 65024,
    }),
    "state-spaces/mamba-2.8b": ("2.768", {
        **MAMBA, "hidden": 2560, "layers": 64, "pattern": "mamba no_ffn", "linear_heads": 5120, "tied": True,
        "vocabulary": 50280,
    }),
    "ai21labs/Jamba-v0.1": ("51.57", {
        **MAMBA, "hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "linear_heads": 8192,
        "ffn": 14336, "experts": 16, "topk": 2, "vocabulary": 65536,
        "pattern": "normed_mamba dense, normed_mamba experts, normed_mamba dense, normed_mamba experts,"
        " attention dense, normed_mamba experts, normed_mamba dense, normed_mamba experts",
    }),
    "state-spaces/mamba2-2.7b": ("2.703", {
        **MAMBA2, "hidden": 2560, "layers": 64, "pattern": "mamba2 no_ffn", "linear_heads": 80,
        "linear_key_heads": 1, "tied": True, "vocabulary": 50288,
    }),
    "mistralai/Mamba-Codestral-7B-v0.1": ("7.285", {
        **MAMBA2, "hidden": 4096, "layers": 64, "pattern": "mamba2 no_ffn", "linear_heads": 128,
        "linear_key_heads": 8, "vocabulary": 32768,
    }),
    "moonshotai/Kimi-Linear-48B-A3B": ("49.12", {
        "position": "none", "hidden": 2304, "layers": 27, "heads": 32, "head_dim": 128, "latent": 512,
        "rotary": 64, "value_dim": 128, "linear_heads": 32, "linear_key_dim": 128, "conv_width": 4,
        "ffn": 9216, "expert_ffn": 1024, "experts": 256, "topk": 8, "shared_experts": 1, "vocabulary": 163840,
        "pattern": "kimi_delta dense, 2*kimi_delta experts, attention experts, "
        + "3*kimi_delta experts, attention experts, " * 5 + "2*kimi_delta experts, attention experts",
    }),
    "MiniMaxAI/MiniMax-Text-01": ("456", {
        "hidden": 6144, "layers": 80, "heads": 64, "head_dim": 128, "kv_heads": 8, "linear_heads": 64,
        "linear_key_dim": 128, "expert_ffn": 9216, "experts": 32, "topk": 2, "vocabulary": 200064,
        "pattern": "7*lightning experts, attention experts",
    }),
    "BlinkDL/RWKV7-World-1.5B": ("1.527", {
        "position": "none", "norm": "layer", "hidden": 2048, "layers": 24, "linear_heads": 32,
        "linear_key_dim": 64, "ffn": 8192, "gated": False, "activation": "relu2", "vocabulary": 65536,
        "pattern": "rwkv7 dense",
    }),
    "LiquidAI/LFM2-1.2B": ("1.170", {
        "hidden": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "ffn": 8192, "conv_width": 3, "tied": True,
        "qk_norm": True, "vocabulary": 65536,
        "pattern": "2*short_conv dense, attention dense, " * 3
        + "short_conv dense, attention dense, " * 3
        + "short_conv dense",
    }),
    "google/recurrentgemma-2b": ("2.68", {
        "hidden": 2560, "layers": 26, "heads": 10, "kv_heads": 1, "head_dim": 256, "ffn": 7680,
        "window": 2048, "activation": "gelu", "linear_heads": 10, "linear_value_dim": 256,
        "conv_width": 4, "tied": True, "vocabulary": 256000, "pattern": "2*rg_lru dense, window dense",
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_their_published_parameters(name):
    published, sizes = PUBLISHED[name]
    given = {"experts": 0, "heads": 32, **sizes}
    columns = points(**given)
    assert not workload.invalid_model_dims(columns).exists[0]
    assert parameters(columns)[0][0] / 1e9 == pytest.approx(float(published), rel=0.005)


# of the files beside these models' weights what decides the parameters
MAMBA_FILE = {"hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 65024, "state_size": 16}
FILES = {
    "tiiuae/falcon-mamba-7b": MAMBA_FILE | {
        "model_type": "falcon_mamba", "intermediate_size": 8192, "conv_kernel": 4, "time_step_rank": 256,
        "tie_word_embeddings": False,
    },
    "ai21labs/Jamba-v0.1": {
        "model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 65536,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "num_experts": 16,
        "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1,
        "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4,
        "mamba_expand": 2, "mamba_dt_rank": 256, "tie_word_embeddings": False,
    },
    "BlinkDL/RWKV7-World-1.5B": {
        "model_type": "rwkv7", "hidden_size": 2048, "num_hidden_layers": 24, "vocab_size": 65536,
        "head_dim": 64, "decay_low_rank_dim": 96, "a_low_rank_dim": 96, "v_low_rank_dim": 64,
        "gate_low_rank_dim": 256, "intermediate_size": 8192, "tie_word_embeddings": False,
    },
    "LiquidAI/LFM2-1.2B": {
        "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 65536,
        "num_attention_heads": 32, "num_key_value_heads": 8, "block_ff_dim": 12288, "conv_L_cache": 3,
        "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": True,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14], "tie_word_embeddings": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_published_model_has_its_parameters(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(FILES[name]))
    (row,) = fastflow.evaluate(
        "model=transformer", f"model.config={tmp_path}/config.json", "chip=h100_sxm", "system.devices=8",
        "parallel.strategy=TP-8", "model.sequence=1024", "model.batch=1",
    ).to_dict("records")  # fmt: skip
    assert "is invalid" not in row["reason"]  # it may need more memory
    assert row["parameters"] / 1e9 == pytest.approx(float(PUBLISHED[name][0]), rel=0.005)
