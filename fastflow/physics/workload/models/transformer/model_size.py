"""`model.size`: a dense transformer scaled to a number of parameters, in depth and width.

Layers and hidden columns grow together, at the ratio of the base model: at equal parameters the loss changes
by some percent at most while that ratio changes by an order of magnitude (Kaplan et al., arXiv:2001.08361,
section 3.1 and figure 5), and model families keep a near-constant ratio: Llama 3 has 128, 102 and 130 hidden
columns a layer at 8, 70 and 405 billion (arXiv:2407.21783, table 3), GPT-3 85 to 128 from 1.3 billion on
(arXiv:2005.14165, table 2.1). Heads keep their columns; their number grows with the hidden columns, in steps
of 8, which tensor parallelism of a machine divides; heads of linear-time mixers grow as much. KV heads, if
they were fewer than query heads, vocabulary and all other sizes are those of the base model. For each width,
the number of layers follows from the parameters, at proportional feed-forward columns; the selected width has
the ratio nearest to the base model's. The number of layers is rounded, to a multiple of 4 from 24 on, which
stages of a pipeline divide, and feed-forward columns, a multiple of 128, compensate. A size within half a
layer of the base model's is the base model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.tables import Columns, Floats, Ints
from fastflow.physics.workload.models.transformer.dimensions import CAUSAL, DEFAULTS, ffn_of
from fastflow.physics.workload.models.transformer.layer_pattern import KEY as PATTERN
from fastflow.physics.workload.models.transformer.layer_pattern import MAX_LAYERS, fewest_layers, kinds_of
from fastflow.physics.workload.models.transformer.parameters import parameters

KEY = "model.size"
STEP = 8  # of heads
_MULTIPLE = 128  # of feed-forward columns: a tile of tensor cores' products
_LAYERS, _MANY_LAYERS = 4, 24
_MIN_PARAMETERS, _MAX_PARAMETERS = 1e6, 1e15
_MAX_HEADS = 8192
_SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "head_dim", "linear_heads", "linear_key_heads")
_TIMES = {
    "": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12,
    "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12,
}  # fmt: skip
_WRITTEN = re.compile(r"(\d+\.?\d*(?:e\+?\d+)?)\s*([a-z]*)", re.ASCII | re.IGNORECASE)
_RANGE = f"from {_MIN_PARAMETERS:.0e} to {_MAX_PARAMETERS:.0e}"
_ALLOWED = f"parameters {_RANGE}, such as 70B, 8e9 or '30 billion'; or null"


def with_size(leaves: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the leaves of a configuration, with the shape of a model of the requested size.

    leaves: with all dimensions of the base model. Raises InputError.
    """
    if not leaves.get(KEY):
        return leaves
    target = _read(leaves[KEY])
    if CAUSAL in leaves:
        raise InputError(KEY, leaves[KEY], "0: only a decoder is scaled to a number of parameters")
    sized = {**leaves, KEY: target}
    model = {key: sized[key] for key in DEFAULTS if key != KEY}
    if any(isinstance(value, bool) or not isinstance(value, int) for value in _shape(model).values()):
        return sized  # which is rejected where it is read
    if model["model.experts"] or any(kind.has_experts for kind in kinds_of(str(model[PATTERN]))):
        allowed = "null of a mixture: how number, width and depth of experts grow together is not published"
        raise InputError(KEY, leaves[KEY], allowed)
    return sized | _scaled(target, tuple(model.items()))


def decides_shape(leaves: Mapping[str, Any], key: str) -> bool:
    """Say whether the shape of a model follows from a leaf, since model.size scales it."""
    return bool(leaves.get(KEY)) and key in DEFAULTS


def _read(value: Any) -> float:
    """Return the requested number of parameters; raises InputError."""
    written = _WRITTEN.fullmatch(str(value).strip())
    times = _TIMES.get(written[2].lower(), 0.0) if written else 0.0
    size = float(written[1]) * times if written else 0.0
    if isinstance(value, bool) or not _MIN_PARAMETERS <= size <= _MAX_PARAMETERS:
        raise InputError(KEY, value, _ALLOWED)
    return size


