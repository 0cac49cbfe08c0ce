"""Partial predictions: some stages of `crossflow.predict`.

Kernels on one device, lower bounds of an iteration, single collectives, and a chip's memory bandwidth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.errors import CompositionError
from fastflow.core.tables import Floats, Inputs, Ints, Texts
from fastflow.performance import admission
from fastflow.performance.kernel_times import time_on_devices
from fastflow.performance.validity import without_refused
from fastflow.physics.network.communication import collective_times
from fastflow.physics.parallelism.defaults import copies_embedding, parallel_options
from fastflow.physics.parallelism.layer_memory import layer_memory
from fastflow.physics.parallelism.memory import footprint
from fastflow.physics.parallelism.pipeline import pipeline
from fastflow.physics.parallelism.sharding.local_graph import Supergraph
from fastflow.physics.parallelism.sharding.partition import all_launches, shard_graph
from fastflow.physics.parallelism.virtual_stages import layer_partition_of
from fastflow.physics.timing.roofline import Timing
from fastflow.physics.workload import build_graph, layer_order
from fastflow.physics.workload.graph import Graph, sum_by_point


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def time_alone(inputs: Inputs, refused: Texts) -> tuple[Floats, Texts]:
    """Return the time of single operations on one device [s], and why a point has no time; (points,).

    As `predict` does, called as `time_alone(inputs)`, but without the stages of several devices. NaN where a
    point has no time. Raises KeyError as `predict` does.
    """
    _, reason, points = admission.validate_points(inputs, *admission.generate_chips(inputs), refused)
    graph, _, timing = _time_kernels(points)
    time = np.full(reason.size, np.nan)
    time[points.rows] = sum_by_point(graph, all_launches(graph, points.microbatches) * timing.time)
    return time, reason


class LowerBounds(NamedTuple):
    """Bounds of points whose collectives are not timed; (points,), NaN where a point has no time."""

    reason: Texts  # why a point has no time; "" where it has
    time: Floats  # lower bound of an iteration: the work of the busiest stage [s]
    memory: Floats  # a device's [B]
    capacity: Floats  # of a device's memory [B]


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def lower_bounds(inputs: Inputs, refused: Texts) -> LowerBounds:
    """Return the memory of points and a lower bound of their time, without collectives.

    As `predict` does, called as `lower_bounds(inputs)`. Raises KeyError as `predict` does.
    """
    chips, faults = admission.generate_chips(inputs)
    _, reason, points = admission.validate_points(inputs, chips, faults, refused)
    graph, shards, timing = _time_kernels(points)
    columns, strategies = points.inputs, points.parallelism.strategies
    layer_partition = layer_partition_of(graph, layer_order(columns), strategies)
    admission.check_pipeline(points, layer_partition)
    pipe = pipeline(columns, graph, layer_partition, strategies, points.microbatches, timing.time)
    layers = layer_memory(graph, shards.kernels, pipe.chunks, copies_embedding(columns))
    time, memory = np.full((2, reason.size), np.nan)
    time[points.rows] = pipe.busiest
    memory[points.rows] = footprint(columns, graph, shards, pipe, layers, points.precision).total
    return LowerBounds(reason, time, memory, chips.dram.capacity)


def _time_kernels(points: admission.Points) -> tuple[Graph, Supergraph, Timing]:
    """Return the graph, one device's share of it, and the time of its kernels: stages 2 to 4."""
    columns, precision, (strategies, layouts, _) = points.inputs, points.precision, points.parallelism
    graph = build_graph(columns, precision, points.by_layer)
    admission.check_graph(points, graph)
    options = parallel_options(columns, strategies.lp, points.microbatches)
    shards = shard_graph(graph, layouts, options, precision)
    timing, rate, _ = time_on_devices(columns, points.chip, graph, shards, precision)
    admission.check_kernels(points, graph, shards, timing, rate)
    return graph, shards, timing


def time_collectives(inputs: Inputs, collective: int, size: Floats, ranks: Ints) -> Floats:
    """Return the time of collectives among neighbouring devices of one system [s], shape (collectives,).

    inputs: of one point; collective: of workload.graph.COLLECTIVES; size [B], ranks: shape (collectives,).
    Raises InputError where the point has no chip or no network.
    """
    chip, faults = admission.generate_chip(inputs)
    if faults[0]:
        raise CompositionError(str(faults[0]))
    return collective_times(inputs, chip, collective, size, ranks)


def memory_bandwidth(inputs: Inputs) -> Floats:
    """Return the peak of every point's main memory [B/s], (points,)."""
    chip, _ = admission.generate_chips(inputs)
    return chip.dram.bandwidth
