"""The serving scenario of points: tables of passes, memory for caches, loads, and the batching of servers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Floats, Inputs, Ints, take
from fastflow.performance.serving.adapters import served_adapters
from fastflow.performance.serving.attention_pool.devices import (
    has_pool,
    rank_inputs,
    rank_layouts,
    with_attention,
)
from fastflow.performance.serving.attention_pool.memory import OtherDevices, no_other_devices
from fastflow.performance.serving.attention_pool.tables import Pooled, Side, with_attention_pool
from fastflow.performance.serving.batching import (
    ServerPoints,
    balancing_pass_s,
    demand_of,
    servers_of,
    swaps_of,
)
from fastflow.performance.serving.encoder_pool.devices import has_encoders
from fastflow.performance.serving.encoder_pool.encoders import (
    Encoders,
    encoders_of,
    no_encoders,
    with_encoders,
)
from fastflow.performance.serving.images import IMAGES, has_images, passes_with_towers, tower_passes
from fastflow.performance.serving.kv_cache import Cache, Room
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.overlap.tables import with_overlap
from fastflow.performance.serving.passes.parts import Axes, Passes, axes_of
from fastflow.performance.serving.passes.step_time import Servers
from fastflow.performance.serving.passes.tabulate import passes_of
from fastflow.performance.serving.pipeline_stages import stages_of
from fastflow.performance.serving.requests.lengths import (
    REQUESTS,
    LongestLengths,
    arrivals_of_files,
    longest_lengths,
    longest_of,
    num_known_requests,
)
from fastflow.performance.serving.requests.load import Loads
from fastflow.performance.serving.slo import PERCENTILE, Limit
from fastflow.performance.serving.streamed_weights import with_lower_tiers
from fastflow.performance.serving.two_batches import with_two_batches
from fastflow.performance.serving.weight_tiers import (
    Weights,
    local_experts,
    offloads,
    weights_in_tiers,
)
from fastflow.physics.hardware.power import Power, power_of
from fastflow.physics.workload.models.transformer.encoder.vision import PREFIX as VISION
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.schema.servers import BESIDE_TOKENS, MOE_BACKEND, MOE_LIBRARY, REDUNDANT
from fastflow.schema.serving import CONTINUOUS, DISAGGREGATED, ONE_DECODE, ONE_PREFILL

OTHER_SECTIONS = ("serve.", "server.", "router.", VISION)
"""Inputs that passes of the language model do not depend on, but for `PASS_KEYS`."""
PASS_KEYS = (
    "server.all_reduce_backend", "server.moe_alignment", "serve.sampling", "server.sampler", MOE_BACKEND,
    MOE_LIBRARY, BESIDE_TOKENS, REDUNDANT,
)  # fmt: skip
REQUESTS_OPEN = 1000
"""Requests of an open loop that are simulated at first."""
MIN_REQUESTS_OPEN, MAX_REQUESTS_OPEN = 250, 65_536
"""Requests of each server of an open loop, at first and at most: until it is stationary."""
_MAX_REQUESTS = 4096  # at which tables end; beyond it times are extrapolated


class ImageEncoder(NamedTuple):
    """Vision towers of servers; (points,), 0 without images."""

    seconds: Floats  # of the images of one request [s]
    weights: Floats  # of a device of the first stage [B]


class ServingScenario(NamedTuple):
    """Points that serve, with their passes and loads; (points,)."""

    inputs: Inputs
    layouts: ServerLayouts
    prefill_layouts: ServerLayouts  # of the prefill devices, where these are separate ones
    passes: Passes
    server: Ints  # row of the passes
    cache: Cache
    room: Room
    isl: Floats  # mean tokens of a prompt
    osl: Floats
    active: Ints  # servers that have requests
    loads: Loads  # of each active server
    requests: Ints  # of all servers
    servers: Servers
    encoder: ImageEncoder
    power: Power  # of a device
    adapter_bytes: Floats  # of an adapter or a further model on a device [B]; 0: servers have none
    others: OtherDevices  # memory of devices that do all but attention
    encoders: Encoders  # on devices of their own
    stop_at: tuple[Limit, ...] | None = None  # where fleets that miss one, or `serve.slo`, stop; None: never

    @property
    def request_cache(self) -> Floats:
        """Bytes of a whole request's cache on a device."""
        return self.cache.of(self.isl + self.osl)

    @property
    def longest_lengths(self) -> LongestLengths:
        """The longest lengths of requests, of a file or uniform [tokens]."""
        return longest_lengths(self.inputs, self.loads.relative_range)

    @property
    def longest_request_cache(self) -> Floats:
        """Bytes of the longest request's cache on a device."""
        return self.cache.of(self.longest_lengths.both)

    @property
    def computed_tokens(self) -> Floats:
        """Mean tokens of a prompt that are computed, at least 1."""
        tokens: Floats = np.maximum(self.isl * (1.0 - self.loads.prefix), 1.0)
        return tokens

    @property
    def request_s(self) -> Floats:
        """Time of the host for a request with a mean prompt, beside iterations [s]."""
        of_request: Floats = self.inputs["server.request_overhead"]
        return of_request + self.inputs["server.request_overhead_per_token"] * self.isl

    @property
    def links_of_device(self) -> Floats:
        """Bandwidth of a device to those of other packages [B/s]."""
        links: Floats = self.passes.chip.inter.bandwidth[self.server]
        return links * self.inputs["net.inter.utilization"]

    @property
    def mean_context(self) -> Floats:
        """Mean tokens of a request in the cache while it decodes."""
        return self.isl + self.osl / 2.0


