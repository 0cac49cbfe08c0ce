"""Timed kernels and exchanges as a timeline (6.5): of kernels, or of blocks for models with layer runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Inputs
from fastflow.performance.prediction import KernelSchedule
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.network.communication import Communication
from fastflow.physics.parallelism.defaults import copies_embedding, zero_stage
from fastflow.physics.parallelism.memory.layers import LayerMemory
from fastflow.physics.parallelism.offload import offload_of
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.stage_times import (
    BlockSources,
    PipelineBlocks,
    host_transfers,
    schedule_pipeline_blocks,
)
from fastflow.physics.schedule.layer_times import GRADIENTS, Overlap, walk_layers
from fastflow.physics.schedule.overlap import MAX_TAKEN
from fastflow.physics.schedule.pipeline import PipelinePlan, TimedKernels
from fastflow.physics.schedule.stage_blocks import BlockPlan
from fastflow.physics.schedule.timeline import Timeline, schedule
from fastflow.physics.timing.roofline import Timing
from fastflow.physics.workload.graph import Graph
from fastflow.physics.workload.precision import Precision

LAUNCH_TIME = "parallel.host_launch_time"
OVERLAPS = ("tensor", "context", "expert", "data", "pipeline")


class Iterations(NamedTuple):
    """The scheduled iteration of every point."""

    timeline: Timeline
    kernel_schedule: KernelSchedule | None = None
    pipeline_blocks: PipelineBlocks | None = None  # the alternative, of models with layer runs


def schedule_iterations(
    inputs: Inputs, chip: Chip, graph: Graph, pipe: Pipeline, timing: Timing, communication: Communication,
    layers: LayerMemory | None, numbers: Precision,
) -> Iterations:  # fmt: skip
    """Return the iteration of every point; layers: memory of each layer, in models with layer runs."""
    pipeline_blocks = _block_schedule(inputs, chip, graph, pipe, timing, communication, layers, numbers)
    if pipeline_blocks is not None:
        return Iterations(pipeline_blocks.timeline.without_rounding(), pipeline_blocks=pipeline_blocks)
    kernels, plan = _timed_kernels(graph, pipe, timing, communication), _plan(inputs, pipe)
    timeline = schedule(kernels, plan)
    if (plan.slots > 1).any():
        # kernels that start as soon as possible may delay kernels that others wait for (Graham, 1969,
        # doi:10.1137/0117039); a device with several slots then runs kernels one after the other
        serial = plan._replace(slots=np.ones_like(plan.slots))
        serial_timeline = schedule(kernels, serial)
        shorter = serial_timeline.total < timeline.total
        plan = plan._replace(slots=np.where(shorter, serial.slots, plan.slots))
        fields = zip(serial_timeline, timeline, strict=True)
        timeline = Timeline(*(np.where(shorter, *pair) for pair in fields))
    return Iterations(timeline.without_rounding(), KernelSchedule(kernels, plan))


def _plan(inputs: Inputs, pipe: Pipeline) -> PipelinePlan:
    """Return the pipeline of an iteration."""
    return PipelinePlan(
        stages=pipe.stages,
        microbatches=pipe.microbatches,
        order=pipe.order,
        slots=np.array(inputs["parallel.concurrent_kernels"]),  # an array, as compiled kernels need it
    )


def _block_schedule(
    inputs: Inputs, chip: Chip, graph: Graph, pipe: Pipeline, timing: Timing, communication: Communication,
    memory: LayerMemory | None, numbers: Precision,
) -> PipelineBlocks | None:  # fmt: skip
    """Return the iteration in blocks of points with layer runs."""
    exchange_times = communication.exchanges
    if pipe.chunks is None or communication.waits is None or memory is None:
        return None
    overlaps = {name: np.array(inputs[f"parallel.overlap.{name}"]) for name in OVERLAPS}
    taken = np.minimum(inputs["parallel.overlap.bundles"] / chip.bundles, MAX_TAKEN)
    overlap = Overlap(overlaps["tensor"], overlaps["context"], overlaps["expert"], overlaps["data"], taken)
    waits, modules = communication.waits, pipe.chunks.modules
    layers = walk_layers(graph.numbers, memory.first, timing.time, waits, overlap, modules)
    plan = BlockPlan(
        order=pipe.order,
        stages=pipe.stages,
        chunks=np.diff(pipe.chunks.offset) // pipe.stages,
        microbatches=pipe.microbatches,
        overlaps_sends=overlaps["pipeline"],
        overlaps_gradients=overlaps["data"],
        overlaps_gathers=overlaps["data"],
        taken=taken,
    )
    sources = BlockSources(
        chunks=pipe.chunks,
        layers=layers,
        plan=plan,
        transfers=host_transfers(memory, offload_of(inputs), numbers, zero_stage(inputs)),
        send_s=graph.launches.repeat * exchange_times.send_s,
        reduce_s=np.where(communication.waits.time[GRADIENTS] > 0.0, 0.0, exchange_times.gradient_s),
        copies=copies_embedding(inputs),
        launch_s=np.array(inputs[LAUNCH_TIME]),
    )
    return schedule_pipeline_blocks(graph, sources)


def _timed_kernels(
    graph: Graph, pipe: Pipeline, timing: Timing, communication: Communication
) -> TimedKernels:
    """Return every kernel of a micro-batch, as the schedule takes it."""
    repeat, exchange_times = graph.launches.repeat, communication.exchanges
    return TimedKernels(
        offset=graph.offset,
        phase=graph.phase,
        stage=pipe.stage,
        side=graph.comm.side > 0,
        kernel_s=repeat * timing.time,
        sync_s=repeat * exchange_times.sync_s,
        sync_level=exchange_times.sync_level,
        wait=graph.comm.wait,
        gradient_s=exchange_times.gradient_s,
        gradient_level=exchange_times.gradient_level,
        send_s=repeat * exchange_times.send_s,
        send_level=exchange_times.send_level,
    )