def _shape(model: Mapping[str, Any]) -> dict[str, Any]:
    return {name: model[f"model.{name}"] for name in _SHAPE}


@lru_cache(maxsize=256)
def _scaled(target: float, inputs: tuple[tuple[str, Any], ...]) -> dict[str, int]:
    """Return the shape of a model scaled to `target` parameters, by its keys; raises InputError."""
    model = dict(inputs)
    base = _shape(model)
    base["ffn"] = base["ffn"] or int(ffn_of(base["hidden"], bool(model["model.gated"])))
    fewest = fewest_layers(str(model[PATTERN]))
    smallest, next_size, base_size = (
        float(_count(model, _widths(base, np.array([base["heads"]])), layers)[0])
        for layers in (fewest, fewest + 1, base["layers"])
    )
    if 2.0 * abs(target - base_size) < next_size - smallest:
        return {}  # it is the base model
    shape = _widths(base, np.arange(STEP, _MAX_HEADS + 1, STEP))
    first, second = (_count(model, shape, fewest + further) for further in range(2))
    layers = fewest + (target - first) / (second - first)
    allowed = (np.rint(layers) >= fewest) & (layers <= MAX_LAYERS)
    if not allowed.any():
        high = min(first[-1] + (MAX_LAYERS - fewest) * (second - first)[-1], _MAX_PARAMETERS)
        span = f"{first[0] / 1e9:.3g} to {high / 1e9:.3g} billion parameters"
        raise InputError(KEY, f"{target / 1e9:g} billion", f"{span}, which this model can be scaled to")
    ratio = np.log(shape["hidden"] / np.maximum(layers, 1.0) * base["layers"] / base["hidden"])
    best = int(np.where(allowed, np.abs(ratio), np.inf).argmin())
    scaled = {name: int(column[best]) for name, column in shape.items()}
    step = _LAYERS if layers[best] >= _MANY_LAYERS else 1
    scaled["layers"] = max(step * int(np.rint(layers[best] / step)), fewest)
    return {f"model.{name}": size for name, size in _filled(target, model, scaled).items()}


def _filled(target: float, model: Mapping[str, Any], shape: dict[str, int]) -> dict[str, int]:
    """Return a shape with feed-forward columns that compensate for the rounding of layers."""
    ffn = np.array([_MULTIPLE, 2 * _MULTIPLE])
    columns = {name: np.full(ffn.size, size) for name, size in shape.items()} | {"ffn": ffn}
    first, second = _count(model, columns, shape["layers"])
    steps = max(int(np.rint((target - first) / (second - first))), 0)
    return shape | {"ffn": _MULTIPLE * (1 + steps)}


def _widths(base: Mapping[str, int], heads: Ints) -> dict[str, Ints]:
    """Return the sizes of models of the widths of `heads`, each (heads,)."""
    kv_heads = np.array([gcd(count, base["kv_heads"]) for count in heads.tolist()])
    is_mha = base["kv_heads"] in (0, base["heads"])
    linear, keys = base["linear_heads"], base["linear_key_heads"]
    grown = (keys or linear) * heads // base["heads"]
    return {
        "hidden": base["hidden"] * heads // base["heads"],
        "heads": heads,
        "kv_heads": heads * (base["kv_heads"] > 0) if is_mha else kv_heads,
        "ffn": base["ffn"] * heads // base["heads"],
        "linear_heads": linear * grown // keys if keys else grown,
        "linear_key_heads": grown if keys else 0 * heads,
    }


def _count(model: Mapping[str, Any], shape: Mapping[str, Ints], layers: int) -> Floats:
    """Return the parameters of models by width, (widths,)."""
    num_widths = next(iter(shape.values())).size
    points: Columns = {key: np.full(num_widths, value) for key, value in model.items()}
    points |= {f"model.{name}": column for name, column in shape.items()}
    points |= {
        "model.layers": np.full(num_widths, layers), "model.training": np.ones(num_widths, np.bool_),
        "model.dtype": np.full(num_widths, "bf16"),
    }  # fmt: skip
    return parameters(points)[0]
