"""Kernels of points on their devices (6.1 to 6.3): the calls of `physics/timing/`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastflow.core.dedupe import map_values, unique_rows
from fastflow.core.tables import Inputs, Ints, take, where_read
from fastflow.performance.prediction import Peaks
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.parallelism.sharding.local_graph import FusedShares, Supergraph
from fastflow.physics.timing.device import Device, device
from fastflow.physics.timing.roofline import Fused, KernelWork, TilingOptions, Timing, time_kernels
from fastflow.physics.workload import is_iteration, transposed
from fastflow.physics.workload.graph import ATTENTION, PRODUCT, WEIGHT_GRADIENT, Graph
from fastflow.physics.workload.precision import (
    OUTPUT_BYTES,
    Precision,
    attention_format,
    operands_of,
    product_type,
    wide_type,
)

# inputs of a chip and its faults, and of a kernel's time beyond its sizes
HARDWARE = (
    "tech.", "scaling.", "mem.", "net.", "chip.", "model.dtype", "system.devices",
    "system.package.devices",
)  # fmt: skip
DEVICE = (*HARDWARE, "tiling.", "precision.")


def time_on_devices(
    inputs: Inputs, chip: Chip, graph: Graph, shards: Supergraph, numbers: Precision
) -> tuple[Timing, Peaks]:
    """Time one launch of every kernel on its point's device (6.1 to 6.3); returns also the peak rates."""
    device_inputs, chips, device_of = _list_devices(inputs, chip, graph, numbers)
    points, strided = numbers.operand.size, transposed(inputs)
    first, inverse = unique_rows(device_inputs.values(), device_inputs["model.dtype"].size)
    if first.size < inverse.size:
        device_inputs, chips = take((device_inputs, chips), first)
    dtype = device_inputs["model.dtype"]
    operands = operands_of(device_inputs, dtype)
    point = inverse[device_of]
    tiles, overlaps = device_inputs["tiling.tiles"] == "random", device_inputs["tiling.tiles"] == "blocks"
    work = KernelWork(
        point=point,
        m=shards.kernels.m,
        k=shards.kernels.k,
        n=shards.kernels.n,
        batch=shards.kernels.batch,
        strided=strided[graph.point] if strided.any() else np.zeros(graph.point.size, dtype=np.bool_),
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
    peaks = Peaks(peak[inverse[:points]], np.where(shards.kernels.m > 0, peak[point], pass_peak[point]))
    fused = [
        _fused(kernels, device_inputs, chips, devices, inverse, is_sustained) for kernels in shards.fused
    ]
    return time_kernels(devices, work, fused), peaks


def _list_devices(
    inputs: Inputs, chip: Chip, graph: Graph, numbers: Precision
) -> tuple[dict[str, Any], Chip, Ints]:
    """Return the inputs of devices, their chips, and the device of every kernel.

    The devices of the points come first. "output": bytes that a product writes for each element [B].
    """
    device_inputs = {key: column for key, column in inputs.items() if key.startswith(DEVICE)}
    points, chips = numbers.operand.size, chip
    dtypes, rows, device_of = inputs["model.dtype"], np.arange(points), graph.point
    names = dtypes
    is_wide = graph.wide > 0
    of_attention = (graph.layer.part == ATTENTION) & (graph.kind == PRODUCT) & ~is_wide
    # points have further devices, for the types of their activations and of attention's weights
    for selected, type_of in ((is_wide, wide_type), (of_attention, attention_format)):
        if not selected.any():
            continue
        types = type_of(inputs)
        others = np.flatnonzero(types != dtypes)
        if others.size:
            differs = selected & (types != dtypes)[graph.point]
            index = rows.size + np.searchsorted(others, graph.point)
            device_of = np.where(differs, index, device_of)
            rows, names = np.concatenate([rows, others]), np.concatenate([names, types[others]])
    if rows.size > points:
        device_inputs, chips = take((device_inputs, chip), rows)
        device_inputs["model.dtype"] = names
    device_inputs["output"] = map_values(OUTPUT_BYTES, device_inputs["model.dtype"])
    accumulates = (graph.kind == WEIGHT_GRADIENT) & (numbers.summed > numbers.output)[graph.point]
    if accumulates.any():  # and as many again, for products that accumulate
        device_inputs, chips = take((device_inputs, chips), np.tile(np.arange(rows.size), 2))
        device_inputs["output"][rows.size :] = numbers.summed[rows]
        device_of = np.where(accumulates, rows.size + device_of, device_of)
    return device_inputs, chips, device_of


def _fused(
    kernels: FusedShares, inputs: Inputs, chip: Chip, devices: Device, inverse: Ints, is_sustained: bool
) -> Fused:
    """Return kernels with a timing function of their type, on devices in the data type that it computes in.

    inputs, chip, devices: distinct; inverse: the index of every point's device among these; is_sustained: as
    for `device`.
    """
    assert kernels.type.time is not None
    share = kernels.share._replace(device=inverse[kernels.share.device])
    if kernels.type.dtype is not None:
        dtype = kernels.type.dtype(inputs)
        devices = device({**inputs, "model.dtype": dtype}, chip, is_sustained)
        stored = dtype if kernels.type.stored is None else kernels.type.stored(inputs)
        operands = take(operands_of(inputs, stored), share.device)
        read = {"operand": operands.element, "stored": operands.stored, "conversion": operands.conversion}
        share = share._replace(bytes=share.bytes._replace(**read))
    return Fused(kernels.rows, share, kernels.type.time, devices)
