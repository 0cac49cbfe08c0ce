"""The device that kernels run on: achievable rates, capacities, latencies, and its kernel library."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize, map_values
from fastflow.core.tables import Bools, Floats, Inputs, Ints, Texts, table, where_read
from fastflow.physics.hardware.chip import Chip, peak_flops
from fastflow.physics.hardware.power import extra_leakage
from fastflow.physics.hardware.sram import SramDesign
from fastflow.physics.timing.tile_catalogue import read_catalogue
from fastflow.physics.timing.tiling.dataflow import DATAFLOW_CODES, Units

SCALED, SCALED_AT_ONCE = "fp8_block", 128
"""Type whose sums over so many of the inner dimension are scaled in fp32 (DeepSeek-V3, arXiv:2412.19437)."""
PROMOTION = 1.7
"""Time to scale and add such a sum, over that of a multiply-add; matrix units wait meanwhile. Calibrated,
with blocks that share no loads, and the operations that quantise: 4,000 such products, H100
(ai-dynamo/aiconfigurator@095f58a)."""
FINE_SCALES = ("nvfp4", "mxfp4")
"""Types with a scale for 16 or 32 elements, which matrix units read from tensor memory."""
STEP_OF_SCALES = 5.0
"""Least time of a step of such a product, over that of others, in the library's first kernel
(`tiling.tuned`): a step copies scales to tensor memory, too (tcgen05.cp, NVIDIA PTX documentation). This
kernel does not split the inner dimension. Calibrated on 4,000 products in nvfp4 on B200, called without
TensorRT-LLM's autotuner (ai-dynamo/aiconfigurator@095f58a)."""
SPECIALISED = 2.0  # times the order with specialised warps (loading or multiplying), which wait less
IN_TURN = 0.375
"""The same where lanes scale sums and a block has one slab in L1 (`chip.blocks.stages` 1: the pipelines of
composable_kernel, whose warps load a slab into registers, write it to L1, multiply it and scale the sums in
turn). Calibrated: 1,218 products on an MI300X (ROCm/aiter@e404860)."""
PAST_L1 = (1.0 + IN_TURN) / 2.0
"""The same where weights go past L1 (`tiling.preshuffled`): one of both operands takes turns."""
STAGES = 4.0
"""Slabs of a block in L1 or in flight, where copies are asynchronous (CUTLASS's default)."""
MAX_HEADROOM = 50.0  # of the power, up to which `boost.boost_of` is accurate
ISSUE_WIDTH = 128.0
"""Instructions of single lanes that a bundle issues in a cycle: four schedulers of warps of 32 threads, as in
every SM from Maxwell on but P100's (NVIDIA CUDA programming guide)."""
NO_BLOCKS = "none"
VECTOR_DTYPE = "fp32"  # memory-bound passes compute in fp32, whatever their operands' type


class Library(NamedTuple):
    """Properties of each point's chip and library that its kernels depend on; shape (points,).

    A flat row, since most columns are keys of a chip's file.
    """

    peak_flops: Floats  # of the units that multiply [flop/s]
    registers: Floats  # of one bundle [B]
    warp_m: Floats  # largest tile of a warp
    warp_n: Floats
    latency: Floats  # of one access through all levels [s]
    step: Floats  # a block's least time for STEP_BYTES of each of its rows [s]
    shared: Bools  # whether matrix units read their operands from L1
    cluster: Floats  # blocks that share loads of columns of B
    pair: Floats  # bundles that compute a tile together, each with its share of the columns in L1
    persistent: Bools  # whether a block's end overlaps with the next one's start
    overlap: Floats  # factor of the order of the soft maximum: above 1, resources wait less for each other
    splits: Bools  # whether the library has kernels that split the inner dimension (split-K)
    single_step: Floats  # `step` of single GEMMs [s]
    late_launch: Floats  # more, for a kernel that starts only after the end of the one before [s]
    single_splits: Bools  # `splits` of single GEMMs
    promotion: Floats  # time to sum scaled parts on vector lanes, as a share of compute
    launch: Floats  # overhead of a launch [s]
    drive: Floats  # power of all units at the highest clock, over the budget
    strided: Floats  # extra time where both operands are strided, as a share of compute
    reach: Floats  # of address translation (TLB) [B]
    miss: Floats  # extra time where all accesses are beyond `reach`, as a share of compute
    cache: Floats  # last level on chip with all its partitions, where all bundles share it, or 0 [B]
    beyond: Floats  # part of `latency` that is main memory's [s]
    stages: Floats  # slabs of a block in L1 or in flight
    fill: Floats  # bandwidth of a bundle from the level beyond its own; infinite: no limit [B/s]


