"""`model.size`: dense transformers scaled to a number of parameters, and their training."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.cli.commands.sweep import main as sweep
from fastflow.core.errors import InputError
from fastflow.core.tables import columns_of
from fastflow.physics.workload import invalid_model_dims, parameters_of
from fastflow.physics.workload.models.transformer.dimensions import DEFAULTS
from fastflow.physics.workload.models.transformer.model_size import KEY, _read, with_size
from tests.support.checks import cases

SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn")
TYPES = {
    "model.name": "transformer",
    "model.training": True,
    "model.dtype": "bf16",
    "model.optimizer": "adam",
}


def scaled(compose, *overrides):
    """The shape of a model, and its parameters in billions."""
    inputs = compose(*overrides)
    columns = columns_of(inputs.items())
    return {name: inputs[f"model.{name}"] for name in SHAPE}, parameters_of(columns)[0][0] / 1e9


@pytest.mark.parametrize(
    ("size", "published"),
    [
        (8.03, {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336}),
        (70.6, {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672}),
        (405.9, {"layers": 126, "hidden": 16384, "heads": 128, "kv_heads": 8, "ffn": 53248}),
    ],
)
def test_llama_3_8b_grows_into_its_family(compose, size, published):
    """Within an eighth of the published width and a quarter of the published depth, of as many parameters."""
    result, billions = scaled(compose, "model=llama3_8b", f"model.size={size}B")
    assert billions == pytest.approx(size, rel=0.005)
    assert result["hidden"] == pytest.approx(published["hidden"], rel=0.13)
    assert result["layers"] == pytest.approx(published["layers"], rel=0.21)
    assert result["kv_heads"] == published["kv_heads"]


@pytest.mark.parametrize("name", ["llama3_8b", "llama3_405b", "qwen3_32b", "gpt3_175b", "gpt_310b", "mpt_7b"])
def test_a_model_of_its_own_size_is_itself(compose, name):
    shape, billions = scaled(compose, f"model={name}")
    assert scaled(compose, f"model={name}", f"model.size={billions:.4f}B")[0] == shape


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("gated_delta dense, dense", {"linear_heads": 64, "linear_key_heads": 32, "linear_key_dim": 128}),
        ("mamba dense", {"linear_heads": 8192, "linear_key_dim": 16, "conv_width": 4}),
    ],
)  # fmt: skip
def test_heads_of_states_grow_with_the_model(compose, pattern, sizes):
    """They keep their columns, and their share of the heads."""
    model = ("model=llama3_8b", f"model.pattern='{pattern}'", *(f"model.{k}={v}" for k, v in sizes.items()))
    inputs = compose(*model, "model.size=70B")
    times = inputs["model.heads"] / 32
    assert times > 1.5
    assert inputs["model.linear_heads"] == times * sizes["linear_heads"]
    assert inputs["model.linear_key_heads"] == times * sizes.get("linear_key_heads", 0)
    assert parameters_of(columns_of(inputs.items()))[0][0] == pytest.approx(70e9, rel=0.005)


@given(
    st.floats(9.0, 12.5), st.sampled_from([(32, 8), (32, 32), (12, 4), (40, 0), (71, 1)]),
    st.sampled_from([0, 3, 4]), st.integers(2, 120), st.sampled_from(["dense", "3*window dense, dense"]),
)  # fmt: skip
@cases(40)
def test_any_dense_model_has_the_parameters_asked_for(exponent, heads, ratio, layers, pattern):
    hidden = 128 * heads[0]
    model = {
        "model.layers": layers,
        "model.hidden": hidden,
        "model.heads": heads[0],
        "model.kv_heads": heads[1],
    }
    model |= {
        "model.ffn": ratio * hidden,
        "model.pattern": pattern,
        "model.window": 512 * (pattern != "dense"),
    }
    result = with_size({**DEFAULTS, **TYPES, **model, KEY: 10.0**exponent})
    columns = columns_of(result.items())
    assert not invalid_model_dims(columns).exists[0]
    assert parameters_of(columns)[0][0] == pytest.approx(10.0**exponent, rel=0.03)
    if result["model.hidden"] != hidden:
        assert result["model.heads"] % 8 == 0
        assert result["model.hidden"] == 128 * result["model.heads"]
        assert result["model.ffn"] % 128 == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("70B", 70e9),
        ("30 billion", 30e9),
        (8e9, 8e9),
        ("8e9", 8e9),
        ("1.5T", 1.5e12),
        ("350m", 350e6),
        (int(7e9), 7e9),
    ],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert _read(text) == size


@pytest.mark.parametrize("text", ["70X", "abc", "", True, -1, "1e30", "nan", "7 0B", 10])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError, match=r"model\.size="):
        _read(text)


def test_mixtures_and_sizes_out_of_reach_are_refused():
    with pytest.raises(InputError, match="null of a mixture"):
        fastflow.evaluate("model=mixtral_8x7b", "model.size=70B")
    with pytest.raises(InputError, match="null of a mixture"):
        fastflow.evaluate("model=transformer", "model.pattern='experts(experts=8 topk=2)'", "model.size=70B")
    with pytest.raises(InputError, match=r"expected 0\.278 to .* billion parameters"):
        fastflow.evaluate("model=llama3_8b", "model.size=0.2B")


def test_a_grid_of_sizes_says_what_it_built_and_how_long_it_trains():
    frame = fastflow.evaluate(
        "model=llama3_8b", "model.size=8B,16e9", "model.train_tokens_per_parameter=20",
        "system=superpod_b200", "system.devices=64", "parallel.strategy=TP-1-d64",
    )  # fmt: skip
    assert frame["model.size"].tolist() == [8e9, 16e9]
    assert frame["layers"].tolist()[0] == 32
    assert frame["parameters"][1] == pytest.approx(16e9, rel=0.01)
    assert frame["hidden"][1] % 1024 == 0
    tokens = frame["train_s"] * frame["tokens_per_s"]
    np.testing.assert_allclose(tokens, 20.0 * frame["parameters"])
    assert (frame["no_effect"] == "").all()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("model.train_tokens_per_parameter=20",), "model.train_tokens_per_parameter"),
        (("model.train_tokens_per_parameter=0", "model.train_tokens=1e12"), "model.train_tokens"),
        ((), "model.train_tokens"),
    ],
)
def test_the_screen_and_a_card_name_the_key_that_says_on_how_many_tokens(cli, given, named):
    point = (
        "model=llama3_8b",
        "system=superpod_b200",
        "system.devices=64",
        "parallel.strategy=TP-8-d8",
        *given,
    )
    _, lines, _ = cli(sweep, *point, "output=o")
    of_screen = [line.split()[-1] for line in lines if line.startswith("to train ")]
    card = fastflow.evaluate(*point)._repr_html_()
    of_card = [cells.split("on ")[1].split("<")[0] for cells in card.split(">to train<")[1:]]
    assert of_screen == of_card == [named] * 2  # for time and energy, and for dollars


def test_axes_of_a_scaled_shape_are_scaled_too():
    """The kept ratio is that of the point's layers."""
    overrides = ("model=llama3_8b", "model.size=20B", "system=dgx_b200", "parallel.strategy=TP-1-d8")
    grid = fastflow.evaluate(*overrides, "model.layers=24,48")
    alone = [fastflow.evaluate(*overrides, f"model.layers={layers}")["layers"][0] for layers in (24, 48)]
    assert grid["layers"].tolist() == alone
    assert alone[0] < alone[1]
