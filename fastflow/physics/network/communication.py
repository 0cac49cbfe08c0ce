"""Time of every cross-edge of a point on its network, under the best placement (5.2, 6.4).

A chip's links turn the recipes of a route into prices, seconds and seconds a byte, and a point's bytes
turn prices into times. The placement order with the least communication time is taken, and for every
collective the fastest algorithm, unless the point requests one that is offered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize, unique_rows
from fastflow.core.jit import kernel
from fastflow.core.tables import Floats, Inputs, Ints, Texts
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.network.buckets import Messages, messages_of
from fastflow.physics.network.collectives.algorithms import number_of
from fastflow.physics.network.collectives.cost import cheapest
from fastflow.physics.network.cost_table import Prices, Wires, prices_of, wires_of
from fastflow.physics.network.expert_exchanges import (
    ExpertExchanges,
    gather_tokens,
    gathered_of,
    sort_times,
    sorted_of,
)
from fastflow.physics.network.exposed import waits_of
from fastflow.physics.network.moe_dispatch import ALGORITHM, dispatch_of, dispatch_times
from fastflow.physics.network.routes import Route, routes_of
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
    waits: Waits | None  # exposed communication of kernels by purpose, of graphs with layer runs


class _Edges(NamedTuple):
    """One kind of cross-edge of all points, timed; shape (kernels,)."""

    time: Floats  # of one launch [s]
    by: Ints  # algorithm, of collectives.algorithms.CHOICES; 0 for none
    level: Ints


class _Traffic(NamedTuple):
    """Collectives of one kind of cross-edge; shape (kernels,)."""

    collective: Ints
    bytes: Floats
    message: Floats  # of which these bytes are a part, and take their share of its time [B]
    group: Ints
    times: Ints  # launches in an iteration


@kernel
def _time_edges(
    offset: Ints, traffic: _Traffic, order_row: Ints, requested: Ints, prices: Prices, sent: Floats
) -> _Edges:
    """Time every cross-edge of a kind, by the requested algorithm where it is offered, else by the fastest.

    Adds the bytes that a point sends on either level to `sent` [B], (2, points).
    """
    kernels = traffic.collective.size
    time, by = np.zeros(kernels), np.zeros(kernels, dtype=np.int64)
    level = np.ones(kernels, dtype=np.int64)
    slots, latency, per_byte = prices.slots, prices.latency, prices.per_byte
    for p in range(offset.size - 1):
        order, first, recipe = order_row[p], prices.first_price[p], prices.first_recipe[p]
        for row in range(offset[p], offset[p + 1]):
            collective, size = traffic.collective[row], traffic.bytes[row]
            if collective == NO_EXCHANGE or slots[order, traffic.group[row]] < 0:
                continue
            slot = slots[order, traffic.group[row]]
            message = traffic.message[row]
            time[row], algorithm = cheapest(
                latency, per_byte, first + slot, collective, message, requested[p]
            )
            if message > size:
                time[row] *= size / message
            by[row], level[row] = algorithm + 1, prices.level[recipe + slot]
            sent[level[row], p] += (
                traffic.times[row] * prices.sent[recipe + slot, collective, algorithm] * size
            )
    return _Edges(time, by, level)


class _Network(NamedTuple):
    """The cross-edges of all points, and their cost under every placement order."""

    graph: Graph
    shards: Supergraph
    pipe: Pipeline
    sums: Ints  # how often every kernel's gradients are summed in an iteration, (kernels,)
    requested: Ints  # requested algorithm, less 1, (points,)
    send: tuple[Ints, Ints]  # of edges to other stages: collective and launches, (kernels,)
    prices: Prices
    experts: ExpertExchanges
    messages: Messages


class _Timed(NamedTuple):
    """All cross-edges, under one placement order of each point."""

    syncs: list[_Edges]  # those that a launch waits for
    gradient: _Edges
    send: _Edges
    total: Floats  # of the stage that communicates most, in an iteration [s], (points,)
    sent: Floats  # of all stages in an iteration, on either level [B], (2, points)


def _time_kind(
    network: _Network,
    order_row: Ints,
    edges: CrossEdges,
    collective: Ints,
    times: Ints,
    sent: Floats,
    message: Floats | None = None,
) -> _Edges | None:
    """Time one kind of cross-edge under one order a point; None where no kernel has any.

    collective, times (in an iteration), message: of every kernel; None: each tensor is a message. Adds the
    bytes of points to `sent`, (2, points).
    """
    if not collective.any():
        return None
    # the exchange between two layouts brings no rows to experts
    experts = ExpertExchanges() if edges is network.shards.relayout else network.experts
    dispatched, size = None, edges.bytes
    if experts.gathered is not None:
        collective, size = gather_tokens(experts.gathered, collective, size)
    if experts.dispatch is not None:
        dispatched = dispatch_times(experts.dispatch, edges, order_row, network.prices.slots)
        collective = collective.copy()
        collective[dispatched.rows] = NO_EXCHANGE
    message = size if message is None else message
    traffic = _Traffic(collective, size, message, edges.group, times)
    timed = _time_edges(network.graph.offset, traffic, order_row, network.requested, network.prices, sent)
    if experts.sorted is not None:
        timed.time[experts.sorted.rows] += sort_times(experts.sorted, edges)
    if dispatched is not None:
        timed.time[dispatched.rows], timed.by[dispatched.rows] = dispatched.time, ALGORITHM
        for level, level_bytes in enumerate((dispatched.intra_bytes, dispatched.inter_bytes)):
            np.add.at(sent[level], network.graph.point[dispatched.rows], times[dispatched.rows] * level_bytes)
    return timed


def _time_all(network: _Network, order_row: Ints) -> _Timed:
    """Time every cross-edge of every point under some orders, rows of prices.slots, (points,)."""
    graph, shards, pipe, sums = network.graph, network.shards, network.pipe, network.sums
    sent = np.zeros((2, network.requested.size))
    zeros = np.zeros_like(pipe.launches)
    no_edges = _Edges(np.zeros(zeros.size), zeros, np.ones_like(zeros))
    wait_s, syncs = [], []
    for edges in shards.syncs:
        # weights are gathered once for recomputation and the backward pass
        is_fetch = edges is shards.fetch
        times = all_launches(graph, pipe.microbatches) if is_fetch else pipe.launches
        message = network.messages.weights if is_fetch else None
        timed = _time_kind(network, order_row, edges, edges.collective, times, sent, message)
        syncs.append(timed or no_edges)
        wait_s += [times * timed.time] if timed else []
    gradient = _time_kind(
        network, order_row, shards.gradient, shards.gradient.collective, sums, sent,
        network.messages.gradients,
    )  # fmt: skip
    replicas = _time_kind(network, order_row, shards.replicas, shards.replicas.collective, sums, sent)
    gradient = _sequential([gradient or no_edges, replicas]) if replicas else gradient or no_edges
    total_s = sum(wait_s, start=sums * gradient.time)
    send = _time_kind(network, order_row, shards.send, *network.send, sent)
    if send:
        total_s = total_s + network.send[1] * send.time
    total = pipe.max_stage_sum(graph, total_s)
    return _Timed(syncs=syncs, gradient=gradient, send=send or no_edges, total=total, sent=sent)


def _time_best(network: _Network) -> tuple[_Timed, Ints]:
    """Time every cross-edge under the order of each point that communicates least, and return its row."""
    first = best_row = network.prices.first_order
    timed = _time_all(network, first)
    least_s, orders = timed.total, network.prices.orders
    for index in range(1, int(orders.max(initial=1))):
        row = first + np.minimum(index, orders - 1)
        total = _time_all(network, row).total
        best_row, least_s = np.where(total < least_s, row, best_row), np.minimum(total, least_s)
    if (best_row != first).any():
        timed = _time_all(network, best_row)
    return timed, best_row


def communicate(
    inputs: Inputs,
    chip: Chip,
    graph: Graph,
    shards: Supergraph,
    pipe: Pipeline,
    strategies: Strategies,
    layouts: Layouts,
) -> Communication:
    """Place every point on its network, and time its cross-edges.

    inputs: columns of `system`, `net`, `placement`, `parallel` and `model`.
    """
    wires, libraries = wires_of(inputs, chip)
    routes, of_point = routes_of(inputs, strategies, layouts, shards.groups)
    columns = layouts.assignment.shape[1]
    prices = prices_of(routes, of_point, wires, libraries, columns * len(shards.groups.sets))
    per_microbatch = sums_each_microbatch(inputs, strategies.pp)
    sums = graph.launches.times
    if per_microbatch.any():
        sums = sums * np.where(per_microbatch, pipe.microbatches, 1)[graph.point]
    network = _Network(
        graph=graph,
        shards=shards,
        pipe=pipe,
        sums=sums,
        requested=_requested_algorithms(inputs),
        send=_sends(graph, shards, pipe),
        prices=prices,
        experts=ExpertExchanges(
            dispatch=dispatch_of(inputs, routes, of_point, wires, libraries, graph),
            gathered=gathered_of(inputs, strategies.experts, graph),
            sorted=sorted_of(inputs, strategies.experts, chip, graph),
        ),
        messages=messages_of(inputs, graph, shards, strategies.pp),
    )
    timed, order_row = _time_best(network)
    waits = None
    if pipe.chunks is not None:
        summed = np.where(per_microbatch[graph.point], timed.gradient.time, 0.0)
        waits = waits_of(graph, shards, [(edges.time, edges.level) for edges in timed.syncs], summed, columns)
    bandwidth, hops = _neighbour_links(routes, of_point, order_row - prices.first_order, wires)
    orders = np.array([name for route in routes for name in route.orders], dtype=np.str_)
    return Communication(
        exchanges=_by_consumer(timed),
        order=orders[order_row],
        total=timed.total,
        sent=(timed.sent[0], timed.sent[1]),
        bandwidth=bandwidth,
        hops=hops,
        waits=waits,
    )


def _sends(graph: Graph, shards: Supergraph, pipe: Pipeline) -> tuple[Ints, Ints]:
    """Return the collective that sends every kernel's output to another stage, and how often."""
    collective = shards.send.collective
    if not collective.any():
        return collective, collective
    times = graph.launches.repeat * pipe.microbatches[graph.point] * pipe.crosses
    return np.where(pipe.crosses > 0, collective, NO_EXCHANGE), times


