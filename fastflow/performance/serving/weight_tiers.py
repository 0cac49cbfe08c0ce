"""Weights of a server in lower tiers of memory: how many, in which tiers, and how fast a device reads them.

Tiers (`serve.tiers`) are filled from the first one on: the host's memory, local drives, a store on the
network, as in ZeRO-Inference (arXiv:2207.00032) and FlexGen (arXiv:2303.06865). They
are read at the same time, each over a link of its own.

*Layers* are offloaded alike: each layer of a stage has the same share of its weights there, as with the
percentages of FlexGen. vLLM and SGLang offload some whole layers, evenly distributed (the last ones of each
group, vllm/model_executor/offloader/prefetch.py); a pass then reads as many bytes. The embedding and the head
are not offloaded.

*Experts* of a mixture are kept by use: a device has some experts of each layer, and lower tiers have all of
them, so that an expert that makes room for another need not be written (ExpertFlow, arXiv:2410.17954).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Bools, Floats, Inputs, Ints, take
from fastflow.performance.serving.kv_cache import Cache, Lower, Room, room_of_fullest_stage, weights_of_layers
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.pipeline_stages import FIRST_KIND, Stages
from fastflow.physics.parallelism.defaults import has_experts
from fastflow.schema.servers import (
    AS_NEEDED,
    CPU_OFFLOAD,
    OFFLOAD_BACKEND,
    PREFETCH,
    REDUNDANT,
    RESIDENT,
)
from fastflow.schema.serving import FLEET, TIERS

BUFFERS = 2.0
"""Layers that a device has buffers for: one is computed with, another is read."""
_ROUNDING = 1e-12
_HALVINGS = 50  # of the interval in which the least number of offloaded bytes is looked for


class Weights(NamedTuple):
    """The model on the devices of points, as of `room_of_fullest_stage`."""

    layouts: ServerLayouts
    stages: Stages
    weights: Floats  # of a device that has the whole model, by its parts, (points, parts) [B]
    experts: Floats  # of these, routed experts, (points, parts) [B]
    local: Ints  # experts of a layer that a device runs, (points,)
    capacity: Floats  # of a device, (points,) [B]
    tokens: Floats  # of a request, (points,)
    tower: Floats  # weights of a vision tower, (points,) [B]

    def room(self, inputs: Inputs, lower: Lower | None = None) -> tuple[Room, Cache]:
        """Return the room and the cache of a device of the stage whose memory is full first."""
        layouts, stages, weights, _, _, capacity, tokens, tower = self
        return room_of_fullest_stage(
            inputs, layouts, stages, weights, capacity, tokens, tower=tower, lower=lower
        )


class Demand(NamedTuple):
    """Caches that a device must have room for; (points,)."""

    requests: Floats
    tokens: Floats  # of each

    def bytes(self, cache: Cache) -> Floats:
        """Return their bytes [B]."""
        return self.requests * cache.of(self.tokens)


class Reads(NamedTuple):
    """How a device reads weights from lower tiers; (points,)."""

    seconds: Floats  # of a byte [s/B]
    latency: Floats  # of a read of a layer [s]


def offloads(inputs: Inputs) -> Bools:
    """Say which points may have weights in lower tiers."""
    is_offloaded: Bools = (inputs[CPU_OFFLOAD] != 0.0) | keeps_by_use(inputs)
    return is_offloaded


def keeps_by_use(inputs: Inputs) -> Bools:
    """Say which points have devices that may have some experts alone."""
    by_use: Bools = (inputs[RESIDENT] != 1.0) & has_experts(inputs)
    return by_use


def invalid_offload(inputs: Inputs) -> ReasonColumn:
    """Say for every point which of its offloaded weights do not suit each other or the model, (points,)."""
    resident, reason = inputs[RESIDENT], Reasons(inputs[RESIDENT].size)
    is_share = (resident > 0.0) & (resident < 1.0)
    for i in reason.without(is_share & ~has_experts(inputs)):
        reason.add(i, rejected(Code.MODEL, RESIDENT, resident[i], "1 where the model has no experts"))
    for i in reason.without(keeps_by_use(inputs) & (inputs[CPU_OFFLOAD] != 0.0)):
        value = "auto" if resident[i] == 0.0 else f"{resident[i]:g}"
        allowed = f"1 where {CPU_OFFLOAD} is not 0 B: layers are offloaded with their experts"
        reason.add(i, rejected(Code.MEMORY, RESIDENT, value, allowed))
    return reason.column()


def capacity_of_tiers(inputs: Inputs, devices: Ints) -> Floats:
    """Return a device's share of every tier [B], (tiers, points).

    devices: of a server; all servers have the same weights, so a tier of the fleet holds them once.
    """
    shares = []
    for name in TIERS:
        of_tier, scope = inputs[f"serve.tiers.{name}.capacity"], inputs[f"serve.tiers.{name}.scope"]
        shares.append(np.where(scope == FLEET, of_tier / devices, of_tier))
    return np.array(shares)


def room_after_weights(inputs: Inputs, stored: Floats, devices: Ints) -> Floats:
    """Return a device's share of every tier that weights leave [B], (tiers, points).

    stored: weights of a device in all tiers [B]; devices: of a server.
    """
    capacity = capacity_of_tiers(inputs, devices)
    return capacity - _filled(capacity, stored)


def _filled(capacity: Floats, stored: Floats) -> Floats:
    """Return what weights take of every tier [B], (tiers, points): the first one is filled first.

    capacity: a device's share of every tier [B], (tiers, points); stored: weights in all of them [B].
    """
    before = np.cumsum(capacity, axis=0) - capacity
    return np.clip(stored - before, 0.0, capacity)


def reads_of(inputs: Inputs, stored: Floats, devices: Ints) -> Reads:
    """Return how a device reads its weights from lower tiers, (points,); stored: by all of them [B].

    devices: of a server.
    """
    seconds, latency = np.zeros((2, stored.size))
    total = np.where(stored > 0.0, stored, 1.0)
    for name, taken in zip(TIERS, _filled(capacity_of_tiers(inputs, devices), stored), strict=True):
        tier_s = taken / total / inputs[f"serve.tiers.{name}.bandwidth"]
        seconds = np.maximum(seconds, tier_s)
        latency = np.maximum(latency, np.where(taken > 0.0, inputs[f"serve.tiers.{name}.latency"], 0.0))
    return Reads(seconds, latency)


def short_of_tiers(inputs: Inputs, stored: Floats, devices: Ints) -> ReasonColumn:
    """Say for every point that tiers have too little room for weights, (points,).

    stored: by all tiers, of a device [B]; devices: of a server.
    """
    reason, room = Reasons(stored.size), capacity_of_tiers(inputs, devices).sum(axis=0)
    for i in reason.without(stored > room * (1.0 + _ROUNDING)):
        needed = (
            f"serve.tiers.{next(iter(TIERS))}.capacity={np.ceil(stored[i] / 1e8) / 10:g} GB has room for all"
        )
        key, value = CPU_OFFLOAD, f"{stored[i] / 1e9:g} GB"
        allowed = f"at most the {room[i] / 1e9:g} GB that serve.tiers have room for, of a device: {needed}"
        if inputs[CPU_OFFLOAD][i] == 0.0:
            key, value = RESIDENT, f"{inputs[RESIDENT][i]:g}"
            allowed = (
                f"1 where serve.tiers have no room for the {stored[i] / 1e9:.4g} GB of experts of a device:"
                f" {needed}"
            )
        reason.add(i, rejected(Code.MEMORY, key, value, allowed))
    return reason.column()


def weights_in_tiers(inputs: Inputs, model: Weights, demand: Demand) -> Lower:
    """Return the weights in lower tiers, as `server.cpu_offload` and `server.resident_experts` say.

    demand: what they must leave room for, where one is auto; then tiers hold as much as they have room for.
    """
    of_layers = weights_of_layers(model.stages, model.weights)
    offloaded, of_experts = inputs[CPU_OFFLOAD], weights_of_layers(model.stages, model.experts)
    resident = np.where(keeps_by_use(inputs), _resident(inputs, model, inputs[RESIDENT]), 0)
    room = capacity_of_tiers(inputs, model.layouts.devices).sum(axis=0)
    rows = np.flatnonzero(offloaded == AS_NEEDED)
    if rows.size:
        most = np.minimum(room, of_layers.max(axis=1))[rows]
        part, layers, none = *take(((dict(inputs), model, demand), of_layers), rows), np.zeros(rows.size, int)
        offloaded = offloaded.copy()
        offloaded[rows] = _least(part, most, lambda least: _offloaded(*part[:2], least, layers, none))
    rows = np.flatnonzero(keeps_by_use(inputs) & (inputs[RESIDENT] == 0.0))
    if rows.size:
        part, experts = take(((dict(inputs), model, demand), of_experts), rows)
        most = np.where(room[rows] >= experts.max(axis=1), 1.0, 0.0)
        share = 1.0 - _least(
            part, most, lambda least: _by_use(experts, part[1], _resident(*part[:2], 1.0 - least))
        )
        resident[rows] = _resident(*part[:2], share)
    by_use = _by_use(of_experts, model, resident)
    others = _offloaded(inputs, model, offloaded, of_layers, resident)
    is_by_use = (resident > 0)[:, None]
    return Lower(
        weights=np.where(is_by_use, by_use.weights, others.weights),
        buffers=np.where(is_by_use, by_use.buffers, others.buffers),
        copied=np.where(is_by_use, by_use.copied, others.copied),
        resident=resident,
    )


def local_experts(inputs: Inputs, layouts: ServerLayouts) -> Ints:
    """Return the experts of a layer that a device runs, (points,)."""
    spares = np.where(layouts.experts > 1, inputs[REDUNDANT], 0)
    local: Ints = np.maximum((inputs["model.experts"] + spares) // np.maximum(layouts.experts, 1), 1)
    return local


def _resident(inputs: Inputs, model: Weights, share: Floats) -> Ints:
    """Return the experts of a layer that a device has, at least one; share: of those that it runs."""
    local = local_experts(inputs, model.layouts)
    resident: Ints = np.clip(np.floor(share * local * (1.0 + _ROUNDING)).astype(np.int64), 1, local)
    return resident


def _by_use(of_experts: Floats, model: Weights, resident: Ints) -> Lower:
    """Return the experts in lower tiers; of_experts: of a device of each stage [B]."""
    share = resident / np.maximum(model.local, 1)
    absent = of_experts * (1.0 - share)[:, None]
    return Lower(absent, np.zeros(absent.shape), of_experts - absent, resident)


def _offloaded(inputs: Inputs, model: Weights, offloaded: Floats, of_layers: Floats, resident: Ints) -> Lower:
    """Return the weights in lower tiers, and buffers for the largest layer; offloaded: of each device [B]."""
    weights = np.minimum(np.maximum(offloaded, 0.0)[:, None], of_layers)
    num_layers = np.maximum(model.stages.layers.sum(axis=1), 1)
    largest = (model.weights[:, FIRST_KIND:] / num_layers).max(axis=1)
    share = weights / np.where(of_layers > 0.0, of_layers, 1.0)
    is_copied = inputs[OFFLOAD_BACKEND] == PREFETCH
    buffers = np.where(is_copied, BUFFERS * largest, 0.0)[:, None] * share
    return Lower(weights, buffers, np.zeros(weights.shape), resident)


def _least(
    points: tuple[Inputs, Weights, Demand], most: Floats, lower_of: Callable[[Floats], Lower]
) -> Floats:
    """Return the least amount in lower tiers with which the demand has room, up to `most`, (points,)."""
    inputs, model, demand = points

    def fits(amount: Floats) -> Bools:
        room, cache = model.room(inputs, lower_of(amount))
        has_room: Bools = room.caches >= demand.bytes(cache)
        return has_room

    low, high = np.zeros(most.size), most.copy()
    needs_none = fits(low)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        is_enough = fits(middle)
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    return np.where(needs_none, 0.0, high)