class Memories(NamedTuple):
    """The on-chip memories of each point from the registers outwards, then main memory."""

    capacity: Floats  # of one instance, for data that all bundles read, on chip only [B] (points, levels)
    bandwidth: Floats  # achievable, all instances [B/s] (points, levels + 1)
    driven: Floats  # share of the banks' rate that the power allows, 0 if shared (points, levels + 1)
    private: Ints  # outermost level that the chip does not share, -1 for none (points,)


class Boost(NamedTuple):
    """How active cores use the power of idle ones (`tiling/boost.py`); shape (points,)."""

    threshold: Floats  # voltage of the cores, over their supply; 0 without boost
    headroom: Floats  # power of a core at its highest supply, over that with all active; 1: no boost
    enabled: Bools  # whether active bundles use the power and bandwidth of idle ones


class Device(NamedTuple):
    """One device a point; shape (points,)."""

    matrix_flops: Floats  # achievable by GEMMs in the operands' type [flop/s]
    vector_flops: Floats  # achievable by memory-bound passes [flop/s]
    vector_peak: Floats  # of vector lanes, in fp32 [flop/s]; the peak of GEMMs is `Library.peak_flops`
    special_functions: Floats  # exponentials and the like [1/s]
    issue: Floats  # instructions of single lanes that the schedulers of all bundles issue [1/s]
    memories: Memories
    launch: Floats  # overhead and first access through all levels [s]
    units: Units
    instances: Floats  # of the private level: bundles
    boost: Boost
    library: Library
    blocks: Texts  # block tiles of the library for single GEMMs
    batched_blocks: Texts  # and for batched GEMMs
    grouped_blocks: Texts  # and for grouped GEMMs of experts; "": those of single GEMMs, by a rule

    @property
    def levels(self) -> int:
        """Number of on-chip levels."""
        return int(self.memories.capacity.shape[1])


def multiplies_on_matrix_units(inputs: Inputs) -> Bools:
    """Return which devices multiply their data type on matrix units, (points,)."""
    return _select_dtype(inputs, "chip.matrix", inputs["model.dtype"])


class FullPower(NamedTuple):
    """Power with all units of a kind busy at the highest clock [W], 0 where not known; (points,)."""

    products: Floats  # those that multiply the data type
    lanes: Floats  # vector lanes


def full_power(inputs: Inputs, by_matrix: Bools) -> FullPower:
    """Return the full power of each device; by_matrix: whether matrix units multiply its data type."""
    lanes = inputs.get("chip.pinned.boost_W", np.zeros(by_matrix.size))
    return FullPower(np.where(by_matrix, inputs["chip.matrix_power"], 1.0) * lanes, lanes)


def has_power_reserve(device: Device) -> Bools:
    """Return where active bundles can use the power of idle ones, (points,)."""
    driven = device.memories.driven
    has_spare: Bools = (device.boost.headroom > 1.0) | ((driven > 0.0) & (driven < 1.0)).any(axis=1)
    return has_spare


