"""Kernels of points on their devices (6.1 to 6.3): what is asked of `physics/timing/`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastflow.core.dedupe import map_values, unique_rows
from fastflow.core.tables import Floats, Inputs, Ints, take, where_read
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.parallelism.sharding.local_graph import FusedShares, Supergraph
from fastflow.physics.timing.device import Device, device
from fastflow.physics.timing.roofline import Fused, KernelWork, Timing, time_kernels
from fastflow.physics.workload import is_iteration, transposed
from fastflow.physics.workload.graph import WEIGHT_GRADIENT, Graph
from fastflow.physics.workload.precision import OPERAND_BYTES, OUTPUT_BYTES, Precision, wide_type

# what a chip and its faults depend on, and what a kernel's time does but for its sizes
HARDWARE = (
    "tech.", "scaling.", "mem.", "net.", "chip.", "model.dtype", "system.devices",
    "system.package.devices",
)  # fmt: skip
DEVICE = (*HARDWARE, "tiling.", "precision.")


def time_on_devices(
    inputs: Inputs, chip: Chip, graph: Graph, shards: Supergraph, numbers: Precision
) -> tuple[Timing, Floats, Floats]:
    """Time one launch of every kernel on its point's device (6.1 to 6.3).

    Returns the peak of the units that every kernel computes on, too, (kernels,), and of every device in the
    model's data type, (points,) [flop/s].
    """
    own, own_chip, device_of = _devices(inputs, chip, graph, numbers)
    points, strided = numbers.operand.size, transposed(inputs)
    first, place = unique_rows(own.values(), own["model.dtype"].size)
    if first.size < place.size:
        own, own_chip = take((own, own_chip), first)
    point = place[device_of]
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
        element_bytes=map_values(OPERAND_BYTES, own["model.dtype"]),
        output_bytes=own["output"],
        samples=where_read(tiles, own, "tiling.samples", 0),
        seed=where_read(tiles, own, "tiling.seed", 0),
        brute=own["tiling.search"] == "brute",
        blocks=overlaps,
        overlap=where_read(overlaps, own, "tiling.overlap", 0.0),
        parts=where_read(overlaps, own, "tiling.parts", 1),
    )
    lasts = is_iteration(inputs)
    machine = device(own, own_chip, lasts)
    peak, pass_peak = machine.library.peak_flops, machine.vector_peak
    rate = np.where(shards.m > 0, peak[point], pass_peak[point])
    fused = [_fused(one, own, own_chip, machine, place, lasts) for one in shards.fused]
    return time_kernels(machine, work, fused), rate, peak[place[:points]]


def _devices(
    inputs: Inputs, chip: Chip, graph: Graph, numbers: Precision
) -> tuple[dict[str, Any], Chip, Ints]:
    """Return what devices depend on, their chips, and which one every kernel runs on.

    Those of the points come first. "output" is what a product writes for each element [B].
    """
    own = {key: column for key, column in inputs.items() if key.startswith(DEVICE)}
    points, own_chip = numbers.operand.size, chip
    device_of, wide = graph.point, np.flatnonzero(numbers.quantised > 0.0)
    if wide.size and graph.wide.any():  # these points have a device for the type of their activations, too
        own, own_chip = take((own, chip), np.concatenate([np.arange(points), wide]))
        own["model.dtype"] = np.concatenate([inputs["model.dtype"], wide_type(inputs)[wide]])
        is_wide = (graph.wide > 0) & (numbers.quantised > 0.0)[device_of]
        device_of = np.where(is_wide, points + np.searchsorted(wide, device_of), device_of)
    own["output"] = map_values(OUTPUT_BYTES, own["model.dtype"])
    adds = (graph.kind == WEIGHT_GRADIENT) & (numbers.summed > numbers.output)[graph.point]
    if adds.any():  # and one for products that add to what is there
        count = own["output"].size
        summed = np.concatenate([numbers.summed, numbers.summed[wide]])[:count]
        own, own_chip = take((own, own_chip), np.tile(np.arange(count), 2))
        own["output"][count:] = summed
        device_of = np.where(adds, count + device_of, device_of)
    return own, own_chip, device_of


def _fused(one: FusedShares, inputs: Inputs, chip: Chip, machine: Device, place: Ints, lasts: bool) -> Fused:
    """Return kernels that their type times itself, on devices in the data type that it computes in.

    inputs, chip, machine: of the distinct devices; place: of every point's among these; lasts: as
    `device` has it.
    """
    assert one.type.time is not None
    share = one.share._replace(device=place[one.share.device])
    if one.type.dtype is not None:
        dtype = one.type.dtype(inputs)
        machine = device({**inputs, "model.dtype": dtype}, chip, lasts)
        stored = dtype if one.type.stored is None else one.type.stored(inputs)
        share = share._replace(operand=map_values(OPERAND_BYTES, stored)[share.device])
    return Fused(one.rows, share, one.type.time, machine)
