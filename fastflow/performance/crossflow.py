"""CrossFlow: from technology to the time of one training iteration (Figure 2, Section 3.1).

`predict` is the whole model, one line a stage. Every stage works on all points at once: a point
is a row, a quantity a column. Points whose budgets make no chip, or whose strategy does not suit
the system, leave with a reason before anything is timed; so do those whose results would be no numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import once_a_kind
from fastflow.core.errors import CompositionError
from fastflow.core.tables import Floats, Inputs, Ints, Texts, first_of, take
from fastflow.performance.kernel_times import HARDWARE, time_on_devices
from fastflow.performance.prediction import Parallelism, Prediction
from fastflow.performance.timeline import scheduled, stacked
from fastflow.performance.validity import refuse, unnumbered, unschedulable, unsent, untimed, without_refused
from fastflow.physics.cost.rent import is_rented, unrented
from fastflow.physics.hardware.chip import Chip, generate
from fastflow.physics.hardware.infeasible import chip_faults, unsupported_dtype
from fastflow.physics.network.collectives.custom_all_reduce import EXCHANGE, libraries
from fastflow.physics.network.communication import collective_times, communicate
from fastflow.physics.network.cost_table import Wires
from fastflow.physics.network.routes import network_faults
from fastflow.physics.parallelism.bottleneck import bottleneck
from fastflow.physics.parallelism.defaults import copies_embedding, zero_stage
from fastflow.physics.parallelism.layer_memory import LayerMemory, layer_memory
from fastflow.physics.parallelism.memory import footprint
from fastflow.physics.parallelism.pipeline import Pipeline, microbatches, misordered, pipeline
from fastflow.physics.parallelism.sharding.layout import lay_out, names_layers, undivided
from fastflow.physics.parallelism.sharding.local_graph import Supergraph
from fastflow.physics.parallelism.sharding.partition import all_launches, cut
from fastflow.physics.parallelism.sharding.tables import uncut
from fastflow.physics.parallelism.strategy import misfit, parse_column
from fastflow.physics.parallelism.virtual_stages import dealing_of, undealt
from fastflow.physics.schedule.energy import energy
from fastflow.physics.timing.roofline import Timing
from fastflow.physics.workload import (
    STRUCTURE,
    build_graph,
    count_layers,
    fewest_rows,
    order_of,
    trained_types,
    unsuited,
)
from fastflow.physics.workload.graph import Graph, sum_by_point
from fastflow.physics.workload.precision import Precision, precision, untrainable

# what a strategy depends on, and data types
STRATEGY = ("parallel.", "system.", EXCHANGE, "placement", "model.name", *STRUCTURE)
LAYERS = ("model.",)  # what their names depend on, beside a strategy
TYPES = (
    "precision.", "model.dtype", "model.optimizer", "model.training", "model.fused_gradients",
    "chip.rate.fp8",
)  # fmt: skip


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # `refuse` names what comes of it
def predict(inputs: Inputs, refused: Texts) -> Prediction:
    """Predict one training iteration of every point; called as `predict(inputs)`.

    inputs: dotted key to column of shape (points,), in SI units, as `schema.INPUTS` says; `tables.repeated`
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
    held = _held(own, graph, shards, pipe)
    stacks = stacked(own, chip, graph, pipe, timing, communication, held, numbers)
    timeline, kernels, plan = scheduled(own, graph, pipe, timing, communication, stacks)
    slowest = bottleneck(graph, pipe, stacks, copies_embedding(own), launches, timing.time)
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
        bottleneck=slowest,
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


class Weights(NamedTuple):
    """What is known of points before their exchanges are timed; (points,), NaN where one has no time."""

    reason: Texts  # why it has none; "" where it has
    least: Floats  # less than which an iteration cannot take: the work of the busiest stage [s]
    memory: Floats  # a device's [B]
    capacity: Floats  # of a device's memory [B]


@without_refused
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def weigh(inputs: Inputs, refused: Texts) -> Weights:
    """Return the memory of points, and the least that they can take, without all that exchanges need.

    As `predict` does, called as `weigh(inputs)`. Raises KeyError as `predict` does.
    """
    every, reason, timed, given = _admit(inputs, refused)
    own, _, spread, count = given
    numbers = once_a_kind(precision, own, *TYPES)
    graph, shards, launches, _, timing, _ = _kernels(*given, numbers, names_layers(inputs), timed)
    pipe, _ = _staged(own, graph, spread, count, launches, timing, timed)
    held = _held(own, graph, shards, pipe)
    least, memory = np.full((2, reason.size), np.nan)
    least[timed] = pipe.busiest
    memory[timed] = footprint(own, graph, shards, pipe, held, numbers).total
    return Weights(reason, least, memory, every.chip.dram.capacity)


class _Given(NamedTuple):
    """What is given of some points."""

    inputs: Inputs
    chip: Chip
    parallelism: Parallelism
    microbatches: Ints


def _admit(inputs: Inputs, refused: Texts) -> tuple[_Given, Texts, Ints, _Given]:
    """Return what is given of all points, why one has no time, which have one, and what is given of those."""
    every_chip, faults = once_a_kind(_generate, inputs, *HARDWARE, shown=True, kept=True)
    of_names = LAYERS if names_layers(inputs) else ()
    parallelism, misfits = once_a_kind(_parallelise, inputs, *STRATEGY, *of_names)
    every_count, crowded = _microbatches(inputs, parallelism, misfits)
    unable = once_a_kind(_untrainable, inputs, *TYPES, "model.name")
    reason = first_of(
        faults, misfits, crowded, unsuited(inputs), undivided(inputs, parallelism.strategies), unable, refused
    )
    if is_rented(inputs):
        reason = first_of(reason, unrented(inputs))
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
    refuse(timed, unschedulable(inputs, graph, spread.strategies, count))
    copies = copies_embedding(inputs) & (stages > 1)
    zero, reshards = zero_stage(inputs), inputs["parallel.reshard"]
    shards = cut(graph, layouts, stages, count, zero, reshards, numbers, copies)
    timing, rate, peak = time_on_devices(inputs, chip, graph, shards, numbers)
    refuse(timed, untimed(inputs, graph, rate, timing, shards.fused))
    return graph, shards, all_launches(graph, count), rate, timing, peak


def _untrainable(inputs: Inputs) -> Texts:
    return untrainable(inputs, trained_types(inputs))


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
    dealing = None if order is None else dealing_of(graph, order, strategies)
    if dealing is not None:
        refuse(timed, undealt(dealing, strategies, inputs))
    pipe = pipeline(inputs, graph, dealing, strategies, count, launches, timing.time)
    return pipe, launches if pipe.again is None else launches + pipe.again


def _held(inputs: Inputs, graph: Graph, shards: Supergraph, pipe: Pipeline) -> LayerMemory | None:
    """Return what layers own and keep, where they stand for several."""
    if pipe.chunks is None:
        return None
    return layer_memory(graph, shards, pipe.chunks, copies_embedding(inputs))
