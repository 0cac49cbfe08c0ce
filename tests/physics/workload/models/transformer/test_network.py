"""The transformer: parameters, operations, what is kept and exchanged, against published and naive counts."""

import re
from collections import Counter
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.config.model_inputs import to_column
from fastflow.core.errors import InputError
from fastflow.physics import workload
from fastflow.physics.workload.graph import FORWARD, PRODUCTS, model_flop
from fastflow.physics.workload.models.transformer import layer_pattern as pattern
from fastflow.physics.workload.models.transformer import parameters
from fastflow.physics.workload.models.transformer.network import network
from tests.naive import transformer as naive
from tests.support.checks import cases
from tests.support.transformers import points, precision

# of every model of the library its parameters and those that a token meets, in billions, as published: model
# cards on Hugging Face (safetensors); arXiv:2104.04473, table 1; arXiv:2205.05198, table 3; arXiv:2412.19437
# with the module for further tokens (11.5 of its own; 36.7 meet a token there, without the embedding's 0.9),
# arXiv:2508.10925 (5.13 without the embedding's 0.58). Of Grok-1 the card counts the head (316.5), which is
# the embedding in its code; nobody counts those that a token meets, so this is fastflow's own count.
PUBLISHED = {
    "gpt3_175b": ("174.6", ""), "gpt_1_7b": ("1.7", ""), "gpt_3_6b": ("3.6", ""), "gpt_7_5b": ("7.5", ""),
    "gpt_18b": ("18.4", ""), "gpt_39b": ("39.1", ""), "gpt_76b": ("76.1", ""), "gpt_145b": ("145.6", ""),
    "gpt_310b": ("310.1", ""), "gpt_530b": ("529.6", ""), "gpt_1t": ("1008.0", ""), "gpt_22b": ("22", ""),
    "llama2_7b": ("6.738", ""), "llama2_13b": ("13.016", ""), "llama2_70b": ("68.977", ""),
    "llama3_8b": ("8.030", ""), "llama3_70b": ("70.554", ""), "llama3_405b": ("405.853", ""),
    "mixtral_8x7b": ("46.703", "12.9"), "mixtral_8x22b": ("140.621", "39.1"),
    "qwen3_32b": ("32.762", ""), "qwen3_235b": ("235.094", "22"),
    "deepseek_v3": ("671.03", "37.55"), "gpt_oss_120b": ("116.83", "5.71"), "kimi_k2": ("1026", "32.9"),
    "nemotron4_15b": ("15.6", ""), "nemotron4_340b": ("341.0", ""), "grok1": ("315.7", "83.8"),
    "llama4_maverick": ("400", "17"), "bloom_176b": ("176.247", ""), "mpt_7b": ("6.650", ""),
    "mpt_13b": ("12.8", ""), "mpt_30b": ("29.958", ""), "mpt_70b": ("64.8", ""),
    "qwen3_30b": ("30.53", "3.35"), "qwen3_next_80b": ("79.67", "3.88"), "qwen3_5_27b": ("26.90", ""),
    "qwen3_5_35b": ("34.66", "3.46"), "qwen3_5_397b": ("396.3", "17.3"), "qwen3_vl_8b": ("8.191", ""),
    "qwen3_vl_30b": ("30.53", "3.35"), "kimi_k2_5": ("1026.4", "32.9"), "minimax_m2_5": ("228.7", "11.03"),
    "nemotron3_nano_30b": ("31.58", "3.6"), "nemotron_h_56b": ("56.32", ""), "gemma3_27b": ("27.01", ""),
    "gemma4_26b": ("25.23", "3.82"), "llama4_scout": ("107.77", "17.17"), "gpt_oss_20b": ("20.91", "4.19"),
    "mimo_v2_flash": ("308.8", "15.4"),
    "deepseek_v32": ("671.9", "38.4"), "deepseek_v4_flash": ("284.3", "13.8"), "glm_5": ("743.9", "41.8"),
    "minimax_m3": ("426.2", "25.96"), "kimi_linear_48b": ("49.12", "3.48"),
    "qwen3_8b": ("8.191", ""), "qwen3_14b": ("14.768", ""), "starcoder2_3b": ("3.030", ""),
    "starcoder2_7b": ("7.174", ""), "starcoder2_15b": ("15.957", ""), "codellama_7b": ("6.739", ""),
    "codellama_13b": ("13.016", ""), "codellama_34b": ("33.744", ""), "codellama_70b": ("68.977", ""),
    "gemma_2b": ("2.506", ""), "gemma_7b": ("8.538", ""), "gemma2_2b": ("2.614", ""),
    "gemma2_9b": ("9.242", ""), "gemma2_27b": ("27.227", ""), "gemma3_12b": ("11.766", ""),
    "phi3_mini": ("3.821", ""), "phi3_small": ("7.392", ""), "phi3_medium": ("13.960", ""),
    "mistral_7b": ("7.248", ""), "mistral_nemo": ("12.248", ""), "mistral_large": ("122.610", ""),
    "nemotron_nano_9b": ("8.888", ""), "nemotron_nano_12b": ("12.31", ""),
    "qwen3_235b_2507": ("235.094", "22"), "qwen3_235b_2507_fp8": ("235.094", "22"),
    "qwen3_30b_2507": ("30.53", "3.35"), "llama3_405b_fp8": ("405.853", ""),
    "llama4_maverick_fp8": ("400", "17"),
}  # fmt: skip


