"""What collectives cost on the links of points: recipes of routes, with bandwidths and latencies (6.4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.jit import kernel
from fastflow.core.tables import Bools, Floats, Inputs, Ints, take
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.network.collectives.algorithms import WAYS
from fastflow.physics.network.collectives.cost import KINDS, LOAD1, TOUCHED, DeviceLinks, price
from fastflow.physics.network.collectives.custom_all_reduce import (
    ALL_WAYS,
    libraries_of,
    price_peers,
    ways_of,
)
from fastflow.physics.network.collectives.nccl import Spread, price_library
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
    """Return what a device's links give its collectives (6.4), and the scalars of their libraries."""
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
    sent: Floats  # (recipes, collectives, peer.ALL_WAYS)
    offset: Ints  # into phases, (recipes, collectives * algorithms + 1)
    phases: Floats  # (phases, 5)
    spread: Floats  # (recipes, as nccl.Spread)
    level: Ints  # 1 where the group reaches over packages, (recipes,)


def _flat(routes: list[Route]) -> _Recipes:
    recipes = [one for route in routes for one in route.recipes]
    first = np.cumsum([0, *(len(route.recipes) for route in routes)])
    start = np.cumsum([0, *(len(one.phases) for one in recipes)])
    shape = (0, KINDS, WAYS)
    return _Recipes(
        first=first,
        offered=np.concatenate([np.zeros(shape, dtype=np.bool_), *(one.offered[None] for one in recipes)]),
        sent=np.concatenate([np.zeros((0, KINDS, ALL_WAYS)), *(one.sent[None] for one in recipes)]),
        offset=np.concatenate(
            [
                np.zeros((0, KINDS * WAYS + 1), dtype=np.int64),
                *((one.offset + at)[None] for one, at in zip(recipes, start[:-1], strict=True)),
            ]
        ),
        phases=np.concatenate([np.zeros((0, TOUCHED + 1)), *(one.phases for one in recipes)]),
        spread=np.array([one.spread for one in recipes]).reshape(-1, len(Spread._fields)),
        level=np.array([bool((one.phases[:, LOAD1] > 0.0).any()) for one in recipes], dtype=np.int64),
    )


@kernel
def _price(
    recipes: _Recipes, route: Ints, wires: Wires, first: Ints, latency: Floats, per_byte: Floats
) -> None:
    """Write latency [s] and time a byte [s/B] of every recipe of every kind of link; inf if not offered.

    route, wires: of each kind of link; first: its first price, (kinds of link + 1,); latency, per_byte: shape
    (prices, collectives, ways).
    """
    for link in range(route.size):
        links = DeviceLinks(
            wires.intra[link], wires.inter[link], wires.intra_latency[link], wires.inter_latency[link],
            wires.memory[link], wires.overhead[link],
        )  # fmt: skip
        for which in range(first[link + 1] - first[link]):
            one, at = recipes.first[route[link]] + which, first[link] + which
            price(recipes.offered[one], recipes.offset[one], recipes.phases, links, latency[at], per_byte[at])


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
    """Write the same, in place of it, of every kind of link that has a library.

    libraries: scalars, a row each, as peer.libraries_of returns them.
    """
    for link in range(route.size):
        if wires.library[link] < 0:
            continue
        library = libraries[wires.library[link]]
        links = DeviceLinks(
            wires.intra[link], wires.inter[link], wires.intra_latency[link], wires.inter_latency[link],
            wires.memory[link], wires.overhead[link],
        )  # fmt: skip
        for which in range(first[link + 1] - first[link]):
            spread, at = recipes.spread[recipes.first[route[link]] + which], first[link] + which
            price_library(spread, library, links, latency[at], per_byte[at])
            price_peers(spread, library, links.intra, latency[at], per_byte[at])


class Prices(NamedTuple):
    """Cost of each collective, by point."""

    slots: Ints  # recipe of every group counted from its route's first, -1 for none, (orders, groups)
    latency: Floats  # [s], (prices, collectives, ways)
    per_byte: Floats  # [s/B]
    sent: Floats  # share of the tensor, of every recipe, (recipes, collectives, peer.ALL_WAYS)
    level: Ints  # of every recipe
    first_order: Ints  # of each point's route, (points,)
    orders: Ints  # how many, (points,)
    first_price: Ints  # of each point's network, (points,)
    first_recipe: Ints  # of each point's route, (points,)


def prices_of(routes: list[Route], of_point: Ints, wires: Wires, libraries: Floats, groups: int) -> Prices:
    """Price the recipes of every kind of link, once a kind."""
    first, place_of = unique_rows([of_point, *wires], of_point.size)
    recipes, route = _flat(routes), of_point[first]
    first_price = np.concatenate([[0], np.cumsum(np.diff(recipes.first)[route])])
    latency, per_byte = np.full((2, first_price[-1], KINDS, ways_of(libraries)), np.inf)
    links = take(wires, first)
    _price(recipes, route, links, first_price, latency, per_byte)
    if libraries.size:
        _price_libraries(recipes, route, links, libraries, first_price, latency, per_byte)
    count = np.array([len(one.orders) for one in routes], dtype=np.int64)
    first_order = np.cumsum(count) - count
    return Prices(
        slots=np.concatenate([np.zeros((0, groups), dtype=np.int64), *(one.slots for one in routes)]),
        latency=latency,
        per_byte=per_byte,
        sent=recipes.sent,
        level=recipes.level,
        first_order=first_order[of_point],
        orders=count[of_point],
        first_price=first_price[:-1][place_of],
        first_recipe=recipes.first[:-1][of_point],
    )
