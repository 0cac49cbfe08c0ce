"""Time of every cross-edge of a point on its network, under the best placement (5.2, 6.4).

A chip's links turn the recipes of a route into prices, seconds and seconds a byte, and a point's own
bytes turn prices into times. The order of placement with the least communication in all is taken, and
for every exchange the fastest algorithm, unless one is asked for and offered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import kinds, vocabulary
from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Inputs, Ints, Texts, take
from fastflow.physics.network.collectives.algorithms import CHOICES
from fastflow.physics.network.collectives.cost import KINDS, cheapest, price
from fastflow.physics.network.collectives.custom_all_reduce import (
    check_exchange,
    exchange_of,
    price_peers,
    ways_of,
)
from fastflow.physics.network.collectives.nccl import check_choice, price_library
from fastflow.physics.network.cost_table import Prices, Wires, prices_of
from fastflow.physics.network.exposed import waits_of
from fastflow.physics.network.moe_dispatch import WAY, Dispatch, dispatch_of, sent_once
from fastflow.physics.network.routes import Route, neighbours, routes_of
from fastflow.physics.parallelism.defaults import sums_each_microbatch
from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.pipeline import Pipeline
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.local_graph import CrossEdges, Supergraph
from fastflow.physics.parallelism.sharding.partition import all_launches
from fastflow.physics.parallelism.strategy import Strategies
from fastflow.physics.schedule.layer_times import Waits
from fastflow.physics.workload.graph import NO_EXCHANGE, Graph


class Exchanges(NamedTuple):
    """Time of the cross-edges of every kernel, of one micro-batch; shape (kernels,)."""

    sync_s: Floats  # of one launch, waited for [s]
    sync_level: Ints  # 0 within the package, 1 between packages
    sync_by: Ints  # algorithm, of collectives.algorithms.CHOICES
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


class _Edges(NamedTuple):
    """One kind of cross-edge of all points, timed; shape (kernels,)."""

    time: Floats  # of one launch [s]
    by: Ints  # algorithm, of collectives.algorithms.CHOICES; 0 for none
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
    prices: Prices,
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
    sums: Ints,
    order_row: Ints,
    wanted: Ints,
    prices: Prices,
    dispatch: Dispatch | None,
) -> _Timed:
    """Time every cross-edge of every point under the orders given, rows of prices.slots, (points,).

    sums: how often every kernel's gradients are summed in an iteration, (kernels,); dispatch: exchanges of
    experts that are no collectives.
    """
    sent = np.zeros((2, wanted.size))

    once = np.ones_like(launches)
    nothing = _Edges(np.zeros(once.size), np.zeros_like(once), once)

    def timed(edges: CrossEdges, collective: Ints, often: Ints) -> _Edges:
        if not collective.any():
            return nothing
        direct = None
        if dispatch is not None and edges is not shards.relayout:
            direct = sent_once(dispatch, edges, order_row, prices.slots)
            collective = collective.copy()
            collective[direct.rows] = NO_EXCHANGE
        result = _time_edges(
            graph.offset, collective, edges.bytes, edges.group, often, order_row, wanted, prices, sent
        )
        if direct is not None:
            result.time[direct.rows], result.by[direct.rows] = direct.time, WAY
            for level, moved in enumerate((direct.within, direct.between)):
                np.add.at(sent[level], graph.point[direct.rows], often[direct.rows] * moved)
        return result

    crossing, crossed = shards.send.collective, once
    if crossing.any():
        crossing = np.where(pipe.crosses > 0, crossing, NO_EXCHANGE)
        crossed = graph.repeat * pipe.microbatches[graph.point] * pipe.crosses
    fetches = launches
    if shards.fetch.collective.any():  # once for what is computed again and the backward pass
        fetches = all_launches(graph, pipe.microbatches)
    each = [fetches if edges is shards.fetch else launches for edges in shards.syncs]
    syncs = [timed(edges, edges.collective, often) for edges, often in zip(shards.syncs, each, strict=True)]
    gradient = timed(shards.gradient, shards.gradient.collective, sums)
    replicas = timed(shards.replicas, shards.replicas.collective, sums)
    if replicas is not nothing:
        gradient = _in_turn([gradient, replicas])
    send = timed(shards.send, crossing, crossed)
    spent = sums * gradient.time
    for edges, often in zip(syncs, each, strict=True):
        spent = spent if edges is nothing else spent + often * edges.time
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

    inputs: columns of `system`, `placement`, `parallel` and `model`; libraries: that wires refer to; launches
    of every kernel in an iteration, shape (kernels,), as graph and shards; the others of shape (points,).
    """
    routes, of_point = routes_of(inputs, strategies, layouts, shards.groups)
    prices = prices_of(
        routes, of_point, wires, libraries, layouts.assignment.shape[1] * len(shards.groups.sets)
    )
    names, place_of = vocabulary(inputs["system.collective"])
    wanted = np.array([CHOICES.index(name) - 1 for name in names], dtype=np.int64)[place_of]

    each, sums = sums_each_microbatch(inputs, strategies.lp), graph.times
    if each.any():
        sums = sums * np.where(each, pipe.microbatches, 1)[graph.point]
    first = best_row = prices.first_order
    dispatch = dispatch_of(inputs, routes, of_point, wires, libraries, graph)
    best = _time_all(graph, shards, pipe, launches, sums, first, wanted, prices, dispatch)
    least = best.total
    for number in range(1, int(prices.orders.max(initial=1))):
        row = first + np.minimum(number, prices.orders - 1)
        total = _time_all(graph, shards, pipe, launches, sums, row, wanted, prices, dispatch).total
        best_row, least = np.where(total < least, row, best_row), np.minimum(total, least)
    if (best_row != first).any():
        best = _time_all(graph, shards, pipe, launches, sums, best_row, wanted, prices, dispatch)

    syncs, gradient, send, total, sent = best
    waits = None
    if pipe.chunks is not None:
        waited = [(one.time, one.level) for one in best.syncs]
        summed = np.where(each[graph.point], gradient.time, 0.0)
        waits = waits_of(graph, shards, waited, summed, layouts.assignment.shape[1])
    sync = _in_turn(syncs)
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


def _in_turn(edges: list[_Edges]) -> _Edges:
    """Return exchanges that take their turns as one; that which takes longest says by which network."""
    found, *others = edges
    longest = found.time
    for other in others:
        longer = other.time > longest
        longest = np.where(longer, other.time, longest)
        found = _Edges(
            time=found.time + other.time,
            by=np.where(longer, other.by, found.by),
            level=np.where(longer, other.level, found.level),
        )
    return found


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
    library = str(inputs["system.library"][0])
    check_choice(library, name)
    check_exchange(library, str(exchange_of(inputs)[0]))
    wanted = CHOICES.index(name) - 1
    intra, inter, latency0, latency1, memory, overhead = (float(column[0]) for column in wires[:-1])
    time = np.empty(size.size)
    for among in np.unique(ranks):
        made = neighbours(inputs, int(among))
        latency, per_byte = np.empty((2, 1, KINDS, ways_of(libraries)))
        if libraries.size:
            price_library(made.spread, libraries[0], intra, inter, memory, latency[0], per_byte[0])
            price_peers(made.spread, libraries[0], intra, latency[0], per_byte[0])
        else:
            price(
                made.offered, made.offset, made.phases,
                intra, inter, latency0, latency1, memory, overhead, latency[0], per_byte[0],
            )  # fmt: skip
        for i in np.flatnonzero(ranks == among):
            time[i], _ = cheapest(latency, per_byte, 0, collective, size[i], wanted)
    return time
