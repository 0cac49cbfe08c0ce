"""Kernels of points on their devices (6.1 to 6.3): the calls of `physics/timing/`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastflow.core.dedupe import map_values, unique_rows
from fastflow.core.tables import Bools, Floats, Inputs, Ints, take, where_read
from fastflow.performance.prediction import Peaks
from fastflow.physics.hardware.chip import Chip, peak_flops
from fastflow.physics.hardware.power import LIMIT, Power, energy_per_byte, operation_energy, power_of
from fastflow.physics.parallelism.sharding.local_graph import FusedShares, Supergraph
from fastflow.physics.timing.device import Device, device, full_power, multiplies_on_matrix_units
from fastflow.physics.timing.power_limit import Cores, Kernels, slow_down
from fastflow.physics.timing.roofline import Fused, KernelWork, TilingOptions, Timing, time_kernels
from fastflow.physics.timing.warm_cache import COPIES
from fastflow.physics.workload import is_iteration, transposed
from fastflow.physics.workload.graph import ATTENTION, PRODUCT, WEIGHT_GRADIENT, Graph
from fastflow.physics.workload.precision import (
    LATENT,
    OUTPUT_BYTES,
    Precision,
    attention_format,
    operands_of,
    product_type,
    reads_latent,
    wide_type,
)

# inputs of a chip and its faults, and of a kernel's time beyond its sizes
HARDWARE = (
    "tech.", "scaling.", "mem.", "net.", "chip.", "model.dtype", "system.devices",
    "system.package.devices",
)  # fmt: skip
DEVICE = (*HARDWARE, "tiling.", "precision.")
_TYPED = ("model.dtype", "precision.", "chip.rate.")  # that types of kernels depend on


def time_on_devices(
    inputs: Inputs, chip: Chip, graph: Graph, shards: Supergraph, numbers: Precision
) -> tuple[Timing, Peaks]:
    """Time one launch of every kernel on its point's device (6.1 to 6.3); returns also the peak rates."""
    device_inputs, chips, of_points, point = _list_devices(inputs, chip, graph, numbers)
    strided, dtype = transposed(inputs), device_inputs["model.dtype"]
    operands = operands_of(device_inputs, dtype)
    tiles, overlaps = device_inputs["tiling.tiles"] == "random", device_inputs["tiling.tiles"] == "blocks"
    work = KernelWork(
        point=point,
        m=shards.kernels.m,
        k=shards.kernels.k,
        n=shards.kernels.n,
        batch=shards.kernels.batch,
        strided=strided[graph.point] if strided.any() else np.zeros(graph.point.size, dtype=np.bool_),
        copies=inputs[COPIES][graph.point] if COPIES in inputs else np.zeros_like(graph.point),
        pass_bytes=shards.kernels.elements * graph.per_element.bytes,
        pass_flop=shards.kernels.elements * graph.per_element.flop,
        options=TilingOptions(
            element_bytes=operands.element,
            weight_bytes=operands.stored,
            conversion=operands.conversion,
            output_bytes=device_inputs["output"],
            samples=where_read(tiles, device_inputs, "tiling.samples", 0),
            seed=where_read(tiles, device_inputs, "tiling.seed", 0),
            brute=device_inputs["tiling.search"] == "brute",
            blocks=overlaps,
            overlap=where_read(overlaps, device_inputs, "tiling.soft_max_order", 0.0),
            parts=where_read(overlaps, device_inputs, "tiling.max_split_k", 1),
        ),
    )
    is_sustained = is_iteration(inputs)
    computed = {**device_inputs, "model.dtype": product_type(device_inputs, dtype)}
    devices = device(computed, chips, is_sustained)
    peak, pass_peak = devices.library.peak_flops, devices.vector_peak
    is_product = shards.kernels.m > 0
    fused = [
        _fused(kernels, device_inputs, chips, devices, of_points, is_sustained) for kernels in shards.fused
    ]
    timing = time_kernels(devices, work, fused)
    peaks = Peaks(
        peak[of_points],
        np.where(is_product, peak[point], pass_peak[point]),
        _operations(device_inputs, computed, devices, chips, shards, of_points, point, timing),
    )
    if LIMIT in device_inputs:
        power = power_of(computed, chips)
        timing, slower = _within_power(timing, point, peaks.operation, devices, (computed, chips, power))
        peaks = peaks._replace(slower=slower)
    return timing, peaks


def _within_power(
    timing: Timing, point: Ints, operation: Floats, devices: Device, chips: tuple[Inputs, Chip, Power]
) -> tuple[Timing, Bools]:
    """Return the times of kernels within the power limits of their devices, and which are slower, (kernels,).

    point: the device of each kernel; operation: energy of an operation [J]; chips: the devices' inputs, chips
    and power.
    """
    inputs, chip, power = chips
    threshold, minimum = (inputs[f"tech.core.{name}_voltage"] for name in ("threshold", "minimum"))
    library = devices.library
    cores = Cores(
        voltage=chip.cores.voltage,
        threshold=np.where(library.drive > 0.0, 0.0, threshold),
        minimum=minimum,
        budget=inputs["chip.tdp"],
        drive=library.drive,
        peak=library.peak_flops,
    )
    operations = operation * timing.flop * timing.energy_ratio
    return slow_down(
        timing,
        Kernels(point, operations, energy_per_byte(chip), devices.memories.bandwidth),
        cores,
        power,
    )


