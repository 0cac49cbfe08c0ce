"""Routes: the groups of collectives and their recipes, before the links' bandwidths are known (5.2).

Points that agree in system, strategy and placement share a route: for every order in which axes of more
than one rank may fill the network, the groups of ranks and their recipes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize, unique_rows
from fastflow.core.errors import InputError
from fastflow.core.reasons.codes import Code, refused, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Floats, Inputs, Ints, Texts
from fastflow.physics.network.collectives.algorithms import Cost, package_of
from fastflow.physics.network.collectives.custom_all_reduce import backend_of, check_backend
from fastflow.physics.network.collectives.decompose import Recipe, canonical_group, recipe
from fastflow.physics.network.collectives.nccl import check_choice
from fastflow.physics.network.placement import (
    Order,
    axis_costs,
    neighbour_cost,
    order_name,
    orders,
    read_order,
    strides,
)
from fastflow.physics.network.routing.patterns import Group, group_of
from fastflow.physics.network.routing.topology import FULL, SWITCH, Topology, topology
from fastflow.physics.parallelism.mesh import AXES, DATA, MESHES, PIPELINE, REPLICAS, SHARDS, members
from fastflow.physics.parallelism.mesh import axes as axes_of
from fastflow.physics.parallelism.sharding.layout import Layouts
from fastflow.physics.parallelism.sharding.tables import Groups
from fastflow.physics.parallelism.strategy import Strategies

AUTO = "auto"
SYSTEM = (
    "system.devices", "system.package.devices", "system.package.topology", "system.package.shape",
    "system.topology", "system.shape", "system.leaf_radix", "system.oversubscription",
)  # fmt: skip


class Route(NamedTuple):
    """Groups and recipes, which depend on system, strategy and placement alone."""

    orders: tuple[str, ...]  # by name
    recipes: tuple[Recipe, ...]
    slots: Ints  # recipe of every group under every order, -1 for a single device, (orders, groups)
    load: Floats  # between neighbours along every axis, (orders, axes, 2)
    hops: Floats  # (orders, axes, 2)


LayerLayout = tuple[int, tuple[int, ...]]
"""Assignment and degrees of a kind of layer, or of a layer."""


@lru_cache(maxsize=256)
def _network(*system: int | str | float) -> Topology:
    return topology(*system)  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def _recipe(system: tuple[int | str | float, ...], devices: int, group: Group, package: str) -> Recipe:
    return recipe(_network(*system), devices, group, package)


@lru_cache(maxsize=16384)
def _canonical_group(system: tuple[int | str | float, ...], devices: int, group: Group) -> Group:
    return canonical_group(_network(*system), devices, group)


@lru_cache(maxsize=4096)
def _neighbour_cost(
    system: tuple[int | str | float, ...], devices: int, degree: int, stride: int, is_pipeline: bool
) -> Cost:
    return neighbour_cost(_network(*system), devices, degree, stride, is_pipeline)


def neighbours(inputs: Inputs, ranks: int) -> Recipe:
    """Return the recipe of a group of neighbouring devices of one point's system; raises InputError."""
    system = tuple(inputs[key][0].item() for key in SYSTEM)
    return _recipe(system, ranks, group_of([(ranks, 1)]), package_of(str(inputs["system.collective"][0])))


def _groups(
    layout: LayerLayout, order: Order, axis_sets: tuple[tuple[int, ...], ...], replicas: int
) -> dict[int, Group]:
    """Return the group of every set of axes of a kind of layer, where it is more than one device.

    The devices along dp of a replica are neighbours.
    """
    assignment, degrees = layout
    axis_strides, groups = strides(order, degrees), {}
    shards = degrees[DATA] // replicas
    for mask in axis_sets[assignment]:
        sizes = [shards if axis == DATA and mask & SHARDS else degrees[axis] for axis in members(mask)]
        along = zip(sizes, (axis_strides[axis] for axis in members(mask)), strict=True)
        groups[mask] = group_of([(replicas, shards * axis_strides[DATA])] if mask == REPLICAS else along)
    return {mask: group for mask, group in groups.items() if group.ranks > 1}


