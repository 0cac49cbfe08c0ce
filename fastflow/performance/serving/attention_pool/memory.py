"""Memory of the devices that do all but attention: weights and workspace, and no caches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.reasons.forms import short_of_other_devices
from fastflow.core.tables import Floats, Inputs
from fastflow.performance.serving.attention_pool.devices import MICROBATCHES
from fastflow.performance.serving.kv_cache import room_of_fullest_stage
from fastflow.performance.serving.layout import ServerLayouts
from fastflow.performance.serving.pipeline_stages import stages_of
from fastflow.physics.parallelism.memory.process import offered

_BUDGET = "server.max_num_batched_tokens"


class OtherDevices(NamedTuple):
    """Memory of a device that does all but attention; (points,), 0 where there is none."""

    weights: Floats  # [B]
    footprint: Floats  # all that it has [B]
    available: Floats  # [B]


def no_other_devices(points: int) -> OtherDevices:
    """Return the memory of the other devices of points without devices of attention."""
    return OtherDevices(*np.zeros((3, points)))


def other_memory_of(
    inputs: Inputs, servers: ServerLayouts, others: ServerLayouts, weights: Floats, capacity: Floats
) -> OtherDevices:
    """Return the memory of the other devices of points with devices of attention.

    servers, others: layouts of servers, and of their other devices; weights: of a device, by part of the
    model, (points, parts) [B]; capacity: of a device [B]. Workspace is for the tokens of a micro-batch: of
    requests alone on servers that only decode, else up to the budget of an iteration.
    """
    requests = inputs["server.max_num_seqs"] * (inputs["serve.num_speculative_tokens"] + 1)
    only_decode = np.isin(inputs["serve.mode"], ("decode", "disaggregated"))
    rank_tokens = np.where(only_decode, np.minimum(requests, inputs[_BUDGET]), inputs[_BUDGET])
    tokens = -(-rank_tokens * servers.ranks // (others.ranks * inputs[MICROBATCHES]))
    columns = {**inputs, _BUDGET: np.maximum(tokens, 1)}
    points = capacity.size
    stages = stages_of(columns, others, np.zeros(weights.shape))
    room, _ = room_of_fullest_stage(columns, others, stages, weights, capacity, np.ones(points))
    return OtherDevices(room.weights, room.fixed, offered(columns, capacity))


def short_of(memory: OtherDevices) -> ReasonColumn:
    """Say which of the other devices have too little memory."""
    reason = Reasons(memory.weights.size)
    for i in np.flatnonzero(memory.footprint > memory.available).tolist():
        weights, needed, capacity = (float(column[i]) for column in memory)
        reason.add(i, short_of_other_devices(needed=needed, capacity=capacity, weights=weights))
    return reason.column()