def is_near(count, published):
    """Say whether a count is a published one to half a percent, or to half a unit of its last digit."""
    digits = len(published.partition(".")[2])
    return abs(count / 1e9 - float(published)) <= max(0.005 * float(published), 0.5 * 10.0**-digits)


@pytest.mark.parametrize("name", PUBLISHED)
def test_models_of_the_library_have_their_published_parameters(compose, name):
    inputs = compose(f"model={name}")
    columns = {key: to_column(key, [value]) for key, value in inputs.items() if key.startswith("model.")}
    assert not workload.invalid_model_dims(columns).exists[0]
    total, active = parameters(columns)
    published, met = PUBLISHED[name]
    assert is_near(total[0], published)
    assert is_near(active[0], met or published)


def test_every_model_of_the_library_has_a_count():
    from fastflow.config.library import library_root

    files = {path.stem: path.read_text() for path in (library_root() / "conf" / "model").glob("*.yaml")}
    parents = {name: re.search(r"^defaults: \[(\w+),", text, re.M) for name, text in files.items()}

    def is_decoder(name: str) -> bool:
        parent = parents[name]
        if parent is None or name in ("served_pass", "encoder"):
            return False
        return parent[1] == "transformer" or is_decoder(parent[1])

    assert {name for name in files if is_decoder(name)} == PUBLISHED.keys()


