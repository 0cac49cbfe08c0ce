"""Encoder-decoders: parameters, operations, bytes and borders, against counts of layer by layer."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.config.model_inputs import to_column
from fastflow.core.errors import InputError
from fastflow.physics import workload
from fastflow.physics.workload.graph import BACKWARD, FORWARD, PRODUCTS
from fastflow.physics.workload.models.encoder_decoder import parameters
from fastflow.physics.workload.models.encoder_decoder.dimensions import DEFAULTS
from fastflow.physics.workload.models.encoder_decoder.network import network, order
from tests.naive import encoder_decoder as naive
from tests.support.checks import cases
from tests.support.transformers import OF_MODELS, columns_of_points, of_model, precision

LIBRARY = {  # in billions, as reported: arXiv:1910.10683, arXiv:2212.04356
    "t5_base": 0.2229, "t5_11b": 11.307, "flan_t5_xxl": 11.135, "bart_large": 0.4063,
    "whisper_large_v3": 1.543, "whisper_large_v3_turbo": 0.809,
}  # fmt: skip


def points(**changed):
    """The columns of some models; a list has a value for each."""
    return columns_of_points({**DEFAULTS, **OF_MODELS, "model.name": "encoder_decoder", **of_model(changed)})


def flop(graph, phase, *, attention):
    """Return the operations of the products with weights, or of attention's cores, in a phase."""
    names = graph.names[graph.label]
    is_core = np.char.endswith(names, "attention") & (graph.kind >= len(PRODUCTS) - 1)
    total = 0.0
    for row in np.flatnonzero(graph.phase == phase):
        whole = 1.0 * graph.rows[row] * graph.cols[row] * graph.launches.times[row]
        if attention and is_core[row]:
            total += whole * graph.per_element.flop[row]
        elif not attention and graph.kind[row] < len(PRODUCTS) - 1:
            total += 2.0 * whole * graph.inner[row]
    return total


MODELS = st.builds(
    dict,
    hidden=st.sampled_from((64, 96)), heads=st.sampled_from((4, 8)), kv_heads=st.sampled_from((0, 2)),
    head_dim=st.sampled_from((0, 24)), ffn=st.sampled_from((100, 256)), encoder=st.integers(1, 4),
    decoder=st.integers(1, 4), gated=st.booleans(), biases=st.sampled_from(("none", "all")),
    norm=st.sampled_from(("rms", "layer")), block=st.sampled_from(("pre", "post")),
    embedding_norm=st.booleans(), tied=st.booleans(), mel=st.sampled_from((0, 80)),
    position=st.sampled_from(("relative", "relative_layers", "learned", "sinusoidal", "none")),
    source=st.integers(1, 40), target=st.integers(1, 40),
)  # fmt: skip


def naive_model(drawn):
    """The same model as its layers have it."""
    learned = drawn["position"] == "learned"
    return naive.Model(
        hidden=drawn["hidden"], heads=drawn["heads"], kv_heads=drawn["kv_heads"] or drawn["heads"],
        head_dim=drawn["head_dim"] or drawn["hidden"] // drawn["heads"], ffn=drawn["ffn"],
        encoder_layers=drawn["encoder"], decoder_layers=drawn["decoder"], vocabulary=50,
        gated=drawn["gated"], biased=drawn["biases"] == "all", layer_norms=drawn["norm"] == "layer",
        norms_before=drawn["block"] == "pre", embedding_norm=drawn["embedding_norm"], tied=drawn["tied"],
        tables=64 * learned, source_tables=64 * (learned and not drawn["mel"]), mel=drawn["mel"],
        relative={"relative": "stack", "relative_layers": "layer"}.get(drawn["position"], ""),
    )  # fmt: skip


def columns_of(drawn, **changed):
    """The columns of a drawn model, of two sequences."""
    same = {key: drawn[key] for key in drawn.keys() & {key.partition(".")[2] for key in DEFAULTS}}
    return points(
        **same, layers=drawn["encoder"] + drawn["decoder"], encoder_layers=drawn["encoder"], batch=2,
        source_sequence=drawn["source"], sequence=drawn["target"], vocabulary=50, positions=64, **changed,
    )  # fmt: skip


