"""CrossFlow: from technology to the time of one training iteration (Figure 2, Section 3.1).

`predict` is the whole model, one line a stage. Every stage works on all points at once: a point
is a row, a quantity a column. Points whose budgets make no chip, or whose strategy does not suit
the system, leave with a reason before anything is timed; so do those whose results would be no numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.distinct import once_a_kind
from fastflow.errors import CompositionError
from fastflow.hardware.chip import Chip, generate
from fastflow.hardware.faults import chip_faults, unsupported_dtype
from fastflow.iteration.energy import energy
from fastflow.iteration.pipeline import PipelinePlan, TimedKernels
from fastflow.iteration.schedule import Timeline, schedule
from fastflow.limits import refuse, unnumbered, unschedulable, unsent, untimed, without_refused
from fastflow.network.communication import Communication, Wires, collective_times, communicate
from fastflow.network.nccl import libraries
from fastflow.network.routes import network_faults
from fastflow.parallelism.cuts import uncut
from fastflow.parallelism.footprint import Footprint, footprint
from fastflow.parallelism.layout import Layouts, lay_out, names_layers
from fastflow.parallelism.shards import Supergraph
from fastflow.parallelism.stages import Pipeline, microbatches, pipeline
from fastflow.parallelism.strategy import Strategies, misfit, parse_column
from fastflow.parallelism.supergraph import all_launches, cut
from fastflow.tables import Floats, Inputs, Ints, Texts, first_of, take, where_read
from fastflow.timing.device import device
from fastflow.timing.roofline import KernelWork, Timing, time_kernels
from fastflow.workload import STRUCTURE, build_graph, count_layers, fewest_rows, oversized, transposed
from fastflow.workload.graph import Graph
from fastflow.workload.precision import Precision, precision, untrainable

# what a chip and its faults depend on, what a strategy does, and data types
HARDWARE = ("tech.", "mem.", "net.", "chip.", "model.dtype", "system.devices", "system.package.devices")
STRATEGY = ("parallel.", "system.", "placement", "model.name", *STRUCTURE)
LAYERS = ("model.",)  # what their names depend on, beside it
TYPES = ("precision.", "model.dtype", "model.optimizer", "model.training")


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
    kernels: TimedKernels  # what the schedule was made of
    plan: PipelinePlan
    timeline: Timeline
    energy: Floats  # of one device, on average over the stages [J]


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # `refuse` names what comes of it
def predict(inputs: Inputs, refused: Texts) -> Prediction:
    """Predict one training iteration of every point; called as `predict(inputs)`.

    inputs: dotted key to column of shape (points,), in SI units, as `columns.INPUTS` says; `tables.repeated`
    or ordinary ones. All points of a call have the same keys, so the same on-chip levels and the same
    workload. refused: why a point has no time that is a number, as far as that is known. Raises KeyError for
    a key that the model reads and that is not there.
    """
    every_chip, faults = once_a_kind(_generate, inputs, *HARDWARE)
    by_layer = names_layers(inputs)
    parallelism, misfits = once_a_kind(_parallelise, inputs, *STRATEGY, *(LAYERS if by_layer else ()))
    every_count, crowded = _microbatches(inputs, parallelism, misfits)
    unable = once_a_kind(untrainable, inputs, *TYPES)
    reason = first_of(faults, misfits, crowded, oversized(inputs), unable, refused)

    timed = np.flatnonzero(reason == "")
    every = (dict(inputs), every_chip, parallelism, every_count)
    given, chip, spread, count = every if timed.size == reason.size else take(every, timed)
    stages = spread.strategies.lp
    numbers = once_a_kind(precision, given, *TYPES)
    graph = build_graph(given, numbers, by_layer)
    refuse(timed, uncut(graph, spread.layouts))
    refuse(timed, unschedulable(graph, stages, count, given["parallel.concurrent_kernels"]))
    shards = cut(graph, spread.layouts, stages, count, given["parallel.zero"], numbers)
    timing, rate, peak = _time_kernels(given, chip, graph, shards, numbers)
    launches = all_launches(graph, count)
    refuse(timed, untimed(graph, rate, timing))
    pipe = pipeline(given, graph, stages, count, launches * timing.time)
    communication = communicate(
        given, *_wires(given, chip), graph, shards, pipe, launches, spread.strategies, spread.layouts
    )
    refuse(timed, unsent(graph, communication.exchanges))
    kernels, plan = _timed(graph, pipe, timing, communication), _plan(given, pipe)
    timeline = schedule(kernels, plan)
    memory = footprint(graph, shards, pipe, numbers, given["model.training"], given["parallel.zero"])
    # a stage has its own kernels alone
    used = energy(chip, rate, graph, launches, timing, communication.sent, pipe.stages, timeline.total)
    refuse(timed, unnumbered(graph, rate, pipe, memory, communication, timeline, used))
    return Prediction(
        inputs=inputs,
        chip=every_chip,
        parallelism=parallelism,
        reason=reason,
        timed=timed,
        graph=graph,
        shards=shards,
        pipeline=pipe,
        footprint=memory,
        launches=launches,
        peak=peak,
        rate=rate,
        timing=timing,
        communication=communication,
        kernels=kernels,
        plan=plan,
        timeline=timeline,
        energy=used,
    )


def _generate(inputs: Inputs) -> tuple[Chip, Texts]:
    """Generate chips, and say why a point has none that it can use (4.2 to 4.4)."""
    chip = generate(inputs)
    return chip, first_of(chip_faults(inputs, chip), unsupported_dtype(inputs))


def _parallelise(inputs: Inputs) -> tuple[Parallelism, Texts]:
    """Read strategies, and say why one does not suit its system or its model (3.3)."""
    strategies, printed = parse_column(inputs["parallel.strategy"])
    unsuited = misfit(strategies, inputs["system.devices"], count_layers(inputs))
    layouts, uncut = lay_out(inputs, strategies)
    return Parallelism(strategies, layouts, printed), first_of(
        network_faults(inputs, strategies.lp, layouts), unsuited, uncut
    )


def _microbatches(inputs: Inputs, spread: Parallelism, misfits: Texts) -> tuple[Ints, Texts]:
    """Return every point's micro-batches, 1 for a misfit, and why they cannot be (or "")."""
    count, crowded = microbatches(inputs, *fewest_rows(inputs), spread.layouts, spread.strategies.lp)
    return np.where(misfits == "", count, 1), crowded


