"""Encoders: parameters and operations against counts by hand and published ones; sharding; inputs refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.config.model_inputs import to_column
from fastflow.physics import workload
from fastflow.physics.workload.graph import PRODUCTS, model_flop
from fastflow.physics.workload.models.transformer.encoder.dimensions import DEFAULTS, OF_IMAGES, image_sides
from fastflow.physics.workload.models.transformer.encoder.network import network
from tests.naive import encoder as naive
from tests.support.checks import cases, refusal
from tests.support.transformers import OF_MODELS, column_of_each, of_model, precision

ENCODER = OF_MODELS | {"model.name": "encoder", "model.training": False}
# parameters as published, in millions: sums of the tensors of the files of google-bert/bert-base-uncased and
# bert-large-uncased (with the layer of masked tokens), google/vit-large-patch16-224, and of the tower of
# google/siglip-so400m-patch14-384
PUBLISHED = {"bert_base": 109.514, "bert_large": 335.175, "vit_l_16": 304.327, "siglip_so400m": 428.226}
RUN = ("chip=h100_sxm", "system=dgx_h100", "system.devices=8")


def points(**changed):
    """The columns of one encoder."""
    return column_of_each({**DEFAULTS, **ENCODER, **of_model(changed)})


@st.composite
def encoders(draw):
    """Draw a small encoder, as the count by hand takes it."""
    images = draw(st.booleans())
    heads, head_dim, merge = draw(st.integers(1, 4)), draw(st.sampled_from([4, 8])), draw(st.integers(1, 3))
    norm, block = draw(st.sampled_from([("layer", "pre"), ("rms", "pre"), ("layer", "post")]))
    outputs = ["none", "pooler", "classifier", "projector"] if images else ["pooler", "masked", "none"]
    class_tokens = draw(st.integers(0, 2)) if images else 0
    patches = draw(st.integers(1, 20))
    biased, learned = draw(st.booleans()), draw(st.booleans())
    return {
        "batch": draw(st.integers(1, 3)), "layers": draw(st.integers(1, 3)), "heads": heads,
        "head_dim": head_dim, "hidden": heads * head_dim, "ffn": draw(st.integers(1, 40)),
        "sequence": patches + class_tokens, "class_tokens": class_tokens,
        "positions": patches + class_tokens if learned else 0,
        "window": draw(st.sampled_from([0, 0, 3])), "causal": draw(st.booleans()),
        "gated": draw(st.booleans()), "biased": biased, "norm": norm, "block": block,
        "input": "patches" if images else "tokens", "vocabulary": 1 if images else draw(st.integers(1, 90)),
        "segments": 0 if images else draw(st.integers(0, 2)), "embedding_norm": draw(st.booleans()),
        "patch": draw(st.integers(1, 4)), "channels": draw(st.integers(1, 3)),
        "temporal_patch": draw(st.integers(1, 2)),
        "output": draw(st.sampled_from(outputs)), "classes": draw(st.integers(1, 9)), "merge": merge,
        "mergers": draw(st.integers(0, 2)), "pooled": draw(st.booleans()),
        "projector": draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)),
    }  # fmt: skip


def columns(model):
    """The inputs of a drawn encoder."""
    learned = model["positions"] > 0
    others = {key: value for key, value in model.items() if key not in ("biased", "projector", "positions")}
    return points(
        **others,
        biases="all" if model["biased"] else "none",
        position="learned" if learned else "rotary",
        positions=model["positions"],
        projector=", ".join(map(str, model["projector"])),
        tied=model["input"] == "tokens",
        pattern="window dense" if model["window"] else "dense",
    )


@cases(60)
@given(model=encoders())
def test_parameters_are_those_counted_by_hand(model):
    inputs = columns(model)
    assert not workload.invalid_model_dims(inputs).exists[0]
    assert workload.parameters_of(inputs)[0][0] == naive.parameters(model)


def product_flop(inputs):
    """The operations of the products of a graph, attention's among them."""
    graph = workload.build_graph(inputs, precision(1))
    each = np.where(graph.per_element.flop > 0.0, graph.per_element.flop, 2.0 * graph.inner)
    launches = graph.launches.times * graph.launches.repeat * graph.launches.batch
    return float((np.isin(graph.kind, PRODUCTS) * launches * each * graph.rows * graph.cols).sum())


@cases(40)
@given(model=encoders())
def test_operations_are_those_counted_by_hand(model):
    inputs = columns(model)
    counted = naive.forward_flop(model)
    assert product_flop(inputs) == pytest.approx(counted, rel=1e-9)
    # backward, a product has two: but for the gradient of pixels, and attention has five for two
    trained = product_flop(inputs | {"model.training": np.array([True])})
    assert 2.0 * counted <= trained <= 3.5 * counted


