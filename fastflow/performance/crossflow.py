"""CrossFlow: from technology to the time of one training iteration (the paper's Figure 2, section 3.1).

`predict` is the whole model, stage by stage: the chip is generated (sections 4.2 to 4.4), the graph of a
network built (3.2) and sharded over devices (3.3, 5.1), its kernels timed (6.1 to 6.3), the devices placed
on a topology and the edges between them timed (5.2, 6.4), and all of it scheduled (6.5). Every stage works
on all points at once: a point is a row, a quantity a column. Points without a time are dropped with a reason,
most of them before the second stage, others after the stage that finds it (`admission`).
"""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Inputs, Texts
from fastflow.performance import admission
from fastflow.performance.kernel_times import time_on_devices
from fastflow.performance.prediction import Prediction
from fastflow.performance.timeline import schedule_iterations
from fastflow.performance.validity import without_refused
from fastflow.physics.network.communication import communicate
from fastflow.physics.parallelism.bottleneck import bottleneck
from fastflow.physics.parallelism.defaults import copies_embedding, parallel_options
from fastflow.physics.parallelism.layer_memory import layer_memory
from fastflow.physics.parallelism.memory import footprint
from fastflow.physics.parallelism.pipeline import pipeline
from fastflow.physics.parallelism.sharding.partition import cut
from fastflow.physics.parallelism.virtual_stages import layer_partition_of
from fastflow.physics.schedule.energy import energy
from fastflow.physics.workload import build_graph, layer_order


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # `admission` checks the results
def predict(inputs: Inputs, refused: Texts) -> Prediction:
    """Predict one training iteration of every point; called as `predict(inputs)`.

    inputs: dotted key to column of shape (points,), in SI units, as `schema.INPUTS` says; broadcast
    (`tables.broadcast_column`) or ordinary. All points of a call have the same keys, so the same on-chip
    levels and the same workload. refused: why earlier calls refused a point, or "". Raises KeyError for a
    missing key.
    """
    # 1. Generate the chip (4.2 to 4.4); strategies are parsed too, and invalid points dropped
    chips, faults = admission.generate_chips(inputs)
    validated = admission.validate_points(inputs, chips, faults, refused)
    points, (strategies, layouts, _) = validated.timed, validated.timed.parallelism
    columns, chip, precision = points.inputs, points.chip, points.precision

    # 2. Transform the network into a graph of kernels (3.2)
    graph = build_graph(columns, precision, points.by_layer)
    admission.check_graph(points, graph)

    # 3. Shard the graph over the devices (3.3, 5.1)
    options = parallel_options(columns, strategies.lp, points.microbatches)
    shards = cut(graph, layouts, options, precision)

    # 4. Time every kernel on its device (6.1 to 6.3); then partition layers into pipeline stages
    timing, rate, peak = time_on_devices(columns, chip, graph, shards, precision)
    admission.check_kernels(points, graph, shards, timing, rate)
    layer_partition = layer_partition_of(graph, layer_order(columns), strategies)
    admission.check_pipeline(points, layer_partition)
    pipe = pipeline(columns, graph, layer_partition, strategies, points.microbatches, timing.time)

    # 5. Place the devices on the topology (5.2), and time every edge between them (6.4)
    communication = communicate(columns, chip, graph, shards, pipe, strategies, layouts)
    admission.check_communication(points, graph, communication)

    # 6. Schedule kernels and edges (6.5); then memory, energy and the bottleneck stage are known
    copies = copies_embedding(columns)
    layers = layer_memory(graph, shards, pipe.chunks, copies)
    iterations = schedule_iterations(columns, chip, graph, pipe, timing, communication, layers, precision)
    time = iterations.timeline.total
    prediction = Prediction(
        inputs=inputs,
        chip=chips,
        parallelism=validated.parallelism,
        reason=validated.reason,
        timed=points.rows,
        graph=graph,
        shards=shards,
        pipeline=pipe,
        footprint=footprint(columns, graph, shards, pipe, layers, precision),
        launches=pipe.launches,
        peak=peak,
        rate=rate,
        timing=timing,
        communication=communication,
        kernels=iterations.kernels,
        plan=iterations.plan,
        pipeline_blocks=iterations.pipeline_blocks,
        timeline=iterations.timeline,
        bottleneck=bottleneck(graph, pipe, iterations.pipeline_blocks, copies, timing.time),
        energy=energy(chip, rate, graph, pipe.launches, timing, communication.sent, pipe.stages, time),
    )
    admission.check_results(prediction)
    return prediction