def _time_kernels(
    inputs: Inputs, chip: Chip, graph: Graph, shards: Supergraph, numbers: Precision
) -> tuple[Timing, Floats, Floats]:
    """Time one launch of every kernel on its point's device (6.1 to 6.3).

    Returns the peak of the units that every kernel computes on, too, (kernels,), and of every device in the
    model's data type, (points,) [flop/s].
    """
    strided = transposed(inputs)
    work = KernelWork(
        point=graph.point,
        m=shards.m,
        k=shards.k,
        n=shards.n,
        batch=shards.batch,
        strided=strided[graph.point] if strided.any() else np.zeros(graph.point.size, dtype=np.bool_),
        pass_bytes=shards.elements * graph.bytes_per_element,
        pass_flop=shards.elements * graph.flop_per_element,
        element_bytes=numbers.operand,
        output_bytes=numbers.output,
        samples=where_read(inputs["tiling.tiles"] == "random", inputs, "tiling.samples", 0),
        seed=where_read(inputs["tiling.tiles"] == "random", inputs, "tiling.seed", 0),
        brute=inputs["tiling.search"] == "brute",
        blocks=inputs["tiling.tiles"] == "blocks",
        overlap=where_read(inputs["tiling.tiles"] == "blocks", inputs, "tiling.overlap", 0.0),
        parts=where_read(inputs["tiling.tiles"] == "blocks", inputs, "tiling.parts", 1),
    )
    machine = device(inputs, chip)
    peak, pass_peak = machine.library.peak_flops, machine.vector_peak
    rate = np.where(shards.m > 0, peak[graph.point], pass_peak[graph.point])
    return time_kernels(machine, work), rate, peak


def _wires(inputs: Inputs, chip: Chip) -> tuple[Wires, Floats]:
    """Return what a device's links give its collectives, within the package and between packages (6.4).

    And the scalars of the libraries that run collectives.
    """
    library, scalars = libraries(inputs)
    wires = Wires(
        intra=chip.intra.bandwidth * inputs["net.intra.utilization"],
        inter=chip.inter.bandwidth * inputs["net.inter.utilization"],
        intra_latency=inputs["net.intra.latency"],
        inter_latency=inputs["net.inter.latency"],
        memory=chip.dram.bandwidth * inputs["chip.dram_utilization"],
        overhead=inputs["net.inter.collective_overhead"],
        library=library,
    )
    return wires, scalars


def time_collectives(inputs: Inputs, collective: int, size: Floats, ranks: Ints) -> Floats:
    """Return the time of collectives among neighbouring devices of one system [s], shape (collectives,).

    inputs: of one point; collective: of workload.graph.COLLECTIVES; size [B], ranks: shape (collectives,).
    Raises InputError where the point has no chip or no network.
    """
    chip, faults = _generate(inputs)
    if faults[0]:
        raise CompositionError(str(faults[0]))
    return collective_times(inputs, *_wires(inputs, chip), collective, size, ranks)


def _plan(inputs: Inputs, pipe: Pipeline) -> PipelinePlan:
    """Return how an iteration is run."""
    return PipelinePlan(
        stages=pipe.stages,
        microbatches=pipe.microbatches,
        order=pipe.order,
        slots=np.array(inputs["parallel.concurrent_kernels"]),  # a column that kernels take
    )


def _timed(graph: Graph, pipe: Pipeline, timing: Timing, communication: Communication) -> TimedKernels:
    """Return every kernel, of one micro-batch, as the schedule takes it."""
    repeat, took = graph.repeat, communication.exchanges
    return TimedKernels(
        offset=graph.offset,
        phase=graph.phase,
        stage=pipe.stage,
        side=graph.side > 0,
        kernel_s=repeat * timing.time,
        sync_s=repeat * took.sync_s,
        sync_level=took.sync_level,
        wait=graph.wait,
        gradient_s=took.gradient_s,
        gradient_level=took.gradient_level,
        send_s=repeat * took.send_s,
        send_level=took.send_level,
    )
