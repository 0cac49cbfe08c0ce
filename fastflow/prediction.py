"""What is known of points once they are predicted: their devices' own work, its exchanges, its schedule.

Points whose devices do the same whatever their network share that work. What is of every point is spread when
it is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from fastflow.hardware.chip import Chip
from fastflow.iteration.energy import Spent
from fastflow.iteration.pipeline import PipelinePlan, TimedKernels
from fastflow.iteration.schedule import Timeline
from fastflow.network.communication import Communication
from fastflow.parallelism.footprint import Footprint
from fastflow.parallelism.layout import Layouts
from fastflow.parallelism.shards import NOBODY, Supergraph
from fastflow.parallelism.stages import Pipeline
from fastflow.parallelism.strategy import Strategies
from fastflow.tables import Floats, Inputs, Ints, Rows, Texts, take
from fastflow.timing.roofline import Timing
from fastflow.workload.graph import Graph, spread, spread_kernels


class Parallelism(NamedTuple):
    """How every point is spread over its devices; shape (points,)."""

    strategies: Strategies
    layouts: Layouts
    printed: Texts  # the strategies


class Totals(NamedTuple):
    """What the kernels of a device come to; shape (points,)."""

    peak: Floats  # of a device in the model's data type [flop/s]
    rate: Floats  # peak of the fastest units that a kernel computes on [flop/s]
    flop: Floats  # of the whole model
    busiest: Floats  # time of the busiest stage [s]
    spent: Spent
    footprint: Footprint


class Work(NamedTuple):
    """What the devices of points do by themselves, whatever their network."""

    graph: Graph
    shards: Supergraph
    launches: Ints  # of every kernel, in an iteration
    rate: Floats  # peak of the units that a kernel computes on [flop/s], (kernels,)
    timing: Timing  # of one launch
    pipeline: Pipeline
    totals: Totals


class Prediction(NamedTuple):
    """All that is known of a batch of points once it is predicted."""

    inputs: Inputs  # of every point
    chip: Chip  # of every point
    parallelism: Parallelism  # of every point
    reason: Texts  # why a point has no time; empty where it has
    timed: Ints  # the points that have a time: the rows of everything below
    work: Work  # of each kind of points whose devices do the same
    place: Ints  # of every timed point's kind
    communication: Communication
    kernels: TimedKernels  # what the schedule was made of
    plan: PipelinePlan
    timeline: Timeline
    energy: Floats  # of one device, on average over the stages [J]

    @property
    def graph(self) -> Graph:
        """The kernels of every point."""
        return self.work.graph if self._all_differ else spread(self.work.graph, self.place)

    @property
    def shards(self) -> Supergraph:
        """One device's share of every kernel."""
        shards = self.work.shards
        return self._of_kernels(shards._replace(groups=NOBODY, fused=()))._replace(groups=shards.groups)

    @property
    def launches(self) -> Ints:
        """Launches of every kernel, in an iteration."""
        return self._of_kernels(self.work.launches)

    @property
    def rate(self) -> Floats:
        """Peak of the units that a kernel computes on [flop/s], (kernels,)."""
        return self._of_kernels(self.work.rate)

    @property
    def timing(self) -> Timing:
        """One launch of every kernel."""
        timing = self.work.timing
        shared = ("tile", "stays")  # of tilings, and kernels say which is theirs
        own = {field: column for field, column in timing._asdict().items() if field not in shared}
        taken = self._of_kernels(tuple(own.values()))
        return timing._replace(**dict(zip(own, taken, strict=True)))

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of every point."""
        pipe = self.work.pipeline
        stage, crosses = self._of_kernels((pipe.stage, pipe.crosses))
        stages, microbatched, order, busiest = take(
            (pipe.stages, pipe.microbatches, pipe.order, pipe.busiest), self.place
        )
        return Pipeline(stages, microbatched, order, stage, crosses, busiest)

    @property
    def footprint(self) -> Footprint:
        """The memory that a device of every point needs."""
        return take(self.work.totals.footprint, self.place)

    @property
    def peak(self) -> Floats:
        """Peak of a device in the model's data type [flop/s], (timed,)."""
        return self.work.totals.peak[self.place]

    @property
    def _all_differ(self) -> bool:
        return self.place.size == self.work.totals.peak.size

    def _of_kernels(self, columns: Rows) -> Rows:
        return spread_kernels(columns, self.work.graph.offset, self.place)
