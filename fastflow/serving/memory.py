"""What a server's memory holds beside weights: the cache of keys and values, and the work space of a pass.

Of a token the cache holds keys and values of every layer, which tensor parallelism deals out by heads, and
each device one head at least; or a latent vector with its rotated key, which all devices hold (DeepSeek-V2,
arXiv:2405.04434, section 2.1). Layers with a window forget what lies before it (vLLM's hybrid cache manager).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.distinct import vocabulary
from fastflow.serving.layout import ServerLayouts
from fastflow.tables import Floats, Inputs, Ints
from fastflow.workload.precision import precision
from fastflow.workload.transformer.pattern import KEY, WINDOW, parse
from fastflow.workload.transformer.sizes import sizes_of

# Activations of a pass that live at a time, in columns of a token: what a layer reads and sums up, and the
# widest that it makes, in and out of its activation
_HIDDEN_LIVE, _WIDE_LIVE = 3.0, 1.5
FREE = "free"


class Cache(NamedTuple):
    """Bytes of the cache of one request on one device of a stage; (points,)."""

    token: Floats  # of every token [B]
    windowed: Floats  # of every token of the last `window` ones, beside [B]
    window: Ints

    def of(self, tokens: Floats) -> Floats:
        """Return the bytes of requests of so many tokens."""
        return self.token * tokens + self.windowed * np.minimum(tokens, self.window)


def cache_of(inputs: Inputs, servers: ServerLayouts) -> Cache:
    """Return what a request's cache takes; inputs: of the model."""
    size, numbers = sizes_of(inputs), precision(inputs)
    heads = -(-np.asarray(size.kv_heads) // servers.tensor)
    latent = np.asarray(size.latent) > 0
    columns = np.where(latent, size.latent + size.rotary, heads * (size.head_dim + size.value_dim))
    windowed = _windowed(inputs) / servers.slots
    layers = inputs["model.layers"] / servers.slots
    each = columns * numbers.cache
    return Cache(
        each * (layers - windowed), each * windowed, np.asarray(size.window) * np.ones_like(layers, int)
    )


def _windowed(inputs: Inputs) -> Ints:
    """Return how many layers of each model have a window."""
    names, place = vocabulary(inputs[KEY])
    layers = inputs["model.layers"]
    found = np.zeros(layers.size, dtype=np.int64)
    for number, name in enumerate(names):
        has = np.array([WINDOW in kind.split() for kind in parse(name)])
        before = np.cumsum([0, *has])
        own = layers // has.size * before[-1] + before[layers % has.size]
        found = np.where(place == number, own, found)
    return found


def workspace(inputs: Inputs, servers: ServerLayouts, tokens: Ints) -> Floats:
    """Return the activations of a pass over so many tokens of a rank, on one device [B], (points,)."""
    size, numbers = sizes_of(inputs), precision(inputs)
    expert = np.where(np.asarray(inputs["model.experts"]) > 1, size.topk * np.asarray(size.expert_ffn), 0)
    wide = np.maximum(size.ffn, expert) * 2.0 / servers.tensor
    columns = _HIDDEN_LIVE * np.asarray(size.hidden) + _WIDE_LIVE * wide
    return tokens * columns * numbers.activation


class Room(NamedTuple):
    """What a device has for caches; (points,)."""

    weights: Floats  # [B]
    work: Floats  # of a pass [B]
    caches: Floats  # below 0 where not even the rest fits [B]


def room_of(inputs: Inputs, layouts: ServerLayouts, weights: Floats, capacity: Floats) -> Room:
    """Return what servers leave to caches of what their devices have.

    inputs: `server.memory`, the share of a device's memory that a server takes for everything, or where
    `server.memory_of` is `free`, of what weights and work leave it for caches alone; `server.budget`.
    weights, capacity: of a device [B], (points,).
    """
    work, share = workspace(inputs, layouts, inputs["server.budget"]), inputs["server.memory"]
    free = inputs["server.memory_of"] == FREE
    caches = np.where(free, share * (capacity - weights - work), share * capacity - weights - work)
    return Room(weights, work, caches)


class Need(NamedTuple):
    """Memory of a device that a server needs, and its parts; (points,), NaN where that is not known [B]."""

    total: Floats
    there: Floats
    weights: Floats
    work: Floats
    cache: Floats  # of its longest request, or of its one pass


def need_of(inputs: Inputs, room: Room, there: Floats, cache: Floats) -> Need:
    """Return what devices would have to have for some caches; there: what they have [B], (points,)."""
    fixed, share = room.weights + room.work, inputs["server.memory"]
    free = inputs["server.memory_of"] == FREE
    total = np.where(free, fixed + cache / share, (fixed + cache) / share)
    return Need(total, there, room.weights, room.work, cache)