@pytest.mark.parametrize("name", PUBLISHED)
def test_models_of_the_library_have_their_published_parameters(compose, name):
    inputs = compose(f"model={name}")
    known = {key: to_column(key, [value]) for key, value in inputs.items() if key.startswith("model.")}
    assert not workload.invalid_model_dims(known).exists[0]
    assert workload.parameters_of(known)[0][0] / 1e6 == pytest.approx(PUBLISHED[name], rel=1e-4)


@pytest.mark.parametrize("training", ["true", "false"])
@pytest.mark.parametrize("name", [*PUBLISHED, "encoder"])
def test_encoders_run_under_every_strategy(name, training):
    strategies = "TP-1-d8,TP-2-d4,TP-4-d2,TP-2-c2-d2,TP-1-d4-p2"
    sizes = () if name in ("bert_base", "bert_large", "encoder") else ("model.image_size=224",)
    made = fastflow.evaluate(
        f"model={name}", *RUN, "model.batch=64", f"model.training={training}", *sizes,
        f"parallel.strategy={strategies}",
    )  # fmt: skip
    if name == "vit_l_16":  # 197 tokens are not cut in two
        made = made[~made.strategy.str.contains("c2")]
    if name == "siglip_so400m":  # nor are 27 layers
        made = made[~made.strategy.str.contains("p2")]
    assert (made.reason == "").all(), made.reason.tolist()
    assert (made.flop == made.flop.iloc[0]).all()
    assert (made.time_s > 0.0).all()


def test_attention_to_all_keys_takes_twice_the_operations_of_causal_attention():
    one = points(sequence=512)
    causal = one | {"model.causal": np.array([True])}
    sizes = precision(1)

    def attention(inputs):
        nodes = [node for layer in network(inputs).layers for node in layer.nodes if node.name == "attention"]
        return nodes[0].cost.flop

    assert attention(one) == pytest.approx(attention(causal) * 512 / 256.5)
    assert (
        model_flop(workload.build_graph(one, sizes))[0] > model_flop(workload.build_graph(causal, sizes))[0]
    )


def test_unfused_attention_moves_all_scores():
    run = ("model=bert_base", *RUN, "parallel.strategy=TP-1-d8", "model.fused_attention=false")
    whole, causal = (fastflow.evaluate(*run, f"model.causal={value}").iloc[0] for value in ("false", "true"))
    assert whole.time_s > causal.time_s


@pytest.mark.parametrize(
    ("given_keys", "message"),
    [
        (("model=encoder", "model.input=patches"), "model.patch=0 is invalid: expected at least 1"),
        (("model=vit_l_16", "model.image_size=10"), "at least 16"),
        (("model=vit_l_16", "model.image_size=big"), "pixels of a side, such as 224"),
        (("model=vit_l_16", "model.sequence=100"), "null beside model.sequence=100"),
        (("model=vit_l_16", "model.classes=0"), "at least 1, where model.output is classifier"),
        (("model=bert_base", "model.sequence=513"), "at most the 512 tokens of model.positions"),
        (("model=bert_base", "model.mtp=1"), "model.mtp=1 is invalid: expected 0: an encoder has none"),
        (("model=bert_base", "model.class_tokens=1"), "0, unless model.input is patches"),
        (("model=bert_base", "model.output=projector", "model.projector=x"), "columns of each product"),
        (("model=bert_base", "serve=decode"), "transformer, where serve is not none"),
        (("model=bert_base", "model.size=1B"), "0: only a decoder is scaled"),
    ],
)
def test_what_is_wrong_is_named(given_keys, message):
    run = (*given_keys, "chip=h100_sxm", "system=dgx_h100", "parallel.strategy=TP-1-d8")
    assert message in refusal(*run)


def test_the_sequence_follows_from_the_image():
    made = fastflow.evaluate(
        "model=vit_l_16", *RUN, "parallel.strategy=TP-1-d8", "model.image_size=224,384,224x448"
    )
    # flop of tokens: 197, 577, 393
    single = [
        fastflow.evaluate("model=vit_l_16", *RUN, "parallel.strategy=TP-1-d8", "model.image_size=null",
                          f"model.sequence={tokens}").flop.iloc[0]
        for tokens in (197, 577, 393)
    ]  # fmt: skip
    assert made.flop.tolist() == single


@pytest.mark.parametrize(
    ("text", "sides"), [("224", (224, 224)), ("8x16", (8, 16)), ("0", ()), ("8x", ()), ("-8", ())]
)
def test_image_sizes(text, sides):
    assert image_sides(text) == sides


def test_defaults_of_images_are_keys_of_encoders():
    assert OF_IMAGES.keys() <= DEFAULTS.keys()