def _requested_algorithms(inputs: Inputs) -> Ints:
    """Return the algorithm that every point requests, as `cheapest` takes it, (points,)."""
    names, inverse = factorize(inputs["system.collective"])
    return np.array([number_of(name) for name in names], dtype=np.int64)[inverse]


def _by_consumer(timed: _Timed) -> Exchanges:
    """Return the time of cross-edges by their consumer; those that a launch waits for run in sequence."""
    sync, gradient, send = _sequential(timed.syncs), timed.gradient, timed.send
    return Exchanges(
        sync_s=sync.time,
        sync_level=sync.level,
        sync_by=sync.by,
        gradient_s=gradient.time,
        gradient_level=gradient.level,
        gradient_by=gradient.by,
        send_s=send.time,
        send_level=send.level,
    )


def _sequential(edges: list[_Edges]) -> _Edges:
    """Return the sum of collectives that run in sequence; level and algorithm are those of the longest."""
    total, *others = edges
    longest = total.time
    for other in others:
        longer = other.time > longest
        longest = np.where(longer, other.time, longest)
        total = _Edges(
            time=total.time + other.time,
            by=np.where(longer, other.by, total.by),
            level=np.where(longer, other.level, total.level),
        )
    return total


def _neighbour_links(routes: list[Route], of_point: Ints, order: Ints, wires: Wires) -> tuple[Floats, Ints]:
    """Return bandwidth [B/s] and hops to the neighbours along every axis, (points, axes).

    order: of each point, counted from its route's first. Without neighbours: NaN and 0.
    """
    first, inverse = unique_rows([of_point, order, wires.intra, wires.inter], of_point.size)
    max_orders = max((len(route.orders) for route in routes), default=1)
    load, hops = np.zeros((2, len(routes), max_orders, len(AXES), 2))
    for number, route in enumerate(routes):
        load[number, : len(route.orders)], hops[number, : len(route.orders)] = route.load, route.hops
    used = load[of_point[first], order[first]]
    links = np.stack([wires.intra[first], wires.inter[first]], axis=1)[:, None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        of_level = np.where(used > 0.0, links / used, np.inf)
    bandwidth = of_level.min(axis=2)
    bandwidth = np.where(np.isinf(bandwidth), np.nan, bandwidth)
    return bandwidth[inverse], hops[of_point[first], order[first]].sum(axis=2).astype(np.int64)[inverse]
