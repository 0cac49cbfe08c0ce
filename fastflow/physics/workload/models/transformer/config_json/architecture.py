"""What the code of a published model says beside its config.json: an entry for each `model_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    LAYER,
    NO_BIAS,
    PRE,
    RMS,
    ROTARY,
)
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import DENSE, OWN_SIZES, LayerKind

# a clamped gate (gpt-oss, MiniMax-M3) and SiTU (Kimi K3) cost about as much as SiLU, xIELU (Apertus) as GELU
ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "relu": "relu", "relu2": "relu2", "relu_squared": "relu2",
    **dict.fromkeys(("sqrelu", "squared_relu"), "relu2"),
    **dict.fromkeys(("swiglu", "swigluoai", "situ"), "silu"),
    **dict.fromkeys(
        (
            "gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_accurate", "gelu_pytorch_tanh",
            "gelu_tanh", "quick_gelu", "geglu", "xielu",
        ),
        "gelu",
    ),
}  # fmt: skip
STATE_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "bf16"}
"""Types of states of linear-time mixers, by their names in a file."""
EVERY, ABOVE = "all", "above"
Values = dict[str, Any]
"""Properties of a model, by the names of their keys without `model.`."""


class Architecture(NamedTuple):
    """Properties of a model type that its config.json omits."""

    norm: str = RMS
    block: str = PRE
    gated: bool = True
    biases: str = NO_BIAS
    position: str = ROTARY
    tied: bool = False
    qk_norm: bool = False
    qk_norm_across_heads: bool = False
    activation: str = "silu"  # where the file omits it
    # layers with window attention where the file does not list them: "all", or "above" a layer; or all but
    # the last of each period of this length; 0: none
    windows: int | str = 0
    # mixers that words of `layer_types` stand for in this family, as linear_attention: gated_delta
    mixers: Mapping[str, str] = {}
    # of the file and the properties so far: further properties
    extra_fields: Callable[[Fields, Values], Mapping[str, Any]] | None = None
    # of the file, the properties, and the kinds of layers that generic fields describe: the kinds
    layers: Callable[[Fields, Values, list[LayerKind]], list[LayerKind]] | None = None


LLAMA = Architecture()
"""RMS norms, rotary embedding, a gated feed-forward layer, no biases."""
GPT = Architecture(LAYER, PRE, False, ALL, tied=True, activation="gelu")
"""Layer norms, biases, a feed-forward layer that is not gated."""


def sized(kind: LayerKind, values: Values, **sizes: int) -> LayerKind:
    """Return a kind of layer with sizes of its own; 0, or what the model has anyway, changes nothing."""
    kind_sizes = dict(kind.sizes) | {name: size for name, size in sizes.items() if size}
    kept = tuple(
        (name, kind_sizes[name])
        for name in OWN_SIZES
        if name in kind_sizes and kind_sizes[name] != values.get(name)
    )
    return kind._replace(sizes=kept)


_WHICH_EXPERTS = (
    "mlp_layer_types", "first_k_dense_replace", "moe_layer_freq", "mlp_only_layers", "moe_layers_enum",
    "moe_layer_start_index", "num_dense_layers",
)  # fmt: skip


def dense_first(fields: Fields, values: Values, kinds: list[LayerKind], count: int = 1) -> list[LayerKind]:
    """Return kinds whose first layers are dense, where no field says which layers have experts."""
    if any(name in fields for name in _WHICH_EXPERTS):
        return kinds
    return [kind._replace(feed_forward=DENSE) if i < count else kind for i, kind in enumerate(kinds)]


def with_mixer(kind: LayerKind, *mixers: str) -> LayerKind:
    """Return a kind of layer with other mixers."""
    return kind._replace(mixers=mixers)
