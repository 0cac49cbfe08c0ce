"""GEMMs and the machines that a kernel library runs them on: as tables, and a row as numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Ints
from fastflow.physics.timing.device import Device, Library, rates_of
from fastflow.physics.timing.tiling.dataflow import Unit, make_unit


class Products(NamedTuple):
    """GEMMs, each on the machine of a point; shape (gemms,)."""

    point: Ints
    m: Ints
    k: Ints
    n: Ints
    batch: Ints
    strided: Bools  # both operands are stored along the inner dimension


class Machines(NamedTuple):
    """The machines that blocks run on; shape (points,) unless given."""

    flops: Floats  # achievable [flop/s]
    size: Floats  # of an element of A and B [B]
    output: Floats  # of an element of C [B]
    bandwidth: Floats  # achievable, from the registers outwards, main memory last (points, levels + 1)
    driven: Floats  # as `Device` has it, 0 for main memory (points, levels + 1)
    capacity: Floats  # of one instance of each level (points, levels)
    private: Ints  # the outermost level that is private to a bundle
    bundles: Floats
    threshold: Floats  # as `Device` has them
    headroom: Floats
    boosts: Bools
    unit_m: Ints
    unit_k: Ints
    unit_n: Ints
    dataflow: Ints
    order: Floats  # of the soft maximum; 0: the maximum
    parts: Ints  # of the inner dimension, at most (split-K)


class Memories(NamedTuple):
    """The memories of one machine, from the registers outwards; columns of `Machines`."""

    capacity: Floats  # (levels,)
    bandwidth: Floats  # (levels + 1,)
    driven: Floats


def machines_of(device: Device, size: Floats, output: Floats, order: Floats, parts: Ints) -> Machines:
    """Return the machines of GEMMs; arguments are columns of `Machines`, (points,).

    parts: used where the library splits the inner dimension.
    """
    bandwidth, driven = rates_of(device)
    return Machines(
        flops=device.matrix_flops,
        size=size,
        output=output,
        bandwidth=bandwidth,
        driven=driven,
        capacity=np.stack(device.capacity, axis=1),
        private=device.private_level,
        bundles=device.instances,
        threshold=device.threshold,
        headroom=device.headroom,
        boosts=device.boosts,
        unit_m=device.unit_m,
        unit_k=device.unit_k,
        unit_n=device.unit_n,
        dataflow=device.dataflow,
        order=order,
        parts=np.where(device.library.splits, parts, 1),
    )


class Gemm(NamedTuple):
    """One GEMM and its machine as plain numbers; see `Products`, `Machines`, `Library`."""

    m: float
    k: float
    n: float
    batch: float
    size: float
    output: float
    flops: float
    peak: float
    bundles: float
    threshold: float
    headroom: float
    registers: float
    room: float
    warp_m: float
    warp_n: float
    latency: float
    step: float
    shared: bool
    cluster: float
    pair: float
    persistent: bool
    launch: float
    drive: float
    order: float
    promotion: float
    strided: float
    reach: float
    miss: float
    levels: int
    private: int
    unit: Unit


@kernel
def make_gemm(products: Products, machines: Machines, library: Library, levels: int, g: int) -> Gemm:
    """Return GEMM g and its machine as plain numbers; levels: of the machine."""
    p = products.point[g]
    unit = make_unit(
        machines.dataflow[p],
        float(machines.unit_m[p]),
        float(machines.unit_k[p]),
        float(machines.unit_n[p]),
    )
    strided = products.strided[g]
    # Numba takes this many keywords only where none of their values is a condition
    cost = library.strided[p] if strided else 0.0
    miss = library.miss[p] if strided else 0.0
    return Gemm(
        m=float(products.m[g]),
        k=float(products.k[g]),
        n=float(products.n[g]),
        batch=float(products.batch[g]),
        size=machines.size[p],
        output=machines.output[p],
        flops=machines.flops[p],
        peak=library.peak_flops[p],
        bundles=machines.bundles[p],
        threshold=machines.threshold[p],
        headroom=machines.headroom[p],
        registers=library.registers[p],
        room=machines.capacity[p, max(machines.private[p], 0)],
        warp_m=library.warp_m[p],
        warp_n=library.warp_n[p],
        latency=library.latency[p],
        step=library.step[p],
        shared=library.shared[p],
        cluster=library.cluster[p],
        pair=library.pair[p],
        persistent=library.persistent[p],
        launch=library.launch[p],
        drive=library.drive[p],
        order=machines.order[p] * library.overlap[p],
        promotion=library.promotion[p],
        strided=cost,
        reach=library.reach[p],
        miss=miss,
        levels=levels,
        private=max(machines.private[p], 0),
        unit=unit,
    )
