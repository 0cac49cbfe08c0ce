"""The whole chip: every component generated from its share of the budgets, pins applied (4.2 to 4.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.columns import Floats, Inputs, Texts, table
from fastflow.errors import InputError
from fastflow.hardware.core import Core, CoreDesign, generate_cores
from fastflow.hardware.dram import Dram, DramDesign, generate_dram
from fastflow.hardware.link import Link, LinkDesign, generate_links
from fastflow.hardware.sram import Sram, SramDesign, generate_sram
from fastflow.hardware.voltage import Supply, voltage_at


class Level(NamedTuple):
    """One on-chip memory level of generated chips; shape (points,)."""

    design: SramDesign
    instances: Floats
    utilization: Floats  # share of the bandwidth that a kernel reaches
    latency: Floats  # [s]
    dynamic_energy: Floats  # [J/bit]


class Chip(NamedTuple):
    """Generated chips; every array of shape (points,), levels from the registers outwards."""

    cores: CoreDesign
    bundles: Floats
    core_power: Floats  # of all MCUs at the operating point [W]
    levels: tuple[Level, ...]
    dram: DramDesign
    intra: LinkDesign
    inter: LinkDesign
    reason: Texts  # why the budgets make no chip; empty where they do


def level_numbers(inputs: Inputs) -> list[int]:
    """Return the numbers of the on-chip levels that the inputs describe: [0, 1, 2] for l0 to l2."""
    return sorted(
        int(key.split(".")[2][1:]) for key in inputs if re.fullmatch(r"chip\.memory\.l\d+\.scope", key)
    )


def _node_scaling(inputs: Inputs) -> tuple[Floats, Floats]:
    """Return what area and power of a base-node component are divided by, `generation` nodes on."""
    generation = inputs["tech.generation"].astype(np.float64)
    return inputs["tech.scaling.area"] ** generation, inputs["tech.scaling.power"] ** generation


def _pinned(inputs: Inputs, name: str, generated: Floats) -> Floats:
    """Return the pinned quantity where the chip knows it, the generated one where it does not."""
    pin = inputs.get(f"chip.pinned.{name}")
    return generated if pin is None else pin.astype(np.float64)


def _budgets(inputs: Inputs, part: str) -> dict[str, Floats]:
    """Return area [m^2], power [W] and, for what leaves the die, perimeter [m] of a component."""
    budgets = {
        "area": inputs[f"chip.area.{part}"] * inputs["chip.die_area"],
        "power": inputs[f"chip.power.{part}"] * inputs["chip.tdp"],
    }
    if f"chip.perimeter.{part}" in inputs:
        # the die is taken as square: its edge follows from its area (4.3)
        budgets["perimeter"] = inputs[f"chip.perimeter.{part}"] * 4.0 * np.sqrt(inputs["chip.die_area"])
    return budgets


def _cores(inputs: Inputs) -> tuple[CoreDesign, Floats]:
    """Generate the cores and return them with their power at the operating point [W]."""
    area_scale, power_scale = _node_scaling(inputs)
    supply = table(Supply, inputs, "tech.core")
    nominal_power = inputs["tech.core.nominal_power"] / power_scale
    core = Core(
        **_budgets(inputs, "core"),
        mcus_per_bundle=inputs["chip.mcus_per_bundle"],
        nominal_power=nominal_power,
        nominal_area=inputs["tech.core.nominal_area"] / area_scale,
        nominal_frequency=inputs["tech.core.nominal_frequency"],
    )
    design = generate_cores(core, supply)
    frequency = _pinned(inputs, "core_Hz", design.frequency)
    voltage = design.voltage
    if "chip.pinned.core_Hz" in inputs:
        voltage = voltage_at(frequency / core.nominal_frequency, supply)
    voltage = _pinned(inputs, "core_V", voltage)
    design = CoreDesign(_pinned(inputs, "mcus", design.mcus), voltage, frequency)
    speed, lift = frequency / core.nominal_frequency, voltage / supply.nominal_voltage
    return design, design.mcus * nominal_power * speed * lift**2


def _instances(scope: Texts, mcus: Floats, bundles: Floats) -> Floats:
    """Return how many instances a level of this scope has: one an MCU, a bundle, or a die."""
    return np.where(scope == "mcu", mcus, np.where(scope == "bundle", bundles, 1.0))


def _component(inputs: Inputs, names: Texts, attribute: str) -> Floats:
    """Return an attribute of the library component that each row names."""
    out = np.full(names.size, np.nan)
    for name in np.unique(names):
        known = inputs.get(f"tech.memory.{name}.{attribute}")
        out = out if known is None else np.where(names == name, known, out)
    return out


def _levels(inputs: Inputs, mcus: Floats, bundles: Floats) -> Iterator[Level]:
    """Generate the on-chip levels, from the registers outwards."""
    area_scale, power_scale = _node_scaling(inputs)
    scales = {"cell_area": area_scale, "link_area": area_scale}
    scales |= dict.fromkeys(("dynamic_energy", "static_power", "controller_power"), power_scale)
    inner = mcus  # what the innermost level serves
    for number in level_numbers(inputs):
        where = f"chip.memory.l{number}"
        names = inputs[f"{where}.component"]
        instances = _instances(inputs[f"{where}.scope"], mcus, bundles)
        budgets = _budgets(inputs, f"l{number}")
        attributes = {
            field: _component(inputs, names, field) / scales.get(field, 1.0)
            for field in Sram._fields
            if field not in ("area", "power", "instances", "components")
        }
        served = np.divide(inner, instances, out=np.zeros_like(inner), where=instances > 0.0)
        design = generate_sram(Sram(**budgets, instances=instances, components=served, **attributes))
        design = design._replace(
            capacity=_pinned(inputs, f"l{number}_B", design.capacity),
            bandwidth=_pinned(inputs, f"l{number}_Bps", design.bandwidth),
        )
        utilization = inputs[f"{where}.utilization"]
        yield Level(design, instances, utilization, attributes["latency"], attributes["dynamic_energy"])
        inner = instances


def _dram(inputs: Inputs) -> DramDesign:
    budgets = _budgets(inputs, "dram")
    dram = table(
        Dram,
        inputs,
        "mem",
        package_area=inputs["chip.node_area"] - inputs["chip.die_area"],
        controller_budget=budgets["area"],
        perimeter=budgets["perimeter"],
        power=budgets["power"],
    )
    design = generate_dram(dram, table(Supply, inputs, "mem"))
    return design._replace(
        capacity=_pinned(inputs, "dram_capacity_B", design.capacity),
        bandwidth=_pinned(inputs, "dram_Bps", design.bandwidth),
    )


def _links(inputs: Inputs, part: str) -> LinkDesign:
    link = table(Link, inputs, f"net.{part}", **_budgets(inputs, part))
    design = generate_links(link, table(Supply, inputs, f"net.{part}"))
    return design._replace(bandwidth=_pinned(inputs, f"{part}_Bps", design.bandwidth))


def _check_levels(inputs: Inputs, reason: NDArray[np.object_]) -> None:
    """Name a level whose component the technology does not have."""
    library = sorted({key.split(".")[2] for key in inputs if key.startswith("tech.memory.")})
    for number in level_numbers(inputs):
        key = f"chip.memory.l{number}.component"
        for i in np.flatnonzero(~np.isin(inputs[key], library) & (reason == "")):
            reason[i] = str(InputError(key, inputs[key][i], "one of " + ", ".join(library)))


def _check_supplies(inputs: Inputs, reason: NDArray[np.object_]) -> None:
    for prefix in ("tech.core", "mem", "net.intra", "net.inter"):
        supply = table(Supply, inputs, prefix)
        rising = (
            (supply.threshold_voltage < supply.minimum_voltage)
            & (supply.threshold_voltage < supply.nominal_voltage)
            & (supply.minimum_voltage <= supply.maximum_voltage)
        )
        for i in np.flatnonzero(~rising & (reason == "")):
            volts = ", ".join(f"{name} {value[i]:g} V" for name, value in supply._asdict().items())
            reason[i] = f"{prefix}: supplies must rise from threshold to minimum to maximum, are {volts}"


def _check_sums(inputs: Inputs, reason: NDArray[np.object_]) -> None:
    for name in ("area", "power", "perimeter"):
        parts = {key: column for key, column in inputs.items() if key.startswith(f"chip.{name}.")}
        total = np.sum(list(parts.values()), axis=0)
        for i in np.flatnonzero((total > 1.0 + 1e-9) & (reason == "")):
            shares = " + ".join(f"{key.rsplit('.', 1)[1]} {column[i]:g}" for key, column in parts.items())
            reason[i] = (
                f"chip.{name}={total[i]:.4g}: allowed is shares that sum to at most 1, these are {shares}"
            )


def _check_components(inputs: Inputs, chip: Chip, reason: NDArray[np.object_]) -> None:
    """Name the first component that its budgets leave empty or without throughput."""
    parts: list[tuple[str, Floats, Floats]] = [("core", chip.cores.mcus, chip.cores.frequency)]
    parts += [
        (f"l{number}", level.design.capacity, level.design.bandwidth)
        for number, level in zip(level_numbers(inputs), chip.levels, strict=True)
    ]
    parts.append(("dram", chip.dram.capacity, chip.dram.bandwidth))
    parts.append(("inter", chip.inter.bandwidth, chip.inter.bandwidth))
    for part, amount, rate in parts:
        # a single device needs no network
        needed = inputs["system.devices"] > 1 if part == "inter" else np.True_
        for i in np.flatnonzero(~((amount > 0.0) & (rate > 0.0)) & needed & (reason == "")):
            budgets = ", ".join(
                f"chip.{name}.{part}={inputs[f'chip.{name}.{part}'][i]:g}"
                for name in ("area", "power", "perimeter")
                if f"chip.{name}.{part}" in inputs
            )
            what = "has no room" if not amount[i] > 0.0 else "has no power left to work"
            reason[i] = f"{part} {what}: its budgets are {budgets}"


def generate(inputs: Inputs) -> Chip:
    """Generate a chip for every row of the inputs.

    inputs: the columns of `tech`, `mem`, `net` and `chip`, each of shape (points,). A quantity
    under `chip.pinned` replaces the generated one, and what depends on it follows.

    Where the budgets sum to more than 1, or leave a component empty, `reason` says so.
    """
    reason = np.full(inputs["chip.tdp"].size, "", dtype=object)
    _check_levels(inputs, reason)
    _check_supplies(inputs, reason)
    _check_sums(inputs, reason)
    cores, core_power = _cores(inputs)
    bundles = np.ceil(cores.mcus / inputs["chip.mcus_per_bundle"])
    levels = tuple(_levels(inputs, cores.mcus, bundles))
    chip = Chip(
        cores,
        bundles,
        core_power,
        levels,
        _dram(inputs),
        _links(inputs, "intra"),
        _links(inputs, "inter"),
        reason.astype(str),
    )
    _check_components(inputs, chip, reason)
    return chip._replace(reason=reason.astype(str))


def peak_flops(inputs: Inputs, chip: Chip, dtype: Texts) -> Floats:
    """Return the peak rate of each point's chip in a data type (Equation 1) [flop/s], shape (points,)."""
    rate = np.full(dtype.size, np.nan)
    for name in np.unique(dtype):
        rate = np.where(dtype == name, inputs[f"tech.core.flop_per_cycle.{name}"], rate)
    peak: Floats = chip.cores.mcus * rate * chip.cores.frequency
    return peak


def unsupported_dtype(inputs: Inputs) -> Texts:
    """Say for every point why its chip does not compute in the model's data type; empty where it does."""
    reason = np.full(inputs["model.dtype"].size, "", dtype=object)
    for i, dtype in enumerate(inputs["model.dtype"]):
        if not (f"chip.supports.{dtype}" in inputs and inputs[f"chip.supports.{dtype}"][i]):
            able = [
                key.rsplit(".", 1)[1] for key in inputs if key.startswith("chip.supports.") and inputs[key][i]
            ]
            chip = inputs["chip.name"][i]
            reason[i] = str(
                InputError("model.dtype", dtype, f"what chip {chip} computes in: {', '.join(able)}")
            )
    return reason.astype(str)
