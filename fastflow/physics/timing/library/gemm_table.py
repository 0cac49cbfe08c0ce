"""GEMMs and the machines that a kernel library runs them on: as tables, and a row as numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.timing.device import Boost, Device, Library, Memories
from fastflow.physics.timing.tiling.dataflow import Unit, Units, make_unit


class Products(NamedTuple):
    """GEMMs, each on the machine of a point; shape (gemms,)."""

    point: Ints
    m: Ints
    k: Ints
    n: Ints
    batch: Ints
    strided: Bools  # both operands are stored along the inner dimension
    copies: Ints  # of B that a benchmark turns through, at most; 0: operands are in main memory


class Operands(NamedTuple):
    """How GEMMs read their operands; shape (points,)."""

    size: Floats  # of an element of A, and of B once it is converted [B]
    weight: Floats  # of an element of B as it is stored [B]
    conversion: Floats  # instructions of a lane that convert an element of B


class Machines(NamedTuple):
    """The machines that blocks run on; shape (points,)."""

    flops: Floats  # achievable [flop/s]
    size: Floats  # of an element of A and B [B]
    weight: Floats  # of an element of B as it is stored [B]
    conversion: Floats  # time to convert an element of B, over that of its product with an element of A
    output: Floats  # of an element of C [B]
    memories: Memories
    bundles: Floats
    boost: Boost
    units: Units
    library: Library
    order: Floats  # of the soft maximum; 0: the maximum
    parts: Ints  # of the inner dimension, at most (split-K)


def machines_of(device: Device, operands: Operands, output: Floats, order: Floats, parts: Ints) -> Machines:
    """Return the machines of GEMMs; the last arguments are columns of `Machines`, (points,).

    parts: used where the library splits the inner dimension.
    """
    return Machines(
        flops=device.matrix_flops,
        size=operands.size,
        weight=operands.weight,
        conversion=operands.conversion * device.matrix_flops / (2.0 * device.issue),
        output=output,
        memories=device.memories,
        bundles=device.instances,
        boost=device.boost,
        units=device.units,
        library=device.library,
        order=order,
        parts=np.where(device.library.single_splits, parts, 1),
    )


def columns_of(machines: Machines) -> list[NDArray[Any]]:
    """Return all columns of machines, with those of their tables and of every level, each (points,)."""
    tables = [table if isinstance(table, tuple) else (table,) for table in machines]
    return [column for table in tables for values in table for column in np.atleast_2d(values.T)]


class Memory(NamedTuple):
    """The memories of one machine, rows of `Memories`."""

    capacity: Floats  # (levels,)
    bandwidth: Floats  # (levels + 1,)
    driven: Floats  # (levels + 1,)


class Cores(NamedTuple):
    """The bundles of one machine and their units; see `Device` and `Library`."""

    bundles: float
    flops: float  # achievable [flop/s]
    peak: float  # [flop/s]
    drive: float
    threshold: float
    headroom: float
    registers: float  # of one bundle [B]
    room: float  # in a bundle's L1 [B]
    unit: Unit


class LastCache(NamedTuple):
    """The last cache of one machine, and how a benchmark repeats a GEMM; see `warm_cache`."""

    copies: float
    capacity: float  # of all partitions, 0 where bundles share none [B]
    part: float  # of it, for data that all bundles read [B]
    beyond: float  # latency of main memory [s]


class OperandReads(NamedTuple):
    """How the units of one machine read their operands; see `Library`."""

    shared: bool
    warp_m: float
    warp_n: float
    cluster: float
    pair: float
    stages: float
    fill: float  # [B/s]


class Overheads(NamedTuple):
    """What delays the kernels of one machine besides operations and bytes; see `Library`."""

    latency: float  # [s]
    step: float  # [s]
    launch: float  # [s]
    late: float  # [s]
    persistent: bool
    promotion: float
    strided: float  # 0 unless both operands are strided
    reach: float  # [B]
    miss: float  # 0 unless both operands are strided


class Gemm(NamedTuple):
    """One GEMM and its machine as plain numbers; see `Products` and `Machines`."""

    m: float
    k: float
    n: float
    batch: float
    size: float  # [B]
    weight: float  # [B]
    conversion: float
    output: float  # [B]
    cores: Cores
    reads: OperandReads
    overheads: Overheads
    cache: LastCache
    order: float
    levels: int
    private: int  # level that blocks are in


@kernel
def make_gemm(products: Products, machines: Machines, g: int) -> Gemm:
    """Return GEMM g and its machine as plain numbers."""
    p, strided = products.point[g], products.strided[g]
    memories, library = machines.memories, machines.library
    private = max(memories.private[p], 0)
    m, k, n, batch = (
        float(products.m[g]),
        float(products.k[g]),
        float(products.n[g]),
        float(products.batch[g]),
    )
    return Gemm(
        m=m,
        k=k,
        n=n,
        batch=batch,
        size=machines.size[p],
        weight=machines.weight[p],
        conversion=machines.conversion[p],
        output=machines.output[p],
        cores=Cores(
            bundles=machines.bundles[p],
            flops=machines.flops[p],
            peak=library.peak_flops[p],
            drive=library.drive[p],
            threshold=machines.boost.threshold[p],
            headroom=machines.boost.headroom[p],
            registers=library.registers[p],
            room=memories.capacity[p, private],
            unit=make_unit(machines.units, p),
        ),
        reads=OperandReads(
            shared=library.shared[p],
            warp_m=library.warp_m[p],
            warp_n=library.warp_n[p],
            cluster=library.cluster[p],
            pair=library.pair[p],
            stages=library.stages[p],
            fill=library.fill[p],
        ),
        overheads=Overheads(
            latency=library.latency[p],
            step=library.single_step[p],
            launch=library.launch[p],
            late=library.late_launch[p],
            persistent=library.persistent[p],
            promotion=library.promotion[p],
            strided=library.strided[p] if strided else 0.0,
            reach=library.reach[p],
            miss=library.miss[p] if strided else 0.0,
        ),
        cache=LastCache(
            copies=float(products.copies[g]),
            capacity=library.cache[p],
            part=memories.capacity[p, memories.capacity.shape[1] - 1],
            beyond=library.beyond[p],
        ),
        order=machines.order[p] * library.overlap[p],
        levels=memories.capacity.shape[1],
        private=private,
    )