def _mesh(degrees: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the axes of the first mesh that has all axes above 1, by number."""
    split_axes = {axis for axis in range(len(AXES)) if any(row[axis] > 1 for row in degrees)}
    meshes = [tuple(AXES.index(axis) for axis in mesh) for mesh in MESHES]
    return next((mesh for mesh in meshes if split_axes <= set(mesh)), tuple(range(len(AXES))))


def _has_stages_at_an_end(order: Order) -> bool:
    """Say whether stages come first or last: then their devices do not depend on the layouts of layers."""
    return PIPELINE in (order[0], order[-1])


_SHARDED = members(axes_of("tp", "cp", "ep"))


def _orders(network: Topology, layouts: tuple[LayerLayout, ...]) -> list[Order]:
    """Return the orders that differ for some kind of layer, and give stages the same devices in all.

    There is one order where every device is as near as any other, on one switch or one full mesh. Tensor,
    context and expert parallelism have one order, that of the frameworks: tp-cp-ep-dp-pp
    (RankGenerator, NVIDIA/Megatron-LM, megatron/core/parallel_state.py at 00caa53).
    """
    distinct, mesh = dict.fromkeys(layouts), _mesh([degrees for _, degrees in layouts])
    if mesh[0] == _SHARDED[0] and any(degrees[axis] > 1 for _, degrees in distinct for axis in _SHARDED):
        return [mesh]
    is_flat = network.kind.size == 0 or (network.kind.size == 1 and network.kind[0] in (SWITCH, FULL))
    split_axes = [axis for axis in mesh if not is_flat and any(degrees[axis] > 1 for _, degrees in distinct)]
    by_strides: dict[tuple[int, ...], Order] = {}
    for order in orders(mesh, split_axes, stages_at_an_end=len(distinct) > 1):
        key = [
            stride if degree > 1 else 0
            for _, degrees in distinct
            for degree, stride in zip(degrees, strides(order, degrees), strict=True)
        ]
        by_strides.setdefault(tuple(key), order)
    return list(by_strides.values())


@lru_cache(maxsize=4096)
def _route(
    system: tuple[int | str | float, ...],
    layouts: tuple[LayerLayout, ...],
    base: tuple[int, ...],
    placement: str,
    groups: Groups,
    replicas: int,
    package: str,
) -> Route:
    """Return the route of one kind of points.

    base: degrees of the strategy; replicas: of all weights; package: a package's algorithm, "" for none.
    """
    network, devices = _network(*system), prod(base)
    candidate_orders = [read_order(placement)] if placement != AUTO else _orders(network, layouts)
    is_switch = network.kind.size == 1 and network.kind[0] == SWITCH
    recipes: dict[Group, int] = {}
    distinct_layouts = list(dict.fromkeys(layouts))
    slots = np.full((len(candidate_orders), len(groups.sets), len(distinct_layouts)), -1, dtype=np.int64)
    for row, order in enumerate(candidate_orders):
        all_groups = [_groups(layout, order, groups.by_assignment, replicas) for layout in distinct_layouts]
        for number, axes in enumerate(groups.sets):
            for column, layout_groups in enumerate(all_groups):
                group = layout_groups.get(axes)
                if group is not None:
                    canonical = _canonical_group(system, devices, group)
                    slots[row, number, column] = recipes.setdefault(canonical, len(recipes))
    # the first of orders of equal cost
    distinct, _ = unique_rows([slots.reshape(len(candidate_orders), -1)], len(candidate_orders))
    candidate_orders, slots = [candidate_orders[row] for row in distinct.tolist()], slots[distinct]
    if devices == 1 or is_switch:  # one hop away, over each device's links
        load = hops = np.zeros((len(candidate_orders), len(AXES), 2))
        load[:, np.array(base) > 1, network.level.max(initial=0)] = 1.0
    else:
        load, hops = axis_costs(base, candidate_orders, partial(_neighbour_cost, system, devices))
    built_recipes = tuple(_recipe(system, devices, group, package) for group in recipes)
    return Route(
        tuple(map(order_name, candidate_orders)),
        recipes=built_recipes,
        slots=slots[:, :, [distinct_layouts.index(layout) for layout in layouts]].reshape(
            len(candidate_orders), -1
        ),
        load=load,
        hops=hops,
    )


def routes_of(
    inputs: Inputs, strategies: Strategies, layouts: Layouts, groups: Groups
) -> tuple[list[Route], Ints]:
    """Return the routes of some points, and the index of each point's route."""
    columns = [inputs[key] for key in (*SYSTEM, "placement")]
    packages = _packages_of(inputs)
    if (packages != "").any():
        columns.append(packages)
    first, route_index = unique_rows([*columns, strategies.degrees, *layouts], strategies.assignment.size)
    routes, systems = [], [inputs[key].tolist() for key in SYSTEM]
    for i in first.tolist():
        system = tuple(column[i] for column in systems)
        degrees = map(tuple, layouts.degrees[i].tolist())
        layer_layouts = tuple(zip(layouts.assignment[i].tolist(), degrees, strict=True))
        base = tuple(strategies.degrees[i].tolist())
        placement, replicas = str(inputs["placement"][i]), int(layouts.replicas[i])
        routes.append(_route(system, layer_layouts, base, placement, groups, replicas, str(packages[i])))
    return routes, route_index


def _packages_of(inputs: Inputs) -> Texts:
    """Return the algorithm of a package that every point requests, "" for none; (points,)."""
    names, inverse = factorize(inputs["system.collective"])
    return np.array([package_of(name) for name in names], dtype=np.str_)[inverse]


def invalid_network(inputs: Inputs, stages: Ints, layouts: Layouts) -> ReasonColumn:
    """Say for every point why its system, placement, collective or backend is invalid."""
    reason = Reasons(inputs["placement"].size)
    has_fixed_stages = layouts.differ & (stages > 1)
    names = (*SYSTEM, "system.library", "system.collective", "placement")
    columns = [*(inputs[key] for key in names), backend_of(inputs)]
    first, inverse = unique_rows(columns, inputs["placement"].size)
    for number, row in enumerate(first.tolist()):
        *system, library, collective, placement, backend = (column[row].item() for column in columns)
        points = np.flatnonzero(inverse == number).tolist()
        try:
            _network(*system)
            check_choice(library, collective)
            check_backend(library, backend)
            order = read_order(placement) if placement != AUTO else None
        except InputError as error:
            refusal = refused(Code.PLACEMENT if error.key == "placement" else Code.NETWORK, error)
            for i in points:
                reason.add(i, refusal)
            continue
        if order is None:
            continue
        for i in points:
            if allowed := _allowed_orders(order, layouts.degrees[i].tolist(), bool(has_fixed_stages[i])):
                reason.add(i, rejected(Code.PLACEMENT, "placement", placement, allowed))
    return reason.column()


def _allowed_orders(order: Order, degrees: Sequence[Sequence[int]], has_fixed_stages: bool) -> str:
    """Return the allowed placements where an order does not suit a point's layouts, "" where it does.

    degrees: of every column of the layouts; has_fixed_stages: whether stages have the same devices in all of
    them.
    """
    mesh = _mesh(degrees)
    if set(order) != set(mesh):
        axes = ", ".join(AXES[axis] for axis in mesh)
        return f"auto, or {axes} in any order: the strategy's axes"
    if has_fixed_stages and not _has_stages_at_an_end(order):
        return "an order with pp first or last, since layers have different cuts"
    return ""