@pytest.mark.long
@given(MODELS)
@cases(60)
def test_parameters_and_operations_are_those_of_its_layers(drawn):
    columns, model = columns_of(drawn), naive_model(drawn)
    load = naive.Load(2, drawn["source"], drawn["target"])
    assert not workload.invalid_model_dims(columns).exists[0]
    assert parameters(columns)[0][0] == parameters(columns)[1][0] == naive.parameters(model)
    graph = workload.build_graph(columns, precision(1))
    assert np.isclose(flop(graph, FORWARD, attention=False), naive.products_flop(model, load))
    assert np.isclose(flop(graph, FORWARD, attention=True), naive.attention_flop(model, load))


@given(MODELS)
@cases(40)
def test_the_backward_pass_has_two_products_for_each_but_of_sound(drawn):
    columns, model = columns_of(drawn), naive_model(drawn)
    load = naive.Load(2, drawn["source"], drawn["target"])
    graph = workload.build_graph(columns, precision(1))
    of_sound = 2 * 2 * 2 * drawn["source"] * 3 * drawn["mel"] * drawn["hidden"]  # it needs no gradient
    expected = 2 * naive.products_flop(model, load) - of_sound
    assert np.isclose(flop(graph, BACKWARD, attention=False), expected)


@given(MODELS, st.integers(0, 20))
@cases(40)
def test_encoding_and_decoding_are_a_forward_pass_without_the_head_in_two_steps(drawn, before):
    """What encode and decode compute of products is what the teacher's pass has, but for its tokens."""
    model = naive_model(drawn)
    load = naive.Load(2, drawn["source"], drawn["target"])
    encoded = workload.build_graph(columns_of(drawn, training=False, step="encode"), precision(1))
    decoded = columns_of(drawn, training=False, step="decode", before=before)
    steps = workload.build_graph(decoded, precision(1))
    total = flop(encoded, FORWARD, attention=False) + flop(steps, FORWARD, attention=False)
    assert np.isclose(total, naive.products_flop(model, load))
    queries, keys, columns = drawn["target"], before + drawn["target"], 2 * 2 * model.head_dim
    seen = sum(keys - queries + query + 1 for query in range(queries)) + queries * drawn["source"]
    cores = 2 * model.heads * model.decoder_layers * columns * seen
    assert np.isclose(flop(steps, FORWARD, attention=True), cores)
    assert parameters(decoded)[0][0] == naive.parameters(model)


@given(MODELS)
@cases(40)
def test_cross_attention_reads_a_cache_of_the_source_and_writes_none(drawn):
    model = naive_model(drawn)
    load = naive.Load(2, drawn["source"], drawn["target"])
    _, of_source = naive.caches(model, load)
    *_, last = network(columns_of(drawn, training=False, step="encode")).layers
    (node,) = last.nodes
    assert last.times * node.rows * node.cols == of_source
    decoder = network(columns_of(drawn, training=False, step="decode")).layers[1]
    cross = next(node for node in decoder.nodes if node.name == "cross attention")
    kept = cross.attributes["kv_len"] * cross.attributes["kv_heads"] * 2 * cross.attributes["head_dim"]
    assert decoder.times * 2 * kept == of_source
    assert not any(node.name.startswith("cross key") for node in decoder.nodes)


@given(st.lists(MODELS, min_size=2, max_size=5), st.sampled_from(("forward", "encode", "decode")))
@cases(30)
def test_the_order_has_every_layer_of_the_network(models, step):
    columns = [columns_of(drawn, training=False, step=step) for drawn in models]
    together = order({key: np.concatenate([point[key] for point in columns]) for key in columns[0]})
    for i, point in enumerate(columns):
        own = together.layer[together.offset[i] : together.offset[i + 1]]
        times = [layer.times for layer in network(point).layers]
        assert np.bincount(own, minlength=len(times)).tolist() == times
        assert (np.diff(own) >= 0).all()
        assert workload.count_layers(point)[0] == own.size


