"""A server's memory: the KV cache, and the room that weights and workspaces leave for it.

What a layer keeps of a request is its mixers' (`mixers.mixer.LayerCache`): something of every token, of the
tokens of a window alone, or a state of fixed size. All of them share the memory. Where `server.shared_pages`
is true they share pages of one size, too, as in vLLM's hybrid cache manager: a page of keys holds as many
tokens, a multiple of 16, as a state takes (HybridAttentionMambaModelConfig of vLLM, models/config.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.reasons.codes import Reason
from fastflow.core.reasons.forms import short_of_cache
from fastflow.core.tables import Bools, Floats, Inputs, Ints, take
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.pipeline_stages import EMBEDDING_TIME, FIRST_KIND, HEAD_TIME, Stages
from fastflow.performance.serving.workspace import (
    OtherMemory,
    dense_columns,
    expert_columns,
    other_memory,
    static_share,
)
from fastflow.physics.parallelism.memory.process import offered
from fastflow.physics.workload.models.transformer.dimensions import LEARNED, Sizes, sizes_of
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, kinds_of
from fastflow.physics.workload.models.transformer.mixer import MIXERS, LayerCache
from fastflow.physics.workload.precision import Precision, precision
from fastflow.schema.servers import CUDA_GRAPHS

STATIC, FREE = "static", "free"
"""How a server sizes its caches (`server.memory_fraction_of`), where not by all memory."""
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
) -> tuple[LayerCache, Floats, Floats]:
    """Return what a layer of each kind keeps of a request on a device [B], (points, kinds).

    And the columns of a token in the widest feed-forward part of a layer of any kind: activations, and
    buffers of experts, (points,). size, numbers: of the models of all points.
    """
    names, number = factorize(inputs[KEY])
    caches, (widest, buffers) = LayerCache(*np.zeros((3, number.size, kinds))), np.zeros((2, number.size))
    read = {key: column for key, column in inputs.items() if key.startswith(_READ_BY_MIXERS)}
    sharing = np.where(servers.experts > 1, 1, servers.tensor)
    for i, name in enumerate(names):
        rows, points, tensor, of_rows = np.flatnonzero(number == i), read, servers.tensor, numbers
        if len(names) > 1:  # most calls have one pattern
            points, tensor, of_rows = take((read, servers.tensor, numbers), rows)
            size = sizes_of(points)
        for j, kind in enumerate(kinds_of(name)):
            of_kind = sizes_of(points, kind) if kind.sizes else size
            widest[rows] = np.maximum(widest[rows], dense_columns(of_kind, kind) / tensor)
            buffers[rows] = np.maximum(buffers[rows], expert_columns(of_kind, kind, sharing[rows]))
            for mixer in kind.mixers:
                of_mixer = MIXERS[mixer].cache(points, of_kind, kind, of_rows, tensor)
                for total, part in zip(caches, of_mixer, strict=True):
                    total[rows, j] += part
    return caches, widest, buffers


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


class Lower(NamedTuple):
    """Weights in lower tiers of memory, of a device of each stage; (points, stages)."""

    weights: Floats  # that the device does not have [B]
    buffers: Floats  # of a device, for those that are read [B]
    copied: Floats  # further weights, which the device has too [B]
    resident: Ints  # experts of a layer that a device has, (points,); 0: experts are like other weights


class Room(NamedTuple):
    """Memory of a device for caches; (points,)."""

    weights: Floats  # without those in lower tiers [B]
    work: Floats  # of a pass, and buffers of weights that it reads [B]
    libraries: Floats  # outside of the allocator [B]
    communicators: Floats  # [B]
    context: Floats  # [B]
    graphs: Floats  # [B]
    caches: Floats  # below 0 where not even weights and workspace fit [B]
    lower: Floats  # weights in lower tiers [B]

    @property
    def fixed(self) -> Floats:
        """All but the caches [B]."""
        return self.weights + self.work + self.libraries + self.outside

    @property
    def outside(self) -> Floats:
        """What no profile of a server knows [B]."""
        return self.communicators + self.context + self.graphs


def cache_shortage(
    room: Room,
    i: int,
    needs: float,
    budget: int,
    slots: int = 1,
    which: str = "device",
    adapter: float = 0.0,
) -> Reason:
    """Return why caches of a point do not fit.

    needs: of a device, with an adapter [B]; slots: batches that share the room; adapter: its part [B].
    """
    weights, work, left = float(room.weights[i]), float(room.work[i]), max(float(room.caches[i]), 0.0)
    return short_of_cache(
        needed=needs, left=left, weights=weights, work=work, budget=budget, slots=slots, which=which,
        adapter=adapter,
    )  # fmt: skip


def room_of_fullest_stage(
    inputs: Inputs, layouts: ServerLayouts, stages: Stages, weights: Floats, capacity: Floats, tokens: Floats,
    tower: Floats | float = 0.0, lower: Lower | None = None,
) -> tuple[Room, Cache]:  # fmt: skip
    """Return the room and the cache of a device of the stage whose memory is full first.

    inputs: `server.gpu_memory_utilization` and `server.memory_fraction_of`, of what it is a share;
    `server.shared_pages`, `server.graph_memory`, `server.cuda_graphs`, and those of `workspace.other_memory`.
    weights: of a device that has the whole model, by its parts, (points, parts) [B]; capacity: of a
    device [B]; tokens: of a request, (points,); tower: weights of a vision tower, on the first stage [B];
    lower: of weights, those that are in lower tiers; None: none.
    """
    size, numbers = sizes_of(inputs), precision(inputs)
    stage_weights = _weights(inputs, layouts, stages, weights)
    stage_weights[:, 0] += tower
    of_layer, widest, buffers = _caches_and_widest(inputs, size, numbers, layouts, stages.layers.shape[2])
    of_layer, page = _with_shared_pages(of_layer, inputs["server.shared_pages"])
    # states after each draft token, any of which may be the last that is accepted (vLLM's MambaSpec)
    drafts = inputs.get("serve.num_speculative_tokens", np.zeros(tokens.size, np.int64))
    of_layer = of_layer._replace(state=of_layer.state * (1.0 + drafts)[:, None])
    by_stage = np.arange(stages.layers.shape[1]) == layouts.slots[:, None] - 1
    taken = other_memory(inputs, size, widest, buffers, numbers, layouts)
    work = np.where(by_stage, taken.last_work[:, None], taken.work[:, None])
    in_lower = np.zeros(stage_weights.shape)
    if lower is not None:
        in_lower = lower.weights
        stage_weights, work = stage_weights - in_lower, work + lower.buffers
    caches = _room_for_caches(inputs, layouts, capacity, stage_weights, work, taken)
    window = np.asarray(size.window) * np.ones(tokens.size, np.int64)
    token, windowed, state = ((stages.layers * part[:, None, :]).sum(axis=2) for part in of_layer)
    request_bytes = Cache(token, windowed, state, window[:, None], page[:, None]).of(tokens[:, None])
    requests = caches / np.where(request_bytes > 0.0, request_bytes, 1.0)
    stage = np.argmin(np.where(stages.layers.sum(axis=2) > 0, requests, np.inf), axis=1)
    points = np.arange(tokens.size)
    cache = Cache(token[points, stage], windowed[points, stage], state[points, stage], window, page)
    room = Room(
        weights=stage_weights[points, stage],
        work=work[points, stage],
        libraries=taken.libraries,
        communicators=taken.communicators,
        context=1.0 * inputs["memory.context"],
        graphs=_graph_memory(inputs),
        caches=caches[points, stage],
        lower=in_lower[points, stage],
    )
    return room, cache


def _graph_memory(inputs: Inputs) -> Floats:
    """Return the memory of captured graphs on a device [B], (points,)."""
    memory: Floats = inputs["server.graph_memory"] * inputs[CUDA_GRAPHS]
    return memory


def _room_for_caches(
    inputs: Inputs,
    layouts: ServerLayouts,
    capacity: Floats,
    weights: Floats,
    work: Floats,
    taken: OtherMemory,
) -> Floats:
    """Return the memory of a device for caches [B], (points, stages); weights, work: of the same shape.

    vLLM takes a share of all memory, and subtracts what its run at the token budget needs; SGLang takes a
    share of what it has after its start, and subtracts the weights alone; TensorRT-LLM takes a share of what
    such a run leaves free. None of them can take what is not there.
    """
    rule, share = inputs["server.memory_fraction_of"], _share_of_memory(inputs, layouts, capacity)
    room = offered(inputs, capacity)
    started = room - taken.communicators - inputs["memory.context"]
    fixed = weights + work + taken.libraries[:, None]
    free = (started - _graph_memory(inputs))[:, None] - fixed
    by_rule = np.where(
        (rule == STATIC)[:, None],
        (share * started)[:, None] - weights,
        np.where((rule == FREE)[:, None], share[:, None] * free, (share * room)[:, None] - fixed),
    )
    caches: Floats = np.minimum(by_rule, free)
    return caches


def _share_of_memory(inputs: Inputs, layouts: ServerLayouts, capacity: Floats) -> Floats:
    """Return the share of memory that servers take, as given or by SGLang's rule, (points,)."""
    share: Floats = inputs["server.gpu_memory_utilization"]
    if (share > 0.0).all():
        return share
    return np.where(share > 0.0, share, static_share(inputs, capacity, layouts))


