"""Routes: who exchanges with whom, and by which recipes, before the links' bandwidths are known (5.2).

Points that agree in system, strategy and placement share a route: for every order in which parallel
dimensions may fill the network, who exchanges with whom, and by which recipes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.distinct import kinds
from fastflow.errors import InputError
from fastflow.network.patterns import Group
from fastflow.network.placement import ORDERS, PARALLEL, distinct_orders, order_number, place, strides
from fastflow.network.recipe import Recipe, recipe
from fastflow.network.topology import SWITCH, Topology, topology
from fastflow.parallelism.layout import Layouts
from fastflow.parallelism.strategy import ROW_COLUMN, Strategies
from fastflow.parallelism.supergraph import GROUPS, KERNEL_GROUP, PIPELINE_GROUP
from fastflow.tables import Floats, Inputs, Ints, Texts
from fastflow.workload.graph import LAYER_KINDS

KP1, KP2, DP, LP = range(4)  # of placement.PARALLEL
AUTO = "auto"
SYSTEM = (
    "system.devices", "system.package.devices", "system.package.topology", "system.package.shape",
    "system.topology", "system.shape", "system.leaf", "system.taper",
)  # fmt: skip


class Route(NamedTuple):
    """What depends on system, strategy and placement alone."""

    orders: Ints  # (orders,)
    recipes: tuple[Recipe, ...]
    slots: Ints  # recipe of every group under every order, -1 for a group of one, (orders, GROUPS)
    load: Floats  # between neighbours of every parallel dimension, (orders, 4, 2)
    hops: Floats  # (orders, 4, 2)


@lru_cache(maxsize=256)
def _network(*system: int | str | float) -> Topology:
    return topology(*system)  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def _recipe(system: tuple[int | str | float, ...], devices: int, group: Group) -> Recipe:
    return recipe(_network(*system), devices, group)


def neighbours(inputs: Inputs, ranks: int) -> Recipe:
    """Return the recipe of a group of neighbouring devices of one point's system; raises InputError."""
    system = tuple(inputs[key][0].item() for key in SYSTEM)
    return _recipe(system, ranks, Group(degree1=ranks, stride1=1, degree2=1, stride2=0))


def _group(layout: tuple[int, int, int, int], slot: int, lp: int, order: int) -> Group:
    """Return who exchanges in a slot: which parallel dimensions, and how far apart."""
    kernel_cut, kp1, kp2, dp = layout
    degrees = np.array([kp1, kp2, dp, lp], dtype=np.int64)
    stride = strides(order, degrees)
    if slot == PIPELINE_GROUP:
        members = [LP]
    elif slot % 2 == KERNEL_GROUP:
        members = [KP2] if kernel_cut == ROW_COLUMN else [KP1]
    else:
        members = [KP1, DP] if kernel_cut == ROW_COLUMN else [DP]
    # neighbours in the network are neighbours in the group
    members = sorted((m for m in members if degrees[m] > 1), key=lambda m: int(stride[m]))
    pairs = [(int(degrees[m]), int(stride[m])) for m in members]
    if len(pairs) == 2 and pairs[1][1] == pairs[0][0] * pairs[0][1]:
        pairs = [(pairs[0][0] * pairs[1][0], pairs[0][1])]  # one row of equidistant devices
    pairs += [(1, 0)] * (2 - len(pairs))
    (degree1, stride1), (degree2, stride2) = pairs
    return Group(degree1=degree1, stride1=stride1, degree2=degree2, stride2=stride2)


def _has_lp_at_an_end(order: int) -> bool:
    """Say whether stages come first or last: then they have the same devices however layers are cut."""
    return LP in (ORDERS[order][0], ORDERS[order][-1])