# --- what is kept, sent and summed

SMALL = (
    "model=encoder_decoder", "system=dgx_h100", "model.batch=16", "model.hidden=1024", "model.heads=16",
    "model.layers=16", "model.encoder_layers=8", "model.source_sequence=512", "model.sequence=128",
)  # fmt: skip


@pytest.mark.parametrize(
    "changed", [(), ("model.gated=true", "model.activation=silu"), ("model.block=post",)]
)
@pytest.mark.parametrize("side", [0, 1])
def test_what_a_layer_keeps_for_its_backward_pass(side, changed):
    """As much as a further layer of the encoder, or of the decoder, adds."""
    kept = [
        fastflow.evaluate(
            *SMALL, "parallel.strategy=d8", "model.batch=16", "parallel.microbatches=1", *changed,
            f"model.layers={4 + more}", f"model.encoder_layers={2 + more * (side == 0)}", "model.ffn=4096",
            "parallel.recompute=none",
        ).activation_B[0]
        for more in (0, 1)
    ]  # fmt: skip
    model = naive.Model(1024, 16, 16, 64, 4096, 8, 8, 32128, gated="model.gated=true" in changed)
    assert kept[1] - kept[0] == naive.kept_bytes(model, naive.Load(2, 512, 128))[side]


def test_stages_of_the_decoder_pass_the_output_of_the_encoder_on():
    """Between decoder layers go the decoder's tokens and the encoder's output, each way; else one of them."""
    columns = points(batch=2, source_sequence=48, sequence=16)
    graph = workload.build_graph(columns, precision(1))
    names = [layer.name for layer in network(columns).layers]
    sent = {}
    for row in np.flatnonzero(graph.comm.sent_cols > 0):
        tokens = graph.comm.sent_cols[row] * graph.rows[row] / (2 * 768)
        sent[names[graph.layer.number[row]], graph.phase[row]] = tokens
    source, target = 48, 16
    assert sent == {
        ("embedding", FORWARD): source, ("encoder", FORWARD): source,
        ("first decoder", FORWARD): source + target, ("decoder", FORWARD): source + target,
        ("encoder", BACKWARD): source, ("first decoder", BACKWARD): source,
        ("decoder", BACKWARD): source + target, ("head", BACKWARD): target,
    }  # fmt: skip


@pytest.mark.parametrize("stages", [2, 8])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_memory_of_the_last_stage_is_that_of_its_layers(recompute, stages):
    """It has a copy of the encoder's output beside its layers: made there, of two stages, or received."""
    frame = fastflow.evaluate(
        *SMALL, f"parallel.strategy=p{stages}", f"system.devices={stages}", "parallel.microbatches=1",
        f"parallel.recompute={recompute}", "model.sequence=512", "model.source_sequence=128",
        "model.vocabulary=2000", "model.optimizer=sgd", "precision.master=none",
    )  # fmt: skip
    model = naive.Model(1024, 16, 16, 64, 4096, 8, 8, 2000)
    _, decoder = naive.kept_bytes(model, naive.Load(16, 128, 512))
    of_source, of_target = (2 * 16 * tokens * 1024 for tokens in (128, 512))
    head = of_target + 4 * 16 * 512 * 2000  # its norm, and logits in fp32
    layers = 16 // stages * (decoder if recompute == "none" else of_target)
    if stages == 8:
        expected = of_source + of_target + layers + head
    else:  # the input of the encoder's last norm and its output; the embedding, where it is not made again
        expected = of_source + of_source + of_target * (recompute == "none") + layers + head
    assert frame.peak_memory_stage[0] == stages - 1
    assert frame.activation_B[0] == expected


