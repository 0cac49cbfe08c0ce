"""Cost of collectives on the links of points: recipes of routes, with bandwidths and latencies (6.4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.jit import kernel, lean_kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints, take
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.network.collectives.algorithms import NUM_ALGORITHMS
from fastflow.physics.network.collectives.cost import KINDS, LOAD1, TOUCHED, DeviceLinks, price
from fastflow.physics.network.collectives.custom_all_reduce import (
    TOTAL_ALGORITHMS,
    count_algorithms,
    libraries_of,
    price_custom,
)
from fastflow.physics.network.collectives.nccl import NcclTopology, price_library
from fastflow.physics.network.routes import Route


class Wires(NamedTuple):
    """Bandwidth and latency of a device's links and memory, for its collectives; shape (points,)."""

    intra: Floats  # one direction, within the package [B/s]
    inter: Floats  # one direction, between packages [B/s]
    intra_latency: Floats  # of a hop [s]
    inter_latency: Floats
    memory: Floats  # that reductions read and write [B/s]
    overhead: Floats  # of calling a collective [s]
    library: Ints  # row of its scalars, -1 for none: collectives are the paper's algorithms


def wires_of(inputs: Inputs, chip: Chip) -> tuple[Wires, Floats]:
    """Return the links of every point's device, as collectives use them (6.4), and the libraries' scalars."""
    library, scalars = libraries_of(inputs)
    wires = Wires(
        intra=chip.intra.bandwidth * inputs["net.intra.utilization"],
        inter=chip.inter.bandwidth * inputs["net.inter.utilization"],
        intra_latency=inputs["net.intra.latency"],
        inter_latency=inputs["net.inter.latency"],
        memory=chip.dram.bandwidth * inputs["chip.dram_utilization"],
        overhead=inputs["net.inter.collective_overhead"],
        library=library,
    )
    return wires, scalars


class _Recipes(NamedTuple):
    """Recipes one after the other, of all routes; those of route r are first[r] to first[r + 1]."""

    first: Ints  # (routes + 1,)
    offered: Bools  # (recipes, collectives, algorithms)
    sent: Floats  # (recipes, collectives, custom_all_reduce.TOTAL_ALGORITHMS)
    offset: Ints  # into phases, (recipes, collectives * algorithms + 1)
    phases: Floats  # (phases, 5)
    nccl_topology: Floats  # (recipes, as nccl.NcclTopology)
    level: Ints  # 1 where the group reaches over packages, (recipes,)


def _concatenate(routes: list[Route]) -> _Recipes:
    recipes = [recipe for route in routes for recipe in route.recipes]
    first = np.cumsum([0, *(len(route.recipes) for route in routes)])
    start = np.cumsum([0, *(len(recipe.phases) for recipe in recipes)])
    shape = (0, KINDS, NUM_ALGORITHMS)
    return _Recipes(
        first=first,
        offered=np.concatenate(
            [np.zeros(shape, dtype=np.bool_), *(recipe.offered[None] for recipe in recipes)]
        ),
        sent=np.concatenate(
            [np.zeros((0, KINDS, TOTAL_ALGORITHMS)), *(recipe.sent[None] for recipe in recipes)]
        ),
        offset=np.concatenate(
            [
                np.zeros((0, KINDS * NUM_ALGORITHMS + 1), dtype=np.int64),
                *(
                    (recipe.offset + first_phase)[None]
                    for recipe, first_phase in zip(recipes, start[:-1], strict=True)
                ),
            ]
        ),
        phases=np.concatenate([np.zeros((0, TOUCHED + 1)), *(recipe.phases for recipe in recipes)]),
        nccl_topology=np.array([recipe.nccl_topology for recipe in recipes]).reshape(
            -1, len(NcclTopology._fields)
        ),
        level=np.array([bool((recipe.phases[:, LOAD1] > 0.0).any()) for recipe in recipes], dtype=np.int64),
    )


