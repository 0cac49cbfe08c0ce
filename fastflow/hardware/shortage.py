"""How far budgets are from making a chip, so that a search is led to where they make one (4.3, 7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastflow.hardware.chip import (
    Chip,
    core_given,
    dram_given,
    generate,
    link_given,
    srams_given,
)
from fastflow.hardware.core import bundle_rooms
from fastflow.hardware.dram import device_rooms, power_room
from fastflow.hardware.link import link_rooms
from fastflow.hardware.sram import bank_rooms
from fastflow.tables import Bools, Floats, Inputs

# where nothing but a rounding leaves a component empty: no shortage is 0 without a chip
_LEAST = float(np.finfo(np.float64).eps)


class _Part(NamedTuple):
    """One component of generated chips; shape (points,)."""

    empty: Bools  # it is needed, and has no amount or no throughput
    rooms: tuple[Floats, ...]
    """Each budget over what the smallest component that works takes of it."""


def shortage(inputs: Inputs) -> Floats:
    """Return how much of their budgets the components of a chip lack, shape (points,), no unit.

    A component that a point needs and that its budgets leave empty lacks, of every budget, the part of
    its smallest useful form that the budget has no room for: a bundle of MCUs, a bank in every instance
    of a level, a memory device and a link to it, a network link; all at the lowest supply. The shortage
    is the sum of these parts. It is 0 exactly where no component is empty, and finite everywhere; it
    falls continuously as a budget that lacks grows. What a component takes may rise in steps with the
    budgets of another: a bank for every MCU, standby power for every memory device.
    """
    total = np.zeros(inputs["chip.tdp"].size)
    short = np.zeros(total.size, dtype=np.bool_)
    with np.errstate(divide="ignore", invalid="ignore"):
        for part in _parts(inputs, generate(inputs)):
            for room in part.rooms:
                # fmax: what is no number is no shortage, but is named as a fault of another kind
                total += np.where(part.empty, np.fmax(1.0 - room, 0.0), 0.0)
            short |= part.empty
    return np.where(short, np.maximum(total, _LEAST), 0.0)


def _parts(inputs: Inputs, chip: Chip) -> Iterator[_Part]:
    """Yield the components of generated chips, from the cores outwards."""
    cores = chip.cores
    yield _Part(_is_empty(cores.mcus, cores.frequency), bundle_rooms(*core_given(inputs)))
    # levels serve one bundle where there is none yet: a search may mend both at once
    mcus = np.where(cores.mcus > 0.0, cores.mcus, inputs["chip.mcus_per_bundle"])
    bundles = np.ceil(mcus / inputs["chip.mcus_per_bundle"])
    for level, sram in zip(chip.levels, srams_given(inputs, mcus, bundles), strict=True):
        yield _Part(_is_empty(level.design.capacity, level.design.bandwidth), bank_rooms(sram))
    dram, supply = dram_given(inputs)
    rooms = (*device_rooms(dram), power_room(dram, supply))
    yield _Part(_is_empty(chip.dram.capacity, chip.dram.bandwidth), rooms)
    of_package = inputs["system.package.devices"]
    for name, link, needed in (
        ("intra", chip.intra, of_package > 1),
        ("inter", chip.inter, inputs["system.devices"] > of_package),
    ):
        empty = _is_empty(link.bandwidth, link.bandwidth) & needed
        yield _Part(empty, link_rooms(*link_given(inputs, name)))


def _is_empty(amount: Floats, rate: Floats) -> Bools:
    """Say where a component has nothing, or nothing that works."""
    return ~((amount > 0.0) & (rate > 0.0))
