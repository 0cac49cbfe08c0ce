"""Inputs and result columns of cost, in US dollars."""

from __future__ import annotations

from fastflow.core.field import Column, bounded, fraction, nonnegative, positive, share, text

_PER_BANDWIDTH = "USD s/B"


def _prices(prefix: str, where: str) -> tuple[Column, ...]:
    """Return the prices of a network, per B/s that a device sends in one direction."""
    return (
        nonnegative(
            f"{prefix}.adapter_price", _PER_BANDWIDTH, f"price of a device's adapter to {where} links"
        ),
        nonnegative(
            f"{prefix}.switch_price", _PER_BANDWIDTH, f"price of a port of a switch of {where} links"
        ),
        nonnegative(f"{prefix}.cable_price", _PER_BANDWIDTH, f"price of a cable of {where} links"),
    )


_INPUTS: tuple[Column, ...] = (
    positive("tech.wafer_price", "USD", "price of a processed 300 mm wafer"),
    nonnegative("tech.defect_density", "1/m^2", "defects per area of the die that kill it"),
    Column(
        "tech.defect_cluster",
        "float",
        "",
        "cluster parameter of the negative binomial yield; large: defects do not cluster",
        0.01,
        1e6,
    ),
    nonnegative("mem.price", "USD/B", "price of main memory, stacked"),
    Column(
        "mem.on_interposer",
        "bool",
        "",
        "true: an interposer carries the memory devices and the die; false: memory is on the board",
    ),
    *_prices("net.intra", "in-package"),
    *_prices("net.inter", "off-package"),
    Column(
        "chip.dies",
        "int",
        "",
        "number of equal dies that hold the cores and all that no other kind of die holds",
        1.0,
        1024.0,
    ),
    fraction(
        "chip.salvage",
        "share of the die where a defect costs a spare unit and the die still works (yield harvesting)",
    ),
    text("cost.name", "name of the set of prices"),
    positive("cost.markup", "", "price of a device over its cost to build; 1: the cost to build"),
    positive("cost.wafer.diameter", "m", "diameter of wafers, of dies and of interposers"),
    nonnegative("cost.wafer.edge", "m", "rim of a wafer, all around, that has no dies"),
    nonnegative("cost.wafer.scribe", "m", "width of the scribe lane between dies"),
    nonnegative(
        "cost.interposer.wafer_price", "USD", "price of a wafer of interposers, with the assembly on it"
    ),
    nonnegative("cost.interposer.defect_density", "1/m^2", "defects per area of an interposer that kill it"),
    Column(
        "cost.interposer.defect_cluster",
        "float",
        "",
        "cluster parameter of the yield of interposers",
        0.01,
        1e6,
    ),
    Column(
        "cost.interposer.margin",
        "float",
        "",
        "area of an interposer over that of the dies and memory on it",
        1.0,
        10.0,
    ),
    share(
        "cost.interposer.assembly_yield",
        "share of packages that work after assembly; a package that fails loses its dies and memory",
    ),
    share(
        "cost.interposer.bond_yield", "share of dies, beyond the first of a package, that work after bonding"
    ),
    nonnegative(
        "cost.auxiliary",
        "USD/W",
        "cost of substrate, board with voltage regulators, heat spreader and test of a device,"
        " per watt of chip.tdp",
    ),
    nonnegative("cost.host.price", "USD", "price of a machine without devices and networks, per device"),
    nonnegative("cost.electricity", "USD/J", "price of electricity"),
    positive("cost.lifetime", "s", "time over which a system is depreciated, in equal parts"),
    positive(
        "cost.rent",
        "USD",
        "rent of a device in an hour, such as 2.50 USD, in place of all other costs; auto: that"
        " of the chip in cost.rents; null: devices are bought",
    )._replace(auto=0.0, absent="devices and systems are bought"),
    positive(
        "cost.rents.*.price", "USD", "rent of a device in an hour; the name is that of the chip with _ for -"
    ),
    text("cost.rents.*.provider", "provider that asks for this rent"),
    text("cost.rents.*.date", "date of the provider's price list"),
)

COST: tuple[Column, ...] = tuple(map(bounded, _INPUTS))

COSTS: tuple[Column, ...] = (
    Column("die_yield", "float", "", "share of the dies of a device that work"),
    Column("die_usd", "float", "USD", "cost of the dies of one device; dies that fail are included"),
    Column("memory_usd", "float", "USD", "cost of the main memory of one device"),
    Column(
        "package_usd",
        "float",
        "USD",
        "cost of the package of one device: interposer, losses of assembly, substrate, board and test",
    ),
    Column("device_usd", "float", "USD", "cost of one device: dies, memory and package, times cost.markup"),
    Column("system_usd", "float", "USD", "cost of the system: devices with their hosts and networks"),
    Column(
        "power_usd_per_h",
        "float",
        "USD",
        "cost of the electricity of the system in an hour, that of the building included; 0 where"
        " a rent includes it",
    ),
    Column(
        "usd_per_h",
        "float",
        "USD",
        "cost of the system in an hour: depreciation and electricity, or its rent (cost=rent)",
    ),
)
"""Result columns of every point; the costs of an iteration and of a token need a time."""

ITERATION = Column(
    "iteration_usd", "float", "USD", "cost of one iteration, all devices: usd_per_h for time_s"
)
TOKEN = Column(
    "token_usd",
    "float",
    "USD/token",
    "cost of a token of the global batch; of servers, of an output token; of one pass, of a"
    " token of the pass",
)
MILLION = Column(
    "usd_per_million_tokens", "float", "USD", "cost of a million tokens, counted as token_usd counts them"
)
TRAIN = Column("train_usd", "float", "USD", "cost to train: usd_per_h for train_s")
A_MILLION = 1e6
