"""Encoders of text, by the `model_type` of their config.json.

BERT's properties and those of its successors that the file omits are those of transformers' code
(models/bert, roberta, distilbert, modernbert of huggingface/transformers). `architectures` says what follows
the last layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastflow.core.yaml_file import wrong
from fastflow.physics.workload.models.transformer.config_json.architecture import ACTIVATIONS
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    LEARNED,
    NO_BIAS,
    PRE,
    ROTARY,
)
from fastflow.physics.workload.models.transformer.encoder.dimensions import (
    CLASSIFIER,
    DEFAULTS,
    MASKED,
    MEAN,
    NAME,
    POOLER,
)
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import DENSE

_HEADS_OF_FILES = {
    "ForMaskedLM": MASKED, "ForPreTraining": MASKED, "LMHeadModel": MASKED,
    "ForSequenceClassification": CLASSIFIER, "ForImageClassification": CLASSIFIER,
    "WithLMHead": MASKED,
}  # fmt: skip
LABELS = 2
"""Labels of a file that names none (transformers' PretrainedConfig.num_labels)."""


def output_of(fields: Fields, default: str) -> dict[str, Any]:
    """Return what follows the last layer by the class that a file names, and the number of classes."""
    _, names = fields.value("architectures")
    first = str(names[0]) if isinstance(names, list) and names else ""
    output = next((head for suffix, head in _HEADS_OF_FILES.items() if suffix in first), default)
    if output != CLASSIFIER:
        return {"output": output}
    _, labels = fields.value("id2label")
    classes = len(labels) if isinstance(labels, dict) else LABELS
    return {"output": output, "classes": fields.count("num_labels", default=max(classes, 1))}


def _sizes(fields: Fields) -> dict[str, Any]:
    heads, hidden = fields.count("num_attention_heads", "n_heads"), fields.count("hidden_size", "dim")
    if hidden % heads:
        raise wrong("num_attention_heads", f"a divisor of its hidden size, {hidden}", heads)
    return {
        "layers": fields.count("num_hidden_layers", "n_layers"), "hidden": hidden, "heads": heads,
        "ffn": fields.count("intermediate_size", "hidden_dim"), "vocabulary": fields.count("vocab_size"),
        "positions": fields.count("max_position_embeddings"),
        "activation": fields.choice(ACTIVATIONS, "hidden_act", "activation", "hidden_activation",
                                    default="gelu"),
        "tied": fields.flag("tie_word_embeddings", default=True),
    }  # fmt: skip


def _bert(fields: Fields) -> dict[str, Any]:
    kind, encoding = fields.value("position_embedding_type")
    if encoding not in (None, "absolute", "rotary"):
        raise wrong(kind, "absolute or rotary", str(encoding))
    return _sizes(fields) | {
        "segments": fields.count("type_vocab_size", default=0, least=0),
        "position": ROTARY if encoding == "rotary" else LEARNED,
        **output_of(fields, POOLER),
    }


def _roberta(fields: Fields) -> dict[str, Any]:
    """Return BERT's; the first two positions are never used (RobertaEmbeddings)."""
    values = _bert(fields)
    return values | {"sequence": max(values["positions"] - 2, 1)}


def _distilbert(fields: Fields) -> dict[str, Any]:
    fields.flag("sinusoidal_pos_embds")
    return _sizes(fields) | {"segments": 0, **output_of(fields, MEAN)}


def _modernbert(fields: Fields) -> dict[str, Any]:
    """Return ModernBERT's (arXiv:2412.13663): gated, rotary, and a window but in every n-th layer.

    `local_attention` tokens are half before and half after a token.
    """
    every, window = fields.count("global_attn_every_n_layers", default=3), fields.count("local_attention")
    biased = fields.flag("attention_bias") and fields.flag("mlp_bias")
    local = f"{every - 1}*window {DENSE}" if every > 1 else ""
    sizes = _sizes(fields)
    has_window = every > 1 and sizes["layers"] > 1
    return sizes | {
        "segments": 0, "block": PRE, "gated": True, "position": ROTARY, "biases": ALL if biased else NO_BIAS,
        "pattern": f"{DENSE}, {local}" if has_window else DENSE,
        "window": window // 2 + 1 if has_window else 0, **output_of(fields, MEAN),
    }  # fmt: skip


TEXT_ENCODERS: Mapping[str, Callable[[Fields], dict[str, Any]]] = {
    "bert": _bert,
    "camembert": _roberta,
    "distilbert": _distilbert,
    "ernie": _bert,
    "megatron-bert": lambda fields: {**_bert(fields), "block": PRE, "embedding_norm": False},
    "modernbert": _modernbert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "xlm-roberta-xl": lambda fields: {**_roberta(fields), "block": PRE, "embedding_norm": False},
}
"""By `model_type`: the sizes and properties of an encoder, by its keys without `model.`."""


def text_encoder_of(name: str, fields: Fields) -> dict[str, Any]:
    """Return the properties of an encoder of text; raises MistakeError."""
    known = {key.removeprefix("model."): value for key, value in DEFAULTS.items()}
    values = known | TEXT_ENCODERS[name](fields)
    sequence = min(values["sequence"], values["positions"])
    return {**values, "sequence": sequence, "name": NAME}
