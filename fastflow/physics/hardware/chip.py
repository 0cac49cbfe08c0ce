"""The chip: all components generated from their budgets, then pinned quantities applied (4.2 to 4.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Floats, Inputs, Texts, table
from fastflow.physics.hardware.chiplets import (
    LINK,
    Crossing,
    crossing_shares,
    crossings,
    die_kinds,
    has_links,
    inner_edge,
    inputs_at_die,
)
from fastflow.physics.hardware.core import Core, CoreDesign, generate_cores
from fastflow.physics.hardware.dram import Dram, DramDesign, generate_dram
from fastflow.physics.hardware.leakage import left_for_switching
from fastflow.physics.hardware.link import Link, LinkDesign, generate_links
from fastflow.physics.hardware.scaling import node_scaling
from fastflow.physics.hardware.sram import (
    Sram,
    SramComponent,
    SramDesign,
    generate_sram,
    max_instances,
    moved_energy,
)
from fastflow.physics.hardware.voltage import Supply, voltage_at


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
    die_links: tuple[LinkDesign, ...]  # from die to die: empty, or one entry where dies have links
    dram_latency: Floats  # from the last level on [s]


_LEVEL = "chip.memory.l"
_LEVEL_END = len(_LEVEL)


def level_numbers(inputs: Inputs) -> list[int]:
    """Return the numbers of the on-chip levels that the inputs describe: [0, 1, 2] for l0 to l2.

    A level exists if any of its keys does, so that a level without a scope is an error later.
    Raises InputError for a gap in the numbers.
    """
    parts = {key[_LEVEL_END:].partition(".")[0] for key in inputs if key.startswith(_LEVEL)}
    numbers = sorted({int(number) for number in parts if number.isdecimal()})
    if not numbers or numbers != list(range(len(numbers))):
        names = " and ".join(f"l{number}" for number in numbers) or "nothing"
        raise InputError("chip.memory", names, "levels numbered l0, l1 and so on, without a gap")
    return numbers


def _pinned(inputs: Inputs, name: str, generated: Floats) -> Floats:
    """Return the pinned quantity if the chip has one, otherwise the generated quantity."""
    pin = inputs.get(f"chip.pinned.{name}")
    return generated if pin is None else pin.astype(np.float64)


def _budgets(inputs: Inputs, part: str, leaves_die: bool = False) -> dict[str, Floats]:
    """Return the budgets of a component: area [m^2], power [W] and, for links off the die, perimeter [m]."""
    budgets = {
        "area": inputs[f"chip.area.{part}"] * inputs["chip.die_area"],
        "power": inputs[f"chip.power.{part}"] * inputs["chip.tdp"],
    }
    if leaves_die:
        # the die is taken as square: its edge follows from its area (4.3)
        budgets["perimeter"] = inputs[f"chip.perimeter.{part}"] * 4.0 * np.sqrt(inputs["chip.die_area"])
    return budgets


def _max_bundles(inputs: Inputs) -> Floats:
    """Return how many bundles on-chip memories serve, at least 1; infinite where no capacity is required."""
    ones = np.ones(inputs["chip.tdp"].size)
    most = np.full(ones.size, np.inf)
    for number, sram in enumerate(sram_parameters(inputs, ones, ones)):
        scope = inputs[f"chip.memory.l{number}.scope"]
        of_bundle = np.where(scope == "mcu", inputs["chip.mcus_per_bundle"], 1)
        served = np.where(scope == "global", np.inf, np.floor(max_instances(sram) / of_bundle))
        most = np.minimum(most, np.maximum(served, 1.0))
    return most


def core_parameters(inputs: Inputs) -> tuple[Core, Supply]:
    """Return the generator's inputs for the cores; shape (points,)."""
    scaling = node_scaling(inputs)
    # shared logic of a bundle is divided among its MCUs
    crowd = inputs["tech.core.nominal_bundle"] / inputs["chip.mcus_per_bundle"]
    power, area = (1.0 + inputs[f"tech.core.shared_{budget}"] * (crowd - 1.0) for budget in ("power", "area"))
    budgets = _budgets(inputs, "core")
    # a hot die leaks what its cores do not have for switching
    budgets["power"] = budgets["power"] * left_for_switching(inputs)
    core = Core(
        **budgets,
        bundles=_max_bundles(inputs),
        mcus_per_bundle=inputs["chip.mcus_per_bundle"],
        nominal_power=inputs["tech.core.nominal_power"] * power / scaling.logic_power,
        nominal_area=inputs["tech.core.nominal_area"] * area / scaling.logic_area,
        nominal_frequency=inputs["tech.core.nominal_frequency"],
    )
    return core, table(Supply, inputs, "tech.core")


