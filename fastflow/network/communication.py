"""Time of every cross-edge of a point on its network, under the best placement (5.2, 6.4).

A chip's links turn the recipes of a route into prices, seconds and seconds a byte, and a point's own
bytes turn prices into times. The order of placement with the least communication in all is taken, and
for every exchange the fastest algorithm, unless one is asked for and offered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow._jit import kernel
from fastflow.columns import ALGORITHMS
from fastflow.distinct import kinds, vocabulary
from fastflow.iteration.layers import CONTEXT, EXPERT, TENSOR, WAITS, WEIGHTS, Waits
from fastflow.network.algorithms import WAYS
from fastflow.network.collectives import KINDS, LOAD1, TOUCHED, cheapest, price
from fastflow.network.nccl import ALL_WAYS, Spread, check_choice, price_library
from fastflow.network.routes import Route, neighbours, routes_of
from fastflow.parallelism.layout import Layouts
from fastflow.parallelism.mesh import AXES
from fastflow.parallelism.mesh import axes as axes_of
from fastflow.parallelism.shards import CrossEdges, Supergraph
from fastflow.parallelism.stages import Pipeline
from fastflow.parallelism.strategy import Strategies
from fastflow.tables import Bools, Floats, Inputs, Ints, Texts, take
from fastflow.workload.graph import ALL_TO_ALL, EXPERTS, NO_EXCHANGE, Graph


class Wires(NamedTuple):
    """Bandwidth and latency of a device's links and memory, for its collectives; shape (points,)."""

    intra: Floats  # one direction, within the package [B/s]
    inter: Floats  # one direction, between packages [B/s]
    intra_latency: Floats  # of a hop [s]
    inter_latency: Floats
    memory: Floats  # that reductions read and write [B/s]
    overhead: Floats  # of calling a collective [s]
    library: Ints  # row of its scalars, -1 for none: collectives are the paper's algorithms


class Exchanges(NamedTuple):
    """Time of the cross-edges of every kernel, of one micro-batch; shape (kernels,)."""

    sync_s: Floats  # of one launch, waited for [s]
    sync_level: Ints  # 0 within the package, 1 between packages
    sync_by: Ints  # algorithm, of columns.ALGORITHMS
    gradient_s: Floats  # once an iteration; may overlap with later kernels [s]
    gradient_level: Ints
    gradient_by: Ints
    send_s: Floats  # of one launch, to the neighbouring stage [s]
    send_level: Ints


class Communication(NamedTuple):
    """Communication of every point; shape (points,) but for `exchanges`."""

    exchanges: Exchanges
    order: Texts  # the placement, by name
    total: Floats  # of a device of the pipeline stage that communicates most, in an iteration [s]
    sent: tuple[Floats, Floats]  # within packages and between them, of all stages [B]
    bandwidth: Floats  # of a device to its neighbours along each axis [B/s], (points, axes)
    hops: Ints  # to them, (points, axes)
    waits: Waits | None  # what kernels wait for, by what it is for, where layers stand for several


