"""CrossFlow: from technology to the time of one training iteration (Figure 2, Section 3.1).

`predict` is the whole model, one line a stage. Every stage works on all points at once: a point
is a row, a quantity a column. Points whose budgets make no chip, or whose strategy does not suit
the system, leave with a reason before anything is timed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.columns import Floats, Inputs, Ints, Texts, first_of, take
from fastflow.distinct import once_a_kind
from fastflow.hardware.chip import Chip, generate, peak_flops
from fastflow.hardware.faults import chip_faults, unsupported_dtype
from fastflow.network.collectives import ring_bytes, ring_time
from fastflow.parallelism.footprint import Footprint, footprint
from fastflow.parallelism.strategy import Strategies, misfit, parse_column
from fastflow.parallelism.supergraph import Exchange, Supergraph, cut
from fastflow.timing.device import VECTOR_DTYPE, device
from fastflow.timing.energy import energy
from fastflow.timing.roofline import Timing, Work, time_kernels
from fastflow.timing.schedule import Tasks, Timeline, schedule
from fastflow.workload import build_graph
from fastflow.workload.graph import Graph, sum_by_point
from fastflow.workload.precision import Precision, precision

# what a chip and its faults depend on, and what a strategy does
HARDWARE = ("tech.", "mem.", "net.", "chip.", "model.dtype", "system.devices")
STRATEGY = ("parallel.strategy", "system.devices")


class Communication(NamedTuple):
    """The two collectives of every kernel; shape (kernels,)."""

    sync_s: Floats  # of one launch, waited for [s]
    gradient_s: Floats  # may overlap with later kernels [s]
    sync_sent: Floats  # what a device sends [B]
    gradient_sent: Floats


class Prediction(NamedTuple):
    """All that is known of a batch of points once it is predicted."""

    inputs: Inputs  # of every point
    chip: Chip  # of every point
    strategies: Strategies  # of every point
    strategy: Texts  # of every point, as printed
    reason: Texts  # why a point has no time; empty where it has
    timed: Ints  # the points that have a time: the rows of everything below
    graph: Graph
    shards: Supergraph
    footprint: Footprint
    timing: Timing
    communication: Communication
    timeline: Timeline
    energy: Floats  # of one device [J]


def predict(inputs: Inputs) -> Prediction:
    """Predict one training iteration of every point.

    inputs: dotted key to column of shape (points,), in SI units, as `columns.INPUTS` says. All
    points of a call have the same keys, so the same on-chip levels and the same workload.
    """
    every_chip, faults = once_a_kind(_generate, inputs, *HARDWARE)
    every_strategy, printed, misfits = once_a_kind(_parse, inputs, *STRATEGY)
    reason = first_of(faults, misfits)

    timed = np.flatnonzero(reason == "")
    given, chip, strategies = take(dict(inputs), timed), take(every_chip, timed), take(every_strategy, timed)
    numbers = precision(given)
    graph = build_graph(given, numbers)
    shards = cut(graph, strategies, numbers.operand)
    memory = footprint(graph, shards, numbers, given["model.training"])
    timing = _time_kernels(given, chip, graph, shards, numbers)
    communication = _time_communication(given, chip, graph, shards)
    timeline = _schedule(graph, timing, communication)
    used = _energy(given, chip, graph, shards, timing, communication, timeline)
    return Prediction(
        inputs, every_chip, every_strategy, printed, reason, timed,
        graph, shards, memory, timing, communication, timeline, used,
    )  # fmt: skip


def _generate(inputs: Inputs) -> tuple[Chip, Texts]:
    """Generate chips, and say why a point has none that it can use (4.2 to 4.4)."""
    chip = generate(inputs)
    return chip, first_of(chip_faults(inputs, chip), unsupported_dtype(inputs))


def _parse(inputs: Inputs) -> tuple[Strategies, Texts, Texts]:
    """Read strategies; return them, each as it is printed, and why one does not suit the system (3.3)."""
    strategies, printed = parse_column(inputs["parallel.strategy"])
    return strategies, printed, misfit(strategies, inputs["system.devices"])


def _time_kernels(inputs: Inputs, chip: Chip, graph: Graph, shards: Supergraph, numbers: Precision) -> Timing:
    """Time one launch of every kernel on its point's device (6.1 to 6.3)."""
    work = Work(
        graph.point, shards.m, shards.k, shards.n, graph.batch,
        shards.elements * graph.bytes_per_element,
        shards.elements * graph.flop_per_element,
        numbers.operand,
        np.where(inputs["tiling.tiles"] == "random", inputs.get("tiling.samples", 0), 0),
        np.where(inputs["tiling.tiles"] == "random", inputs.get("tiling.seed", 0), 0),
        inputs["tiling.search"] == "brute",
    )  # fmt: skip
    return time_kernels(device(inputs, chip), work)


def _time_communication(inputs: Inputs, chip: Chip, graph: Graph, shards: Supergraph) -> Communication:
    """Time both collectives of every kernel on the network between devices (6.4)."""
    bandwidth = (chip.inter.bandwidth * inputs["net.inter.utilization"])[graph.point]
    latency = inputs["net.inter.latency"][graph.point]

    def both(exchange: Exchange) -> tuple[Floats, Floats]:
        sent = ring_bytes(*exchange)
        return ring_time(exchange.collective, exchange.ranks, sent, bandwidth, latency), sent

    (sync_s, sync_sent), (gradient_s, gradient_sent) = both(shards.sync), both(shards.gradient)
    return Communication(sync_s, gradient_s, sync_sent, gradient_sent)


def _schedule(graph: Graph, timing: Timing, communication: Communication) -> Timeline:
    """Lay kernels and collectives out in time (6.5)."""
    repeat = graph.repeat
    return schedule(
        Tasks(
            graph.offset,
            graph.phase,
            repeat * timing.time,
            repeat * communication.sync_s,
            communication.gradient_s,
        )
    )


def _energy(
    inputs: Inputs,
    chip: Chip,
    graph: Graph,
    shards: Supergraph,
    timing: Timing,
    communication: Communication,
    timeline: Timeline,
) -> Floats:
    """Return the energy of one iteration of one device [J], shape (points,)."""
    sent = sum_by_point(graph, graph.repeat * communication.sync_sent + communication.gradient_sent)
    gemm_rate = peak_flops(inputs, chip, inputs["model.dtype"])
    pass_rate = peak_flops(inputs, chip, np.full(gemm_rate.size, VECTOR_DTYPE))
    rate = np.where(shards.m > 0, gemm_rate[graph.point], pass_rate[graph.point])
    return energy(chip, rate, graph, timing, sent, timeline.total)