def _cores(inputs: Inputs) -> tuple[CoreDesign, Floats]:
    """Generate the cores and return them with their power at the operating point [W]."""
    core, supply = core_parameters(inputs)
    if "chip.pinned.mcus" in inputs:
        # a pinned number of MCUs takes the area that it needs, and shares the power budget
        core = core._replace(
            area=(inputs["chip.pinned.mcus"] + 0.5) * core.nominal_area,
            bundles=np.full(core.area.size, np.inf),
        )
    design = generate_cores(core, supply)
    frequency = _pinned(inputs, "core_Hz", design.frequency)
    voltage = design.voltage
    if "chip.pinned.core_Hz" in inputs:
        voltage = voltage_at(frequency / core.nominal_frequency, supply)
    voltage = _pinned(inputs, "core_V", voltage)
    design = CoreDesign(_pinned(inputs, "mcus", design.mcus), voltage, frequency)
    speed, lift = frequency / core.nominal_frequency, voltage / supply.nominal_voltage
    return design, design.mcus * core.nominal_power * speed * lift**2


def _instances(scope: Texts, mcus: Floats, bundles: Floats) -> Floats:
    """Return how many instances a level of this scope has: one per MCU, per bundle, or per die."""
    return np.where(scope == "mcu", mcus, np.where(scope == "bundle", bundles, 1.0))


def _component(inputs: Inputs, rows_by_name: Mapping[str, Bools | None], attribute: str) -> Floats:
    """Return an attribute of each row's library component; NaN for an unknown component.

    rows_by_name: of each component, None: all rows. Raises KeyError for a component without the attribute.
    """
    column: Floats | float = np.nan
    for name, rows in rows_by_name.items():
        values = inputs[f"tech.memory.{name}.{attribute}"]
        if rows is None:
            return values
        column = np.where(rows, values, column)
    return np.broadcast_to(column, inputs["chip.tdp"].shape)


def component_names(inputs: Inputs) -> set[str]:
    """Return the names of the memory components that the technology library has."""
    return {key.split(".")[2] for key in inputs if key.startswith("tech.memory.")}


def _scales(inputs: Inputs) -> dict[str, Floats]:
    """Return the divisors of attributes of on-chip memories."""
    scaling = node_scaling(inputs)
    return {
        "dynamic_energy": scaling.sram_power, "static_power": scaling.sram_power,
        "cell_area": scaling.sram_area, "link_area": scaling.wire_area,
        "controller_area": scaling.logic_area, "controller_power": scaling.logic_power,
    }  # fmt: skip


def sram_parameters(inputs: Inputs, mcus: Floats, bundles: Floats) -> Iterator[Sram]:
    """Yield the generator's inputs for each on-chip level, from the registers outwards."""
    core_scales = _scales(inputs)
    library = sorted(component_names(inputs))
    for number in level_numbers(inputs):
        where = f"chip.memory.l{number}"
        scales = _scales(inputs_at_die(inputs, f"l{number}")) if die_kinds(inputs) else core_scales
        names = inputs[f"{where}.component"]
        instances = _instances(inputs[f"{where}.scope"], mcus, bundles)
        budgets = _budgets(inputs, f"l{number}")
        rows_of = ((name, names == name) for name in library)
        rows_by_name = {name: None if rows.all() else rows for name, rows in rows_of if rows.any()}
        component = SramComponent(
            *(
                _component(inputs, rows_by_name, field) / scales.get(field, 1.0)
                for field in SramComponent._fields
            )
        )
        capacity = np.ascontiguousarray(inputs.get(f"{where}.capacity", np.full(instances.size, np.inf)))
        yield Sram(**budgets, instances=instances, target_capacity=capacity, component=component)


def _levels(inputs: Inputs, mcus: Floats, bundles: Floats, crossing: Sequence[Crossing]) -> Iterator[Level]:
    """Generate the on-chip levels, from the registers outwards; crossing: of each level's traffic."""
    for number, sram in enumerate(sram_parameters(inputs, mcus, bundles)):
        design = generate_sram(sram)
        limit = crossing[number].bandwidth
        design = design._replace(
            capacity=_pinned(inputs, f"l{number}_B", design.capacity),
            bandwidth=_pinned(inputs, f"l{number}_Bps", np.minimum(design.bandwidth, limit)),
            ceiling=_pinned(inputs, f"l{number}_Bps", np.minimum(design.ceiling, limit)),
        )
        utilization = inputs[f"chip.memory.l{number}.utilization"]
        yield Level(
            design=design,
            instances=sram.instances,
            utilization=utilization,
            latency=sram.component.latency + crossing[number].latency,
            dynamic_energy=moved_energy(sram.component) + crossing[number].energy,
        )