class _Recipes(NamedTuple):
    """Recipes one after the other, of all routes; those of route r are first[r] to first[r + 1]."""

    first: Ints  # (routes + 1,)
    offered: Bools  # (recipes, collectives, algorithms)
    sent: Floats  # (recipes, collectives, nccl.ALL_WAYS)
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
        for which in range(first[link + 1] - first[link]):
            one, at = recipes.first[route[link]] + which, first[link] + which
            price(
                recipes.offered[one], recipes.offset[one], recipes.phases,
                wires.intra[link], wires.inter[link], wires.intra_latency[link], wires.inter_latency[link],
                wires.memory[link], wires.overhead[link], latency[at], per_byte[at],
            )  # fmt: skip


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

    libraries: scalars as nccl.KEYS, a row each.
    """
    for link in range(route.size):
        if wires.library[link] >= 0:
            for which in range(first[link + 1] - first[link]):
                one, at = recipes.first[route[link]] + which, first[link] + which
                price_library(
                    recipes.spread[one], libraries[wires.library[link]],
                    wires.intra[link], wires.inter[link], wires.memory[link], latency[at], per_byte[at],
                )  # fmt: skip


class _Prices(NamedTuple):
    """Cost of each collective, by point."""

    slots: Ints  # recipe of every group counted from its route's first, -1 for none, (orders, groups)
    latency: Floats  # [s], (prices, collectives, ways)
    per_byte: Floats  # [s/B]
    sent: Floats  # share of the tensor, of every recipe, (recipes, collectives, nccl.ALL_WAYS)
    level: Ints  # of every recipe
    first_order: Ints  # of each point's route, (points,)
    orders: Ints  # how many, (points,)
    first_price: Ints  # of each point's network, (points,)
    first_recipe: Ints  # of each point's route, (points,)


def _ways(libraries: Floats) -> int:
    """Return how many ways are priced: NCCL's too, where anyone has it."""
    return ALL_WAYS if libraries.size else WAYS