@given(
    hidden=st.integers(1, 8).map(lambda n: 16 * n), heads=st.sampled_from([2, 4, 8]),
    groups=st.sampled_from([1, 2]), ffn=st.integers(1, 200), gated=st.booleans(),
    mix=st.sampled_from(["dense", "experts", "dense, 2*experts"]), experts=st.integers(2, 9),
    shared=st.integers(0, 2), latent=st.sampled_from([None, (0, 24, 8, 12), (40, 24, 8, 12)]),
    tied=st.booleans(), layers=st.integers(2, 9),
)  # fmt: skip
def test_weights_are_those_counted_by_hand(
    hidden, heads, groups, ffn, gated, mix, experts, shared, latent, tied, layers
):
    has = "experts" in mix
    sizes = dict.fromkeys(("query_latent", "latent", "rotary", "value_dim"), 0)
    if latent:
        sizes = dict(zip(sizes, latent, strict=True))
    result = points(
        hidden=hidden, heads=heads, kv_heads=heads // groups, head_dim=16, ffn=ffn, gated=gated, pattern=mix,
        layers=layers, tied=tied, position="rotary", **sizes,
        **({"experts": experts, "topk": 2, "expert_ffn": 7, "shared_experts": shared} if has else {}),
    )  # fmt: skip
    assert not workload.invalid_model_dims(result).exists[0]
    mixer = naive.attention(hidden, heads, heads // groups, 16, latent)
    expert = naive.feed_forward(hidden, 7, gated)
    dense = naive.layer(hidden, mixer, naive.feed_forward(hidden, ffn, gated))
    mixed = naive.layer(hidden, mixer, 0, experts, expert, shared * expert)
    met = naive.layer(hidden, mixer, 0, experts, 0, shared * expert) + 2 * expert
    kinds = [("experts" if i % 3 else "dense") if "," in mix else mix for i in range(layers)]
    table = 50 * hidden * (1 if tied else 2)
    norms = hidden * (2 * layers + 1) + layers * (sum(latent[:2]) if latent else 0)
    expected = [
        sum({"dense": dense, "experts": expert_weights}[kind] for kind in kinds) + table + norms
        for expert_weights in (mixed, met)
    ]
    assert [column[0] for column in parameters(result)] == expected


@pytest.mark.parametrize(("layers", "hidden", "heads"), [(24, 2304, 24), (96, 12288, 96), (128, 25600, 160)])
def test_parameters_and_operations_are_megatrons(layers, hidden, heads):
    gpt = {
        "layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, "batch": 8,
        "vocabulary": 51200, "sequence": 2048, "norm": "layer", "biases": "all", "position": "learned",
        "positions": 2048, "gated": False, "activation": "gelu", "tied": True, "dropout": True,
        "fused_attention": False,
    }  # fmt: skip
    result = points(**gpt)
    assert parameters(result)[0][0] == pytest.approx(
        naive.megatron_parameters(layers, hidden, 51200, 2048), rel=1e-5
    )
    graph = workload.build_graph(result, precision(1))
    flop = (
        2.0
        * graph.rows
        * graph.inner
        * graph.cols
        * graph.launches.batch
        * graph.launches.repeat
        * graph.launches.times
    )
    flop *= np.isin(graph.kind, PRODUCTS)
    again = (graph.phase == FORWARD) & (graph.launches.times > 1)  # of layers; the head is not computed again
    expected = naive.megatron_flop(8, 2048, layers, hidden, 51200)
    assert flop.sum() + flop[again].sum() == pytest.approx(expected, rel=1e-6)


def test_a_token_takes_six_operations_a_parameter_and_those_of_attention():
    """Half of the scores are hidden by the mask."""
    result = points(
        layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocabulary=128256, sequence=8192, batch=4
    )
    graph = workload.build_graph(result, precision(1))
    per_token = model_flop(graph)[0] / (4 * 8192)
    met = parameters(result)[0][0] - 128256 * 8192  # no product looks a token up
    assert per_token == pytest.approx(6 * met + 12 * 80 * 8192 * 8192 / 2, rel=0.002)


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize(("sequence", "recompute"), [(False, "none"), (True, "none"), (True, "selective")])
def test_what_a_layer_keeps_is_what_korthikanti_counts(tensor, sequence, recompute):
    if sequence and tensor == 1:
        pytest.skip("there is nothing to split")
    strategy = f"TP-{tensor}" if tensor > 1 else "d1"
    kept = [
        fastflow.evaluate(
            "model=gpt_22b", "chip=a100", "system.devices=8", "model.batch=2", "parallel.microbatches=1",
            f"parallel.strategy={strategy}", f"parallel.sequence_parallel={sequence}",
            f"model.layers={layers}",
            f"parallel.recompute={recompute}",
        ).activation_B[0]
        for layers in (1, 2)
    ]  # fmt: skip
    expected = naive.activation_bytes(2048, 2, 6144, 64, tensor, sequence, recompute == "selective")
    assert kept[1] - kept[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("normed", [False, True])
def test_what_a_layer_of_llama_keeps_is_counted_by_hand(normed):
    kept = [
        fastflow.evaluate(
            "model=llama3_8b", "chip=a100", "system.devices=8", "model.batch=2", "parallel.microbatches=1",
            "parallel.strategy=d1", f"model.qk_norm={normed}", f"model.layers={layers}",
            "parallel.recompute=none",
        ).activation_B[0]
        for layers in (1, 2)
    ]  # fmt: skip
    expected = naive.llama_bytes(2 * 8192, 4096, 32, 8, 128, 14336, normed)
    assert kept[1] - kept[0] == pytest.approx(expected, rel=1e-12)


def test_biases_have_gradients_that_are_sums_over_tokens():
    """Those behind the last products of each part are added where branches are."""
    graphs = [workload.build_graph(points(biases=biases), precision(1)) for biases in ("none", "qkv", "all")]
    named = [{str(name) for name in graph.names if name.endswith("bias gradient")} for graph in graphs]
    assert named == [set(), {"qkv bias gradient"}, {"qkv bias gradient", "gate and up bias gradient"}]
    row = int(np.flatnonzero(graphs[1].names[graphs[1].label] == "qkv bias gradient")[0])
    assert [column[row] for column in (graphs[1].rows, graphs[1].cols, graphs[1].comm.side)] == [
        16,
        3 * 64,
        1,
    ]
    moved = [graph.per_element.bytes[graph.names[graph.label] == "add gradient"][0] for graph in graphs]
    assert moved == [3.0, 3.0, 4.0]


def test_norms_of_queries_and_keys_have_gains():
    plain, normed = (parameters(points(qk_norm=normed))[0][0] for normed in (False, True))
    assert normed - plain == 2 * 2 * 16


def exchanges(*overrides):
    """Exchanges of a layer by phase: how often, and bytes of all; of weights' gradients none."""
    base = ("chip=h100_sxm", "model=transformer", "model.layers=1", "model.batch=16", "model.hidden=2048")
    kernels = fastflow.explain_sharding(*base, "system.devices=16", *overrides)
    result = Counter()
    for row in kernels[kernels.layer == 1].to_dict("records"):
        for text in filter(None, row["exchange"].split("; ")):
            if not row["kernel"].endswith("weight gradient") and row["phase"] != "update":
                result[row["phase"], text.partition(", ")[0]] += 1
    return result


def test_tensor_parallelism_exchanges_what_megatron_does():
    """Two all-reduces each way; sequence parallelism gathers and scatters as often, and twice more."""
    plain = exchanges("parallel.strategy=TP-8-d2", "parallel.sequence_parallel=false")
    assert plain == {("forward", "all-reduce along tp"): 2, ("backward", "all-reduce along tp"): 2}
    split = exchanges("parallel.strategy=TP-8-d2", "parallel.sequence_parallel=true")
    assert split == {
        ("forward", "all-gather along tp"): 2, ("forward", "reduce-scatter along tp"): 2,
        ("backward", "all-gather along tp"): 4, ("backward", "reduce-scatter along tp"): 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("across", "sums", "gains"), [(False, 0, 2 * 64), (True, 1, 2048 + 512)], ids=["each head", "all heads"]
)
def test_norms_over_all_heads_are_summed_by_tensor_parallel_devices(across, sums, gains):
    normed = ("model.qk_norm=true", f"model.qk_norm_across_heads={across}", "model.kv_heads=8")
    found = exchanges("parallel.strategy=TP-8-d2", "parallel.sequence_parallel=false", *normed)
    summed = "all-reduce of statistics along tp"
    assert [found[phase, summed] for phase in ("forward", "backward")] == [sums, sums]
    assert exchanges("parallel.strategy=d16", *normed)[("forward", summed)] == 0
    plain, with_gains = (
        parameters(points(qk_norm=is_normed, qk_norm_across_heads=across, hidden=2048, heads=32, kv_heads=8))
        for is_normed in (False, True)
    )
    assert with_gains[0][0] - plain[0][0] == 2 * gains


def test_a_gate_of_shared_experts_has_a_weight_a_column_and_no_exchange_of_its_own():
    experts = {"pattern": "experts", "experts": 8, "topk": 2, "expert_ffn": 256, "shared_ffn": 512}
    plain, gated = (parameters(points(shared_gate=gate, hidden=2048, **experts)) for gate in (False, True))
    assert [after[0] - before[0] for before, after in zip(plain, gated, strict=True)] == [2 * 2048] * 2
    layout = ("parallel.strategy=TP-8-d2", "parallel.sequence_parallel=false", "model.kv_heads=8")
    given = [f"model.{key}={value}" for key, value in experts.items()]
    without, with_gate = (
        exchanges(*layout, *given, f"model.shared_gate={gate}") for gate in ("false", "true")
    )
    assert with_gate[("forward", "all-reduce along tp")] == without[("forward", "all-reduce along tp")]


def test_context_parallelism_exchanges_keys_and_values():
    """Forward and again backward, where their gradients are summed too."""
    assert exchanges("parallel.strategy=TP-1-c4-d4", "model.kv_heads=8") == {
        ("forward", "all-gather along cp"): 1, ("backward", "all-gather along cp"): 1,
        ("backward", "reduce-scatter along cp"): 1,
    }  # fmt: skip


MIXTURE = ("model.pattern=experts", "model.experts=16", "model.topk=4", "model.expert_ffn=512")


@pytest.mark.parametrize("shared", [0, 1])
def test_expert_parallelism_dispatches_and_combines_tokens(shared):
    assert exchanges("parallel.strategy=TP-1-e8-d16", f"model.shared_experts={shared}", *MIXTURE) == {
        ("forward", "all-to-all along ep"): 2, ("backward", "all-to-all along ep"): 2,
    }  # fmt: skip


HIDDEN, HEADS, KEYS, FFN, WORDS, SEQUENCE = 1024, 16, 4, 2816, 32000, 1024
FOUR_LAYERS = (
    "model=transformer", "chip=h100_sxm", "system.devices=16", f"model.hidden={HIDDEN}", "model.layers=4",
    f"model.heads={HEADS}", f"model.kv_heads={KEYS}", f"model.ffn={FFN}", f"model.vocabulary={WORDS}",
    f"model.sequence={SEQUENCE}", "model.batch=64", "parallel.microbatch=1",
)  # fmt: skip
SPARSE = ("model.pattern=experts", "model.experts=8", "model.topk=2", "model.expert_ffn=512")


@pytest.mark.parametrize(
    ("tensor", "context", "data", "stages", "experts"),
    [(2, 1, 8, 1, 0), (1, 2, 8, 1, 0), (2, 2, 2, 2, 0), (4, 2, 1, 2, 0), (1, 1, 8, 2, 4), (1, 1, 16, 1, 8)],
)
def test_bytes_of_a_layer_are_counted_by_hand(tensor, context, data, stages, experts):
    """What all but sums of gradients move: a micro-batch, and one layer of it."""
    strategy = f"TP-{tensor}-c{context}-e{experts or 1}-d{data}-p{stages}"
    mixed = SPARSE if experts else ()
    kernels = fastflow.explain_sharding(*FOUR_LAYERS, f"parallel.strategy={strategy}", *mixed)
    result = Counter()
    for row in kernels[(kernels.layer == 1) & (kernels.phase != "update")].to_dict("records"):
        for text, moved in zip(
            row["exchange"].split("; "),
            (row["sync_B"] or row["send_B"], row.get("sync2_B", 0.0)),
            strict=False,
        ):
            if text and not row["kernel"].endswith("weight gradient"):
                result[text.partition(", ")[0]] += moved
    expected = naive.bytes_of_a_layer(
        SEQUENCE // context, HIDDEN, 2 * KEYS * HIDDEN // HEADS, tensor, context, stages, 2 if experts else 0
    )
    assert result == expected


@pytest.mark.parametrize("strategy", ["TP-1-d16", "TP-1-c2-d8", "TP-1-e8-d16"])
def test_bytes_a_parameter_are_those_of_zero(strategy):
    """16, 4 + 12 / N, 2 + 14 / N and 16 / N with Adam in 16 bits (arXiv:1910.02054, figure 1).

    Weights of experts are on fewer devices: on 16 of 8 shares, two have the same. Gains count as nothing.
    """
    experts = SPARSE if "e8" in strategy else ()
    got = fastflow.evaluate(
        *FOUR_LAYERS, *experts, f"parallel.strategy={strategy}", "parallel.zero_stage=0,1,2,3"
    )
    width = HIDDEN // HEADS
    attention = naive.attention(HIDDEN, HEADS, KEYS, width)
    ffn, expert = naive.feed_forward(HIDDEN, FFN, True), naive.feed_forward(HIDDEN, 512, True)
    router = HIDDEN * 8
    dense = 4 * (attention + (router if experts else ffn)) + 2 * WORDS * HIDDEN
    of_experts = 4 * expert if experts else 0  # one of 8 a layer
    whole, part = np.array([16, 4, 2, 0]), np.array([0, 12, 14, 16])
    expected = dense * (whole + part / 16) + of_experts * (whole + part / 2)
    held = got["weight_B"] + got["gradient_B"] + got["optimizer_B"]
    assert held.to_numpy() == pytest.approx(expected, rel=1e-12)


def test_latents_are_gathered_in_place_of_tokens():
    """Under sequence parallelism: latent queries and keys, which every head reads."""
    latent = ("model.latent=512", "model.query_latent=768", "model.rotary=64", "model.head_dim=64")
    result = exchanges("parallel.strategy=TP-8-d2", "parallel.sequence_parallel=true", *latent)
    assert result["forward", "all-gather along tp"] == 3
    assert result["forward", "reduce-scatter along tp"] == 2
    assert not any("all-to-all" in text for _, text in result)


# --- patterns


@given(
    parts=st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from(["dense", "experts", "window dense", "window experts"])),
        min_size=1,
        max_size=5,
    ),
    layers=st.integers(1, 60),
    mtp=st.integers(0, 2),
)
def test_a_pattern_is_repeated_as_long_as_there_are_layers(parts, layers, mtp):
    text = ", ".join(f"{times}*{kind}" for times, kind in parts)
    period = [kind for times, kind in parts for _ in range(times)]
    every = [period[i % len(period)] for i in range(layers)]
    kinds = list(dict.fromkeys(period))
    assert [kind.text for kind in pattern.parse(text)] == period
    counts = {kind.text: count for kind, count in pattern.times(text, layers).items()}
    assert counts == {kind: every.count(kind) for kind in kinds}
    columns = pattern.times(text, np.array([layers, 3]))
    assert [column[0] for column in columns.values()] == [every.count(kind) for kind in kinds]
    offset, layer = pattern.order(np.array(["dense", text]), np.array([2, layers]), np.array([0, mtp]))
    beyond = [1 + len(kinds), 2 + len(kinds)] * mtp
    head = 1 + len(kinds) + (2 if mtp else 0)
    assert layer[: offset[1]].tolist() == [0, 1, 1, 2]
    assert layer[offset[1] : offset[2]].tolist() == [
        0,
        *(1 + kinds.index(kind) for kind in every),
        *beyond,
        head,
    ]
    described = pattern.parse(text)
    all_layers = [described[i % len(described)] for i in range(layers)]
    again = pattern.parse(pattern.pattern_text(all_layers))
    assert [again[i % len(again)] for i in range(layers)] == all_layers


