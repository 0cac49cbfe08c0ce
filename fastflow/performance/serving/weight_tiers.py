"""Weights of a server in lower tiers of memory: how many, in which tiers, and how fast a device reads them.

Tiers (`serve.tiers`) are filled from the first one on: the host's memory, local drives, a store on the
network, as in ZeRO-Inference (arXiv:2207.00032) and FlexGen (arXiv:2303.06865). They
are read at the same time, each over a link of its own.

*Layers* are offloaded alike: each layer of a stage has the same share of its weights there, as with the
percentages of FlexGen. vLLM and SGLang offload some whole layers, evenly distributed (the last ones of each
group, vllm/model_executor/offloader/prefetch.py); a pass then reads as many bytes. The embedding and the head
are not offloaded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Bools, Floats, Inputs, Ints, take
from fastflow.performance.serving.kv_cache import Cache, Lower, Room, room_of_fullest_stage, weights_of_layers
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.pipeline_stages import FIRST_KIND, Stages
from fastflow.schema.servers import AS_NEEDED, CPU_OFFLOAD, OFFLOAD_BACKEND, PREFETCH
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
    capacity: Floats  # of a device, (points,) [B]
    tokens: Floats  # of a request, (points,)
    tower: Floats  # weights of a vision tower, (points,) [B]

    def room(self, inputs: Inputs, lower: Lower | None = None) -> tuple[Room, Cache]:
        """Return the room and the cache of a device of the stage whose memory is full first."""
        layouts, stages, weights, capacity, tokens, tower = self
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
    is_offloaded: Bools = inputs[CPU_OFFLOAD] != 0.0
    return is_offloaded


def capacity_of_tiers(inputs: Inputs, devices: Ints) -> Floats:
    """Return a device's share of every tier [B], (tiers, points).

    devices: of a server; all servers have the same weights, so a tier of the fleet holds them once.
    """
    shares = []
    for name in TIERS:
        of_tier, scope = inputs[f"serve.tiers.{name}.capacity"], inputs[f"serve.tiers.{name}.scope"]
        shares.append(np.where(scope == FLEET, of_tier / devices, of_tier))
    return np.array(shares)


def reads_of(inputs: Inputs, held: Floats, devices: Ints) -> Reads:
    """Return how a device reads its weights from lower tiers, (points,); held: by all of them [B].

    devices: of a server.
    """
    left, seconds, latency = held.copy(), np.zeros(held.size), np.zeros(held.size)
    total = np.where(held > 0.0, held, 1.0)
    for name, capacity in zip(TIERS, capacity_of_tiers(inputs, devices), strict=True):
        taken = np.minimum(left, capacity)
        left = left - taken
        tier_s = taken / total / inputs[f"serve.tiers.{name}.bandwidth"]
        seconds = np.maximum(seconds, tier_s)
        latency = np.maximum(latency, np.where(taken > 0.0, inputs[f"serve.tiers.{name}.latency"], 0.0))
    return Reads(seconds, latency)


def short_of_tiers(inputs: Inputs, held: Floats, devices: Ints) -> ReasonColumn:
    """Say for every point that tiers have too little room for weights, (points,).

    held: by all tiers, of a device [B]; devices: of a server.
    """
    reason, room = Reasons(held.size), capacity_of_tiers(inputs, devices).sum(axis=0)
    for i in reason.without(held > room * (1.0 + _ROUNDING)):
        allowed = (
            f"at most the {room[i] / 1e9:g} GB that serve.tiers have room for, of a device:"
            f" serve.tiers.{next(iter(TIERS))}.capacity={np.ceil(held[i] / 1e8) / 10:g} GB has room for all"
        )
        reason.add(i, rejected(Code.MEMORY, CPU_OFFLOAD, f"{held[i] / 1e9:g} GB", allowed))
    return reason.column()


def offloaded_layers(inputs: Inputs, model: Weights, demand: Demand) -> Lower:
    """Return the weights of layers in lower tiers, as `server.cpu_offload` says.

    demand: what it must leave room for, where it is auto; then tiers hold as much as they have room for.
    """
    of_layers = weights_of_layers(model.stages, model.weights)
    offloaded, as_needed = inputs[CPU_OFFLOAD], np.flatnonzero(inputs[CPU_OFFLOAD] == AS_NEEDED)
    if as_needed.size:
        most = capacity_of_tiers(inputs, model.layouts.devices).sum(axis=0)
        most = np.minimum(most, of_layers.max(axis=1))
        rows = take((dict(inputs), model, demand, most, of_layers), as_needed)
        offloaded = offloaded.copy()
        offloaded[as_needed] = _least_offload(*rows)
    return _offloaded(inputs, model, offloaded, of_layers)


def _offloaded(inputs: Inputs, model: Weights, offloaded: Floats, of_layers: Floats) -> Lower:
    """Return the weights in lower tiers, and buffers for the largest layer; offloaded: of each device [B]."""
    weights = np.minimum(offloaded[:, None], of_layers)
    num_layers = np.maximum(model.stages.layers.sum(axis=1), 1)
    largest = (model.weights[:, FIRST_KIND:] / num_layers).max(axis=1)
    share = weights / np.where(of_layers > 0.0, of_layers, 1.0)
    is_copied = inputs[OFFLOAD_BACKEND] == PREFETCH
    return Lower(weights, np.where(is_copied, BUFFERS * largest, 0.0)[:, None] * share)


def _least_offload(inputs: Inputs, model: Weights, demand: Demand, most: Floats, of_layers: Floats) -> Floats:
    """Return the least bytes of a device in lower tiers with which the demand has room, (points,) [B].

    most: at most; where even they are not enough, `most`.
    """

    def fits(offloaded: Floats) -> Bools:
        room, cache = model.room(inputs, _offloaded(inputs, model, offloaded, of_layers))
        has_room: Bools = room.caches >= demand.bytes(cache)
        return has_room

    low, high = np.zeros(most.size), most.copy()
    needs_none = fits(low)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        is_enough = fits(middle)
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    return np.where(needs_none, 0.0, high)
