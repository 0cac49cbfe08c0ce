"""What is known of points once they are predicted."""

from __future__ import annotations

from typing import NamedTuple

from fastflow.hardware.chip import Chip
from fastflow.iteration.pipeline import PipelinePlan, TimedKernels
from fastflow.iteration.schedule import Timeline
from fastflow.network.communication import Communication
from fastflow.parallelism.bottleneck import Bottleneck
from fastflow.parallelism.footprint import Footprint
from fastflow.parallelism.layout import Layouts
from fastflow.parallelism.shards import Supergraph
from fastflow.parallelism.stacks import Stacks
from fastflow.parallelism.stages import Pipeline
from fastflow.parallelism.strategy import Strategies
from fastflow.tables import Floats, Inputs, Ints, Texts
from fastflow.timing.roofline import Timing
from fastflow.workload.graph import Graph


class Parallelism(NamedTuple):
    """How every point is spread over its devices; shape (points,)."""

    strategies: Strategies
    layouts: Layouts
    printed: Texts  # the strategies


class Prediction(NamedTuple):
    """All that is known of a batch of points once it is predicted."""

    inputs: Inputs  # of every point
    chip: Chip  # of every point
    parallelism: Parallelism  # of every point
    reason: Texts  # why a point has no time; empty where it has
    timed: Ints  # the points that have a time: the rows of everything below
    graph: Graph
    shards: Supergraph
    pipeline: Pipeline
    footprint: Footprint
    launches: Ints  # of every kernel, in an iteration
    peak: Floats  # of a device in the model's data type [flop/s], (timed,)
    rate: Floats  # peak of the units that a kernel computes on [flop/s], (kernels,)
    timing: Timing  # of one launch
    communication: Communication
    kernels: TimedKernels | None  # what the schedule was made of
    plan: PipelinePlan | None
    stacks: Stacks | None  # in place of both, where layers of the graph stand for several
    timeline: Timeline
    bottleneck: Bottleneck  # the stage whose kernels and waits an iteration is made of
    energy: Floats  # of one device, on average over the stages [J]
