"""Exchanges of experts that send a token once to each machine (6.4).

An all-to-all sends a copy of a token for each expert that it chose. Megatron-core's `flex` dispatcher
(DeepEP, deepseek-ai/DeepEP; DeepSeek-V3, arXiv:2412.19437, section 3.2.2) sends it once to every machine
that has one of them, along the rail of the sender, and there on to every device that has one, over the
links of the machine; sums come back the same way. Both levels work at once. So of the copies, S bytes of a
rank, the share D(machines) / topk crosses between machines and D(devices) / topk within them, where D(n) is
the expected number of n equal parts of the experts in which the choices of a token lie.

A token chooses topk of the experts, any as likely as any other. Of models with groups of experts
(DeepSeek-V3, section 2.1.2; `n_group` and `topk_group` of a config.json) it chooses topk_groups of the
groups, and its experts among those.

Latency: a launch, and a step behind a fence on either level, as of `peer`'s stores. The counts that ranks
send each other first are left out, as they are of an all-to-all. Memory traffic is hidden by the links.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import comb
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.tables import Bools, Floats, Inputs, Ints
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

WAY = HIERARCHICAL + 1
"""The algorithm that results name, of collectives.algorithms.CHOICES."""


class Routing(NamedTuple):
    """How tokens choose experts."""

    experts: int
    topk: int
    groups: int  # of experts; 1: no groups
    topk_groups: int  # that a token's experts are in


def _missed(routing: Routing, first: int, last: int) -> float:
    """Return the chance that a token chooses none of the experts from `first` to before `last`."""
    each = routing.experts // routing.groups
    low, high = -(-first // each), last // each
    parts = [low * each - first, last - high * each] if low <= high else [last - first]
    parts, whole = [part for part in parts if part > 0], max(high - low, 0)
    every = comb(routing.groups, routing.topk_groups)
    among, missed = comb(routing.topk_groups * each, routing.topk), 0.0
    others = routing.groups - whole - len(parts)
    for chosen in range(2 ** len(parts)):  # of the groups that are here in part
        some = [part for at, part in enumerate(parts) if chosen >> at & 1]
        for count in range(min(whole, routing.topk_groups - len(some)) + 1):  # and of those wholly here
            left = routing.topk_groups - len(some) - count
            weight = comb(whole, count) * comb(others, left)
            if weight:
                here = sum(some) + count * each
                missed += weight / every * (comb(routing.topk_groups * each - here, routing.topk) / among)
    return missed


@lru_cache(maxsize=4096)
def expected_parts(routing: Routing, parts: int) -> float:
    """Return in how many of so many equal parts of the experts the choices of a token lie, on average.

    Parts are of experts that follow each other; where they do not divide the experts, as even as can be.
    """
    ends = [routing.experts * part // parts for part in range(parts + 1)]
    each = (1.0 - _missed(routing, low, high) for low, high in pairwise(ends))
    return float(sum(each))


class Dispatch(NamedTuple):
    """The exchanges of experts of some points that send a token once to each machine."""

    rows: Ints  # kernels that may have one
    point: Ints  # of each of them
    recipe: Ints  # the first one of each point's route, (points,)
    spread: Floats  # of every recipe, as nccl.Spread, (recipes, ...)
    routing: Ints  # how every point's tokens choose experts, (points,)
    shares: Floats  # of its copies, that go within and between machines, (routings, recipes, 2)
    wires: Wires
    fixed: Floats  # [s], (points,)


class Sent(NamedTuple):
    """What exchanges that send a token once to each machine take; shape (exchanges,)."""

    rows: Ints  # kernels
    time: Floats  # of one launch [s]
    within: Floats  # what a rank sends within machines, and between them [B]
    between: Floats


def dispatch_of(
    inputs: Inputs, routes: list[Route], of_point: Ints, wires: Wires, libraries: Floats, graph: Graph
) -> Dispatch | None:
    """Return the exchanges of experts that send a token once to each machine, None where there are none.

    of_point: the route of every point; libraries: scalars that wires refer to. Others as `communicate`.
    """
    once = sends_once(inputs)
    spread = np.array([one.spread for route in routes for one in route.recipes])
    if not once.any() or not (spread.size and (spread[:, MACHINES] > 1.0).any()):
        return None
    rows = np.flatnonzero(once[graph.point] & (graph.part == EXPERTS))
    first = np.cumsum([0, *(len(route.recipes) for route in routes)])[of_point]
    routing, shares = _shares(inputs, once, spread)
    fixed = _latency(wires, libraries)
    return Dispatch(rows, graph.point[rows], first, spread, routing, shares, wires, fixed)


def _shares(inputs: Inputs, once: Bools, spread: Floats) -> tuple[Ints, Floats]:
    """Return how every point's tokens choose experts, and which share of their copies goes where.

    As in Dispatch; once: whether a token goes once to each machine, (points,).
    """
    columns = [inputs[f"model.{name}"] for name in ("experts", "topk", "expert_groups", "topk_groups")]
    first, place = unique_rows([once, *columns], once.size)
    shares = np.ones((first.size, len(spread), 2))
    for number, row in enumerate(first.tolist()):
        if once[row]:
            experts, topk, groups, topk_groups = (int(column[row]) for column in columns)
            routing = Routing(experts, topk, max(groups, 1), topk_groups if groups else 1)
            shares[number] = [
                [expected_parts(routing, int(where[name])) / topk for name in (RANKS, MACHINES)]
                for where in spread
            ]
    return place, shares


def _latency(wires: Wires, libraries: Floats) -> Floats:
    """Return what an exchange takes beside its bytes: a launch, and a step on either level [s], (points,)."""
    fixed = wires.overhead + wires.intra_latency + wires.inter_latency
    if not libraries.size:
        return fixed
    scalars = libraries[np.maximum(wires.library, 0)]
    of_library = scalars[:, LAUNCH] + scalars[:, SIMPLE0] + scalars[:, SIMPLE1]
    return np.where(wires.library >= 0, of_library, fixed)


def sent_once(dispatch: Dispatch, edges: CrossEdges, order_row: Ints, slots: Ints) -> Sent:
    """Return those exchanges of a kind that send a token once to each machine, since there are several.

    order_row: the placement of every point, of slots as Prices has them.
    """
    here = np.flatnonzero(edges.collective[dispatch.rows] == ALL_TO_ALL)
    slot = slots[order_row[dispatch.point[here]], edges.group[dispatch.rows[here]]]
    recipe = dispatch.recipe[dispatch.point[here]] + slot
    several = (slot >= 0) & (dispatch.spread[recipe, MACHINES] > 1.0)
    here, recipe = here[several], recipe[several]
    rows, point, where = dispatch.rows[here], dispatch.point[here], dispatch.spread[recipe]
    size, share = edges.bytes[rows], dispatch.shares[dispatch.routing[point], recipe]
    within, between = size * share[:, 0], size * share[:, 1]
    ranks = where[:, RANKS]
    with np.errstate(divide="ignore", invalid="ignore"):  # where nothing goes within machines
        near = np.where(where[:, PAIRS0] > 0.0, within * where[:, PAIRS0] / dispatch.wires.intra[point], 0.0)
        far = between * where[:, PAIRS1] / dispatch.wires.inter[point]
    return Sent(
        rows,
        time=dispatch.fixed[point] + np.maximum(near, far) / ranks,
        within=within * (1.0 - 1.0 / where[:, INSIDE]),
        between=between * (1.0 - 1.0 / where[:, MACHINES]),
    )
