"""The tables of a prediction."""

from __future__ import annotations

from typing import NamedTuple

from fastflow.core.reasons.columns import ReasonColumn
from fastflow.core.tables import Bools, Floats, Inputs, Ints, Texts
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.network.communication import Communication
from fastflow.physics.parallelism.bottleneck import Bottleneck
from fastflow.physics.parallelism.memory.footprint import Footprint
from fastflow.physics.parallelism.memory.layers import LayerMemory
from fastflow.physics.parallelism.memory.process import offered
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.local_graph import Supergraph
from fastflow.physics.parallelism.stage_times import PipelineBlocks
from fastflow.physics.parallelism.strategy import Strategies
from fastflow.physics.schedule.pipeline import PipelinePlan, TimedKernels
from fastflow.physics.schedule.timeline import Timeline
from fastflow.physics.timing.roofline import Timing
from fastflow.physics.workload.graph import Graph
from fastflow.physics.workload.precision import Precision


class Parallelism(NamedTuple):
    """Strategies and layouts of points over their devices; shape (points,)."""

    strategies: Strategies
    layouts: Layouts
    printed: Texts  # strategies as strings


class Peaks(NamedTuple):
    """Peak rates [flop/s], and what operations take."""

    device: Floats  # of a device in the model's data type, (points,)
    kernels: Floats  # of the units that a kernel computes on, (kernels,)
    operation: Floats  # energy of an operation of a kernel [J], (kernels,)
    slower: Bools | None = None  # whether a power limit slows a kernel down, (kernels,); None: no limit


class KernelSchedule(NamedTuple):
    """What a timeline of kernels is of."""

    kernels: TimedKernels  # of a micro-batch
    plan: PipelinePlan


class Prediction(NamedTuple):
    """All quantities of a batch of predicted points.

    A field a stage of `crossflow.predict`, in the order of the stages: result columns read any of them.
    """

    inputs: Inputs  # of every point
    chip: Chip  # of every point
    parallelism: Parallelism  # of every point
    reason: ReasonColumn  # why a point has no time
    timed: Ints  # the points that have a time: the rows of everything below
    graph: Graph
    shards: Supergraph
    pipeline: Pipeline
    footprint: Footprint
    peaks: Peaks
    timing: Timing  # of one launch of every kernel
    communication: Communication
    kernel_schedule: KernelSchedule | None
    pipeline_blocks: PipelineBlocks | None  # the alternative, of models with layer runs
    timeline: Timeline
    bottleneck: Bottleneck  # the stage whose kernels and waits add up to an iteration
    energy: Floats  # of one device, on average over the stages [J]
    layers: LayerMemory | None  # memory of each layer, in models with layer runs
    precision: Precision  # types of numbers, (timed points,)

    @property
    def offered(self) -> Floats:
        """Memory of a device that its process may fill [B], of every point."""
        return offered(self.inputs, self.chip.dram.capacity)

    @property
    def lacks_memory(self) -> Bools:
        """Whether a device's memory is too small, of the timed points."""
        return ~(self.footprint.total <= self.offered[self.timed])
