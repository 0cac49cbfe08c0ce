"""Data of a figure of a placement, read from a prediction; lines and colours are drawn elsewhere."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.performance.prediction import Prediction
from fastflow.physics.network.link_loads import LinkLoads, link_loads
from fastflow.physics.network.placement import read_order, strides
from fastflow.physics.network.routes import SYSTEM
from fastflow.physics.network.routing.patterns import BACKWARD, FORWARD, NEIGHBOURS, Group, logical_edges
from fastflow.physics.network.routing.topology import FULL, LINE, RING, SWITCH, Topology, topology
from fastflow.physics.parallelism.mesh import AXES, PIPELINE

WEIGHT = {NEIGHBOURS: 0.5, FORWARD: 1.0, BACKWARD: 1.0}
"""Messages per logical edge: a ring sends half of each message in both directions."""


class Traffic(NamedTuple):
    """A parallel dimension of more than one rank, and the load of its neighbours on links."""

    name: str  # of mesh.AXES
    degree: int
    stride: int  # devices from one rank to the next
    hops: int  # to a neighbour
    bandwidth: float  # to it [B/s]
    links: LinkLoads
    edges: Floats  # logical edges that share each directed link, (links,)

    def rank(self, device: Ints) -> Ints:
        """Return the ranks of devices."""
        return device // self.stride % self.degree


class Scene(NamedTuple):
    """One point's placement."""

    strategy: str
    order: str
    system: str  # in words
    network: Topology
    used: int  # devices of the strategy, from 0 on
    traffic: list[Traffic]
    has_layer_strategies: bool  # whether some kinds of layers have other strategies


def scene(prediction: Prediction, point: int) -> Scene:
    """Return the placement of one point. Raises ValueError for a point without a time."""
    row = np.flatnonzero(prediction.timed == point)
    if not row.size:
        raise ValueError(f"point {point} has no placement: {prediction.reason.at(point)}")
    network = topology(*(prediction.inputs[key][point].item() for key in SYSTEM))
    strategies, layouts = prediction.parallelism.strategies, prediction.parallelism.layouts
    degrees = strategies.degrees[point].tolist()
    communication, used = prediction.communication, prod(degrees)
    order = str(communication.order[row[0]])
    traffic = []
    rows = zip(AXES, degrees, strides(read_order(order), degrees), strict=True)
    for axis, (name, degree, stride) in enumerate(rows):
        if degree > 1:
            hops, bandwidth = communication.hops[row[0], axis], communication.bandwidth[row[0], axis]
            links, edges = shared_edges(network, used, degree, stride, axis == PIPELINE)
            traffic.append(
                Traffic(
                    name=name,
                    degree=degree,
                    stride=stride,
                    hops=int(hops),
                    bandwidth=float(bandwidth),
                    links=links,
                    edges=edges,
                )
            )
    cuts = ((layouts.assignment, strategies.assignment), (layouts.degrees, strategies.degrees))
    return Scene(
        strategy=str(prediction.parallelism.printed[point]),
        order=order,
        system=describe(network),
        network=network,
        used=used,
        traffic=traffic,
        has_layer_strategies=any(
            bool((of_layers[point] != of_model[point]).any()) for of_layers, of_model in cuts
        ),
    )


def shared_edges(
    network: Topology, devices: int, degree: int, stride: int, is_pipeline: bool
) -> tuple[LinkLoads, Floats]:
    """Return all directed links, and how many logical edges of a parallel dimension share each (5.2).

    devices: those in use. A ring's ranks send both ways; stages send activations forward or their
    gradients backward, and the greater of the two counts. A link between a leaf switch and the spine
    represents as many cables as its bandwidth needs, and its edges are those of one cable.
    """
    edges: Floats | None = None
    ranks = Group((degree,), (stride,)).arrays()
    for pattern in (FORWARD, BACKWARD) if is_pipeline else (NEIGHBOURS,):
        links = link_loads(network, logical_edges(devices, *ranks, pattern, 0))
        share = links.load / (network.share[links.dimension] * WEIGHT[pattern])
        edges = share if edges is None else np.maximum(edges, share)
    assert edges is not None
    return links, edges


def describe(network: Topology) -> str:
    """Return a network in words: "4x12 torus", or "16 packages (2x2 mesh), switch between them"."""
    inner, outer = (_describe_level(network, level) for level in (0, 1))
    packages = int(network.size[network.level == 1].prod())
    if inner and outer:
        return f"{packages:,} packages ({inner}), {outer} between them"
    return f"one package ({inner})" if inner else outer or "one device"


def _describe_level(network: Topology, level: int) -> str:
    rows = np.flatnonzero(network.level == level)
    if rows.size > 1:
        kind = "torus" if network.kind[rows[0]] == RING else "mesh"
        return f"{'x'.join(map(str, network.size[rows]))} {kind}"
    if not rows.size:
        return ""
    words = {LINE: "line", RING: "ring", FULL: "full mesh", SWITCH: "switch"}
    leaves = f"fat tree with leaf switches of {network.leaf[rows[0]]}"
    return words.get(int(network.kind[rows[0]]), leaves)
