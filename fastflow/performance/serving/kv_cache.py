"""A server's memory beside weights: the KV cache, and the workspace of a pass.

The cache holds keys and values of every token and layer. Tensor parallelism shards them by heads, with at
least one head on each device. With latent attention it holds a latent vector and its rotated key, replicated
on all devices (DeepSeek-V2, arXiv:2405.04434, section 2.1). Layers with a sliding window keep the tokens of
the window alone (vLLM's hybrid cache manager).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.codes import Reason
from fastflow.core.reasons.forms import short_of_cache
from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.pipeline_stages import EMBEDDING_TIME, HEAD_TIME, Stages
from fastflow.physics.workload.models.transformer.dimensions import LEARNED, Sizes, sizes_of
from fastflow.physics.workload.models.transformer.layer_pattern import KINDS, WINDOW
from fastflow.physics.workload.precision import Precision, precision

# Live activations of a pass, in columns of a token: the inputs and residual sums of a layer, and its widest
# intermediate result, in and out of the activation function
_HIDDEN_LIVE, _WIDE_LIVE = 3.0, 1.5
FREE = "free"
_WINDOWED = [index for index, kind in enumerate(KINDS) if WINDOW in kind.split()]


class Cache(NamedTuple):
    """Bytes of the cache of one request on one device of a stage; (points,)."""

    token: Floats  # of every token [B]
    windowed: Floats  # further bytes of each of the last `window` tokens [B]
    window: Ints

    def of(self, tokens: Floats) -> Floats:
        """Return the bytes of requests by their tokens."""
        return self.token * tokens + self.windowed * np.minimum(tokens, self.window)


def _cache(layer_token: Floats, layers: Ints, window: Ints) -> Cache:
    """Return the cache of a request; layer_token: bytes of a token in one layer, (points,)."""
    windowed, window = layers[:, _WINDOWED].sum(axis=1), window * np.ones(layer_token.size, int)
    return Cache(layer_token * (layers.sum(axis=1) - windowed), layer_token * windowed, window)


def _token_bytes_per_layer(size: Sizes, numbers: Precision, servers: ServerLayouts) -> Floats:
    """Return the bytes of a token in one layer's cache on a device [B], (points,)."""
    heads = -(-np.asarray(size.kv_heads) // servers.tensor)
    latent = np.asarray(size.latent) > 0
    width = np.where(latent, size.latent + size.rotary, heads * (size.head_dim + size.value_dim))
    token_bytes: Floats = width * numbers.cache
    return token_bytes


def _workspace(
    inputs: Inputs, size: Sizes, numbers: Precision, servers: ServerLayouts, tokens: Ints
) -> Floats:
    """Return the activations of a pass over some tokens of a rank, on one device [B], (points,)."""
    expert = np.where(np.asarray(inputs["model.experts"]) > 1, size.topk * np.asarray(size.expert_ffn), 0)
    wide = np.maximum(size.ffn, expert) * 2.0 / servers.tensor
    width = _HIDDEN_LIVE * np.asarray(size.hidden) + _WIDE_LIVE * wide
    return tokens * width * numbers.activation


class Room(NamedTuple):
    """Memory of a device for caches; (points,)."""

    weights: Floats  # [B]
    work: Floats  # of a pass [B]
    caches: Floats  # below 0 where not even weights and workspace fit [B]


def cache_shortage(
    room: Room, i: int, needs: float, budget: int, slots: int = 1, which: str = "device"
) -> Reason:
    """Return why caches of a point do not fit; needs: of a device [B]; slots: batches that share the room."""
    weights, work, left = float(room.weights[i]), float(room.work[i]), max(float(room.caches[i]), 0.0)
    return short_of_cache(
        needed=needs, left=left, weights=weights, work=work, budget=budget, slots=slots, which=which
    )


def room_of_fullest_stage(
    inputs: Inputs, layouts: ServerLayouts, stages: Stages, weights: Floats, capacity: Floats, tokens: Floats,
    tower: Floats | float = 0.0,
) -> tuple[Room, Cache]:  # fmt: skip
    """Return the room and the cache of a device of the stage whose memory is full first.

    inputs: `server.gpu_memory_utilization`, the share of a device's memory that a server uses, or where
    `server.memory_fraction_of` is `free`, the share for caches of the memory beside weights and workspace;
    `server.max_num_batched_tokens`.
    weights: of a device that has the whole model, by its parts, (points, PARTS_OF_MODEL) [B]; capacity: of a
    device [B]; tokens: of a request, (points,); tower: weights of a vision tower, on the first stage [B].
    """
    size, numbers, share = sizes_of(inputs), precision(inputs), inputs["server.gpu_memory_utilization"]
    stage_weights = _weights(inputs, layouts, stages, weights)
    stage_weights[:, 0] += tower
    layer_token = _token_bytes_per_layer(size, numbers, layouts)
    work = _workspace(inputs, size, numbers, layouts, inputs["server.max_num_batched_tokens"])
    free = inputs["server.memory_fraction_of"] == FREE
    cache_share, budget = np.where(free, share, 1.0)[:, None], np.where(free, capacity, share * capacity)
    caches = cache_share * (budget[:, None] - stage_weights - work[:, None])
    window = np.asarray(size.window)
    windowed, stage_layers = stages.layers[:, :, _WINDOWED].sum(axis=2), stages.layers.sum(axis=2)
    window_tokens = np.minimum(tokens, window)[:, None]
    request_bytes = layer_token[:, None] * (
        (stage_layers - windowed) * tokens[:, None] + windowed * window_tokens
    )
    requests = caches / np.where(request_bytes > 0.0, request_bytes, 1.0)
    stage = np.argmin(np.where(stage_layers > 0, requests, np.inf), axis=1)
    points = np.arange(tokens.size)
    cache = _cache(layer_token, stages.layers[points, stage], window)
    return Room(stage_weights[points, stage], work, caches[points, stage]), cache


def _weights(inputs: Inputs, layouts: ServerLayouts, stages: Stages, weights: Floats) -> Floats:
    """Return the weights of a device of each stage [B], (points, stages).

    The last stage has a copy of the embedding where the head's weights are tied to it.
    """
    num_layers, points = stages.layers.sum(axis=1), np.arange(layouts.slots.size)
    layer_weights = weights[:, 1:HEAD_TIME] / np.maximum(num_layers, 1)
    stage_weights: Floats = (stages.layers * layer_weights[:, None, :]).sum(axis=2)
    stage_weights[:, 0] += weights[:, EMBEDDING_TIME]
    words = -(-inputs["model.vocabulary"] // layouts.tensor)
    positions = np.where(inputs["model.position"] == LEARNED, inputs["model.positions"], 0)
    copied = inputs["model.tied"] & (layouts.slots > 1)
    copy = np.where(copied, weights[:, EMBEDDING_TIME] * words / (words + positions), 0.0)
    stage_weights[points, layouts.slots - 1] += weights[:, HEAD_TIME] + copy
    return stage_weights


class Need(NamedTuple):
    """Memory of a device that a server needs, and its parts; (points,), NaN where unknown [B]."""

    total: Floats
    available: Floats
    weights: Floats
    work: Floats
    cache: Floats  # of its longest request, or of its one pass


@np.errstate(over="ignore")  # for a tiny share no memory is enough
def memory_need(inputs: Inputs, room: Room, available: Floats, cache: Floats) -> Need:
    """Return the memory that devices need for some caches; available: their memory [B], (points,)."""
    fixed, share = room.weights + room.work, inputs["server.gpu_memory_utilization"]
    free = inputs["server.memory_fraction_of"] == FREE
    total = np.where(free, fixed + cache / share, (fixed + cache) / share)
    return Need(total, available, room.weights, room.work, cache)