def build_scenario(inputs: Inputs, layouts: ServerLayouts, prefills: bool = False) -> ServingScenario:
    """Tabulate the passes of points and read their loads; inputs: of the model, `serve` and `server`.

    layouts: of devices that compute whole layers, or all but attention. prefills: whether servers only
    prefill.
    """
    others, layouts = layouts, with_attention(inputs, layouts)
    inputs = _with_workers(inputs, layouts)
    isl, osl = inputs["serve.isl"], inputs["serve.osl"]
    axes = _axes(inputs, layouts)
    passes, server = _tabulated(inputs, others, axes)
    passes, server = with_two_batches(inputs, others.ranks, passes, server)
    passes, server = with_overlap(inputs, others, passes, server)
    passes, server, power, memory = _with_pool(inputs, layouts, others, passes, server)
    passes, server, encoder = _with_towers(inputs, layouts, passes, server, prefills)
    load = _loads(inputs, layouts, isl, osl)
    points = ServerPoints(inputs, layouts, passes, server, load.per_server, prefills)
    stages = stages_of(inputs, layouts, balancing_pass_s(points))
    capacity = passes.chip.dram.capacity[server]
    model = Weights(
        layouts, stages, passes.weights[server], passes.expert_weights[server],
        local_experts(inputs, layouts), capacity, isl + osl, encoder.weights,
    )  # fmt: skip
    if offloads(inputs).any():
        lower = weights_in_tiers(inputs, model, demand_of(points))
        room, cache = model.room(inputs, lower)
        passes, server = with_lower_tiers(inputs, model, passes, server, lower)
        points = points._replace(passes=passes, server=server)
    else:
        room, cache = model.room(inputs)
    token_bytes = cache.of(isl + osl) / (isl + osl)  # of the whole request, a state of its own among them
    tokens = np.floor(np.maximum(room.caches, 0.0) / token_bytes).astype(np.int64)
    adapters = served_adapters(inputs, layouts, passes, server, room.weights)
    servers = servers_of(points, tokens, stages)._replace(
        swap=swaps_of(inputs, token_bytes), adapter=adapters.time
    )
    encoders = no_encoders(power) if prefills else encoders_of(inputs, power)
    scenario = ServingScenario(
        inputs=inputs, layouts=layouts, prefill_layouts=layouts, passes=passes, server=server, cache=cache,
        room=room, isl=isl, osl=osl, active=load.active, loads=load.per_server, requests=load.requests,
        servers=servers, encoder=encoder, power=power, others=memory,
        adapter_bytes=adapters.bytes, encoders=encoders,
    )  # fmt: skip
    of_server = _encoders_of_server(inputs, layouts, encoders)
    servers = with_encoders(servers, encoders, of_server, inputs, scenario.links_of_device)
    return scenario._replace(servers=servers)


