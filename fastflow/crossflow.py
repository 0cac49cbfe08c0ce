"""CrossFlow: from technology to the time of one training iteration (Figure 2, Section 3.1).

`predict` is the whole model, one line a stage. Every stage works on all points at once: a point
is a row, a quantity a column. Points whose budgets make no chip, or whose strategy does not suit
the system, leave with a reason before anything is timed; so do those whose results would be no numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.distinct import kinds, look_up, once_a_kind
from fastflow.errors import CompositionError
from fastflow.hardware.chip import Chip, generate
from fastflow.hardware.faults import chip_faults, unsupported_dtype
from fastflow.iteration.blocks import BlockPlan
from fastflow.iteration.energy import energy
from fastflow.iteration.layers import Overlap, walk_layers
from fastflow.iteration.pipeline import PipelinePlan, TimedKernels
from fastflow.iteration.schedule import schedule
from fastflow.limits import refuse, unnumbered, unschedulable, unsent, untimed, without_refused
from fastflow.network.communication import Communication, Wires, collective_times, communicate
from fastflow.network.nccl import libraries
from fastflow.network.routes import network_faults
from fastflow.parallelism.chunks import launched_again, undealt
from fastflow.parallelism.cuts import uncut
from fastflow.parallelism.footprint import footprint
from fastflow.parallelism.layer_memory import LayerMemory, layer_memory, offload_of
from fastflow.parallelism.layout import lay_out, names_layers, undivided
from fastflow.parallelism.shards import FusedShares, Supergraph
from fastflow.parallelism.stacks import Stacks, run_stacks, streamed
from fastflow.parallelism.stages import Pipeline, microbatches, misordered, pipeline
from fastflow.parallelism.strategy import misfit, parse_column
from fastflow.parallelism.supergraph import all_launches, cut
from fastflow.parallelism.usual import zero_stage
from fastflow.prediction import Parallelism, Prediction
from fastflow.tables import Floats, Inputs, Ints, Texts, first_of, take, where_read
from fastflow.timing.device import Device, device
from fastflow.timing.roofline import Fused, KernelWork, Timing, time_kernels
from fastflow.workload import (
    STRUCTURE,
    build_graph,
    count_layers,
    fewest_rows,
    order_of,
    transposed,
    unsuited,
)
from fastflow.workload.graph import Graph, sum_by_point
from fastflow.workload.precision import OPERAND_BYTES, Precision, precision, untrainable

# what a chip and its faults depend on, what a strategy does, and data types
HARDWARE = ("tech.", "mem.", "net.", "chip.", "model.dtype", "system.devices", "system.package.devices")
DEVICE = (*HARDWARE, "tiling.", "precision.")  # what a kernel's time depends on, but for its sizes
STRATEGY = ("parallel.", "system.", "placement", "model.name", *STRUCTURE)
OVERLAPS = ("tensor", "context", "expert", "data", "pipeline")
LAYERS = ("model.",)  # what their names depend on, beside a strategy
TYPES = ("precision.", "model.dtype", "model.optimizer", "model.training", "chip.rate.fp8")


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # `refuse` names what comes of it
def predict(inputs: Inputs, refused: Texts) -> Prediction:
    """Predict one training iteration of every point; called as `predict(inputs)`.

    inputs: dotted key to column of shape (points,), in SI units, as `columns.INPUTS` says; `tables.repeated`
    or ordinary ones. All points of a call have the same keys, so the same on-chip levels and the same
    workload. refused: why a point has no time that is a number, as far as that is known. Raises KeyError for
    a key that the model reads and that is not there.
    """
    # 1: generate the chip, read the strategy
    every, reason, timed, given = _admit(inputs, refused)
    own, chip, spread, count = given
    numbers = once_a_kind(precision, own, *TYPES)
    # 2 to 4: build the graph, cut it, time its kernels
    graph, shards, launches, rate, timing, peak = _kernels(*given, numbers, names_layers(inputs), timed)
    # 5: place it, time its edges
    pipe, launches = _staged(own, graph, spread, count, launches, timing, timed)
    communication = communicate(
        own, *_wires(own, chip), graph, shards, pipe, launches, spread.strategies, spread.layouts
    )
    refuse(timed, unsent(graph, communication.exchanges))
    # 6: schedule it
    kernels, plan = _timed(graph, pipe, timing, communication), _plan(own, pipe)
    held = None if pipe.chunks is None else layer_memory(graph, shards, pipe.chunks)
    stacks = _stacks(own, graph, pipe, timing, communication, held, numbers)
    timeline = schedule(kernels, plan) if stacks is None else stacks.timeline
    memory = footprint(own, graph, shards, pipe, held, numbers)
    # a stage has its own kernels alone
    used = energy(chip, rate, graph, launches, timing, communication.sent, pipe.stages, timeline.total)
    refuse(timed, unnumbered(graph, rate, pipe, memory, communication, timeline, used))
    return Prediction(
        inputs=inputs,
        chip=every.chip,
        parallelism=every.parallelism,
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
        stacks=stacks,
        timeline=timeline,
        energy=used,
    )


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def time_alone(inputs: Inputs, refused: Texts) -> tuple[Floats, Texts]:
    """Return how long points of single operations on one device take [s], and why one has no time; (points,).

    As `predict` does, called as `time_alone(inputs)`, but without all that several devices need. NaN where a
    point has no time. Raises KeyError as `predict` does.
    """
    _, reason, timed, given = _admit(inputs, refused)
    numbers = once_a_kind(precision, given.inputs, *TYPES)
    graph, _, launches, _, timing, _ = _kernels(*given, numbers, names_layers(inputs), timed)
    time = np.full(reason.size, np.nan)
    time[timed] = sum_by_point(graph, launches * timing.time)
    return time, reason


class _Given(NamedTuple):
    """What is given of some points."""

    inputs: Inputs
    chip: Chip
    parallelism: Parallelism
    microbatches: Ints


def _admit(inputs: Inputs, refused: Texts) -> tuple[_Given, Texts, Ints, _Given]:
    """Return what is given of all points, why one has no time, which have one, and what is given of those."""
    every_chip, faults = once_a_kind(_generate, inputs, *HARDWARE, shown=True)
    of_names = LAYERS if names_layers(inputs) else ()
    parallelism, misfits = once_a_kind(_parallelise, inputs, *STRATEGY, *of_names)
    every_count, crowded = _microbatches(inputs, parallelism, misfits)
    unable = once_a_kind(untrainable, inputs, *TYPES)
    reason = first_of(
        faults, misfits, crowded, unsuited(inputs), undivided(inputs, parallelism.strategies), unable, refused
    )
    timed = np.flatnonzero(reason == "")
    every = _Given(dict(inputs), every_chip, parallelism, every_count)
    return every, reason, timed, every if timed.size == reason.size else take(every, timed)


def _kernels(
    inputs: Inputs, chip: Chip, spread: Parallelism, count: Ints, numbers: Precision, by_layer: bool,
    timed: Ints,
) -> tuple[Graph, Supergraph, Ints, Floats, Timing, Floats]:  # fmt: skip
    """Return a device's kernels, their shares, launches, rates and times, and every device's peak [flop/s].

    count: of micro-batches; by_layer: whether some point's cuts name layers; timed: the points.
    """
    layouts, stages = spread.layouts, spread.strategies.lp
    graph = build_graph(inputs, numbers, by_layer)
    refuse(timed, uncut(graph, layouts))
    refuse(timed, unschedulable(graph, stages, count, inputs["parallel.concurrent_kernels"]))
    shards = cut(graph, layouts, stages, count, zero_stage(inputs), inputs["parallel.reshard"], numbers)
    timing, rate, peak = _time_kernels(inputs, chip, graph, shards, numbers)
    refuse(timed, untimed(graph, rate, timing))
    return graph, shards, all_launches(graph, count), rate, timing, peak


def _generate(inputs: Inputs) -> tuple[Chip, Texts]:
    """Generate chips, and say why a point has none that it can use (4.2 to 4.4)."""
    chip = generate(inputs)
    return chip, first_of(chip_faults(inputs, chip), unsupported_dtype(inputs))


def _parallelise(inputs: Inputs) -> tuple[Parallelism, Texts]:
    """Read strategies, and say why one does not suit its system or its model (3.3)."""
    strategies, printed = parse_column(inputs["parallel.strategy"], ~inputs["parallel.expert_tensor"])
    unsuited = misfit(strategies, printed, inputs["system.devices"], count_layers(inputs))
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
    own = {key: column for key, column in inputs.items() if key.startswith(DEVICE)}
    first, place = kinds(own.values(), numbers.operand.size)
    own_chip, own_numbers = chip, numbers
    if first.size < place.size:
        own, own_chip, own_numbers = take((own, chip, numbers), first)
    point, strided = place[graph.point], transposed(inputs)
    tiles, overlaps = own["tiling.tiles"] == "random", own["tiling.tiles"] == "blocks"
    work = KernelWork(
        point=point,
        m=shards.m,
        k=shards.k,
        n=shards.n,
        batch=shards.batch,
        strided=strided[graph.point] if strided.any() else np.zeros(graph.point.size, dtype=np.bool_),
        pass_bytes=shards.elements * graph.bytes_per_element,
        pass_flop=shards.elements * graph.flop_per_element,
        element_bytes=own_numbers.operand,
        output_bytes=own_numbers.output,
        samples=where_read(tiles, own, "tiling.samples", 0),
        seed=where_read(tiles, own, "tiling.seed", 0),
        brute=own["tiling.search"] == "brute",
        blocks=overlaps,
        overlap=where_read(overlaps, own, "tiling.overlap", 0.0),
        parts=where_read(overlaps, own, "tiling.parts", 1),
    )
    machine = device(own, own_chip)
    peak, pass_peak = machine.library.peak_flops, machine.vector_peak
    rate = np.where(shards.m > 0, peak[point], pass_peak[point])
    fused = [_fused(one, own, own_chip, machine, place) for one in shards.fused]
    return time_kernels(machine, work, fused), rate, peak[place]


def _fused(one: FusedShares, inputs: Inputs, chip: Chip, machine: Device, place: Ints) -> Fused:
    """Return kernels that their type times itself, on devices in the data type that it computes in.

    inputs, chip, machine: of the distinct devices; place: of every point's among these.
    """
    assert one.type.time is not None
    share = one.share._replace(device=place[one.share.device])
    if one.type.dtype is not None:
        dtype = one.type.dtype(inputs)
        machine = device({**inputs, "model.dtype": dtype}, chip)
        share = share._replace(operand=look_up(OPERAND_BYTES, dtype)[share.device])
    return Fused(one.rows, share, one.type.time, machine)


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


def memory_bandwidth(inputs: Inputs) -> Floats:
    """Return the peak of every point's main memory [B/s], (points,)."""
    chip, _ = once_a_kind(_generate, inputs, *HARDWARE)
    return chip.dram.bandwidth


