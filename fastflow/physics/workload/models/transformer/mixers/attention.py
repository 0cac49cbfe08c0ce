"""Attention over all keys, over a window or over chunks of them; of heads, or latent (`model.latent`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm
from fastflow.physics.workload.models.transformer.dimensions import Sizes
from fastflow.physics.workload.models.transformer.layer_kind import SHARED_KV, LayerKind
from fastflow.physics.workload.models.transformer.mixer import PROJECTION, LayerCache, Mixer
from fastflow.physics.workload.models.transformer.mixers import heads, latent
from fastflow.physics.workload.models.transformer.mixers.heads import Reach
from fastflow.physics.workload.network import Node
from fastflow.physics.workload.precision import Precision

CORE_NODES = ("rotary", "attention", "key up")


def _nodes(
    reach: Callable[[Sizes], Reach], points: Inputs, size: Sizes, kind: LayerKind, read: str
) -> list[Node]:
    is_latent = bool(points["model.latent"][0])
    if is_latent:
        nodes, head_dim = latent.projections(points, size, read), size.head_dim + size.rotary
    else:
        nodes, head_dim = heads.projections(points, size, kind, read), size.head_dim
    source = nodes[0].name
    nodes += heads.core_of_training(points, size, reach(size), head_dim, nodes[-1].name)
    nodes += heads.gated(points, size, nodes[-1].name, source)
    columns = size.heads * size.value_dim
    return [*nodes, gemm(PROJECTION, size, columns, size.hidden, nodes[-1].name, (HEADS, HIDDEN))]


def _core(
    reach: Callable[[Sizes], Reach], points: Inputs, size: Sizes, kind: LayerKind, decodes: bool
) -> list[Node]:
    if points["model.latent"][0]:
        return latent.serve(points, size, reach(size), decodes)
    return heads.serve(points, size, kind, reach(size), decodes)


def _cache(
    in_window: bool, inputs: Inputs, size: Sizes, kind: LayerKind, numbers: Precision, tensor: Ints
) -> LayerCache:
    """Return what a layer keeps: keys and values of at least one head on a device, or latent ones."""
    of_token = token_bytes(size, numbers, tensor) * (SHARED_KV not in kind.modifiers)
    none = np.zeros_like(of_token)
    return LayerCache(none, of_token, none) if in_window else LayerCache(of_token, none, none)


def token_bytes(size: Sizes, numbers: Precision, tensor: Ints) -> Floats:
    """Return the bytes of a token in one layer's cache on a device [B], (points,)."""
    key_heads = -(-np.asarray(size.kv_heads) // tensor)
    width = np.where(
        np.asarray(size.latent) > 0, size.latent + size.rotary, key_heads * (size.head_dim + size.value_dim)
    )
    of_token: Floats = width * numbers.cache
    return of_token


def _mixer(name: str, meaning: str, reach: Callable[[Sizes], Reach], in_window: bool) -> Mixer:
    return Mixer(
        name=name,
        meaning=meaning,
        nodes=partial(_nodes, reach),
        core=partial(_core, reach),
        core_nodes=CORE_NODES,
        cache=partial(_cache, in_window),
        attends=True,
        latent=True,
        needs=(("model.window", name),) if in_window else (),
        further=("model.query_latent",) if in_window else ("model.query_latent", "model.density"),
    )


ATTENTION = _mixer(
    "attention", "attention to all keys", lambda size: Reach(density=size.density), in_window=False
)
WINDOW = _mixer(
    "window", "attention to the keys of the last model.window tokens", lambda size: Reach(window=size.window),
    in_window=True,
)  # fmt: skip
CHUNKED = _mixer(
    "chunked", "attention within chunks of model.window tokens", lambda size: Reach(chunk=size.window),
    in_window=True,
)  # fmt: skip