def _encoders_of_server(inputs: Inputs, layouts: ServerLayouts, encoders: Encoders) -> Ints:
    """Return how many encoders a server has, (points,): a fleet shares all, those that decode have none."""
    each = encoders.devices // np.maximum(layouts.replicas, 1)
    return np.where(inputs["serve.mode"] != CONTINUOUS, 0, encoders.devices if TRACE in inputs else each)


def _tabulated(inputs: Inputs, layouts: ServerLayouts, axes: Axes) -> tuple[Passes, Ints]:
    """Return the passes of points on the devices of their layouts, and the row of each point in them."""
    queries = inputs["serve.num_speculative_tokens"] + 1
    shared = {
        key: column
        for key, column in inputs.items()
        if key in PASS_KEYS or not key.startswith(OTHER_SECTIONS)
    }
    first, server = unique_rows([*shared.values(), queries], queries.size)
    return passes_of(take(shared, first), take(layouts, first), axes, queries[first]), server


def _with_pool(
    inputs: Inputs, layouts: ServerLayouts, others: ServerLayouts, passes: Passes, server: Ints
) -> Pooled:
    """Return the passes of servers, whose attention may have devices of its own.

    others: layouts of the other devices, of which the passes are; server: the row of each point in them.
    """
    power = power_of(inputs, take(passes.chip, server))
    rows = np.flatnonzero(has_pool(inputs))
    if not rows.size:
        return Pooled(passes, server, power, no_other_devices(server.size))
    of_ranks = rank_inputs(take(dict(inputs), rows))
    of_side, side_rows = _tabulated(of_ranks, rank_layouts(of_ranks), passes.axes)
    side = Side(of_side, side_rows, power_of(of_ranks, take(of_side.chip, side_rows)))
    return with_attention_pool(inputs, (layouts, others), passes, server, power, side)


def _with_workers(inputs: Inputs, layouts: ServerLayouts) -> Inputs:
    """Return the inputs with an iteration's overhead that has the dispatch to all workers of a rank."""
    further = layouts.tensor * layouts.slots - 1
    whole = inputs["server.step_overhead"] + inputs["server.step_overhead_per_worker"] * further
    return {**inputs, "server.step_overhead": whole}


def _with_towers(
    inputs: Inputs, layouts: ServerLayouts, passes: Passes, server: Ints, prefills: bool
) -> tuple[Passes, Ints, ImageEncoder]:
    """Return the passes with those of vision towers, every point's row in them, and the towers' results.

    prefills: whether servers only prefill; those that only decode have no tower, nor those whose encoders
    have devices of their own.
    """
    none = np.zeros(server.size)
    if not has_images(inputs):
        return passes, server, ImageEncoder(none, none)
    with_tower = (inputs[IMAGES] > 0) & (prefills | (inputs["serve.mode"] != DISAGGREGATED))
    rows = np.flatnonzero(with_tower & ~has_encoders(inputs))
    if not rows.size:
        return passes, server, ImageEncoder(none, none)
    tower = tower_passes(take(dict(inputs), rows), take(layouts, rows))
    passes, server = passes_with_towers(passes, server, tower, rows, inputs["serve.isl"])
    seconds, weights = none.copy(), none.copy()
    seconds[rows], weights[rows] = tower.part.time, tower.weights
    return passes, server, ImageEncoder(seconds, weights)


