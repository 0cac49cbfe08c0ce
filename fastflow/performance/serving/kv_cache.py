"""What a server's memory holds beside weights: the cache of keys and values, and the work space of a pass.

Of a token the cache holds keys and values of every layer, which tensor parallelism deals out by heads, and
each device one head at least; or a latent vector with its rotated key, which all devices hold (DeepSeek-V2,
arXiv:2405.04434, section 2.1). Layers with a window forget what lies before it (vLLM's hybrid cache manager).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.pipeline_stages import EMBEDDING_TIME, HEAD_TIME, Stages
from fastflow.physics.workload.models.transformer.dimensions import LEARNED, Sizes, sizes_of
from fastflow.physics.workload.models.transformer.layer_pattern import KINDS, WINDOW
from fastflow.physics.workload.precision import Precision, precision

# Activations of a pass that live at a time, in columns of a token: what a layer reads and sums up, and the
# widest that it makes, in and out of its activation
_HIDDEN_LIVE, _WIDE_LIVE = 3.0, 1.5
FREE = "free"
_WINDOWED = [place for place, kind in enumerate(KINDS) if WINDOW in kind.split()]


class Cache(NamedTuple):
    """Bytes of the cache of one request on one device of a stage; (points,)."""

    token: Floats  # of every token [B]
    windowed: Floats  # of every token of the last `window` ones, beside [B]
    window: Ints

    def of(self, tokens: Floats) -> Floats:
        """Return the bytes of requests of so many tokens."""
        return self.token * tokens + self.windowed * np.minimum(tokens, self.window)


def cache_of(inputs: Inputs, servers: ServerLayouts, layers: Ints) -> Cache:
    """Return what a request's cache takes; inputs: of the model.

    layers: of each kind of pattern.KINDS that a device has, (points, kinds).
    """
    size = sizes_of(inputs)
    return _cache(_of_a_layer(size, precision(inputs), servers), layers, np.asarray(size.window))


def _cache(each: Floats, layers: Ints, window: Ints) -> Cache:
    """Return the same; each: bytes of a token in one layer, (points,)."""
    windowed, window = layers[:, _WINDOWED].sum(axis=1), window * np.ones(each.size, int)
    return Cache(each * (layers.sum(axis=1) - windowed), each * windowed, window)


def _of_a_layer(size: Sizes, numbers: Precision, servers: ServerLayouts) -> Floats:
    """Return what a token takes in the cache of a layer on a device [B], (points,)."""
    heads = -(-np.asarray(size.kv_heads) // servers.tensor)
    latent = np.asarray(size.latent) > 0
    columns = np.where(latent, size.latent + size.rotary, heads * (size.head_dim + size.value_dim))
    each: Floats = columns * numbers.cache
    return each


def _workspace(
    inputs: Inputs, size: Sizes, numbers: Precision, servers: ServerLayouts, tokens: Ints
) -> Floats:
    """Return the activations of a pass over so many tokens of a rank, on one device [B], (points,)."""
    expert = np.where(np.asarray(inputs["model.experts"]) > 1, size.topk * np.asarray(size.expert_ffn), 0)
    wide = np.maximum(size.ffn, expert) * 2.0 / servers.tensor
    columns = _HIDDEN_LIVE * np.asarray(size.hidden) + _WIDE_LIVE * wide
    return tokens * columns * numbers.activation


class Room(NamedTuple):
    """What a device has for caches; (points,)."""

    weights: Floats  # [B]
    work: Floats  # of a pass [B]
    caches: Floats  # below 0 where not even the rest fits [B]


def lacking(room: Room, i: int, needs: float, budget: int, slots: int = 1, which: str = "device") -> str:
    """Say why caches of a point do not fit; needs: of a device [B]; slots: batches that share the rest."""
    taken, left = f"weights of {room.weights[i] / 1e9:.4g} GB", max(float(room.caches[i]), 0.0)
    if room.work[i] > room.weights[i]:
        taken += f" and activations of {room.work[i] / 1e9:.4g} GB (server.budget={budget} tokens)"
    shared = f", which {slots} batches in flight share, one for each stage" if needs <= left else ""
    return f"caches need {needs / 1e9:.4g} GB of a {which}; {taken} leave them {left / 1e9:.4g} GB{shared}"


def fullest(
    inputs: Inputs, layouts: ServerLayouts, stages: Stages, weights: Floats, capacity: Floats, tokens: Floats
) -> tuple[Room, Cache]:
    """Return the room and the cache of a device of the stage that is full first.

    inputs: `server.memory`, the share of a device's memory that a server takes for everything, or where
    `server.memory_of` is `free`, of what weights and work leave it for caches alone; `server.budget`.
    weights: of a device that has the whole model, by its parts, (points, PARTS_OF_MODEL) [B]; capacity: of a
    device [B]; tokens: of a request, (points,).
    """
    size, numbers, share = sizes_of(inputs), precision(inputs), inputs["server.memory"]
    owned, each = _weights(inputs, layouts, stages, weights), _of_a_layer(size, numbers, layouts)
    work = _workspace(inputs, size, numbers, layouts, inputs["server.budget"])
    free = inputs["server.memory_of"] == FREE
    rest, whole = np.where(free, share, 1.0)[:, None], np.where(free, capacity, share * capacity)
    caches = rest * (whole[:, None] - owned - work[:, None])
    window = np.asarray(size.window)
    windowed, of_all = stages.layers[:, :, _WINDOWED].sum(axis=2), stages.layers.sum(axis=2)
    seen = np.minimum(tokens, window)[:, None]
    takes = each[:, None] * ((of_all - windowed) * tokens[:, None] + windowed * seen)
    requests = caches / np.where(takes > 0.0, takes, 1.0)
    stage = np.argmin(np.where(of_all > 0, requests, np.inf), axis=1)
    at = np.arange(tokens.size)
    return Room(owned[at, stage], work, caches[at, stage]), _cache(each, stages.layers[at, stage], window)


def _weights(inputs: Inputs, layouts: ServerLayouts, stages: Stages, weights: Floats) -> Floats:
    """Return the weights of a device of each stage [B], (points, stages).

    The last stage has a copy of the embedding where the head's weights are those.
    """
    many, at = stages.layers.sum(axis=1), np.arange(layouts.slots.size)
    each = weights[:, 1:HEAD_TIME] / np.maximum(many, 1)
    owned: Floats = (stages.layers * each[:, None, :]).sum(axis=2)
    owned[:, 0] += weights[:, EMBEDDING_TIME]
    words = -(-inputs["model.vocabulary"] // layouts.tensor)
    positions = np.where(inputs["model.position"] == LEARNED, inputs["model.positions"], 0)
    copied = inputs["model.tied"] & (layouts.slots > 1)
    copy = np.where(copied, weights[:, EMBEDDING_TIME] * words / (words + positions), 0.0)
    owned[at, layouts.slots - 1] += weights[:, HEAD_TIME] + copy
    return owned


class Need(NamedTuple):
    """Memory of a device that a server needs, and its parts; (points,), NaN where that is not known [B]."""

    total: Floats
    there: Floats
    weights: Floats
    work: Floats
    cache: Floats  # of its longest request, or of its one pass


@np.errstate(over="ignore")  # of a share that is hardly any no memory is enough
def need_of(inputs: Inputs, room: Room, there: Floats, cache: Floats) -> Need:
    """Return what devices would have to have for some caches; there: what they have [B], (points,)."""
    fixed, share = room.weights + room.work, inputs["server.memory"]
    free = inputs["server.memory_of"] == FREE
    total = np.where(free, fixed + cache / share, (fixed + cache) / share)
    return Need(total, there, room.weights, room.work, cache)
