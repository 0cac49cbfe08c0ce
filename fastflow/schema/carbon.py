"""Inputs and result columns of carbon: mass of CO2 equivalents (CO2e) of electricity and of hardware."""

from __future__ import annotations

from fastflow.core.field import Column, bounded, nonnegative, positive, share, text
from fastflow.physics.carbon.profile import DURATION, PROFILE
from fastflow.physics.hardware.chiplets import CHIPLETS

_MAX_BYTES = 1e18

_INPUTS: tuple[Column, ...] = (
    nonnegative("tech.fab_energy", "J/m^2", "electricity to process an area of wafers of the node"),
    nonnegative(
        "tech.fab_gas", "kg/m^2", "emissions of process gases, after abatement, per area of wafers, as CO2e"
    ),
    nonnegative("mem.carbon", "kg/B", "emissions of making main memory, stacked and tested, as CO2e"),
    text("carbon.name", "region whose electricity the system uses"),
    nonnegative("carbon.intensity", "kg/J", "emissions of electricity where the system is, as CO2e"),
    text(
        PROFILE,
        "file of comma-separated values with the emissions of electricity in each hour of a day (24) or of a"
        " year (8760), in g of CO2e per kWh; it replaces carbon.intensity",
    )._replace(absent="carbon.intensity at all hours"),
    nonnegative("carbon.start", "s", "time in carbon.profile at which the work begins"),
    positive(
        DURATION, "s", "time that the work takes, for which carbon.profile is averaged from carbon.start on"
    )._replace(absent="all hours of the profile count alike"),
    nonnegative("carbon.fab.intensity", "kg/J", "emissions of electricity where dies are made, as CO2e"),
    positive("carbon.fab.materials", "kg/m^2", "emissions of the materials of an area of wafers, as CO2e"),
    nonnegative("carbon.interposer", "kg/m^2", "emissions of making an area of interposers, as CO2e"),
    nonnegative("carbon.packaging", "kg", "emissions of packaging one die, or one memory device, as CO2e"),
    nonnegative(
        "carbon.auxiliary",
        "kg/W",
        "emissions of substrate, board with voltage regulators, heat sink, assembly and transport of a"
        " device, per watt of chip.tdp, as CO2e",
    ),
    nonnegative("carbon.dram", "kg/B", "emissions of making a host's memory, as CO2e"),
    nonnegative("carbon.nand", "kg/B", "emissions of making a host's flash storage, as CO2e"),
    Column("carbon.host.dram", "float", "B", "memory of a machine, per device", 0.0, _MAX_BYTES),
    Column("carbon.host.nand", "float", "B", "flash storage of a machine, per device", 0.0, _MAX_BYTES),
    nonnegative(
        "carbon.host.other",
        "kg",
        "emissions of making processors, boards, chassis, fans and power supplies of a machine, per device,"
        " as CO2e",
    ),
    nonnegative(
        "carbon.adapter",
        "kg",
        "emissions of making a network card, or a switch's share for one port, as CO2e; a device has a card"
        " where a network joins its package to others",
    ),
    positive("carbon.lifetime", "s", "time over which the emissions of making a system are spread"),
    share("carbon.utilization", "share of its lifetime in which a system works"),
)

CARBON: tuple[Column, ...] = tuple(map(bounded, _INPUTS))

EMISSIONS: tuple[Column, ...] = (
    Column("die_carbon_kg", "float", "kg", "CO2e of making the dies of one device, with dies that fail"),
    Column("memory_carbon_kg", "float", "kg", "CO2e of making the main memory of one device"),
    Column(
        "device_carbon_kg",
        "float",
        "kg",
        "embodied carbon of one device, as CO2e: dies, memory, and a package with its board and heat sink",
    ),
    Column(
        "system_carbon_kg",
        "float",
        "kg",
        "embodied carbon of the system, as CO2e: devices with their hosts and network",
    ),
    Column(
        "operational_g",
        "float",
        "g",
        "part of carbon_g from electricity: that of devices, hosts and building",
    ),
    Column(
        "embodied_g",
        "float",
        "g",
        "part of carbon_g from making the system: system_carbon_kg over the hours that it works",
    ),
    Column(
        "carbon_g",
        "float",
        "g",
        "emissions of one iteration, all devices, as CO2e; of servers, of a request; of one pass, of"
        " a prompt, or of a token that is decoded",
    ),
)
"""Result columns of every point; all but those of hardware need a time."""

CARBON_TOKEN = Column(
    "carbon_g_per_token", "float", "g/token", "emissions of a token, counted as token_usd counts them"
)
CARBON_TRAIN = Column("train_carbon_kg", "float", "kg", "emissions of training for train_s, as CO2e")
_RESULTS = tuple(column.name for column in (*EMISSIONS, CARBON_TOKEN, CARBON_TRAIN))
_OF_NODE = ("fab_energy", "fab_gas")
_SECTION, _OF_MEMORY, _OF_DIES = "carbon.", "mem.carbon", ("tech.", CHIPLETS)


def is_carbon(result: str) -> bool:
    """Say whether a result column, or one of its bands, is a mass of carbon."""
    return result.startswith(_RESULTS)


def is_emission(key: str) -> bool:
    """Say whether an input changes masses of carbon alone."""
    is_of_node = key.startswith(_OF_DIES) and key.endswith(_OF_NODE)
    return is_of_node or key == _OF_MEMORY or key.startswith(_SECTION)
