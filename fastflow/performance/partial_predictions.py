"""Partial predictions: some stages of `crossflow.predict`.

Kernels on one device, lower bounds of an iteration, single collectives, and a chip's memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fastflow.core.errors import CompositionError
from fastflow.core.reasons.columns import ReasonColumn
from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.performance.admission import generate_chip, generate_chips, validate_points
from fastflow.performance.crossflow import build, partition, shard, time_kernels
from fastflow.performance.validity import without_refused
from fastflow.physics.network.collective_times import collective_times, server_times
from fastflow.physics.network.deepep import expert_exchange_times
from fastflow.physics.parallelism.defaults import copies_embedding
from fastflow.physics.parallelism.memory.footprint import footprint
from fastflow.physics.parallelism.memory.layers import layer_memory
from fastflow.physics.parallelism.memory.process import count_communicators, offered
from fastflow.physics.parallelism.sharding.partition import all_launches
from fastflow.physics.workload.graph import sum_by_point


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def time_alone(inputs: Inputs, refused: ReasonColumn) -> tuple[Floats, ReasonColumn]:
    """Return the time of single operations on one device [s], and why a point has no time; (points,).

    As `predict` does, called as `time_alone(inputs)`, but without the stages of several devices. NaN where a
    point has no time. Raises KeyError as `predict` does.
    """
    _, reason, points = validate_points(inputs, *generate_chips(inputs), refused)
    graph = build(points)
    timing, _ = time_kernels(points, graph, shard(points, graph))
    time = np.full(reason.size, np.nan)
    time[points.rows] = sum_by_point(graph, all_launches(graph, points.microbatches) * timing.time)
    return time, reason


class LowerBounds(NamedTuple):
    """Bounds of points whose collectives are not timed; (points,), NaN where a point has no time."""

    reason: ReasonColumn  # why a point has no time
    time: Floats  # lower bound of an iteration: the work of the busiest stage [s]
    memory: Floats  # a device's [B]
    capacity: Floats  # of a device's memory, as programs are offered it [B]


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def lower_bounds(inputs: Inputs, refused: ReasonColumn) -> LowerBounds:
    """Return the memory of points and a lower bound of their time, without collectives.

    As `predict` does, called as `lower_bounds(inputs)`. Raises KeyError as `predict` does.
    """
    chips, faults = generate_chips(inputs)
    _, reason, points = validate_points(inputs, chips, faults, refused)
    graph = build(points)
    shards = shard(points, graph)
    timing, _ = time_kernels(points, graph, shards)
    pipe = partition(points, graph, timing)
    layers = layer_memory(
        graph,
        shards.kernels,
        pipe.chunks,
        copies_embedding(points.inputs),
        points.inputs,
        points.precision,
    )
    time, memory = np.full((2, reason.size), np.nan)
    time[points.rows] = pipe.busiest
    communicators = count_communicators(points.parallelism.layouts.degrees)
    needed = footprint(points.inputs, graph, shards, pipe, layers, points.precision, communicators)
    memory[points.rows] = needed.total
    return LowerBounds(reason, time, memory, offered(inputs, chips.dram.capacity))


def time_collectives(
    inputs: Inputs, collective: int, size: Floats, ranks: Ints, server: str = ""
) -> Floats:  # fmt: skip
    """Return the time of collectives among neighbouring devices of one system [s], shape (collectives,).

    inputs: of one point; collective: of workload.graph.COLLECTIVES; size [B], ranks: shape (collectives,);
    server: a serving library that runs these all-reduces, of server_kernels.SERVERS. Raises InputError where
    the point has no chip or no network.
    """
    chip, faults = generate_chip(inputs)
    if fault := faults.at(0):
        raise CompositionError(str(fault))
    if server:
        return server_times(inputs, chip, server, size, ranks)
    return collective_times(inputs, chip, collective, size, ranks)


def memory_bandwidth(inputs: Inputs) -> Floats:
    """Return the peak of every point's main memory [B/s], (points,)."""
    chip, _ = generate_chips(inputs)
    return chip.dram.bandwidth


def time_expert_exchanges(
    inputs: Inputs, modes: Ints, parts: Ints, sms: Ints, sizes: Mapping[str, Ints]
) -> Floats:  # fmt: skip
    """Return the time of exchanges of experts by DeepEP in one machine of a system [s], shape (exchanges,).

    inputs: of one point; modes, parts: of physics.network.deepep; sms: given to the normal mode; sizes:
    `tokens` of a rank, `hidden`, `topk`, `experts`, `ranks`. All of shape (exchanges,). Raises InputError
    where the point has no chip, or no network with NCCL's scalars.
    """
    chip, faults = generate_chip(inputs)
    if fault := faults.at(0):
        raise CompositionError(str(fault))
    return expert_exchange_times(inputs, chip, modes, parts, sms, sizes)