def device(inputs: Inputs, chip: Chip, lasts: bool) -> Device:
    """Return the device of each chip; raises InputError for invalid block tiles.

    lasts: whether kernels run for minutes. In a short burst cores and caches have the whole power budget;
    later memory, links and the leakage of a hot die have their share of it.
    """
    dtype = inputs["model.dtype"]
    by_matrix = multiplies_on_matrix_units(inputs)
    utilization = np.where(by_matrix, inputs["chip.utilization"], inputs["chip.vector_utilization"])
    peak = peak_flops(inputs, chip, dtype)
    vector_peak = peak_flops(inputs, chip, np.full(dtype.size, VECTOR_DTYPE))
    for kind in ("matrix", "vector", "batched_vector"):
        read_catalogue(inputs[f"chip.blocks.{kind}"], f"chip.blocks.{kind}")
    of_matrix = _matrix_blocks(inputs)
    boost = _boost(inputs, chip.cores.voltage)
    memories, instances = _memories(inputs, chip, boost.enabled)
    last = len(chip.levels) - 1
    latency = sum((level.latency for level in chip.levels), chip.dram_latency)
    return Device(
        matrix_flops=utilization * peak,
        vector_flops=inputs["chip.vector_utilization"] * vector_peak,
        vector_peak=vector_peak,
        special_functions=inputs["chip.special_functions"] * instances * chip.cores.frequency,
        issue=ISSUE_WIDTH * instances * chip.cores.frequency,
        memories=memories,
        launch=inputs["chip.launch_overhead"] + latency,
        units=table(
            Units,
            inputs,
            "chip.mcu",
            dataflow=map_values(DATAFLOW_CODES, inputs["chip.mcu.dataflow"]).astype(np.int64),
        ),
        instances=instances,
        boost=boost,
        library=_library(
            inputs,
            by_matrix,
            peak=peak,
            vector_peak=vector_peak,
            registers=chip.levels[0].design.capacity / np.maximum(instances, 1.0),
            latency=latency,
            cache=np.where(memories.private < last, chip.levels[last].design.capacity, 0.0),
            beyond=chip.dram_latency,
            budget=(inputs["chip.tdp"] - extra_leakage(inputs))
            * (inputs["chip.sustained_power_fraction"] if lasts else 1.0),
        ),
        blocks=np.where(by_matrix, of_matrix, inputs["chip.blocks.vector"]),
        batched_blocks=np.where(by_matrix, of_matrix, inputs["chip.blocks.batched_vector"]),
        grouped_blocks=np.where(by_matrix, _grouped_blocks(inputs), ""),
    )


def _grouped_blocks(inputs: Inputs) -> Texts:
    """Return the block tiles of grouped products that chips have of their own, "" where they have none."""
    texts = inputs.get("chip.blocks.grouped")
    if texts is None:
        return np.full(inputs["model.dtype"].size, "")
    read_catalogue(texts[texts != ""], "chip.blocks.grouped")
    return texts


def _matrix_blocks(inputs: Inputs) -> Texts:
    """Return the block tiles of the library on matrix units; raises InputError for invalid ones."""
    tiles, scaled = inputs["chip.blocks.matrix"], inputs["chip.blocks.scaled"]
    has_own = scaled != NO_BLOCKS
    if not has_own.any():
        return tiles
    read_catalogue(scaled[has_own], "chip.blocks.scaled")
    blocks: Texts = np.where(has_own & (inputs["model.dtype"] == SCALED), scaled, tiles)
    return blocks


def _memories(inputs: Inputs, chip: Chip, boosts: Bools) -> tuple[Memories, Floats]:
    """Return the memories of each chip, and the instances of its private level; boosts: which chips boost."""
    points, ones = boosts.size, np.ones(boosts.size)
    private, instances = np.full(points, -1, dtype=np.int64), ones
    for number, level in enumerate(chip.levels):
        is_private = inputs[f"chip.memory.l{number}.scope"] != "global"
        private = np.where(is_private, number, private)
        instances = np.where(is_private, level.instances, instances)
    partitions = [inputs.get(f"chip.memory.l{number}.partitions", ones) for number in range(len(chip.levels))]
    capacity = [
        level.design.capacity / (level.instances * parts)
        for level, parts in zip(chip.levels, partitions, strict=True)
    ]
    bandwidth = [level.design.bandwidth * level.utilization for level in chip.levels]
    driven = [_driven(level.design, number <= private, boosts) for number, level in enumerate(chip.levels)]
    memories = Memories(
        capacity=np.stack(capacity, axis=1),
        bandwidth=np.stack([*bandwidth, inputs["chip.dram_utilization"] * chip.dram.bandwidth], axis=1),
        driven=np.stack([*driven, np.zeros(points)], axis=1),
        private=private,
    )
    return memories, instances


def _driven(level: SramDesign, is_private: Bools, boosts: Bools) -> Floats:
    """Return `Memories.driven` of a level; is_private: whether the level is private to bundles."""
    share = np.ones(is_private.size)
    np.divide(level.bandwidth, level.ceiling, out=share, where=boosts & (level.ceiling > level.bandwidth))
    return np.where(is_private, share, 0.0)


