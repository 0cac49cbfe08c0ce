"""`model.config` of an encoder-decoder: the unchanged config.json that is published with its weights.

Its fields are those of Hugging Face's transformers library, by `model_type`. What is in that library's code
and not in the file is here: of T5 and its kin (models/t5, mt5, umt5), and of BART and its kin (models/bart,
mbart, marian, pegasus, blenderbot, blenderbot_small, m2m_100, whisper), where fields of both stacks have
names of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from fastflow.core.yaml_file import listed, shown, wrong
from fastflow.physics.workload.models.encoder_decoder.dimensions import (
    BUCKETS,
    DEFAULTS,
    RELATIVE,
    RELATIVE_IN_LAYERS,
    SINUSOIDAL,
)
from fastflow.physics.workload.models.transformer.config_json.architecture import ACTIVATIONS
from fastflow.physics.workload.models.transformer.config_json.weight_types import published_in
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    LAYER,
    LEARNED,
    NO_BIAS,
    POST,
    PRE,
    RMS,
)
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_pattern import MAX_LAYERS

_T5_ACTIVATIONS = {name: (kind, False) for name, kind in ACTIVATIONS.items()} | {
    f"gated-{name}": (kind, True) for name, kind in ACTIVATIONS.items()
}


class _Kin(NamedTuple):
    """What distinguishes a kin of BART, and is not in its file."""

    block: str = PRE
    position: str = SINUSOIDAL
    embedding_norm: bool = False
    activation: str = "gelu"  # where the file omits it


def inputs_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the inputs that a config.json's object gives, by their keys; raises MistakeError."""
    name = document.get("model_type")
    if not isinstance(name, str) or name not in TYPES:
        raise wrong("model_type", f"one of {listed(TYPES)}", shown(str(name)))
    fields = Fields(document)
    fields.skip("model_type")
    values = TYPES[name](fields)
    layers = values["layers"]
    if layers > MAX_LAYERS:
        raise wrong("its number of layers", f"at most {MAX_LAYERS}, of encoder and decoder together", layers)
    if not values["head_dim"] and values["hidden"] % values["heads"]:
        raise wrong("its number of heads", f"a divisor of its d_model, {values['hidden']}", values["heads"])
    values |= published_in(fields, int(values["layers"]))
    fields.check_rest()
    positions = values["positions"]
    for key in ("sequence", "source_sequence"):
        if key not in values and 0 < positions < DEFAULTS[f"model.{key}"]:
            values[key] = positions
    return {f"model.{key}": value for key, value in values.items()}


def _t5(fields: Fields, position: str, tied: bool) -> dict[str, Any]:
    """Return the properties of a T5; position: which layers have a table of relative positions."""
    encoder = fields.count("num_layers")
    written = fields.choice({name: name for name in _T5_ACTIVATIONS}, "feed_forward_proj", default="relu")
    activation, gated = _T5_ACTIVATIONS[written]
    fields.skip("dense_act_fn", "is_gated_act")  # what feed_forward_proj says
    fields.skip("n_positions")  # of the examples of training: relative positions have no limit
    buckets = fields.count("relative_attention_num_buckets", default=BUCKETS)
    if buckets != BUCKETS:
        raise wrong("relative_attention_num_buckets", f"{BUCKETS}", buckets)
    return {
        "layers": encoder + fields.count("num_decoder_layers", default=encoder), "encoder_layers": encoder,
        "hidden": fields.count("d_model"), "heads": fields.count("num_heads"),
        "head_dim": fields.count("d_kv"), "ffn": fields.count("d_ff"),
        "vocabulary": fields.count("vocab_size"), "positions": 0, "norm": RMS, "block": PRE,
        "embedding_norm": False, "biases": NO_BIAS, "position": position, "activation": activation,
        "gated": gated, "tied": fields.flag("tie_word_embeddings", default=tied),
    }  # fmt: skip


def _bart(fields: Fields, kin: _Kin) -> dict[str, Any]:
    """Return the properties of a kin of BART."""
    encoder, decoder = fields.count("encoder_layers"), fields.count("decoder_layers")
    heads = _of_both(fields, "encoder_attention_heads", "decoder_attention_heads")
    vocabulary = fields.count("vocab_size")
    if fields.count("decoder_vocab_size", default=vocabulary) != vocabulary:
        raise wrong("decoder_vocab_size", f"its vocab_size, {vocabulary}", fields.count("decoder_vocab_size"))
    if not fields.flag("share_encoder_decoder_embeddings", default=True):
        raise wrong("share_encoder_decoder_embeddings", "true", "false")
    fields.skip("num_hidden_layers")  # the encoder's
    fields.skip("encoder_layerdrop", "decoder_layerdrop")  # of training: layers that are left out
    return {
        "layers": encoder + decoder, "encoder_layers": encoder, "hidden": fields.count("d_model"),
        "heads": heads, "head_dim": 0, "ffn": _of_both(fields, "encoder_ffn_dim", "decoder_ffn_dim"),
        "vocabulary": vocabulary, "positions": fields.count("max_position_embeddings", default=0),
        "norm": LAYER, "block": kin.block, "embedding_norm": kin.embedding_norm, "biases": ALL,
        "position": kin.position,
        "activation": fields.choice(ACTIVATIONS, "activation_function", default=kin.activation),
        "gated": False, "tied": fields.flag("tie_word_embeddings", default=True),
    }  # fmt: skip


def _of_both(fields: Fields, of_encoder: str, of_decoder: str) -> int:
    """Return a size that both stacks have; raises MistakeError where they differ."""
    size = fields.count(of_encoder)
    if fields.count(of_decoder) != size:
        raise wrong(of_decoder, f"its {of_encoder}, {size}", fields.count(of_decoder))
    return size


def _whisper(fields: Fields) -> dict[str, Any]:
    """Return the properties of a Whisper, whose source is sound: as many tokens as half its frames."""
    values = _bart(fields, _Kin(position=LEARNED))
    target = fields.count("max_target_positions", default=448)
    return values | {
        "mel": fields.count("num_mel_bins", default=80), "positions": target, "sequence": target,
        "source_sequence": fields.count("max_source_positions", default=1500),
    }  # fmt: skip


_BART = _Kin(POST, LEARNED, True)
TYPES: Mapping[str, Callable[[Fields], dict[str, Any]]] = {
    "t5": partial(_t5, position=RELATIVE, tied=True),
    "mt5": partial(_t5, position=RELATIVE, tied=False),
    "umt5": partial(_t5, position=RELATIVE_IN_LAYERS, tied=False),
    "bart": partial(_bart, kin=_BART),
    "mbart": partial(_bart, kin=_BART._replace(block=PRE)),
    "blenderbot-small": partial(_bart, kin=_BART),
    "blenderbot": partial(_bart, kin=_Kin(PRE, LEARNED)),
    "marian": partial(_bart, kin=_Kin(POST)),
    "pegasus": partial(_bart, kin=_Kin(activation="relu")),
    "m2m_100": partial(_bart, kin=_Kin(activation="relu")),
    "whisper": _whisper,
}
"""Readers by `model_type`."""
