"""config.json files of encoder-decoders: what they say, and what is wrong with them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.core.errors import InputError
from fastflow.core.yaml_file import MistakeError
from fastflow.physics import workload
from fastflow.physics.workload.models.encoder_decoder import parameters
from fastflow.physics.workload.models.encoder_decoder.config_json import TYPES, inputs_of
from fastflow.physics.workload.models.encoder_decoder.dimensions import DEFAULTS
from fastflow.physics.workload.models.transformer.published import with_types
from tests.support.checks import cases
from tests.support.transformers import OF_MODELS, column_of_each

RUN = ("chip=h100_sxm", "system.devices=1", "parallel.strategy=d1", "model.batch=4")


def t5(hidden, heads, head_dim, ffn, layers, vocabulary=32128, **others):
    """A file of T5 or one of its kin, with the fields that published ones have."""
    return {
        "model_type": "t5", "d_model": hidden, "num_heads": heads, "d_kv": head_dim, "d_ff": ffn,
        "num_layers": layers, "num_decoder_layers": layers, "vocab_size": vocabulary, "n_positions": 512,
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
        "is_encoder_decoder": True, "decoder_start_token_id": 0, "dropout_rate": 0.1, "output_past": True,
        "layer_norm_epsilon": 1e-06, "initializer_factor": 1.0, **others,
    }  # fmt: skip


def bart(kind, hidden, heads, ffn, layers, vocabulary, decoder_layers=0, **others):
    """A file of BART or one of its kin."""
    return {
        "model_type": kind, "d_model": hidden, "encoder_attention_heads": heads,
        "decoder_attention_heads": heads, "encoder_ffn_dim": ffn, "decoder_ffn_dim": ffn,
        "encoder_layers": layers, "decoder_layers": decoder_layers or layers, "num_hidden_layers": layers,
        "vocab_size": vocabulary, "encoder_layerdrop": 0.05, "decoder_layerdrop": 0.05, "init_std": 0.02,
        "is_encoder_decoder": True, "scale_embedding": False, "decoder_start_token_id": 2, **others,
    }  # fmt: skip


GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
WHISPER = {"num_mel_bins": 128, "max_source_positions": 1500, "max_target_positions": 448}
# of each model its file, and its parameters in billions, of the weights that are published (safetensors; of
# Whisper without the sinusoids of the encoder, which the paper's 1.55 has, and turbo's card, 0.809)
FILES = {
    "t5-small": (t5(512, 8, 64, 2048, 6), 0.0605),
    "t5-base": (t5(768, 12, 64, 3072, 12), 0.2229),
    "t5-large": (t5(1024, 16, 64, 4096, 24), 0.7377),
    "t5-3b": (t5(1024, 32, 128, 16384, 24), 2.8516),
    "t5-11b": (t5(1024, 128, 128, 65536, 24), 11.3073),
    "flan-t5-base": (t5(768, 12, 64, 2048, 12, **GATED), 0.2476),
    "flan-t5-xxl": (t5(4096, 64, 64, 10240, 24, **GATED), 11.1353),
    "mt5-base": (t5(768, 12, 64, 2048, 12, 250112, **{**GATED, "model_type": "mt5"}), 0.5824),
    "umt5-small": (t5(512, 6, 64, 1024, 8, 256384, **{**GATED, "model_type": "umt5"}), 0.3067),
    "bart-base": (bart("bart", 768, 12, 3072, 6, 50265, max_position_embeddings=1024), 0.1394),
    "bart-large": (bart("bart", 1024, 16, 4096, 12, 50265, max_position_embeddings=1024), 0.4063),
    "mbart-large": (bart("mbart", 1024, 16, 4096, 12, 250027, max_position_embeddings=1024), 0.6109),
    "pegasus-large": (bart("pegasus", 1024, 16, 4096, 16, 96103, max_position_embeddings=1024), 0.5688),
    "opus-mt": (bart("marian", 512, 8, 2048, 6, 58101, max_position_embeddings=512), 0.0739),
    "nllb-3.3b": (bart("m2m_100", 2048, 16, 8192, 24, 256206, max_position_embeddings=1024), 3.3450),
    "whisper-large-v3": (bart("whisper", 1280, 20, 5120, 32, 51866, **WHISPER), 1.5416),
    "whisper-turbo": (bart("whisper", 1280, 20, 5120, 32, 51866, 4, **WHISPER), 0.8069),
}  # fmt: skip


def columns(config, **changed):
    """The inputs of a model as columns, as its file gives them."""
    models = {**OF_MODELS, "model.name": "encoder_decoder"}
    return column_of_each(with_types({**DEFAULTS, **models, **inputs_of(config), **changed}))


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_the_published_parameters(name):
    config, billion = FILES[name]
    result = columns(config)
    assert not workload.invalid_model_dims(result).exists[0]
    assert parameters(result)[0][0] / 1e9 == pytest.approx(billion, rel=0.001)


def test_every_kind_of_file_is_counted():
    kinds = {config["model_type"] for config, _ in FILES.values()}
    assert kinds == TYPES.keys() - {"blenderbot", "blenderbot-small"}  # nobody counts them apart from BART


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("t5-11b", {"layers": 48, "encoder_layers": 24, "head_dim": 128, "tied": True, "gated": False}),
        ("flan-t5-xxl", {"activation": "gelu", "gated": True, "tied": False, "position": "relative"}),
        ("umt5-small", {"position": "relative_layers"}),
        ("bart-large", {"block": "post", "embedding_norm": True, "biases": "all", "position": "learned"}),
        ("mbart-large", {"block": "pre", "embedding_norm": True}),
        ("opus-mt", {"block": "post", "embedding_norm": False, "position": "sinusoidal"}),
        ("whisper-turbo", {"layers": 36, "encoder_layers": 32, "mel": 128, "source_sequence": 1500}),
        ("whisper-large-v3", {"sequence": 448, "positions": 448}),
    ],
)
def test_what_files_say(name, result):
    given = inputs_of(FILES[name][0])
    assert {key: given[f"model.{key}"] for key in result} == result


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_layers": 0}, "num_layers"),
        ({"num_layers": 9999}, "at most 10000, of encoder and decoder together, not 10011"),
        ({"feed_forward_proj": "gated-tanh"}, "feed_forward_proj is one of .*, not '?gated-tanh"),
        ({"relative_attention_num_buckets": 64}, "relative_attention_num_buckets is 32, not 64"),
        ({"cross_attention_layers": 2}, "cross_attention_layers, which fastflow does not know"),
        ({"num_heads": None}, "gives num_heads"),
        ({"model_type": "llama"}, "model_type is one of t5, "),
    ],
)
def test_what_is_wrong_with_a_file(changed, message):
    with pytest.raises(MistakeError, match=message):
        inputs_of({**FILES["t5-base"][0], **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"decoder_ffn_dim": 2048}, "decoder_ffn_dim is its encoder_ffn_dim, 4096, not 2048"),
        ({"decoder_attention_heads": 8}, "decoder_attention_heads is its encoder_attention_heads, 16, not 8"),
        ({"encoder_attention_heads": 10, "decoder_attention_heads": 10}, "a divisor of its d_model, 1024"),
        ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is true, not false"),
        ({"decoder_vocab_size": 9}, "decoder_vocab_size is its vocab_size, 50265, not 9"),
    ],
)
def test_what_is_wrong_with_a_file_of_bart(changed, message):
    with pytest.raises(MistakeError, match=message):
        inputs_of({**FILES["bart-large"][0], **changed})


def test_a_file_is_read_and_keys_override_it(file):
    path = file(FILES["whisper-turbo"][0])
    frame = fastflow.evaluate(
        "model=encoder_decoder", f"model.config={path}", *RUN, "model.encoder_layers=16,32"
    )
    assert list(frame.layers) == [36, 36]
    assert frame.parameters[0] > frame.parameters[1]  # a decoder layer has cross attention too


ODD = (
    None, 0, 1, -1, 7, 64, 10**30, 0.5, float("inf"), float("nan"), "", "relu", True, [], [1], {}, {"a": 1},
)  # fmt: skip


@given(st.sampled_from(list(FILES)), st.integers(0, 2**32 - 1))
@cases(300)
def test_files_with_a_field_that_is_anything_are_read_or_refused(name, seed):
    """Never an error that is none of the user's."""
    rng = np.random.default_rng(seed)
    config = {"torch_dtype": "bfloat16", "quantization_config": None, **FILES[name][0]}
    for _ in range(rng.integers(1, 4)):
        config[list(config)[rng.integers(len(config))]] = ODD[rng.integers(len(ODD))]
    try:
        result = columns(config)
    except (MistakeError, InputError):
        return
    if not workload.invalid_model_dims(result).exists[0]:
        assert parameters(result)[0][0] > 0


@pytest.mark.parametrize("kind", [None, 5, ["t5"], {}, "t6"])
@pytest.mark.parametrize("family", ["transformer", "encoder_decoder"])
def test_a_file_of_no_known_type_is_refused(file, family, kind):
    with pytest.raises(InputError, match="model_type"):
        fastflow.evaluate(f"model={family}", f"model.config={file({'model_type': kind})}", *RUN)


@pytest.mark.parametrize(
    ("family", "config", "advice"),
    [
        ("transformer", FILES["t5-base"][0], "model=encoder_decoder model.config=FILE reads an encoder-deco"),
        ("llama3_8b", FILES["whisper-turbo"][0], "model=encoder_decoder model.config=FILE reads"),
        ("encoder_decoder", {"model_type": "llama"}, "model=transformer model.config=FILE reads a decoder"),
    ],
)
def test_a_file_of_another_family_says_what_reads_it(file, family, config, advice):
    with pytest.raises(InputError, match=advice):
        fastflow.evaluate(f"model={family}", f"model.config={file(config)}", *RUN)
