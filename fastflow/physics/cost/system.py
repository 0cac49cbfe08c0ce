"""Cost of a system: devices with their share of hosts and networks, depreciation and electricity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, Ints

HOUR = 3600.0  # [s]


class SystemCost(NamedTuple):
    """Costs of systems; shape (points,)."""

    whole: Floats  # [USD]
    depreciation: Floats  # [USD/s]


def ports_and_cables(inputs: Inputs, prefix: str) -> tuple[Floats, Floats]:
    """Return how many switch ports and how many cables a device needs, each of its bandwidth, (points,).

    prefix: "system", or "system.package". A switch has a port at the end of each cable. In a fat tree the
    bandwidth of the leaf, over the taper, goes on to a second tier, by a cable with a port at both ends.
    Devices that are wired to each other have no switch, and two share a cable.
    """
    topology = inputs[f"{prefix}.topology"]
    is_tree = topology == "fat_tree"
    uplinks = np.where(is_tree, 1.0 / inputs["system.oversubscription"], 0.0)
    switched = is_tree | (topology == "switch")
    return np.where(switched, 1.0 + 2.0 * uplinks, 0.0), np.where(switched, 1.0 + uplinks, 0.5)


def network_cost(inputs: Inputs, intra: Floats, inter: Floats, devices: Ints) -> Floats:
    """Return a device's share of networks [USD], (points,).

    intra, inter: its bandwidths, one direction [B/s]; devices: of all kinds together. A network that joins no
    devices costs nothing: between packages if there is one package, within a package of one device.
    """
    total = np.zeros(devices.size)
    package = inputs["system.package.devices"]
    for name, prefix, bandwidth, is_used in (
        ("intra", "system.package", intra, np.minimum(package, devices) > 1),
        ("inter", "system", inter, devices > package),
    ):
        ports, cables = ports_and_cables(inputs, prefix)
        adapter, port, cable = (inputs[f"net.{name}.{part}_price"] for part in ("adapter", "switch", "cable"))
        total += np.where(is_used, bandwidth * (adapter + ports * port + cables * cable), 0.0)
    return total


def system_cost(inputs: Inputs, device: Floats, network: Floats, devices: Ints) -> SystemCost:
    """Return the cost of systems; device, network: of one device [USD], devices: their number; (points,)."""
    whole = devices * (device + network + inputs["cost.host.price"])
    return SystemCost(whole, whole / inputs["cost.lifetime"])
