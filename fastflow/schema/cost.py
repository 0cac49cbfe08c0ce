"""Inputs and result columns of cost, in US dollars."""

from __future__ import annotations

from fastflow.core.field import Column, fraction, nonnegative, positive, share, text

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


_MAX = 1e12
"""Of any price, density or time: beyond it a cost may overflow."""


def _bounded(column: Column) -> Column:
    """Return a column with bounds within which costs are finite."""
    if column.kind != "float":
        return column
    low = 1.0 / _MAX if column.above_low else column.low
    return column._replace(low=low, high=min(column.high, _MAX), above_low=False)


_INPUTS: tuple[Column, ...] = (
    positive("tech.wafer_price", "USD", "price of a processed wafer"),
    nonnegative("tech.defect_density", "1/m^2", "defects that kill, in an area of the die"),
    Column(
        "tech.defect_cluster",
        "float",
        "",
        "cluster parameter of the negative binomial yield; large: no clusters",
        0.01,
        1e6,
    ),
    nonnegative("mem.price", "USD/B", "price of main memory, stacked"),
    Column("mem.on_interposer", "bool", "", "true: an interposer carries memory devices and die"),
    *_prices("net.intra", "in-package"),
    *_prices("net.inter", "off-package"),
    Column("chip.dies", "int", "", "equal dies of the cores and of what no other die holds", 1.0, 1024.0),
    fraction("chip.salvage", "share of a die where a defect costs a spare unit, and not the die"),
    text("cost.name", "prices"),
    positive("cost.markup", "", "what a device is sold for, over what it costs to build"),
    positive("cost.wafer.diameter", "m", "diameter of wafers"),
    nonnegative("cost.wafer.edge", "m", "rim of a wafer that has no dies"),
    nonnegative("cost.wafer.scribe", "m", "width of the lane between dies"),
    nonnegative("cost.interposer.wafer_price", "USD", "price of a wafer of interposers, with assembly on it"),
    nonnegative("cost.interposer.defect_density", "1/m^2", "defects that kill an interposer"),
    Column("cost.interposer.defect_cluster", "float", "", "cluster parameter of its yield", 0.01, 1e6),
    Column("cost.interposer.margin", "float", "", "its area over that of what it carries", 1.0, 10.0),
    share(
        "cost.interposer.assembly_yield", "share of packages that work; the rest is lost, die and memory too"
    ),
    share("cost.interposer.bond_yield", "share of dies that still work once bonded, but for the first"),
    nonnegative("cost.auxiliary", "USD/W", "substrate, board and test of a device, over chip.tdp"),
    nonnegative("cost.host.price", "USD", "price of a machine without devices and networks, for each device"),
    nonnegative("cost.host.power", "", "power of a machine beside its devices, over their chip.tdp"),
    nonnegative("cost.electricity", "USD/J", "price of electricity"),
    Column(
        "cost.pue",
        "float",
        "",
        "power usage effectiveness: power of the building over that of machines",
        1.0,
        10.0,
    ),
    positive("cost.lifetime", "s", "time of depreciation of a system, in even parts"),
    positive(
        "cost.rent", "USD", "rent of a device in an hour, all else within it; auto: cost.rents's"
    )._replace(auto=0.0, absent="devices and systems are bought"),
    positive("cost.rents.*.price", "USD", "rent of a device in an hour, by chip.name with _ for -"),
    text("cost.rents.*.provider", "who asks for it"),
    text("cost.rents.*.date", "when it was on the provider's list"),
)

COST: tuple[Column, ...] = tuple(map(_bounded, _INPUTS))

COSTS: tuple[Column, ...] = (
    Column("die_yield", "float", "", "share of a device's dies that work"),
    Column("die_usd", "float", "USD", "dies of one device, those that fail included"),
    Column("memory_usd", "float", "USD", "main memory of one device"),
    Column(
        "package_usd",
        "float",
        "USD",
        "interposer, what assembly loses, substrate, board and test of one device",
    ),
    Column("device_usd", "float", "USD", "one device: dies, memory and package, times cost.markup"),
    Column("system_usd", "float", "USD", "devices, with their share of hosts and networks"),
    Column(
        "power_usd_per_h",
        "float",
        "USD",
        "electricity of the system in an hour, building included; 0 where a rent has it",
    ),
    Column(
        "usd_per_h",
        "float",
        "USD",
        "the system in an hour: depreciation and electricity; or its rent (cost=rent)",
    ),
)
"""Result columns of every point; the costs of an iteration and of a token need a time."""

ITERATION = Column("iteration_usd", "float", "USD", "one iteration, all devices: usd_per_h for time_s")
TOKEN = Column(
    "token_usd",
    "float",
    "USD/token",
    "a token of the global batch; of servers an output token, or one of a pass",
)
MILLION = Column("usd_per_million_tokens", "float", "USD", "a million of such tokens as token_usd is of")
TRAIN = Column("train_usd", "float", "USD", "cost to train on as many tokens: usd_per_h for train_s")
A_MILLION = 1e6
