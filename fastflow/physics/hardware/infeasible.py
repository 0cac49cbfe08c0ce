"""The reasons why a point has no chip: inconsistent budgets, voltages and levels, in words.

An infeasible point is no error of the program: it becomes a row with its reason (4.3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.reasons.forms import no_area_for_cores, no_power, no_room, supplies_not_rising
from fastflow.core.tables import Bools, Floats, Inputs, table
from fastflow.physics.hardware.bounds import check_limits
from fastflow.physics.hardware.chip import Chip, component_names, generate
from fastflow.physics.hardware.chiplets import CHIPLETS, LINK, areas, die_kinds, dies, has_links, needed_area
from fastflow.physics.hardware.packages import per_package
from fastflow.physics.hardware.power import LIMIT, power_of
from fastflow.physics.hardware.voltage import Supply


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def chip_faults(inputs: Inputs, chip: Chip) -> ReasonColumn:
    """Return the reason why each point's budgets make no chip, (points,)."""
    reason = Reasons(inputs["chip.tdp"].size)
    _check_levels(inputs, chip, reason)
    _check_pins(inputs, reason)
    _check_supplies(inputs, reason)
    _check_sums(inputs, reason)
    _check_dies(inputs, reason)
    _check_power_limit(inputs, chip, reason)
    check_limits(inputs, chip, reason)
    _check_components(inputs, chip, reason)
    return reason.column()


def unsupported_dtype(inputs: Inputs) -> ReasonColumn:
    """Return the reason why each point's chip lacks the model's data type, (points,)."""
    dtypes = inputs["model.dtype"]
    reason = Reasons(dtypes.size)
    rates = {key.split(".")[2]: rate for key, rate in inputs.items() if key.startswith("chip.rate.")}
    for dtype in np.unique(dtypes):
        rate = rates.get(str(dtype), np.zeros(dtypes.size))
        if ((dtypes == dtype) & (rate > 0.0)).any():
            inputs[f"chip.matrix.{dtype}"]  # a KeyError where the units of this type are missing
        for i in np.flatnonzero((dtypes == dtype) & (rate == 0.0)):
            others = ", ".join(name for name, rate in rates.items() if rate[i] > 0.0)
            allowed = f"a data type of chip {inputs['chip.name'][i]}: {others}"
            reason.add(i, rejected(Code.DATA_TYPE, "model.dtype", dtype, allowed))
    return reason.column()


def _check_pins(inputs: Inputs, reason: Reasons) -> None:
    """Add a reason for a technology that is not that of the pinned quantities: the pins would hide it."""
    if not any(key.startswith("chip.pinned.") for key in inputs):
        return
    for group in ("tech", "mem"):
        pinned = inputs.get(f"chip.made.{group}", inputs[f"{group}.name"])
        rows = reason.without(pinned != inputs[f"{group}.name"])
        for i, fault in zip(rows, _faults_without_pins(inputs, rows), strict=True):
            chip, other = inputs["chip.name"][i], inputs[f"{group}.name"][i]
            hint = "calibration=none generates them instead"
            if fault:
                hint = f"chip=pathfinding is generated in {other} (this one with calibration=none: {fault})"
            allowed = f"{pinned[i]}, since {chip} pins its figures; {hint}"
            reason.add(i, rejected(Code.PINNED_CHIP, f"{group}.name", other, allowed))


def _faults_without_pins(inputs: Inputs, rows: list[int]) -> list[str]:
    """Return the text why some points have no chip without pins, or ""; rows: of the points."""
    if not rows:
        return []
    bare = {key: column[rows] for key, column in inputs.items() if not key.startswith("chip.pinned.")}
    return chip_faults(bare, generate(bare)).texts().tolist()  # type: ignore[no-any-return]


def _check_levels(inputs: Inputs, chip: Chip, reason: Reasons) -> None:
    """Add a reason for a level with a component that the technology does not have."""
    library = sorted(component_names(inputs))
    for number in range(len(chip.levels)):
        key = f"chip.memory.l{number}.component"
        names, inverse = factorize(inputs[key])
        unknown = np.array([name not in library for name in names], dtype=np.bool_)
        for i in reason.without(unknown[inverse]):
            reason.add(i, rejected(Code.TECHNOLOGY, key, inputs[key][i], "one of " + ", ".join(library)))


def _check_supplies(inputs: Inputs, reason: Reasons) -> None:
    """Add a reason for supplies that do not rise from threshold to minimum to maximum."""
    for prefix in (
        "tech.core",
        "mem",
        "net.intra",
        "net.inter",
        *([f"chip.{LINK}"] if has_links(inputs) else []),
    ):
        supply = table(Supply, inputs, prefix)
        rising = (
            (supply.threshold_voltage < supply.minimum_voltage)
            & (supply.threshold_voltage < supply.nominal_voltage)
            & (supply.minimum_voltage <= supply.maximum_voltage)
        )
        for i in reason.without(~rising):
            volts = {name: float(value[i]) for name, value in supply._asdict().items()}
            reason.add(i, supplies_not_rising(section=prefix, volts=volts))