def _staged(
    inputs: Inputs,
    graph: Graph,
    spread: Parallelism,
    count: Ints,
    launches: Ints,
    timing: Timing,
    timed: Ints,
) -> tuple[Pipeline, Ints]:
    """Return pipelines, and the launches of all kernels with those for what is computed again."""
    order, strategies = order_of(inputs), spread.strategies
    refuse(timed, misordered(inputs, strategies, count, order is not None))
    if order is not None:
        refuse(timed, undealt(graph, order, strategies, inputs))
    pipe = pipeline(inputs, graph, order, strategies, count, launches * timing.time)
    if pipe.chunks is None:
        return pipe, launches
    launches = launches + launched_again(graph.numbers, pipe.chunks, count)
    return pipe._replace(busiest=pipe.most_of_a_stage(graph, launches * timing.time)), launches


def _plan(inputs: Inputs, pipe: Pipeline) -> PipelinePlan:
    """Return how an iteration is run."""
    return PipelinePlan(
        stages=pipe.stages,
        microbatches=pipe.microbatches,
        order=pipe.order,
        slots=np.array(inputs["parallel.concurrent_kernels"]),  # a column that kernels take
    )


def _stacks(
    inputs: Inputs, graph: Graph, pipe: Pipeline, timing: Timing, communication: Communication,
    held: LayerMemory | None, numbers: Precision,
) -> Stacks | None:  # fmt: skip
    """Return the iteration in blocks of points whose layers stand for several."""
    took = communication.exchanges
    if pipe.chunks is None or communication.waits is None or held is None:
        return None
    overlaps = {name: np.array(inputs[f"parallel.overlap.{name}"]) for name in OVERLAPS}
    overlap = Overlap(overlaps["tensor"], overlaps["context"], overlaps["expert"], overlaps["data"])
    layers = walk_layers(graph.numbers, held.first, timing.time, communication.waits, overlap)
    plan = BlockPlan(
        order=pipe.order,
        stages=pipe.stages,
        chunks=np.diff(pipe.chunks.offset) // pipe.stages,
        microbatches=pipe.microbatches,
        overlaps_sends=overlaps["pipeline"],
        overlaps_gradients=overlaps["data"],
        overlaps_gathers=overlaps["data"],
    )
    moved = streamed(held, offload_of(inputs), numbers, zero_stage(inputs))
    send_s = graph.repeat * took.send_s
    return run_stacks(graph, pipe.chunks, layers, plan, send_s, took.gradient_s, moved)


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
