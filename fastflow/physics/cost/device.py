"""Cost of a device: its dies, its memory, and its package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Inputs, table
from fastflow.physics.cost.dies import Wafer, dies_per_wafer, negative_binomial
from fastflow.physics.hardware.chiplets import CHIPLETS, areas, dies
from fastflow.physics.hardware.dram import DramDesign

MIN_GOOD_DIES = 1e-12  # of a wafer: so that every die has a finite price


class DieYield(NamedTuple):
    """Dies of one kind; shape (points,)."""

    kind: str  # "": those of the cores
    number: Floats  # in a package
    share: Floats  # of dies that work
    good: Floats  # dies of a wafer that work


class Yields(NamedTuple):
    """What of wafers and packages works; shape (points,)."""

    dies: tuple[DieYield, ...]  # those of the cores are the last
    interposers: Floats  # of a wafer, that work
    assembled: Floats  # share of packages that work after assembly


class DeviceCost(NamedTuple):
    """Costs of devices; shape (points,)."""

    die_yield: Floats  # share of dies that work
    die: Floats  # all dies of a device [USD]
    memory: Floats  # [USD]
    package: Floats  # [USD]
    device: Floats  # all of these, as sold [USD]


def of_node(inputs: Inputs, kind: str, name: str) -> Floats:
    """Return a property of the node of a kind of die, as of `chiplets.OF_NODE`; kind: "" for the cores'."""
    column: Floats = inputs[f"{CHIPLETS}{kind}.{name}" if kind else f"tech.{name}"]
    return column


def yields_of(inputs: Inputs, dram: DramDesign) -> Yields:
    """Return what works; inputs: `tech`, `mem`, `chip` and `cost`, dram: the memory of the chips.

    A defect in the part of a compute die that has spare units does not kill it (`chip.salvage`). Raises
    KeyError for a missing input.
    """
    wafer = table(Wafer, inputs, "cost.wafer")
    bonded = inputs["cost.interposer.bond_yield"] ** (dies(inputs) - 1.0)
    return Yields(
        tuple(_die_yields(inputs, wafer)),
        _interposers(inputs, wafer, dram),
        inputs["cost.interposer.assembly_yield"] * bonded,
    )


def _die_yields(inputs: Inputs, wafer: Wafer) -> Iterator[DieYield]:
    for kind, number, area in areas(inputs):
        # only compute dies have spare units
        critical = area if kind else area * (1.0 - inputs["chip.salvage"])
        density, cluster = (of_node(inputs, kind, f"defect_{name}") for name in ("density", "cluster"))
        share = negative_binomial(critical, density, cluster)
        yield DieYield(kind, number, share, _good(dies_per_wafer(area, wafer) * share))


def device_cost(inputs: Inputs, dram: DramDesign, yields: Yields) -> DeviceCost:
    """Return the cost of devices; inputs, dram: as of `yields_of`, yields: what it returns.

    A die costs its part of a wafer, dies that fail included. The yield is that of compute dies. Raises
    KeyError for a missing input.
    """
    die: Floats = np.zeros(1)
    for kind, number, _, good in yields.dies:
        die = die + number * of_node(inputs, kind, "wafer_price") / good
    memory = dram.capacity * inputs["mem.price"]
    package = _package(inputs, yields, die + memory)
    cost = (die + memory + package) * inputs["cost.markup"]
    return DeviceCost(yields.dies[-1].share, die, memory, package, cost)


def _good(dies: Floats) -> Floats:
    """Return how many dies of a wafer work, at least MIN_GOOD_DIES, (points,)."""
    least: Floats = np.fmax(dies, MIN_GOOD_DIES)
    return least


def _interposers(inputs: Inputs, wafer: Wafer, dram: DramDesign) -> Floats:
    """Return how many interposers of a wafer work, (points,)."""
    carried_area = inputs["chip.die_area"] + dram.devices * inputs["mem.device_area"]
    area = carried_area * inputs["cost.interposer.margin"]
    density, cluster = (inputs[f"cost.interposer.defect_{name}"] for name in ("density", "cluster"))
    return _good(dies_per_wafer(area, wafer) * negative_binomial(area, density, cluster))


def _package(inputs: Inputs, yields: Yields, parts: Floats) -> Floats:
    """Return the cost of packages [USD], with the parts [USD] that assembly loses."""
    interposer = inputs["cost.interposer.wafer_price"] / yields.interposers
    assembled = (parts + interposer) / yields.assembled - parts
    auxiliary = inputs["cost.auxiliary"] * inputs["chip.tdp"]
    package: Floats = np.where(inputs["mem.on_interposer"], assembled, 0.0) + auxiliary
    return package