def weights_of_layers(stages: Stages, weights: Floats) -> Floats:
    """Return the weights of all layers on a device of each stage [B], (points, stages).

    weights: as of `room_of_fullest_stage`.
    """
    layer_weights = weights[:, FIRST_KIND:] / np.maximum(stages.layers.sum(axis=1), 1)
    of_stages: Floats = (stages.layers * layer_weights[:, None, :]).sum(axis=2)
    return of_stages


def _weights(inputs: Inputs, layouts: ServerLayouts, stages: Stages, weights: Floats) -> Floats:
    """Return the weights of a device of each stage [B], (points, stages).

    The last stage has a copy of the embedding where the head's weights are tied to it.
    """
    points, stage_weights = np.arange(layouts.slots.size), weights_of_layers(stages, weights)
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
def memory_need(inputs: Inputs, layouts: ServerLayouts, room: Room, capacity: Floats, cache: Floats) -> Need:
    """Return the memory that devices need for some caches; capacity: of a device [B], (points,).

    The inverse of the rule by which the server sizes its caches.
    """
    rule, share = inputs["server.memory_fraction_of"], _share_of_memory(inputs, layouts, capacity)
    profiled = room.weights + room.work + room.libraries
    by_rule = np.select(
        [rule == STATIC, rule == FREE],
        [
            (room.weights + cache) / share + room.communicators + room.context,
            room.fixed + cache / share,
        ],
        (profiled + cache) / share,
    )
    total = np.maximum(by_rule, room.fixed + cache)
    return Need(total, offered(inputs, capacity), room.weights, room.work, cache)