@lean_kernel
def _links_of(wires: Wires, kind: int) -> DeviceLinks:
    """Return a kind of link."""
    return DeviceLinks(
        wires.intra[kind], wires.inter[kind], wires.intra_latency[kind], wires.inter_latency[kind],
        wires.memory[kind], wires.overhead[kind],
    )  # fmt: skip


@kernel
def _price(
    recipes: _Recipes, route: Ints, wires: Wires, first: Ints, latency: Floats, per_byte: Floats
) -> None:
    """Write latency [s] and time a byte [s/B] of every recipe of every kind of link; inf if not offered.

    route, wires: of each kind of link; first: its first price, (kinds of link + 1,); latency, per_byte: shape
    (prices, collectives, algorithms).
    """
    for kind in range(route.size):
        links = _links_of(wires, kind)
        for index in range(first[kind + 1] - first[kind]):
            recipe, row = recipes.first[route[kind]] + index, first[kind] + index
            offered, offset = recipes.offered[recipe], recipes.offset[recipe]
            price(offered, offset, recipes.phases, links, latency[row], per_byte[row])


@kernel
def _price_libraries(
    recipes: _Recipes,
    route: Ints,
    wires: Wires,
    libraries: Floats,
    first: Ints,
    latency: Floats,
    per_byte: Floats,
) -> None:
    """Overwrite these prices of every kind of link that has a library.

    libraries: scalars, a row each, as custom_all_reduce.libraries_of returns them.
    """
    for kind in range(route.size):
        if wires.library[kind] < 0:
            continue
        library = libraries[wires.library[kind]]
        links = _links_of(wires, kind)
        for index in range(first[kind + 1] - first[kind]):
            group, row = recipes.nccl_topology[recipes.first[route[kind]] + index], first[kind] + index
            price_library(group, library, links, latency[row], per_byte[row])
            price_custom(group, library, links.intra, links.memory, latency[row], per_byte[row])


class Prices(NamedTuple):
    """Cost of each collective, by point."""

    slots: Ints  # recipe of every group counted from its route's first, -1 for none, (orders, groups)
    latency: Floats  # [s], (prices, collectives, algorithms)
    per_byte: Floats  # [s/B]
    sent: Floats  # share of the tensor, of every recipe, (recipes, collectives, TOTAL_ALGORITHMS)
    level: Ints  # of every recipe
    first_order: Ints  # of each point's route, (points,)
    orders: Ints  # how many, (points,)
    first_price: Ints  # of each point's network, (points,)
    first_recipe: Ints  # of each point's route, (points,)


def prices_of(routes: list[Route], of_point: Ints, wires: Wires, libraries: Floats, groups: int) -> Prices:
    """Price the recipes of every kind of link, once a kind."""
    first, inverse = unique_rows([of_point, *wires], of_point.size)
    recipes, route_of_kind = _concatenate(routes), of_point[first]
    first_price = np.concatenate([[0], np.cumsum(np.diff(recipes.first)[route_of_kind])])
    latency, per_byte = np.full((2, first_price[-1], KINDS, count_algorithms(libraries)), np.inf)
    links = take(wires, first)
    _price(recipes, route_of_kind, links, first_price, latency, per_byte)
    if libraries.size:
        _price_libraries(recipes, route_of_kind, links, libraries, first_price, latency, per_byte)
    num_orders = np.array([len(route.orders) for route in routes], dtype=np.int64)
    first_order = np.cumsum(num_orders) - num_orders
    return Prices(
        slots=np.concatenate([np.zeros((0, groups), dtype=np.int64), *(route.slots for route in routes)]),
        latency=latency,
        per_byte=per_byte,
        sent=recipes.sent,
        level=recipes.level,
        first_order=first_order[of_point],
        orders=num_orders[of_point],
        first_price=first_price[:-1][inverse],
        first_recipe=recipes.first[:-1][of_point],
    )