def select_points(scenario: ServingScenario, rows: Ints) -> ServingScenario:
    """Return the scenario of some of its points, in order."""
    if rows.size == scenario.server.size:
        return scenario
    columns = {
        name: take(column, rows)
        for name, column in scenario._asdict().items()
        if name not in ("passes", "inputs", "stop_at")
    }
    return scenario._replace(inputs=take(dict(scenario.inputs), rows), **columns)


def _axes(inputs: Inputs, layouts: ServerLayouts) -> Axes:
    """Return axes of the tables that cover all points of a call."""
    mode, longest = inputs["serve.mode"], longest_of(inputs)
    isl = longest.isl
    at_once = np.where(
        inputs["serve.concurrency"] > 0, inputs["serve.concurrency"], inputs["server.max_num_seqs"]
    )
    batch = np.where(np.isin(mode, (ONE_PREFILL, ONE_DECODE)), inputs["serve.batch"], at_once)
    requests = np.maximum(np.minimum(-(-batch // layouts.ranks), _MAX_REQUESTS), 2)
    prompt_tokens = np.where(mode == ONE_PREFILL, -(-batch // layouts.ranks) * isl, 0)
    tokens = np.maximum(inputs["server.max_num_batched_tokens"], prompt_tokens).max()
    context = np.maximum(inputs["serve.context"].max(), longest.both.max())
    chunk = np.where(mode == ONE_PREFILL, isl, np.minimum(isl, inputs["server.max_num_batched_tokens"])).max()
    draft = int(inputs["serve.num_speculative_tokens"].max()) + 1
    return axes_of(
        tokens=int(max(tokens, requests.max() * draft)), requests=int(requests.max()),
        context=int(context), chunk=int(max(chunk, 2)), before=int(isl.max()),
    )  # fmt: skip


class _Load(NamedTuple):
    """Loads of points; (points,)."""

    active: Ints  # servers that have requests
    per_server: Loads  # of each active server
    requests: Ints  # of all servers


def _loads(inputs: Inputs, layouts: ServerLayouts, isl: Floats, osl: Floats) -> _Load:
    """Return the loads of points."""
    at_once, rate, replicas = inputs["serve.concurrency"], inputs["serve.request_rate"], layouts.replicas
    active = np.where(at_once > 0, np.minimum(replicas, np.maximum(at_once, 1)), replicas)
    concurrency = -(-at_once // active)
    default = np.where(at_once > 0, REQUESTS * at_once, REQUESTS_OPEN)
    arrivals = arrivals_of_files(inputs)
    default = np.where(arrivals > 0, arrivals, default)
    total = np.where(inputs["serve.num_requests"] > 0, inputs["serve.num_requests"], default)
    requests = np.maximum(-(-total // active), 1)
    is_extended = (at_once == 0) & (rate > 0.0) & (inputs["serve.num_requests"] == 0)
    requests = np.where(is_extended, np.maximum(requests, MIN_REQUESTS_OPEN), requests)
    hit_rate = np.maximum(1.0 - inputs["serve.num_unique_prompts"] / total, 0.0)
    prefix = np.maximum(
        inputs["serve.prefix_cache_hit_rate"], np.where(inputs["serve.num_unique_prompts"] > 0, hit_rate, 0.0)
    )
    points = isl.size
    loads = Loads(
        isl=isl, osl=osl, relative_range=inputs["serve.length_range_ratio"], prefix=prefix,
        concurrency=concurrency, rate=rate / active, requests=requests,
        most=np.where(is_extended, MAX_REQUESTS_OPEN, 0), known=num_known_requests(inputs),
        in_order=np.zeros(points, dtype=np.bool_),
        lengths=np.zeros((points, 2, 0), dtype=np.int64), arrivals=np.zeros((points, 0)),
        percentile=inputs[PERCENTILE],
    )  # fmt: skip
    return _Load(active, loads, np.maximum(total, 1))