@given(st.lists(st.sampled_from(["dense", "experts", "no_ffn"]), min_size=1, max_size=12), st.integers(1, 40))
@cases(200)
def test_a_pattern_is_the_shortest_that_repeats(words, count):
    kinds = [pattern.parse(word)[0] for word in words]
    layers = (kinds * count)[: len(kinds) + count]
    shortest = next(
        size for size in range(1, 99) if all(a == b for a, b in zip(layers, layers[size:], strict=False))
    )
    text = pattern.pattern_text(layers)
    parsed = pattern.parse(text)
    assert (list(parsed) * len(layers))[: len(layers)] == layers
    assert len(parsed) == shortest


def test_many_layers_without_a_period_take_no_time():
    kinds = [*pattern.parse("dense"), *pattern.parse("experts") * 9_999]
    assert pattern.pattern_text(kinds) == "dense, 9999*experts"


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("attention dense", "dense"), ("experts window", "window experts"),
        ("gated_delta", "gated_delta dense"), ("dense( ffn=64  kv_heads=2 )", "dense(kv_heads=2 ffn=64)"),
        ("no_mixer  experts", "no_mixer experts"), ("mamba2 attention no_ffn", "mamba2 attention no_ffn"),
        ("shared_kv window", "window shared_kv dense"),
    ],
)  # fmt: skip
def test_a_kind_has_a_shortest_text(text, shortest):
    (kind,) = pattern.parse(text)
    assert kind.text == shortest
    assert pattern.parse(shortest) == (kind,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dens",
        "0*dense",
        "dense dense",
        "2*",
        "dense,",
        "99999*dense",
        "-1*dense",
        "no_mixer no_ffn",
        "no_mixer attention",
        "dense(ffn=0)",
        "dense(hidden=5)",
        "dense(ffn)",
        "gated_delta shared_kv",
        "tied dense",
        "dense, tied experts",
        "experts, tied experts",
        "tied mamba2 no_ffn, mamba2 no_ffn",
        "dense experts",
    ],
)
def test_a_pattern_that_is_none_is_refused(text):
    with pytest.raises(InputError, match=r"model\.pattern"):
        pattern.parse(text)


