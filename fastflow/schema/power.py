"""Inputs and result columns of power above a chip: of machines, of racks and of the site."""

from __future__ import annotations

from fastflow.core.field import Column, bounded, count, nonnegative, positive, share, text

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
    positive(
        "power.rack_limit",
        "W",
        "most power that the machines of a rack may draw at their plugs, mean over time",
    )._replace(absent="no limit"),
    positive(
        "power.site_limit",
        "W",
        "most power that the whole system may draw at the site, such as a hall's, mean over time",
    )._replace(absent="no limit"),
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

LIMITS: tuple[Column, ...] = (
    Column("rack_limit_W", "float", "W", "power.rack_limit, the most power of a rack; null: no limit"),
    Column("site_limit_W", "float", "W", "power.site_limit, the most power at the site; null: no limit"),
)
"""Result columns of limits, which a point exceeds or not."""
TOKENS_PER_MW = Column(
    "tokens_per_s_per_MW",
    "float",
    "1/(s MW)",
    "tokens per second and megawatt at the site: tokens of a second, counted as token_usd counts them, over"
    " system_W",
)
A_MEGAWATT = 1e6