@np.errstate(divide="ignore", invalid="ignore")
def _operations(
    inputs: Inputs, computed: Inputs, devices: Device, chips: Chip, shards: Supergraph, of_points: Ints,
    point: Ints, timing: Timing,
) -> Floats:  # fmt: skip
    """Return the energy of an operation of every kernel [J], (kernels,); point: its device.

    inputs: of the devices; computed: in the type that they multiply; of_points: the device of every point.
    Kernels with a timing function of their type, such as attention, multiply on the units of products, in the
    type that they compute in, where their power is known. Where operations at the highest clock would draw
    more than the budget, the clock has fallen (`library.thread_blocks`), and their energy with its square.
    """
    power, full = power_of(inputs, chips), full_power(computed, multiplies_on_matrix_units(computed))
    products = operation_energy(power, full.products, devices.library.peak_flops)
    passes = operation_energy(power, full.lanes, devices.vector_peak)
    units = products * devices.library.peak_flops
    energy: Floats = np.where(shards.kernels.m > 0, products[point], passes[point])
    is_known = power.of_budget
    for fused in shards.fused:
        device = of_points[fused.share.device]
        rows = np.flatnonzero(is_known[device])
        of_type, device = products, device[rows]
        if fused.type.dtype is not None:
            typed = {**inputs, "model.dtype": fused.type.dtype(inputs)}
            full = full_power(typed, multiplies_on_matrix_units(typed))
            of_type = operation_energy(power, full.products, peak_flops(typed, chips, typed["model.dtype"]))
        energy[fused.rows[rows]] = of_type[device]
        if fused.type.lanes is not None:
            energy[fused.rows[rows]] += fused.type.lanes(fused.share)[rows] * passes[device]
    energy *= timing.padding
    busy = energy * timing.flop * timing.energy_ratio / timing.time / units[point]
    return energy / np.fmax(devices.library.drive[point] * busy, 1.0)


def _list_devices(
    inputs: Inputs, chip: Chip, graph: Graph, numbers: Precision
) -> tuple[dict[str, Any], Chip, Ints, Ints]:
    """Return the inputs of distinct devices, their chips, and the device of every point and kernel.

    "output": bytes that a product writes for each element [B].
    """
    read = (*DEVICE, LATENT) if reads_latent(inputs) else DEVICE
    columns = {key: column for key, column in inputs.items() if key.startswith(read)}
    dtypes, points = columns.pop("model.dtype"), numbers.operand.size
    _, untyped = unique_rows(columns.values(), points)
    accumulates = (graph.kind == WEIGHT_GRADIENT) & (numbers.summed > numbers.output)[graph.point]
    summed = (numbers.summed,) if accumulates.any() else ()
    first, of_points = unique_rows([untyped, dtypes, *summed], points)
    of_kernels = device_of = of_points[graph.point]
    typed = take({key: column for key, column in inputs.items() if key.startswith(_TYPED)}, first)
    rows, names = first, typed["model.dtype"]
    is_wide = graph.wide > 0
    of_attention = (graph.layer.part == ATTENTION) & (graph.kind == PRODUCT) & ~is_wide
    # points have further devices, for the types of their activations and of attention's weights
    for selected, type_of in ((is_wide, wide_type), (of_attention, attention_format)):
        if not selected.any():
            continue
        types = type_of(typed)
        differs = types != typed["model.dtype"]
        others = np.flatnonzero(differs)
        if others.size:
            index = rows.size + np.searchsorted(others, of_kernels)
            device_of = np.where(selected & differs[of_kernels], index, device_of)
            rows, names = np.concatenate([rows, first[others]]), np.concatenate([names, types[others]])
    written = map_values(OUTPUT_BYTES, names)
    for column in summed:  # and as many again, for products that accumulate
        device_of = np.where(accumulates, rows.size + device_of, device_of)
        written = np.concatenate([written, column[rows]])
        rows, names = np.tile(rows, 2), np.tile(names, 2)
    distinct, index = unique_rows([untyped[rows], names, written], rows.size)
    rows, chips = rows[distinct], chip
    if not np.array_equal(rows, np.arange(points)):
        columns, chips = take((columns, chip), rows)
    columns |= {"model.dtype": names[distinct], "output": written[distinct]}
    return columns, chips, index[of_points], index[device_of]


def _fused(
    kernels: FusedShares, inputs: Inputs, chip: Chip, devices: Device, of_points: Ints, is_sustained: bool
) -> Fused:
    """Return kernels with a timing function of their type, on devices in the data type that it computes in.

    inputs, chip, devices: distinct; of_points: the index of every point's device among these; is_sustained:
    as for `device`.
    """
    assert kernels.type.time is not None
    share = kernels.share._replace(device=of_points[kernels.share.device])
    if kernels.type.dtype is not None:
        dtype = kernels.type.dtype(inputs)
        devices = device({**inputs, "model.dtype": dtype}, chip, is_sustained)
        stored = dtype if kernels.type.stored is None else kernels.type.stored(inputs)
        operands = take(operands_of(inputs, stored), share.device)
        read = {"operand": operands.element, "stored": operands.stored, "conversion": operands.conversion}
        share = share._replace(bytes=share.bytes._replace(**read))
    return Fused(kernels.rows, share, kernels.type.time, devices)
