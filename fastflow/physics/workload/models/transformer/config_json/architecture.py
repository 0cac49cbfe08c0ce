"""What the code of a published model says beside its config.json: an entry for each `model_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fastflow.physics.workload.models.transformer.config_json.fields import Fields
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    LAYER,
    NO_BIAS,
    PRE,
    RMS,
    ROTARY,
)

ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "relu": "relu", "relu2": "relu2", "relu_squared": "relu2",
    **dict.fromkeys(
        ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_accurate", "gelu_pytorch_tanh", "quick_gelu"),
        "gelu",
    ),
}  # fmt: skip
EVERY, ABOVE = "all", "above"


class Architecture(NamedTuple):
    """Properties of a model type that its config.json omits."""

    norm: str = RMS
    block: str = PRE
    gated: bool = True
    biases: str = NO_BIAS
    position: str = ROTARY
    tied: bool = False
    qk_norm: bool = False
    activation: str = "silu"  # where the file omits it
    # layers with window attention where the file does not list them: "all", or "above" a layer; or all but
    # the last of each period of this length; 0: none
    windows: int | str = 0
    extra_fields: Callable[[Fields, dict[str, Any]], Mapping[str, Any]] | None = (
        None  # of the file and the properties so far: further properties
    )


def mtp(fields: Fields, known: dict[str, Any]) -> dict[str, Any]:
    """Return the number of multi-token prediction modules."""
    return {"mtp": fields.count("num_nextn_predict_layers", default=0, least=0)}


LLAMA = Architecture()
"""RMS norms, rotary embedding, a gated feed-forward layer, no biases."""
GPT = Architecture(LAYER, PRE, False, ALL, tied=True, activation="gelu")
"""Layer norms, biases, a feed-forward layer that is not gated."""