_SHARES = ("chip.area.", "chip.power.", "chip.perimeter.")


def _check_sums(inputs: Inputs, reason: Reasons) -> None:
    """Add a reason for shares of a budget that sum to more than 1."""
    all_shares = {key: column for key, column in inputs.items() if key.startswith(_SHARES)}
    for prefix in _SHARES:
        parts = {key: column for key, column in all_shares.items() if key.startswith(prefix)}
        total = np.sum(list(parts.values()), axis=0)
        for i in reason.without(total > 1.0 + 1e-9):
            shares = " + ".join(f"{key.rsplit('.', 1)[1]} {column[i]:g}" for key, column in parts.items())
            expected = f"shares that sum to at most 1; these are {shares}"
            reason.add(i, rejected(Code.BUDGET_SHARES, prefix[:-1], f"{total[i]:.4g}", expected))


def _check_dies(inputs: Inputs, reason: Reasons) -> None:
    """Add a reason for set die areas that are too small, or leave too little for the cores' dies."""
    sized = [kind for kind in die_kinds(inputs) if f"{CHIPLETS}{kind}.die_area" in inputs]
    if not sized:
        return
    for kind, number, area in areas(inputs):
        needed = needed_area(inputs, kind) / number
        for i in reason.without(needed > area * (1.0 + 1e-9)):
            need, size = f"{needed[i] * 1e6:.4g} mm2", f"{area[i] * 1e6:.4g} mm2"
            if kind:
                allowed = f"at least the {need} of what such a die holds"
                reason.add(i, rejected(Code.DIE_AREA, f"{CHIPLETS}{kind}.die_area", size, allowed))
            else:
                keys = " and ".join(f"{CHIPLETS}{name}.die_area" for name in sized)
                reason.add(i, no_area_for_cores(keys=keys, left=size, needed=need))


def _check_power_limit(inputs: Inputs, chip: Chip, reason: Reasons) -> None:
    """Add a reason for a power limit above the budget, or not above what the device draws at rest."""
    if LIMIT not in inputs:
        return
    limit, budget, rest = inputs[LIMIT], inputs["chip.tdp"], power_of(inputs, chip).idle
    for i in reason.without((limit > budget) | (limit <= rest)):
        allowed = (
            f"above the {rest[i]:.4g} W that {inputs['chip.name'][i]} draws at rest, and at most"
            f" chip.tdp={budget[i]:.6g} W"
        )
        reason.add(i, rejected(Code.POWER_LIMIT, LIMIT, f"{limit[i]:.6g} W", allowed))


class Component(NamedTuple):
    """A component of generated chips; shape (points,)."""

    name: str
    has_room: Bools
    empty: Bools  # it is needed, and has no capacity or no throughput


def components(inputs: Inputs, chip: Chip) -> list[Component]:
    """Return the components of generated chips, from the cores outwards: and whether they are empty."""
    # without links between dies, levels on other dies are empty too: links come first
    parts: list[tuple[str, Floats, Floats]] = [
        (LINK, link.bandwidth, link.bandwidth) for link in chip.die_links
    ]
    parts.append(("core", chip.cores.mcus, chip.cores.frequency))
    parts += [
        (f"l{number}", level.design.capacity, level.design.bandwidth)
        for number, level in enumerate(chip.levels)
    ]
    parts.append(("dram", chip.dram.capacity, chip.dram.bandwidth))
    parts += [
        (part, link.bandwidth, link.bandwidth)
        for part, link in (("intra", chip.intra), ("inter", chip.inter))
    ]
    devices = per_package(inputs)
    # a single device needs no network, a single die no links
    networks = {
        "intra": devices > 1, "inter": inputs["system.devices"] > devices, LINK: dies(inputs) > 1.0,
    }  # fmt: skip
    return [
        Component(name, amount > 0.0, ~((amount > 0.0) & (rate > 0.0)) & networks.get(name, np.True_))
        for name, amount, rate in parts
    ]


def _check_components(inputs: Inputs, chip: Chip, reason: Reasons) -> None:
    """Add a reason for the first component without capacity or throughput."""
    for part, has_room, empty in components(inputs, chip):
        for i in reason.without(empty):
            budgets = ", ".join(
                f"chip.{name}.{part}={inputs[f'chip.{name}.{part}'][i]:g}"
                for name in ("area", "power", "perimeter")
                if f"chip.{name}.{part}" in inputs
            )
            if part == "dram":
                package, die = inputs["chip.node_area"][i] * 1e6, inputs["chip.die_area"][i] * 1e6
                budgets += f", and chip.node_area={package:g} mm2 for a die of {die:g} mm2"
            empty_component = no_power if has_room[i] else no_room
            reason.add(i, empty_component(component=part, budgets=budgets))
