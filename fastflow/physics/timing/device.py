"""The device that kernels run on: achievable rates, capacities, latencies, its kernel library."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize, map_values
from fastflow.core.tables import Bools, Floats, Inputs, Ints, Texts
from fastflow.physics.hardware.chip import Chip, peak_flops
from fastflow.physics.hardware.sram import SramDesign
from fastflow.physics.timing.tile_catalogue import read_catalogue
from fastflow.physics.timing.tiling.dataflow import DATAFLOW_CODES

SCALED, SCALED_AT_ONCE = "fp8_block", 128
"""Type whose sums over so many of the inner dimension are scaled in fp32 (DeepSeek-V3, arXiv:2412.19437)."""
PROMOTION = 2.1
"""Time to scale and add such a sum, over that of a multiply-add; matrix units wait meanwhile. Calibrated,
with blocks that share no loads: 4,000 such products, H100 (ai-dynamo/aiconfigurator@095f58a)."""
SPECIALISED = 2.0  # times the order where some warps load and others multiply alone, so that they wait less
MOST_HEADROOM = 50.0  # times the power, up to which `boost.boost_of` finds the supply
VECTOR_DTYPE = "fp32"  # memory-bound passes compute in fp32, whatever their operands' type


class Library(NamedTuple):
    """Properties of each point's chip that a library's kernels depend on; shape (points,)."""

    peak_flops: Floats  # of the units that multiply [flop/s]
    registers: Floats  # of one bundle [B]
    warp_m: Floats  # largest tile of a warp
    warp_n: Floats
    latency: Floats  # of one access through all levels [s]
    step: Floats  # a block's least time for STEP_BYTES of every row that it reads [s]
    shared: Bools  # whether the units read their operands in L1 themselves
    cluster: Floats  # blocks that read the columns of B together
    pair: Floats  # bundles whose units multiply these columns together, each with its share in L1
    persistent: Bools  # whether a block's end overlaps with the next one's start
    overlap: Floats  # times the order of the soft maximum: above 1, resources wait less for each other
    splits: Bools  # whether it has kernels that split the inner dimension
    promotion: Floats  # time added to sum scaled parts on vector lanes, as a share of compute
    launch: Floats  # overhead of a launch [s]
    drive: Floats  # power that all units draw at the highest clock, over the budget
    strided: Floats  # time added where both operands are strided, as a share of compute
    reach: Floats  # of address translation [B]
    miss: Floats  # time added where it does not reach at all, as a share of compute


class Device(NamedTuple):
    """One device a point; shape (points,), lists from the registers outwards."""

    matrix_flops: Floats  # achievable by GEMMs in the operands' type [flop/s]
    vector_flops: Floats  # achievable by memory-bound passes [flop/s]
    vector_peak: Floats  # of the units that passes compute on [flop/s]; that of products is the library's
    special_functions: Floats  # exponentials and the like [1/s]
    capacity: tuple[Floats, ...]  # of one instance of each level, for what all bundles read [B]
    bandwidth: tuple[Floats, ...]  # achievable, all instances of each level [B/s]
    driven: tuple[Floats, ...]  # share of its banks' rate that power drives; 0 where all share it
    dram_bandwidth: Floats  # achievable [B/s]
    launch: Floats  # overhead and first access through all levels [s]
    unit_m: Ints
    unit_k: Ints
    unit_n: Ints
    dataflow: Ints
    private_level: Ints  # outermost level that the whole chip does not share, -1 for none
    instances: Floats  # of that level
    threshold: Floats  # of the cores' voltage, over their supply; 0 where their clock stays
    headroom: Floats  # power of a core at its highest supply, over that with all at work; 1: its clock stays
    boosts: Bools  # whether idle bundles leave what they have to those at work
    library: Library
    blocks: Texts  # tiles that the library has for single products
    batched_blocks: Texts  # and for batched ones


def rates_of(device: Device) -> tuple[Floats, Floats]:
    """Return the bandwidth of every level and of main memory, and `Device.driven`, (points, levels + 1)."""
    bandwidth = np.stack([*device.bandwidth, device.dram_bandwidth], axis=1)
    return bandwidth, np.stack([*device.driven, np.zeros_like(device.dram_bandwidth)], axis=1)


def lends(device: Device) -> Bools:
    """Say where idle bundles leave power that those at work can use, (points,)."""
    has_spare: Bools = device.headroom > 1.0
    for driven in device.driven:
        has_spare = has_spare | ((driven > 0.0) & (driven < 1.0))
    return has_spare


def device(inputs: Inputs, chip: Chip, lasts: bool) -> Device:
    """Return the device that a chip makes for its kernels; raises InputError for blocks that are none.

    lasts: whether kernels run for minutes. In a burst cores and caches have the whole power budget for a
    while; later memory, links and the leakage of a hot die have their share of it.
    """
    dtype = inputs["model.dtype"]
    vector = np.full(dtype.size, VECTOR_DTYPE)
    by_matrix = _select_dtype(inputs, "chip.matrix", dtype)
    utilization = np.where(by_matrix, inputs["chip.utilization"], inputs["chip.vector_utilization"])
    peak, vector_peak = peak_flops(inputs, chip, dtype), peak_flops(inputs, chip, vector)
    private, instances = np.full(dtype.size, -1, dtype=np.int64), np.ones(dtype.size)
    for number, level in enumerate(chip.levels):
        is_private = inputs[f"chip.memory.l{number}.scope"] != "global"
        private, instances = (
            np.where(is_private, number, private),
            np.where(is_private, level.instances, instances),
        )
    latency = sum((level.latency for level in chip.levels), chip.dram_latency)
    for kind in ("matrix", "vector", "batched_vector"):
        read_catalogue(inputs[f"chip.blocks.{kind}"], f"chip.blocks.{kind}")
    budget = inputs["chip.tdp"] * (inputs["chip.sustained"] if lasts else 1.0)
    boost = inputs.get("chip.pinned.boost_W", np.zeros(dtype.size))
    ones = np.ones(dtype.size)
    partitions = [inputs.get(f"chip.memory.l{number}.partitions", ones) for number in range(len(chip.levels))]
    registers = chip.levels[0].design.capacity / np.maximum(instances, 1.0)
    shared = by_matrix & (inputs["chip.blocks.operands"] == "l1")
    # The library of products with scales of blocks, DeepGEMM, splits no inner dimension. Where lanes scale
    # their sums, its warps wait for each other, and its blocks share no loads
    promoted = (dtype == SCALED) & (inputs["chip.blocks.scales"] == "lanes")
    warp_m, warp_n = _warp(inputs["chip.blocks.warp"])
    boosts = _boosts(inputs)
    headroom = _headroom(inputs, boosts, chip.cores.voltage)
    return Device(
        matrix_flops=utilization * peak,
        vector_flops=inputs["chip.vector_utilization"] * vector_peak,
        vector_peak=vector_peak,
        special_functions=inputs["chip.special_functions"] * instances * chip.cores.frequency,
        capacity=tuple(
            level.design.capacity / (level.instances * parts)
            for level, parts in zip(chip.levels, partitions, strict=True)
        ),
        bandwidth=tuple(level.design.bandwidth * level.utilization for level in chip.levels),
        driven=tuple(
            _driven(level.design, number <= private, boosts) for number, level in enumerate(chip.levels)
        ),
        dram_bandwidth=inputs["chip.dram_utilization"] * chip.dram.bandwidth,
        launch=inputs["chip.launch_overhead"] + latency,
        unit_m=inputs["chip.mcu.m"],
        unit_k=inputs["chip.mcu.k"],
        unit_n=inputs["chip.mcu.n"],
        dataflow=map_values(DATAFLOW_CODES, inputs["chip.mcu.dataflow"]).astype(np.int64),
        private_level=private,
        instances=instances,
        threshold=np.where(headroom > 1.0, inputs["tech.core.threshold_voltage"] / chip.cores.voltage, 0.0),
        headroom=headroom,
        boosts=boosts,
        library=Library(
            peak_flops=peak,
            registers=registers,
            warp_m=warp_m,
            warp_n=warp_n,
            latency=latency,
            step=np.where(by_matrix, inputs["chip.step_latency"], 0.0),
            shared=shared,
            cluster=np.where(by_matrix & ~promoted, inputs["chip.blocks.cluster"], 1.0),
            pair=np.where(by_matrix, inputs["chip.blocks.pair"], 1.0),
            persistent=by_matrix & inputs["chip.blocks.persistent"],
            overlap=np.where(shared & ~promoted, SPECIALISED, 1.0),
            splits=dtype != SCALED,
            promotion=np.where(promoted, PROMOTION * peak / (SCALED_AT_ONCE * vector_peak), 0.0),
            launch=inputs["chip.launch_overhead"],
            drive=np.where(by_matrix, inputs["chip.matrix_power"], 1.0) * boost / budget,
            strided=inputs["chip.strided.cost"],
            reach=inputs["chip.strided.reach"],
            miss=inputs["chip.strided.miss"],
        ),
        blocks=np.where(by_matrix, inputs["chip.blocks.matrix"], inputs["chip.blocks.vector"]),
        batched_blocks=np.where(
            by_matrix, inputs["chip.blocks.matrix"], inputs["chip.blocks.batched_vector"]
        ),
    )


def _boosts(inputs: Inputs) -> Bools:
    """Say which chips boost: one whose clock is known has no higher one."""
    known = any(f"chip.pinned.{name}" in inputs for name in ("core_Hz", "core_V"))
    boosts: Bools = inputs["chip.boost"] & (not known)
    return boosts


def _headroom(inputs: Inputs, boosts: Bools, voltage: Floats) -> Floats:
    """Return `Device.headroom`; boosts: which chips do."""
    if not boosts.any():
        return np.ones(voltage.size)
    threshold, most = inputs["tech.core.threshold_voltage"], inputs["tech.core.maximum_voltage"]
    powers = ((most - threshold) / (voltage - threshold)) ** 2 * most / voltage
    return np.where(boosts & (voltage > threshold), np.clip(powers, 1.0, MOST_HEADROOM), 1.0)


def _driven(level: SramDesign, is_private: Bools, boosts: Bools) -> Floats:
    """Return `Device.driven` of a level; own: where bundles have it to themselves."""
    share = np.ones(is_private.size)
    np.divide(level.bandwidth, level.ceiling, out=share, where=boosts & (level.ceiling > level.bandwidth))
    return np.where(is_private, share, 0.0)


def _warp(texts: Texts) -> tuple[Floats, Floats]:
    """Return the sides of the largest tile of a warp."""
    catalogue, inverse = read_catalogue(texts, "chip.blocks.warp")
    first = catalogue.offset[:-1][inverse]
    return catalogue.m[first], catalogue.n[first]


def _select_dtype(inputs: Inputs, prefix: str, dtype: Texts) -> Bools:
    """Return what a chip has for each point's data type under a key by data type."""
    names, inverse = factorize(dtype)
    if not len(names):
        return np.zeros(0, dtype=np.bool_)
    columns = [inputs.get(f"{prefix}.{name}", np.zeros(dtype.size, dtype=np.bool_)) for name in names]
    return np.stack(columns)[inverse, np.arange(dtype.size)]
