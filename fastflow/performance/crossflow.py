"""CrossFlow: from technology to the time of one training iteration (the paper's Figure 2, section 3.1).

`predict` is the whole model, stage by stage: the chip is generated (sections 4.2 to 4.4), the graph of a
network built (3.2) and sharded over devices (3.3, 5.1), its kernels timed (6.1 to 6.3), the devices placed
on a topology and the edges between them timed (5.2, 6.4), and all of it scheduled (6.5). Every stage works
on all points at once: a point is a row, a quantity a column. Points without a time are dropped with a reason,
most of them in the first stage (`admission`). A later stage refuses points whose numbers are out of bounds:
the others are predicted without them (`validity`).
"""

from __future__ import annotations

import numpy as np

from fastflow.core.reasons.columns import ReasonColumn
from fastflow.core.tables import Inputs
from fastflow.performance.admission import Points, generate_chips, validate_points
from fastflow.performance.kernel_times import time_on_devices
from fastflow.performance.prediction import Peaks, Prediction
from fastflow.performance.timeline import schedule_iterations
from fastflow.performance.validity import (
    invalid_comm_times,
    invalid_kernel_times,
    nonfinite_results,
    refuse,
    too_large_to_schedule,
    without_refused,
)
from fastflow.physics.hardware.power import power_of
from fastflow.physics.network.communication import Communication, communicate
from fastflow.physics.parallelism.bottleneck import bottleneck
from fastflow.physics.parallelism.defaults import copies_embedding, parallel_options
from fastflow.physics.parallelism.memory.footprint import footprint
from fastflow.physics.parallelism.memory.layers import layer_memory
from fastflow.physics.parallelism.memory.process import count_communicators
from fastflow.physics.parallelism.pipeline import Pipeline, invalid_schedule, pipeline
from fastflow.physics.parallelism.sharding.local_graph import Supergraph
from fastflow.physics.parallelism.sharding.partition import shard_graph
from fastflow.physics.parallelism.sharding.tables import unshardable_axes
from fastflow.physics.parallelism.virtual_stages import invalid_pipeline_partition, layer_partition_of
from fastflow.physics.schedule.energy import energy
from fastflow.physics.timing.roofline import Timing
from fastflow.physics.workload import build_graph, layer_order
from fastflow.physics.workload.graph import Graph


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # every stage checks its results
def predict(inputs: Inputs, refused: ReasonColumn) -> Prediction:
    """Predict one training iteration of every point; called as `predict(inputs)`.

    inputs: dotted key to column of shape (points,), in SI units, as `schema.INPUTS` says; broadcast
    (`tables.broadcast_column`) or ordinary. All points of a call have the same keys, so the same on-chip
    levels and the same workload. refused: why earlier calls refused a point. Raises KeyError for a
    missing key.
    """
    # 1. Generate the chip (4.2 to 4.4); strategies are parsed too, and invalid points dropped
    chips, faults = generate_chips(inputs)
    parallelism, reason, points = validate_points(inputs, chips, faults, refused)

    # 2. Transform the network into a graph of kernels (3.2)
    graph = build(points)

    # 3. Shard the graph over the devices (3.3, 5.1)
    shards = shard(points, graph)

    # 4. Time every kernel on its device (6.1 to 6.3); then partition layers into pipeline stages
    timing, peaks = time_kernels(points, graph, shards)
    pipe = partition(points, graph, timing)

    # 5. Place the devices on the topology (5.2), and time every edge between them (6.4)
    communication = time_edges(points, graph, shards, pipe)

    # 6. Schedule kernels and edges (6.5); then memory, energy and the bottleneck stage are known
    columns, chip, precision = points.inputs, points.chip, points.precision
    copies, communicators = copies_embedding(columns), count_communicators(points.parallelism.layouts.degrees)
    layers = layer_memory(graph, shards.kernels, pipe.chunks, copies, columns, precision)
    iterations = schedule_iterations(columns, chip, graph, pipe, timing, communication, layers, precision)
    timeline, blocks = iterations.timeline, iterations.pipeline_blocks
    prediction = Prediction(
        inputs=inputs,
        chip=chips,
        parallelism=parallelism,
        reason=reason,
        timed=points.rows,
        graph=graph,
        shards=shards,
        pipeline=pipe,
        footprint=footprint(columns, graph, shards, pipe, layers, precision, communicators),
        peaks=peaks,
        timing=timing,
        communication=communication,
        kernel_schedule=iterations.kernel_schedule,
        pipeline_blocks=blocks,
        timeline=timeline,
        bottleneck=bottleneck(graph, pipe, blocks, copies, timing.time),
        energy=energy(
            chip,
            power_of(columns, chip),
            peaks.operation,
            graph,
            pipe.launches,
            timing,
            peaks.slower,
            pipe.stages,
            timeline.total,
        ),
        layers=layers,
        precision=precision,
    )
    refuse(points.rows, nonfinite_results(prediction))
    return prediction


def build(points: Points) -> Graph:
    """Return the graph of every point.

    Refuses points whose layouts cannot shard it, or whose iteration is too long to schedule.
    """
    strategies, layouts, _ = points.parallelism
    graph = build_graph(points.inputs, points.precision, points.by_layer)
    refuse(points.rows, unshardable_axes(graph, layouts))
    refuse(points.rows, too_large_to_schedule(points.inputs, graph, strategies, points.microbatches))
    return graph


def shard(points: Points, graph: Graph) -> Supergraph:
    """Return one device's share of every point's graph, and the edges between devices."""
    strategies, layouts, _ = points.parallelism
    options = parallel_options(points.inputs, strategies.pp, points.microbatches)
    return shard_graph(graph, layouts, options, points.precision)


def time_kernels(points: Points, graph: Graph, shards: Supergraph) -> tuple[Timing, Peaks]:
    """Return the time of every kernel, and peak rates; refuses points with a kernel whose time is invalid."""
    timing, peaks = time_on_devices(points.inputs, points.chip, graph, shards, points.precision)
    refuse(points.rows, invalid_kernel_times(points.inputs, graph, peaks.kernels, timing, shards.fused))
    return timing, peaks


def partition(points: Points, graph: Graph, timing: Timing) -> Pipeline:
    """Return the layers of every pipeline stage.

    Refuses points whose schedule does not suit the pipeline, or whose stages do not divide the layers.
    """
    inputs, strategies, microbatches = points.inputs, points.parallelism.strategies, points.microbatches
    layers = layer_partition_of(graph, layer_order(inputs), strategies)
    has_layer_runs = layers is not None
    refuse(points.rows, invalid_schedule(inputs, strategies, microbatches, has_layer_runs))
    if layers is not None:
        refuse(points.rows, invalid_pipeline_partition(layers, strategies, inputs))
    return pipeline(inputs, graph, layers, strategies, microbatches, timing.time)


def time_edges(points: Points, graph: Graph, shards: Supergraph, pipe: Pipeline) -> Communication:
    """Return the time of every edge; refuses points with a collective whose time is invalid."""
    strategies, layouts, _ = points.parallelism
    communication = communicate(points.inputs, points.chip, graph, shards, pipe, strategies, layouts)
    refuse(points.rows, invalid_comm_times(graph, communication.exchanges))
    return communication