# --- networks


@pytest.mark.parametrize("block", ["pre", "post", "sandwich", "parallel", "parallel_norms"])
@pytest.mark.parametrize("mix", [{}, {"pattern": "experts", "experts": 4, "topk": 2, "shared_experts": 1}])
@pytest.mark.parametrize("fused", [True, False])
def test_every_way_to_build_a_layer_reads_what_is_there(block, mix, fused):
    """And its products are those of every other way."""
    result = [
        workload.build_graph(
            points(block=arrangement, fused_attention=fused, dropout=not fused, **mix), precision(1)
        )
        for arrangement in ("pre", block)
    ]
    sizes = [
        sorted(zip(graph.rows[on], graph.inner[on], graph.cols[on], strict=True))
        for graph in result
        for on in [graph.kind == 0]
    ]
    assert sizes[0] == sizes[1]
    assert model_flop(result[1])[0] == pytest.approx(model_flop(result[0])[0], rel=0.2)


def test_models_built_together_are_as_models_built_alone():
    """Structures that differ, and sizes that differ within them."""
    varied = {
        "hidden": [64, 32, 128, 64, 32], "layers": [2, 5, 3, 4, 2], "heads": [4, 4, 8, 2, 4],
        "batch": [2, 3, 4, 1, 2], "latent": [0, 0, 16, 0, 0],
        "pattern": ["dense", "dense", "dense", "dense, experts", "dense, experts"],
        "experts": [0, 0, 0, 4, 8], "topk": [0, 0, 0, 2, 3], "shared_ffn": [0, 0, 0, 24, 16],
    }  # fmt: skip
    together = workload.build_graph(points(**varied), precision(5))
    counted = parameters(points(hidden=[64, 32], layers=[2, 5], batch=[2, 3]))
    for i in range(5):
        point = points(**{key: values[i] for key, values in varied.items()})
        alone = workload.build_graph(point, precision(1))
        rows = slice(together.offset[i], together.offset[i + 1])
        for field in (
            "rows", "inner", "cols", "launches.times", "launches.batch", "launches.repeat",
            "memory.saved_cols", "comm.summed_cols",
        ):  # fmt: skip
            column = attrgetter(field)
            assert column(alone).tolist() == column(together)[rows].tolist(), field
        assert alone.per_element.bytes == pytest.approx(together.per_element.bytes[rows])
        assert alone.per_element.flop == pytest.approx(together.per_element.flop[rows])
        if i < 2:
            assert [column[0] for column in parameters(point)] == [column[i] for column in counted]


