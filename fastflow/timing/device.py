"""What a kernel finds on its device: achievable rates, capacities, latencies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.distinct import look_up
from fastflow.hardware.chip import Chip, peak_flops
from fastflow.tables import Floats, Inputs, Ints
from fastflow.timing.dataflow import DATAFLOW_CODES

VECTOR_DTYPE = "fp32"  # memory-bound passes compute in fp32, whatever their operands' type


class Device(NamedTuple):
    """One device a point; shape (points,), lists from the registers outwards."""

    matrix_flops: Floats  # achievable by GEMMs in the operands' type [flop/s]
    vector_flops: Floats  # achievable by memory-bound passes [flop/s]
    capacity: tuple[Floats, ...]  # of one instance of each level [B]
    bandwidth: tuple[Floats, ...]  # achievable, all instances of each level [B/s]
    dram_bandwidth: Floats  # achievable [B/s]
    launch: Floats  # overhead and first access through all levels [s]
    unit_m: Ints
    unit_k: Ints
    unit_n: Ints
    dataflow: Ints
    dealt_level: Ints  # outermost level that the whole chip does not share, -1 for none
    instances: Floats  # of that level


def device(inputs: Inputs, chip: Chip) -> Device:
    """Return the device that a chip makes for its kernels."""
    utilization = inputs["chip.utilization"]
    vector = np.full(utilization.size, VECTOR_DTYPE)
    dealt, instances = np.full(utilization.size, -1, dtype=np.int64), np.ones(utilization.size)
    for number, level in enumerate(chip.levels):
        own = inputs[f"chip.memory.l{number}.scope"] != "global"
        dealt, instances = np.where(own, number, dealt), np.where(own, level.instances, instances)
    latency = sum((level.latency for level in chip.levels), inputs["mem.latency"])
    return Device(
        utilization * peak_flops(inputs, chip, inputs["model.dtype"]),
        utilization * peak_flops(inputs, chip, vector),
        tuple(level.design.capacity / level.instances for level in chip.levels),
        tuple(level.design.bandwidth * level.utilization for level in chip.levels),
        inputs["chip.dram_utilization"] * chip.dram.bandwidth,
        inputs["chip.launch_overhead"] + latency,
        inputs["chip.mcu.m"],
        inputs["chip.mcu.k"],
        inputs["chip.mcu.n"],
        look_up(DATAFLOW_CODES, inputs["chip.mcu.dataflow"]).astype(np.int64),
        dealt,
        instances,
    )
