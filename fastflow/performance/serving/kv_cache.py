"""A server's memory beside weights: the KV cache, and the workspace of a pass.

What a layer keeps of a request is its mixers' (`mixers.mixer.LayerCache`): something of every token, of the
tokens of a window alone, or a state of fixed size. All of them share the memory. Where `server.shared_pages`
is true they share pages of one size, too, as in vLLM's hybrid cache manager: a page of keys holds as many
tokens, a multiple of 16, as a state takes (HybridAttentionMambaModelConfig of vLLM, models/config.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.reasons.codes import Reason
from fastflow.core.reasons.forms import short_of_cache
from fastflow.core.tables import Bools, Floats, Inputs, Ints, take
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.pipeline_stages import EMBEDDING_TIME, FIRST_KIND, HEAD_TIME, Stages
from fastflow.physics.workload.models.transformer.dimensions import LEARNED, Sizes, sizes_of
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, kinds_of
from fastflow.physics.workload.models.transformer.mixer import MIXERS, LayerCache
from fastflow.physics.workload.precision import Precision, precision

# Live activations of a pass, in columns of a token: the inputs and residual sums of a layer, and its widest
# intermediate result, in and out of the activation function
_HIDDEN_LIVE, _WIDE_LIVE = 3.0, 1.5
FREE = "free"
_READ_BY_MIXERS = ("model.", "serve.", "server.")  # sections of the inputs that `Mixer.cache` gets
_KERNEL_BLOCK = 16  # tokens that attention's kernels read at a time, of which a page holds a multiple


class Cache(NamedTuple):
    """Bytes of the cache of one request on one device of a stage; (points,)."""

    token: Floats  # of every token [B]
    windowed: Floats  # further bytes of each of the last `window` tokens [B]
    state: Floats  # of the request, whatever the number of its tokens [B]
    window: Ints
    page: Ints  # tokens of a page of `token`; 1: none has one

    def of(self, tokens: Floats) -> Floats:
        """Return the bytes of requests by their tokens."""
        paged = np.where(self.page > 1, np.ceil(tokens / self.page) * self.page, tokens)
        return self.state + self.token * paged + self.windowed * np.minimum(tokens, self.window)


def _caches_and_widest(
    inputs: Inputs, size: Sizes, numbers: Precision, servers: ServerLayouts, kinds: int
) -> tuple[LayerCache, Floats]:
    """Return what a layer of each kind keeps of a request on a device [B], (points, kinds).

    And the columns of the widest intermediate result of a token in a layer of any kind, (points,). size,
    numbers: of the models of all points.
    """
    names, number = factorize(inputs[KEY])
    caches, widest = LayerCache(*np.zeros((3, number.size, kinds))), np.zeros(number.size)
    read = {key: column for key, column in inputs.items() if key.startswith(_READ_BY_MIXERS)}
    for i, name in enumerate(names):
        rows, points, tensor, of_rows = np.flatnonzero(number == i), read, servers.tensor, numbers
        if len(names) > 1:  # most calls have one pattern
            points, tensor, of_rows = take((read, servers.tensor, numbers), rows)
            size = sizes_of(points)
        for j, kind in enumerate(kinds_of(name)):
            of_kind = sizes_of(points, kind) if kind.sizes else size
            widest[rows] = np.maximum(widest[rows], _widest_of(of_kind))
            for mixer in kind.mixers:
                of_mixer = MIXERS[mixer].cache(points, of_kind, kind, of_rows, tensor)
                for total, part in zip(caches, of_mixer, strict=True):
                    total[rows, j] += part
    return caches, widest


def _widest_of(size: Sizes) -> Any:
    """Return the columns that the activation function of a layer's feed-forward part reads or makes."""
    chosen = np.where(np.asarray(size.experts) > 1, size.topk * np.asarray(size.expert_ffn), 0)
    return np.maximum(size.ffn, chosen)


def _with_shared_pages(caches: LayerCache, shared: Bools) -> tuple[LayerCache, Ints]:
    """Return caches whose states take whole pages where these are shared, and the tokens of a page.

    shared: whether pages are; it and the tokens are of shape (points,).
    """
    of_token = np.where(caches.token > 0.0, caches.token, np.inf).min(axis=1, initial=np.inf)
    state = caches.state.max(axis=1, initial=0.0)
    has_pages = shared & (state > 0.0) & np.isfinite(of_token)
    page = np.where(has_pages, _KERNEL_BLOCK * np.ceil(state / (_KERNEL_BLOCK * of_token)), 1.0)
    page_bytes = np.where(has_pages, page * np.where(has_pages, of_token, 0.0), 0.0)[:, None]
    padded = np.where(caches.state > 0.0, np.maximum(caches.state, page_bytes), 0.0)
    return caches._replace(state=padded), page.astype(np.int64)


def _workspace(
    size: Sizes, widest: Floats, numbers: Precision, servers: ServerLayouts, tokens: Ints
) -> Floats:
    """Return the activations of a pass over some tokens of a rank, on one device [B], (points,)."""
    width = _HIDDEN_LIVE * np.asarray(size.hidden) + _WIDE_LIVE * widest * 2.0 / servers.tensor
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
    `server.max_num_batched_tokens`; `server.shared_pages`.
    weights: of a device that has the whole model, by its parts, (points, parts) [B]; capacity: of a
    device [B]; tokens: of a request, (points,); tower: weights of a vision tower, on the first stage [B].
    """
    size, numbers, share = sizes_of(inputs), precision(inputs), inputs["server.gpu_memory_utilization"]
    stage_weights = _weights(inputs, layouts, stages, weights)
    stage_weights[:, 0] += tower
    of_layer, widest = _caches_and_widest(inputs, size, numbers, layouts, stages.layers.shape[2])
    of_layer, page = _with_shared_pages(of_layer, inputs["server.shared_pages"])
    # states after each draft token, any of which may be the last that is accepted (vLLM's MambaSpec)
    drafts = inputs.get("serve.num_speculative_tokens", np.zeros(tokens.size, np.int64))
    of_layer = of_layer._replace(state=of_layer.state * (1.0 + drafts)[:, None])
    work = _workspace(size, widest, numbers, layouts, inputs["server.max_num_batched_tokens"])
    free = inputs["server.memory_fraction_of"] == FREE
    cache_share, budget = np.where(free, share, 1.0)[:, None], np.where(free, capacity, share * capacity)
    caches = cache_share * (budget[:, None] - stage_weights - work[:, None])
    window = np.asarray(size.window) * np.ones(tokens.size, np.int64)
    token, windowed, state = ((stages.layers * part[:, None, :]).sum(axis=2) for part in of_layer)
    request_bytes = Cache(token, windowed, state, window[:, None], page[:, None]).of(tokens[:, None])
    requests = caches / np.where(request_bytes > 0.0, request_bytes, 1.0)
    stage = np.argmin(np.where(stages.layers.sum(axis=2) > 0, requests, np.inf), axis=1)
    points = np.arange(tokens.size)
    cache = Cache(token[points, stage], windowed[points, stage], state[points, stage], window, page)
    return Room(stage_weights[points, stage], work, caches[points, stage]), cache


def _weights(inputs: Inputs, layouts: ServerLayouts, stages: Stages, weights: Floats) -> Floats:
    """Return the weights of a device of each stage [B], (points, stages).

    The last stage has a copy of the embedding where the head's weights are tied to it.
    """
    num_layers, points = stages.layers.sum(axis=1), np.arange(layouts.slots.size)
    layer_weights = weights[:, FIRST_KIND:] / np.maximum(num_layers, 1)
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
