"""Exchanges of experts that send a token once to each machine (6.4).

An all-to-all sends a copy of a token for each expert that it chose. Megatron-core's `flex` dispatcher
(DeepEP, deepseek-ai/DeepEP; DeepSeek-V3, arXiv:2412.19437, section 3.2.2) sends it once to every machine
that has one of them, along the rail of the sender, and there on to every device that has one, over the
links of the machine; sums return along the same links. Both levels work at once. So of the copies, S bytes of
a rank, the share D(machines) / topk crosses between machines and D(devices) / topk within them, where D(n) is
the expected number of n equal parts of the experts that hold a token's choices.

A token chooses topk of the experts, any as likely as any other. Of models with groups of experts
(DeepSeek-V3, section 2.1.2; `n_group` and `topk_group` of a config.json) it chooses topk_groups of the
groups, and its experts among those.

Latency: a launch, and a step behind a fence on either level, as of the stores of `custom_all_reduce`. The
counts that ranks send each other first are left out, as they are of an all-to-all. Memory traffic is hidden
by the links.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import comb
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Floats, Inputs, Ints
from fastflow.physics.network.collectives.algorithms import HIERARCHICAL
from fastflow.physics.network.collectives.nccl import (
    INSIDE,
    LAUNCH,
    MACHINES,
    PAIRS0,
    PAIRS1,
    RANKS,
    SIMPLE0,
    SIMPLE1,
)
from fastflow.physics.network.cost_table import Wires
from fastflow.physics.network.routes import Route
from fastflow.physics.parallelism.defaults import sends_once
from fastflow.physics.parallelism.sharding.local_graph import CrossEdges
from fastflow.physics.workload.graph import ALL_TO_ALL, EXPERTS, Graph

ALGORITHM = HIERARCHICAL + 1
"""The algorithm that results name, of collectives.algorithms.CHOICES."""


class Routing(NamedTuple):
    """How tokens choose experts."""

    experts: int
    topk: int
    groups: int  # of experts; 1: no groups
    topk_groups: int  # that a token's experts are in


def _prob_no_expert(routing: Routing, first: int, last: int) -> float:
    """Return the chance that a token chooses none of the experts from `first` to before `last`."""
    group_size = routing.experts // routing.groups
    low, high = -(-first // group_size), last // group_size
    parts = [low * group_size - first, last - high * group_size] if low <= high else [last - first]
    parts, full_groups = [part for part in parts if part > 0], max(high - low, 0)
    group_choices = comb(routing.groups, routing.topk_groups)
    total_choices, probability = comb(routing.topk_groups * group_size, routing.topk), 0.0
    others = routing.groups - full_groups - len(parts)
    for subset in range(2 ** len(parts)):  # of the groups that are partly in the range
        partial = [part for bit, part in enumerate(parts) if subset >> bit & 1]
        for count in range(min(full_groups, routing.topk_groups - len(partial)) + 1):  # of those wholly in it
            other_groups = routing.topk_groups - len(partial) - count
            weight = comb(full_groups, count) * comb(others, other_groups)
            if weight:
                covered = sum(partial) + count * group_size
                probability += (
                    weight
                    / group_choices
                    * (comb(routing.topk_groups * group_size - covered, routing.topk) / total_choices)
                )
    return probability


@lru_cache(maxsize=4096)
def expected_parts(routing: Routing, parts: int) -> float:
    """Return the mean number of parts of the experts that hold the choices of a token.

    parts: equal parts of consecutive experts; where they do not divide the experts, as even as can be.
    """
    ends = [routing.experts * part // parts for part in range(parts + 1)]
    hits = (1.0 - _prob_no_expert(routing, low, high) for low, high in pairwise(ends))
    return float(sum(hits))


class Dispatch(NamedTuple):
    """The exchanges of experts of some points that send a token once to each machine."""

    rows: Ints  # kernels that may have a dispatch
    point: Ints  # of each of them
    recipe: Ints  # the first of each point's route, (points,)
    nccl_topology: Floats  # of every recipe, as nccl.NcclTopology, (recipes, ...)
    routing: Ints  # how the tokens of each of these kernels' layers choose experts
    shares: Floats  # of its copies, that go within and between machines, (routings, recipes, 2)
    wires: Wires
    fixed: Floats  # [s], (points,)


class DispatchTimes(NamedTuple):
    """Time and bytes of exchanges that send a token once to each machine; shape (exchanges,)."""

    rows: Ints  # kernels
    time: Floats  # of one launch [s]
    intra_bytes: Floats  # that a rank sends within machines, and between them [B]
    inter_bytes: Floats


def dispatch_of(
    inputs: Inputs, routes: list[Route], of_point: Ints, wires: Wires, libraries: Floats, graph: Graph
) -> Dispatch | None:
    """Return the exchanges of experts that send a token once to each machine, None where there are none.

    of_point: the route of every point; libraries: scalars that wires refer to. Others as `communicate`.
    """
    deduplicates = sends_once(inputs)
    nccl_topology = np.array([recipe.nccl_topology for route in routes for recipe in route.recipes])
    if not deduplicates.any() or not (nccl_topology.size and (nccl_topology[:, MACHINES] > 1.0).any()):
        return None
    rows = np.flatnonzero(deduplicates[graph.point] & (graph.layer.part == EXPERTS))
    first = np.cumsum([0, *(len(route.recipes) for route in routes)])[of_point]
    routing, shares = _shares(inputs, rows, graph, nccl_topology)
    fixed = _latency(wires, libraries)
    return Dispatch(rows, graph.point[rows], first, nccl_topology, routing, shares, wires, fixed)


def _shares(inputs: Inputs, rows: Ints, graph: Graph, nccl_topology: Floats) -> tuple[Ints, Floats]:
    """Return how the tokens of kernels choose experts, and which share of their copies goes where.

    As in Dispatch; rows: kernels of layers of experts. Kinds of layers may have experts of their own.
    """
    point = graph.point[rows]
    columns = [
        *expert_choices(rows, graph),
        *(inputs[f"model.{key}"][point] for key in ("expert_groups", "topk_groups")),
    ]
    first, inverse = unique_rows(columns, rows.size)
    shares = np.ones((first.size, len(nccl_topology), 2))
    for number, row in enumerate(first.tolist()):
        experts, topk, groups, topk_groups = (int(column[row]) for column in columns)
        routing = Routing(experts, topk, max(groups, 1), topk_groups if groups else 1)
        shares[number] = [
            [expected_parts(routing, int(group[name])) / topk for name in (RANKS, MACHINES)]
            for group in nccl_topology
        ]
    return inverse, shares


def expert_choices(rows: Ints, graph: Graph) -> tuple[Ints, Ints]:
    """Return the experts of the layers of kernels, and a token's choices among them, (rows,)."""
    _, layer = unique_rows([graph.point[rows], graph.layer.kind[rows]], rows.size)
    chosen = np.zeros((2, layer.max(initial=-1) + 1))  # of each layer; gradients do not say it
    for of_layer, name in zip(chosen, ("experts", "topk"), strict=True):
        np.maximum.at(of_layer, layer, graph.attributes[name][rows])
    experts, topk = chosen.astype(np.int64)[:, layer]
    return experts, topk