def test_modules_for_further_tokens_share_embedding_and_head():
    plain, further = (parameters(points(mtp=mtp)) for mtp in (0, 2))
    block = naive.layer(64, naive.attention(64, 4, 4, 16), naive.feed_forward(64, 96, True)) + 2 * 64
    assert [column[0] for column in further] == [column[0] for column in plain]
    layers = network(points(mtp=2)).layers
    weights = sum(
        layer.times * ((node.inner * node.cols * node.groups if node.has_weights else 0) + node.vectors)
        for layer in layers
        if layer.name.startswith("mtp")
        for node in layer.nodes
    )
    assert weights == 2 * (block + 2 * 64 * 64 + 3 * 64)  # a joint product, three norms
    names = [layer.name for layer in layers]
    assert names == ["embedding", "dense", "mtp", "mtp head", "head"]


def test_layers_of_windows_see_them():
    result = network(points(pattern="window dense, dense", window=4))
    windows = [
        instance.node.attributes["window"] for instance in result.nodes if instance.node.name == "attention"
    ]
    assert windows == [4, 0]


@pytest.mark.parametrize(
    ("changed", "key", "message"),
    [
        ({"heads": 5}, "model.heads", "a divisor of model.hidden, 64"),
        ({"kv_heads": 3}, "model.kv_heads", "a divisor of model.heads, 4"),
        ({"positions": 4}, "model.sequence", "at most the 4 tokens of model.positions"),
        ({"experts": 4}, "model.experts", "0, unless model.pattern says"),
        ({"pattern": "experts"}, "model.experts", "at least 1, since"),
        ({"pattern": "experts", "experts": 4}, "model.topk", "at least 1, since"),
        ({"pattern": "experts", "experts": 4, "topk": 5}, "model.topk", "at most the 4 of model.experts"),
        ({"window": 4}, "model.window", "0, unless"),
        ({"pattern": "window dense"}, "model.window", "at least 1"),
        ({"pattern": "2*dense, experts", "experts": 4, "topk": 1}, "model.layers", "at least 3"),
        ({"hidden": 0}, "model.hidden", "at least 1"),
        ({"batch": 10**12, "sequence": 10**12}, "model.batch", "x model.sequence"),
        ({"ffn": 10**12, "batch": 10**6}, "model.batch", "no tensor has more than"),
        ({"heads": 10**9, "head_dim": 10**9}, "model.heads", "so small"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_go_together_are_refused(changed, key, message):
    reason = str(workload.invalid_model_dims(points(**changed)).at(0))
    assert reason.startswith(f"{key}=")
    assert message in reason