def _orders(network: Topology, layouts: tuple[tuple[int, int, int, int], ...], lp: int) -> Ints:
    """Return the orders that differ for some kind of layer, and give stages the same devices in all."""
    kinds_of_layer = [np.array([*layout[1:], lp], dtype=np.int64) for layout in dict.fromkeys(layouts)]
    if len(kinds_of_layer) == 1 or distinct_orders(network, np.full(4, 2)).size == 1:
        return distinct_orders(network, kinds_of_layer[0])
    found: dict[tuple[int, ...], int] = {}
    for order in range(len(ORDERS)):
        if lp == 1 or _has_lp_at_an_end(order):
            apart = [np.where(degrees > 1, strides(order, degrees), 0) for degrees in kinds_of_layer]
            found.setdefault(tuple(np.concatenate(apart).tolist()), order)
    return np.array(list(found.values()), dtype=np.int64)


@lru_cache(maxsize=4096)
def _route(
    system: tuple[int | str | float, ...],
    layouts: tuple[tuple[int, int, int, int], ...],
    base: tuple[int, int, int, int],
    placement: str,
) -> Route:
    """Return the route of one kind of points; base: KP1, KP2, DP and LP of the strategy."""
    network, devices = _network(*system), int(np.prod(base))
    degrees = np.array(base, dtype=np.int64)
    if placement != AUTO:
        orders = np.array([order_number(placement)], dtype=np.int64)
    else:
        orders = _orders(network, layouts, base[LP])
    is_switch = network.kind.size == 1 and network.kind[0] == SWITCH
    recipes: dict[Group, int] = {}
    slots = np.full((orders.size, GROUPS), -1, dtype=np.int64)
    for row, order in enumerate(orders.tolist()):
        for slot in range(GROUPS):
            layout = layouts[min(slot // 2, len(layouts) - 1)]
            group = _group(layout, slot, base[LP], order)
            if is_switch:  # wherever its ranks sit
                group = Group(degree1=group.degree1 * group.degree2, stride1=1, degree2=1, stride2=0)
            if group.degree1 > 1:
                slots[row, slot] = recipes.setdefault(group, len(recipes))
    if devices == 1 or is_switch:  # one crossing away, over links of one's own
        load = np.zeros((len(ORDERS), len(PARALLEL), 2))
        load[:, degrees > 1, network.level.max(initial=0)] = 1.0
        hops = load
    else:
        load, hops = place(network, degrees)
    found = tuple(_recipe(system, devices, group) for group in recipes)
    return Route(orders=orders, recipes=found, slots=slots, load=load[orders], hops=hops[orders])


def routes_of(inputs: Inputs, strategies: Strategies, layouts: Layouts) -> tuple[list[Route], Ints]:
    """Return the routes of some points, and the place of each point's among them."""
    points = strategies.lp.size
    columns = [inputs[key] for key in (*SYSTEM, "placement")]
    of_kind = [column[:, kind] for column in layouts for kind in range(len(LAYER_KINDS))]
    first, place_of = kinds([*columns, *strategies, *of_kind], points)
    routes = []
    for i in first.tolist():
        system = tuple(inputs[key][i].item() for key in SYSTEM)
        own = tuple(
            (int(layouts.kernel[i, k]), int(layouts.kp1[i, k]), int(layouts.kp2[i, k]), int(layouts.dp[i, k]))
            for k in range(len(LAYER_KINDS))
        )
        base = (int(strategies.kp1[i]), int(strategies.kp2[i]), int(strategies.dp[i]), int(strategies.lp[i]))
        routes.append(_route(system, own, base, str(inputs["placement"][i])))
    return routes, place_of


def network_faults(inputs: Inputs, stages: Ints, layouts: Layouts) -> Texts:
    """Say for every point why its system is no network, or its placement no order for it; or ""."""
    points = inputs["placement"].size
    reason: NDArray[np.object_] = np.full(points, "", dtype=object)
    differ = layouts.differ & (stages > 1)
    for i in range(points):
        placement = str(inputs["placement"][i])
        try:
            _network(*(inputs[key][i].item() for key in SYSTEM))
            order = order_number(placement) if placement != AUTO else 0
        except InputError as error:
            reason[i] = str(error)
            continue
        if differ[i] and not _has_lp_at_an_end(order):
            allowed = "an order with lp first or last, since the kinds of layer have different cuts"
            reason[i] = str(InputError("placement", placement, allowed))
    return reason.astype(str)