@pytest.mark.parametrize(("tensor", "context"), [(2, 1), (1, 2), (2, 2), (4, 2)])
@pytest.mark.parametrize("side", [0, 1])
def test_bytes_of_a_layer_are_counted_by_hand(tensor, context, side):
    """What all but sums of gradients move, of a micro-batch of a sequence."""
    strategy = f"TP-{tensor}-c{context}-d{8 // tensor // context}"
    kernels = fastflow.explain_sharding(
        *SMALL, f"parallel.strategy={strategy}", "parallel.microbatch=1", "model.kv_heads=4"
    )
    result = Counter()
    number = 1 if side == 0 else 3  # the first decoder layer has the embedding too
    for row in kernels[(kernels.layer == number) & (kernels.phase != "update")].to_dict("records"):
        moved = (row["sync_B"] or row["send_B"], row.get("sync2_B", 0.0))
        for text, amount in zip(row["exchange"].split("; "), moved, strict=False):
            if text and not row["kernel"].endswith("weight gradient"):
                result[text.partition(", ")[0]] += amount
    assert result == naive.bytes_of_a_layer(
        512 // context, 128 // context, 1024, 2 * 4 * 64, side == 1, tensor, context
    )


def test_decoder_layers_read_the_output_of_the_encoder_again_without_a_kernel(compose, predict):
    """The first reads it from where it is made; the others add their gradients to it, a pass each."""
    prediction = predict([compose(*SMALL, "parallel.strategy=d8")])
    graph = prediction.graph
    names = graph.names[graph.label]
    (forward,), (backward,) = (
        np.flatnonzero(names == name) for name in ("encoder output", "encoder output gradient")
    )
    assert graph.launches.times[forward] == graph.launches.times[backward] == 7
    assert prediction.timing.time[forward] == 0.0
    moved = 3 * 2 * 512 * 1024  # two gradients in, a gradient out, of a sequence
    assert prediction.timing.time[backward] > moved / prediction.chip.dram.bandwidth[0]


@pytest.mark.parametrize("strategy", ["TP-2-d4", "TP-1-c2-d4", "TP-2-c2-d1-p2", "TP-1-d2-p4", "TP-4-d2"])
def test_every_axis_shards_it(strategy):
    frame = fastflow.evaluate(*SMALL, f"parallel.strategy={strategy},d8")
    assert frame.feasible.all()
    sharded, copied = frame.itertuples()
    assert sharded.flop == copied.flop
    assert sharded.weight_B <= copied.weight_B
    assert 0.5 < sharded.hardware_flops_per_device * sharded.time_s * 8 / sharded.flop < 1.5


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("model.encoder_layers=16", "below model.layers, 16, so that there is a decoder"),
        ("model.step=decode", "forward where model.training=true"),
        ("model.before=8", "0, unless model.step=decode"),
        ("model.positions=100", "at most the 100 tokens of model.positions"),
        ("model.position=rotary", "one of relative, relative_layers, learned, sinusoidal, none"),
        ("model.block=sandwich", "one of pre, post"),
        ("model.kv_heads=3", "a divisor of model.heads, 16"),
    ],
)
def test_what_is_wrong_with_dimensions(changed, message):
    (reason,) = fastflow.evaluate(*SMALL, "parallel.strategy=d8", changed).reason
    assert message in reason


def test_serving_is_refused_with_what_works():
    with pytest.raises(InputError, match=r"model\.step=encode, and with model\.step=decode, predicts"):
        fastflow.evaluate(*SMALL, "parallel.strategy=d8", "serve=decode")


def test_the_advice_where_serving_is_refused_works():
    frame = fastflow.evaluate(
        *SMALL, "serve=none", "model.training=false", "model.step=encode,decode", "parallel.strategy=TP-2-d4",
    )  # fmt: skip
    assert frame.feasible.all()
    assert frame.time_s[0] > frame.time_s[1] / 2


@pytest.mark.parametrize("name", LIBRARY)
def test_models_of_the_library_have_their_published_parameters(compose, name):
    inputs = compose(f"model={name}")
    columns = {key: to_column(key, [value]) for key, value in inputs.items() if key.startswith("model.")}
    assert not workload.invalid_model_dims(columns).exists[0]
    assert parameters(columns)[0][0] / 1e9 == pytest.approx(LIBRARY[name], rel=0.003)
