"""Inputs and result columns of power above a chip: of machines, of racks and of the site."""

from __future__ import annotations

from fastflow.core.field import Column, bounded, count, nonnegative, share, text

_INPUTS: tuple[Column, ...] = (
    text("power.name", "how machines are built, and where they stand"),
    nonnegative(
        "power.host_fraction",
        "",
        "power of a machine's host over the chip.tdp of its devices: processors, memory, drives, network"
        " cards, and links within the machine",
    ),
    Column("power.fan_fraction", "float", "", "share of a machine's power that its fans take", 0.0, 0.9),
    share("power.conversion_efficiency", "power that leaves a machine's power supplies over what they draw"),
    nonnegative(
        "power.switch",
        "J/B",
        "power of a port of a switch between packages, with its transceiver, over its bandwidth in one"
        " direction",
    ),
    Column(
        "power.pue",
        "float",
        "",
        "power usage effectiveness: power that the building draws over power that its machines draw",
        1.0,
        10.0,
    ),
    count("power.rack_devices", "devices of the machines of one rack", high=1e6),
)
POWER_OF_SITE: tuple[Column, ...] = tuple(map(bounded, _INPUTS))

SITE: tuple[Column, ...] = (
    Column("gpu_J", "float", "J", "energy of the devices alone: energy_J"),
    Column(
        "machine_J",
        "float",
        "J",
        "energy of whole machines at their plugs, counted as energy_J: with hosts, fans, power supplies",
    ),
    Column(
        "site_J",
        "float",
        "J",
        "energy of the site, counted as energy_J: with machines, switches, cooling and the building",
    ),
    Column("gpu_W", "float", "W", "power of one device, mean over time"),
    Column("machine_W", "float", "W", "power of one device and its share of the machine, mean over time"),
    Column("site_W", "float", "W", "power of one device and its share of the site, mean over time"),
    Column("rack_W", "float", "W", "power of the machines of a rack, mean over time"),
    Column("system_W", "float", "W", "power of the whole system at the site, mean over time"),
)
"""Result columns of every point with a time."""