def _latency(wires: Wires, libraries: Floats) -> Floats:
    """Return the latency of an exchange: a launch, and a step on either level [s], (points,)."""
    latency = wires.overhead + wires.intra_latency + wires.inter_latency
    if not libraries.size:
        return latency
    scalars = libraries[np.maximum(wires.library, 0)]
    library_latency = scalars[:, LAUNCH] + scalars[:, SIMPLE0] + scalars[:, SIMPLE1]
    return np.where(wires.library >= 0, library_latency, latency)


def dispatch_times(dispatch: Dispatch, edges: CrossEdges, order_row: Ints, slots: Ints) -> DispatchTimes:
    """Return the exchanges of a kind that send a token once to each machine: those of several machines.

    order_row: the placement of every point, a row of slots; slots: as in Prices.
    """
    selected = np.flatnonzero(edges.collective[dispatch.rows] == ALL_TO_ALL)
    slot = slots[order_row[dispatch.point[selected]], edges.group[dispatch.rows[selected]]]
    recipe = dispatch.recipe[dispatch.point[selected]] + slot
    has_machines = (slot >= 0) & (dispatch.nccl_topology[recipe, MACHINES] > 1.0)
    selected, recipe = selected[has_machines], recipe[has_machines]
    rows, point, group = dispatch.rows[selected], dispatch.point[selected], dispatch.nccl_topology[recipe]
    size, share = edges.bytes[rows], dispatch.shares[dispatch.routing[selected], recipe]
    intra_bytes, inter_bytes = size * share[:, 0], size * share[:, 1]
    ranks = group[:, RANKS]
    with np.errstate(divide="ignore", invalid="ignore"):  # where nothing goes within machines
        intra_s = np.where(
            group[:, PAIRS0] > 0.0, intra_bytes * group[:, PAIRS0] / dispatch.wires.intra[point], 0.0
        )
        inter_s = inter_bytes * group[:, PAIRS1] / dispatch.wires.inter[point]
    return DispatchTimes(
        rows,
        time=dispatch.fixed[point] + np.maximum(intra_s, inter_s) / ranks,
        intra_bytes=intra_bytes * (1.0 - 1.0 / group[:, INSIDE]),
        inter_bytes=inter_bytes * (1.0 - 1.0 / group[:, MACHINES]),
    )
