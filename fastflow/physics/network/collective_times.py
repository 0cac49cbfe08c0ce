"""Times of collectives on their own, without a model: by the system's library or a server's kernels (6.4)."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.network.collectives import server_kernels
from fastflow.physics.network.collectives.algorithms import number_of
from fastflow.physics.network.collectives.cost import KINDS, DeviceLinks, cheapest, price
from fastflow.physics.network.collectives.custom_all_reduce import (
    BACKEND,
    CUSTOM,
    MAX_RANKS,
    NCCL,
    backend_of,
    check_backend,
    count_algorithms,
    price_custom,
)
from fastflow.physics.network.collectives.nccl import (
    ALL_ADJACENT,
    DIRECT,
    HAS_SWITCH,
    MACHINES,
    channel_time,
    check_choice,
    price_library,
)
from fastflow.physics.network.collectives.server_kernels import SERVERS, kernel_time
from fastflow.physics.network.cost_table import wires_of
from fastflow.physics.network.routes import neighbours
from fastflow.physics.workload.graph import ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT


def collective_times(inputs: Inputs, chip: Chip, collective: int, size: Floats, ranks: Ints) -> Floats:
    """Return the time of collectives among the first `ranks` devices of a system [s], shape (collectives,).

    inputs, chip: of one point; size [B], ranks: shape (collectives,). Raises InputError for no network, or
    for an algorithm requested of a library.
    """
    wires, libraries = wires_of(inputs, chip)
    name = str(inputs["system.collective"][0])
    library = str(inputs["system.library"][0])
    check_choice(library, name)
    check_backend(library, str(backend_of(inputs)[0]))
    requested = number_of(name)
    links = DeviceLinks(*(float(column[0]) for column in wires[:-1]))
    time = np.empty(size.size)
    for num_ranks in np.unique(ranks):
        recipe = neighbours(inputs, int(num_ranks))
        latency, per_byte = np.empty((2, 1, KINDS, count_algorithms(libraries)))
        if libraries.size:
            price_library(recipe.nccl_topology, libraries[0], links, latency[0], per_byte[0])
            at = links.intra, links.memory
            price_custom(recipe.nccl_topology, libraries[0], *at, latency[0], per_byte[0])
        else:
            price(recipe.offered, recipe.offset, recipe.phases, links, latency[0], per_byte[0])
        for i in np.flatnonzero(ranks == num_ranks):
            time[i], _ = cheapest(latency, per_byte, 0, collective, size[i], requested)
        is_sent = num_ranks > 1 and collective in (ALL_TO_ALL, POINT_TO_POINT) and bool(libraries.size)
        if is_sent and recipe.nccl_topology[HAS_SWITCH] > 0.0 and recipe.nccl_topology[MACHINES] == 1.0:
            start = latency[0, collective, DIRECT]
            for i in np.flatnonzero(ranks == num_ranks):
                time[i] = max(time[i], start + channel_time(collective, int(num_ranks), float(size[i])))
    return time


def server_times(inputs: Inputs, chip: Chip, server: str, size: Floats, ranks: Ints) -> Floats:
    """Return the time of all-reduces as a serving library runs them [s], shape (collectives,).

    Others as collective_times; server: of server_kernels.SERVERS. By NCCL where the library has no kernel.
    Raises InputError for a system without NCCL.
    """
    custom = {**inputs, BACKEND: np.array([CUSTOM])}
    check_backend(str(inputs["system.library"][0]), CUSTOM)
    wires, libraries = wires_of(custom, chip)
    time = collective_times({**inputs, BACKEND: np.array([NCCL])}, chip, ALL_REDUCE, size, ranks)
    architecture = str(inputs["chip.architecture"][0]) if "chip.architecture" in inputs else ""
    for num_ranks in np.unique(ranks).tolist():
        group = neighbours(inputs, num_ranks).nccl_topology
        selected = np.flatnonzero(ranks == num_ranks)
        if not 1 < num_ranks <= MAX_RANKS or group[MACHINES] > 1.0 or group[ALL_ADJACENT] == 0.0:
            continue
        numbers = SERVERS[server](size[selected], num_ranks, architecture)
        for i, number in zip(selected.tolist(), numbers.tolist(), strict=True):
            if number != server_kernels.NCCL:
                links = float(wires.intra[0]), float(wires.memory[0])
                time[i] = kernel_time(number, float(size[i]), group, libraries[0], *links)
    return time