def dram_parameters(inputs: Inputs) -> tuple[Dram, Supply]:
    """Return the generator's inputs for main memory; shape (points,)."""
    budgets = _budgets(inputs, "dram", leaves_die=True)
    dram = table(
        Dram,
        inputs,
        "mem",
        package_area=inputs["chip.node_area"] - inputs["chip.die_area"],
        controller_budget=budgets["area"],
        perimeter=budgets["perimeter"],
        power=budgets["power"],
    )
    return dram, table(Supply, inputs, "mem")


def _dram(inputs: Inputs, crossing: Crossing) -> DramDesign:
    design = generate_dram(*dram_parameters(inputs))
    return design._replace(
        capacity=_pinned(inputs, "dram_capacity_B", design.capacity),
        bandwidth=_pinned(inputs, "dram_Bps", np.minimum(design.bandwidth, crossing.bandwidth)),
        energy=_pinned(inputs, "dram_JpB", 8.0 * (design.energy + crossing.energy)) / 8.0,
    )


def link_parameters(inputs: Inputs, part: str) -> tuple[Link, Supply]:
    """Return the generator's inputs for the links of a network, intra or inter; shape (points,)."""
    link = table(Link, inputs, f"net.{part}", **_budgets(inputs, part, leaves_die=True))
    scaling = node_scaling(inputs_at_die(inputs, part))
    return link._replace(nominal_area=link.nominal_area / scaling.analog_area), table(
        Supply, inputs, f"net.{part}"
    )


def die_link_parameters(inputs: Inputs) -> tuple[Link, Supply]:
    """Return the generator's inputs for the links between dies; shape (points,)."""
    budgets = _budgets(inputs, LINK) | {"perimeter": inner_edge(inputs)}
    return table(Link, inputs, f"chip.{LINK}", **budgets), table(Supply, inputs, f"chip.{LINK}")


def _links(inputs: Inputs, part: str) -> LinkDesign:
    design = generate_links(*link_parameters(inputs, part))
    return design._replace(bandwidth=_pinned(inputs, f"{part}_Bps", design.bandwidth))


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # `bounds` gives the reasons
def generate(inputs: Inputs) -> Chip:
    """Generate a chip for every row of the inputs.

    inputs: the columns of `tech`, `mem`, `net` and `chip`, each of shape (points,). A quantity
    under `chip.pinned` replaces the generated quantity and changes all that depend on it. Budgets
    that make no chip leave zeros, which `infeasible` explains.
    """
    cores, core_power = _cores(inputs)
    bundles = np.ceil(cores.mcus / inputs["chip.mcus_per_bundle"])
    die_links: tuple[LinkDesign, ...]
    shares = crossing_shares(inputs, len(level_numbers(inputs)))
    die_links, crossing = (), crossings(shares, *np.zeros((3, bundles.size)))
    if has_links(inputs):
        die_links = (generate_links(*die_link_parameters(inputs)),)
        latency = inputs[f"chip.{LINK}.latency"]
        crossing = crossings(shares, die_links[0].bandwidth, latency, die_links[0].energy)
    levels = tuple(_levels(inputs, cores.mcus, bundles, crossing))
    return Chip(
        cores=cores,
        bundles=bundles,
        core_power=core_power,
        levels=levels,
        dram=_dram(inputs, crossing[-1]),
        intra=_links(inputs, "intra"),
        inter=_links(inputs, "inter"),
        die_links=die_links,
        dram_latency=inputs["mem.latency"] + crossing[-1].latency,
    )


def peak_flops(inputs: Inputs, chip: Chip, dtype: Texts) -> Floats:
    """Return the peak rate of each point's chip in a data type (Equation 1) [flop/s], shape (points,).

    0 in a type that the chip does not have.
    """
    rate = np.full(dtype.size, np.nan)
    names, inverse = factorize(dtype)
    for number, name in enumerate(names):
        chip_rate = inputs.get(f"chip.rate.{name}", np.zeros(dtype.size))
        if (chip_rate > 0.0).any():
            chip_rate = inputs[f"tech.core.flop_per_cycle.{name}"] * chip_rate
        rate = np.where(inverse == number, chip_rate, rate)
    peak: Floats = chip.cores.mcus * rate * chip.cores.frequency
    return peak