def _prices(routes: list[Route], of_point: Ints, wires: Wires, libraries: Floats, groups: int) -> _Prices:
    """Price the recipes of every kind of link, once a kind."""
    first, place_of = kinds([of_point, *wires], of_point.size)
    recipes, route = _flat(routes), of_point[first]
    first_price = np.concatenate([[0], np.cumsum(np.diff(recipes.first)[route])])
    latency, per_byte = np.full((2, first_price[-1], KINDS, _ways(libraries)), np.inf)
    links = take(wires, first)
    _price(recipes, route, links, first_price, latency, per_byte)
    if libraries.size:
        _price_libraries(recipes, route, links, libraries, first_price, latency, per_byte)
    count = np.array([len(one.orders) for one in routes], dtype=np.int64)
    first_order = np.cumsum(count) - count
    return _Prices(
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


class _Edges(NamedTuple):
    """One kind of cross-edge of all points, timed; shape (kernels,)."""

    time: Floats  # of one launch [s]
    by: Ints  # algorithm, of columns.ALGORITHMS; 0 for none
    level: Ints


@kernel
def _time_edges(
    offset: Ints,
    collective: Ints,
    size: Floats,
    group: Ints,
    often: Ints,
    order_row: Ints,
    wanted: Ints,
    prices: _Prices,
    sent: Floats,
) -> _Edges:
    """Time every cross-edge of a kind, by the algorithm that is wanted and offered, or by the fastest.

    often: launches of every kernel in an iteration. Adds to what a point sends on either level [B],
    (2, points).
    """
    time, by = np.zeros(collective.size), np.zeros(collective.size, dtype=np.int64)
    level = np.ones(collective.size, dtype=np.int64)
    slots, latency, per_byte = prices.slots, prices.latency, prices.per_byte
    for p in range(offset.size - 1):
        order, first, recipe = order_row[p], prices.first_price[p], prices.first_recipe[p]
        for row in range(offset[p], offset[p + 1]):
            what = collective[row]
            if what == NO_EXCHANGE or slots[order, group[row]] < 0:
                continue
            slot = slots[order, group[row]]
            time[row], way = cheapest(latency, per_byte, first + slot, what, size[row], wanted[p])
            by[row], level[row] = way + 1, prices.level[recipe + slot]
            sent[level[row], p] += often[row] * prices.sent[recipe + slot, what, way] * size[row]
    return _Edges(time, by, level)


class _Timed(NamedTuple):
    """All cross-edges under one order a point."""

    syncs: list[_Edges]  # those that a launch waits for
    gradient: _Edges
    send: _Edges
    total: Floats  # of the stage that communicates most, in an iteration [s], (points,)
    sent: Floats  # of all stages in an iteration, on either level [B], (2, points)


def _time_all(
    graph: Graph,
    shards: Supergraph,
    pipe: Pipeline,
    launches: Ints,
    order_row: Ints,
    wanted: Ints,
    prices: _Prices,
) -> _Timed:
    """Time every cross-edge of every point under the orders given, rows of prices.slots, (points,)."""
    sent = np.zeros((2, wanted.size))

    once = np.ones_like(launches)
    nothing = _Edges(np.zeros(once.size), np.zeros_like(once), once)

    def timed(edges: CrossEdges, collective: Ints, often: Ints) -> _Edges:
        if not collective.any():
            return nothing
        return _time_edges(
            graph.offset, collective, edges.bytes, edges.group, often, order_row, wanted, prices, sent
        )

    crossing, crossed = shards.send.collective, once
    if crossing.any():
        crossing = np.where(pipe.crosses > 0, crossing, NO_EXCHANGE)
        crossed = graph.repeat * pipe.microbatches[graph.point] * pipe.crosses
    syncs = [timed(edges, edges.collective, launches) for edges in shards.syncs]
    gradient = timed(shards.gradient, shards.gradient.collective, graph.times)
    send = timed(shards.send, crossing, crossed)
    waited = syncs[0].time
    for edges in syncs[1:]:
        waited = waited if edges is nothing else waited + edges.time
    spent = launches * waited + graph.times * gradient.time
    if send is not nothing:
        spent = spent + crossed * send.time
    total = pipe.most_of_a_stage(graph, spent)
    return _Timed(syncs=syncs, gradient=gradient, send=send, total=total, sent=sent)


def communicate(
    inputs: Inputs,
    wires: Wires,
    libraries: Floats,
    graph: Graph,
    shards: Supergraph,
    pipe: Pipeline,
    launches: Ints,
    strategies: Strategies,
    layouts: Layouts,
) -> Communication:
    """Place every point on its network, and time its cross-edges.

    inputs: columns of `system` and `placement`; libraries: that wires refer to; launches of every kernel in
    an iteration, shape (kernels,), as graph and shards; the others of shape (points,).
    """
    routes, of_point = routes_of(inputs, strategies, layouts, shards.groups)
    prices = _prices(
        routes, of_point, wires, libraries, layouts.assignment.shape[1] * len(shards.groups.sets)
    )
    names, place_of = vocabulary(inputs["system.collective"])
    wanted = np.array([ALGORITHMS.index(name) - 1 for name in names], dtype=np.int64)[place_of]

    first = best_row = prices.first_order
    best = _time_all(graph, shards, pipe, launches, first, wanted, prices)
    least = best.total
    for number in range(1, int(prices.orders.max(initial=1))):
        row = first + np.minimum(number, prices.orders - 1)
        total = _time_all(graph, shards, pipe, launches, row, wanted, prices).total
        best_row, least = np.where(total < least, row, best_row), np.minimum(total, least)
    if (best_row != first).any():
        best = _time_all(graph, shards, pipe, launches, best_row, wanted, prices)

    (sync, *others), gradient, send, total, sent = best
    waits = None if pipe.chunks is None else _waits(graph, shards, best.syncs, layouts.assignment.shape[1])
    longest = sync.time
    for other in others:  # they take their turns; the one that takes longest says by which network
        longer = other.time > longest
        longest = np.where(longer, other.time, longest)
        sync = _Edges(
            time=sync.time + other.time,
            by=np.where(longer, other.by, sync.by),
            level=np.where(longer, other.level, sync.level),
        )
    exchanges = Exchanges(
        sync_s=sync.time,
        sync_level=sync.level,
        sync_by=sync.by,
        gradient_s=gradient.time,
        gradient_level=gradient.level,
        gradient_by=gradient.by,
        send_s=send.time,
        send_level=send.level,
    )
    whom, place = kinds([of_point, best_row - first, wires.intra, wires.inter], of_point.size)
    bandwidth, hops = take(_neighbours(routes, *take((of_point, best_row - first, wires), whom)), place)
    orders = np.array([name for one in routes for name in one.orders], dtype=np.str_)
    return Communication(
        exchanges=exchanges,
        order=orders[best_row],
        total=total,
        sent=(sent[0], sent[1]),
        bandwidth=bandwidth,
        hops=hops,
        waits=waits,
    )


def _waits(graph: Graph, shards: Supergraph, syncs: list[_Edges], columns: int) -> Waits:
    """Return what kernels wait for by what it is for; columns: of the layouts."""
    count = shards.m.size
    time, longest = np.zeros((len(WAITS), count)), np.zeros(count)
    level, collective = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    ranks = np.ones(count, dtype=np.int64)
    purpose = np.array([_purpose(one) for one in shards.groups.sets], dtype=np.int64)
    for edges, timed in zip(shards.syncs, syncs, strict=True):
        kind = purpose[edges.group // columns]
        if edges is shards.fetch:
            kind[:] = WEIGHTS
        elif edges is not shards.relayout:
            turned = (edges.collective == ALL_TO_ALL) & ((kind != CONTEXT) | (graph.part == EXPERTS))
            kind[turned] = EXPERT
        time[kind, np.arange(count)] += timed.time
        longer = timed.time > longest
        longest = np.where(longer, timed.time, longest)
        level, ranks = np.where(longer, timed.level, level), np.where(longer, edges.ranks, ranks)
        collective = np.where(longer, edges.collective, collective)
    return Waits(time, level, ranks, collective)


def _purpose(axes: int) -> int:
    """Return what an exchange along a set of axes is for."""
    if axes == axes_of("cp"):
        return CONTEXT
    return EXPERT if axes & axes_of("ep") else TENSOR


def _neighbours(routes: list[Route], of_point: Ints, order: Ints, wires: Wires) -> tuple[Floats, Ints]:
    """Return bandwidth [B/s] and hops to the neighbours along every axis, (points, axes).

    order: of each point, counted from its route's first. Without neighbours: NaN and 0.
    """
    most = max((len(one.orders) for one in routes), default=1)
    load, hops = np.zeros((2, len(routes), most, len(AXES), 2))
    for number, one in enumerate(routes):
        load[number, : len(one.orders)], hops[number, : len(one.orders)] = one.load, one.hops
    used = load[of_point, order]
    links = np.stack([wires.intra, wires.inter], axis=1)[:, None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        of_level = np.where(used > 0.0, links / used, np.inf)
    bandwidth = of_level.min(axis=2)
    return np.where(np.isinf(bandwidth), np.nan, bandwidth), hops[of_point, order].sum(axis=2).astype(
        np.int64
    )


def collective_times(
    inputs: Inputs, wires: Wires, libraries: Floats, collective: int, size: Floats, ranks: Ints
) -> Floats:
    """Return the time of collectives among the first `ranks` devices of a system [s], shape (collectives,).

    inputs, wires: of one point; libraries: that wires refer to; size [B], ranks: shape (collectives,).
    Raises InputError for no network, or for an algorithm asked of a library.
    """
    name = str(inputs["system.collective"][0])
    check_choice(str(inputs["system.library"][0]), name)
    wanted = ALGORITHMS.index(name) - 1
    intra, inter, latency0, latency1, memory, overhead = (float(column[0]) for column in wires[:-1])
    time = np.empty(size.size)
    for among in np.unique(ranks):
        made = neighbours(inputs, int(among))
        latency, per_byte = np.empty((2, 1, KINDS, _ways(libraries)))
        if libraries.size:
            price_library(made.spread, libraries[0], intra, inter, memory, latency[0], per_byte[0])
        else:
            price(
                made.offered, made.offset, made.phases,
                intra, inter, latency0, latency1, memory, overhead, latency[0], per_byte[0],
            )  # fmt: skip
        for i in np.flatnonzero(ranks == among):
            time[i], _ = cheapest(latency, per_byte, 0, collective, size[i], wanted)
    return time