def _boost(inputs: Inputs, voltage: Floats) -> Boost:
    """Return the boost of each chip; a chip with a pinned clock or voltage has none.

    voltage: of the cores' supply with all active [V].
    """
    known = any(f"chip.pinned.{name}" in inputs for name in ("core_Hz", "core_V"))
    enabled: Bools = inputs["chip.boost"] & (not known)
    headroom = np.ones(voltage.size)
    if not enabled.any():
        return Boost(threshold=np.zeros(voltage.size), headroom=headroom, enabled=enabled)
    threshold, most = inputs["tech.core.threshold_voltage"], inputs["tech.core.maximum_voltage"]
    powers = ((most - threshold) / (voltage - threshold)) ** 2 * most / voltage
    headroom = np.where(enabled & (voltage > threshold), np.clip(powers, 1.0, MAX_HEADROOM), 1.0)
    return Boost(
        threshold=np.where(headroom > 1.0, threshold / voltage, 0.0), headroom=headroom, enabled=enabled
    )


def _library(
    inputs: Inputs, by_matrix: Bools, *, peak: Floats, vector_peak: Floats, registers: Floats,
    latency: Floats, cache: Floats, beyond: Floats, budget: Floats,
) -> Library:  # fmt: skip
    """Return the properties of each chip and its library.

    by_matrix: whether matrix units multiply the data type; peak: `Library.peak_flops`; budget: of power [W];
    the others as in `Library` and `Device`.
    """
    dtype, tiles = inputs["model.dtype"], inputs["tiling.tiles"]
    shared = by_matrix & (inputs["chip.blocks.operands"] == "l1")
    # The library of products with scales of blocks, DeepGEMM, splits no inner dimension. Where lanes scale
    # their sums, its warps wait for each other, and its blocks share no loads
    promoted = (dtype == SCALED) & (inputs["chip.blocks.scales"] == "lanes")
    warp_m, warp_n = _warp(inputs["chip.blocks.warp"])
    step = np.where(by_matrix, inputs["chip.step_latency"], 0.0)
    is_first = np.isin(dtype, FINE_SCALES) & ~where_read(tiles == "blocks", inputs, "tiling.tuned", True)
    preshuffled = where_read(tiles == "blocks", inputs, "tiling.preshuffled", False)
    splits, stages = dtype != SCALED, inputs.get("chip.blocks.stages", np.full(dtype.size, STAGES))
    alternating = np.where(preshuffled, PAST_L1, np.where(promoted, IN_TURN, 1.0))
    return Library(
        peak_flops=peak,
        registers=registers,
        warp_m=warp_m,
        warp_n=warp_n,
        latency=latency,
        step=step,
        shared=shared,
        cluster=np.where(by_matrix & ~promoted, inputs["chip.blocks.cluster"], 1.0),
        pair=np.where(by_matrix, inputs["chip.blocks.pair"], 1.0),
        persistent=by_matrix & inputs["chip.blocks.persistent"],
        overlap=np.where(
            by_matrix & (stages == 1), alternating, np.where(shared & ~promoted, SPECIALISED, 1.0)
        ),
        splits=splits,
        single_step=step * np.where(is_first, STEP_OF_SCALES, 1.0),
        late_launch=np.ascontiguousarray(inputs["chip.blocks.late_launch"]),
        single_splits=splits & ~is_first,
        promotion=np.where(promoted, PROMOTION * peak / (SCALED_AT_ONCE * vector_peak), 0.0),
        launch=np.ascontiguousarray(inputs["chip.launch_overhead"]),
        drive=full_power(inputs, by_matrix).products / budget,
        strided=np.ascontiguousarray(inputs["chip.strided.cost"]),
        reach=np.ascontiguousarray(inputs["chip.strided.reach"]),
        miss=np.ascontiguousarray(inputs["chip.strided.miss"]),
        cache=cache,
        beyond=beyond,
        stages=stages.astype(np.float64),
        fill=np.ascontiguousarray(inputs.get("chip.fill_Bps", np.full(dtype.size, np.inf))),
    )


def _warp(texts: Texts) -> tuple[Floats, Floats]:
    """Return the sides of the largest tile of a warp."""
    catalogue, inverse = read_catalogue(texts, "chip.blocks.warp")
    first = catalogue.offset[:-1][inverse]
    return catalogue.m[first], catalogue.n[first]


def _select_dtype(inputs: Inputs, prefix: str, dtype: Texts) -> Bools:
    """Return a chip's flag `{prefix}.{data type}` for each point's data type."""
    names, inverse = factorize(dtype)
    if not len(names):
        return np.zeros(0, dtype=np.bool_)
    columns = [inputs.get(f"{prefix}.{name}", np.zeros(dtype.size, dtype=np.bool_)) for name in names]
    return np.stack(columns)[inverse, np.arange(dtype.size)]
