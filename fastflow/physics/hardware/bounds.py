"""Limits of generated chips: areas of at least an atom, counts that an integer holds, finite quantities.

Inputs within their bounds can still make a chip that nobody could build or store: a bit cell smaller than an
atom after many generations, or more units than an integer holds. The point gets a reason. Quantities
within these limits are far from overflow, here and in all later stages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastflow.core.reasons.codes import Code, Reason, rejected
from fastflow.core.reasons.columns import Reasons
from fastflow.core.reasons.forms import below_atom, out_of_range, rate_out_of_range, scaled_out_of_range
from fastflow.core.tables import Bools, Floats, Inputs
from fastflow.physics.hardware.chip import Chip
from fastflow.physics.hardware.scaling import NODES, has_steps, is_beyond_steps, node_scaling

MAX_UNITS = 1e12  # MCUs, banks, devices, links: as of every count among the inputs
MAX_BYTES = 2.0**62  # in reach of a 64-bit address and of int64
MAX_QUANTITY = 1e30  # of any other quantity in SI units, beyond all real ones
MIN_RATE = 1.0 / MAX_QUANTITY  # of a rate that kernels reach: times at lower rates may be infinite
MIN_AREA = 1.5e-19  # of an atom: silicon's (100) surface has 6.8e18 of them on a square metre [m^2]


def check_limits(inputs: Inputs, chip: Chip, reason: Reasons) -> None:
    """Add as reason the first quantity out of bounds, for points that have no reason yet."""
    for name, column in _scaled_areas(inputs, chip):
        for i in reason.without(~(column >= MIN_AREA)):
            area, generation = float(column[i]), inputs["tech.generation"][i]
            reason.add(i, below_atom(key=name, area=area, generation=generation, least=MIN_AREA))
    _check_scaling(inputs, reason)
    names, columns, most = zip(*_quantities(inputs, chip), strict=True)
    table, limit = np.array(columns), np.array(most)[:, None]
    for row, i in _first_invalid(~((table >= 0.0) & (table <= limit)), reason):
        reason.add(i, out_of_range(quantity=names[row], value=float(table[row, i]), most=most[row]))
    names, columns = zip(*_rates(inputs, chip), strict=True)
    table = np.array(columns)
    for row, i in _first_invalid(~((table >= MIN_RATE) & (table <= MAX_QUANTITY)) & (table != 0.0), reason):
        rate = float(table[row, i])
        reason.add(i, rate_out_of_range(quantity=names[row], value=rate, least=MIN_RATE, most=MAX_QUANTITY))


def _check_scaling(inputs: Inputs, reason: Reasons) -> None:
    """Add a reason for a generation without a step, and for steps or factors whose product is not finite."""
    nodes, scaling = inputs["tech.generation"], node_scaling(inputs)
    if has_steps(inputs):
        for i in reason.without(is_beyond_steps(inputs)):
            scale = inputs["scaling.name"][i]
            allowed = f"at most {len(NODES)}: scaling {scale} has no further node"
            reason.add(i, rejected(Code.TECHNOLOGY, "tech.generation", nodes[i], allowed))
        for kind, column in zip(scaling._fields, scaling, strict=True):
            for i in reason.without(~((column >= MIN_RATE) & (column <= MAX_QUANTITY))):
                reason.add(i, _scaled_too_far(f"scaling.*.{kind}", nodes[i]))
        return
    for key, column in (("area", scaling.logic_area), ("power", scaling.logic_power)):
        for i in reason.without(~((column >= MIN_RATE) & (column <= MAX_QUANTITY))):
            factor = inputs[f"tech.scaling.{key}"][i]
            reason.add(i, _scaled_too_far(f"tech.scaling.{key}={factor:g}", nodes[i]))


def _scaled_too_far(scaling: str, generations: object) -> Reason:
    return scaled_out_of_range(scaling=scaling, generations=generations, most=MAX_QUANTITY)


def _first_invalid(invalid: Bools, reason: Reasons) -> Iterator[tuple[int, int]]:
    """Yield the first invalid row of each point and the point, for points that have no reason yet.

    invalid: (quantities, points).
    """
    for i in reason.without(np.asarray(invalid.any(axis=0))) if invalid.any() else ():
        yield int(invalid[:, i].argmax()), int(i)


def _scaled_areas(inputs: Inputs, chip: Chip) -> Iterator[tuple[str, Floats]]:
    """Yield the scaled areas of MCUs and of bit cells [m^2]."""
    scaling = node_scaling(inputs)
    yield "tech.core.nominal_area", inputs["tech.core.nominal_area"] / scaling.logic_area
    for name in np.unique([inputs[f"chip.memory.l{number}.component"] for number in range(len(chip.levels))]):
        key = f"tech.memory.{name}.cell_area"
        if key in inputs:  # an unknown component has a reason already
            yield key, inputs[key] / scaling.sram_area


def _quantities(inputs: Inputs, chip: Chip) -> Iterator[tuple[str, Floats, float]]:
    """Yield every generated quantity and its upper bound."""
    yield "the number of MCUs", chip.cores.mcus, MAX_UNITS
    yield "the number of bundles", chip.bundles, MAX_UNITS
    yield "the cores' supply [V]", chip.cores.voltage, MAX_QUANTITY
    yield "the cores' clock [Hz]", chip.cores.frequency, MAX_QUANTITY
    yield "the cores' power [W]", chip.core_power, MAX_QUANTITY
    for number, level in enumerate(chip.levels):
        yield f"the number of banks of l{number}", level.design.banks, MAX_UNITS
        yield f"the capacity of l{number} [B]", level.design.capacity, MAX_BYTES
        yield f"the bandwidth of l{number} [B/s]", level.design.bandwidth, MAX_QUANTITY
        yield f"the standing power of l{number} [W]", level.design.static_power, MAX_QUANTITY
        yield f"the energy of l{number} [J/bit]", level.dynamic_energy, MAX_QUANTITY
        yield f"the latency of l{number} [s]", level.latency, MAX_QUANTITY
    yield "the number of memory devices", chip.dram.devices, MAX_UNITS
    yield "the capacity of main memory [B]", chip.dram.capacity, MAX_BYTES
    yield "the bandwidth of main memory [B/s]", chip.dram.bandwidth, MAX_QUANTITY
    yield "the energy of main memory [J/bit]", chip.dram.energy, MAX_QUANTITY
    yield "the standby power of main memory [W]", chip.dram.static_power, MAX_QUANTITY
    joining = [("die-to-die", link) for link in chip.die_links]
    for part, link in (("intra", chip.intra), ("inter", chip.inter), *joining):
        yield f"the number of {part} links", link.links, MAX_UNITS
        yield f"the bandwidth of {part} links [B/s]", link.bandwidth, MAX_QUANTITY
        yield f"the energy of {part} links [J/bit]", link.energy, MAX_QUANTITY


def _rates(inputs: Inputs, chip: Chip) -> Iterator[tuple[str, Floats]]:
    """Yield every rate that kernels reach."""
    for number, level in enumerate(chip.levels):
        yield f"what kernels reach of l{number} [B/s]", level.design.bandwidth * level.utilization
    dram_rate = chip.dram.bandwidth * inputs["chip.dram_utilization"]
    yield "what kernels reach of main memory [B/s]", dram_rate
    for part, link in (("intra", chip.intra), ("inter", chip.inter)):
        yield f"what {part} links reach [B/s]", link.bandwidth * inputs[f"net.{part}.utilization"]
    dtype = inputs["model.dtype"]
    for name in np.unique(dtype):
        keys = (f"tech.core.flop_per_cycle.{name}", f"chip.rate.{name}")
        if all(key in inputs for key in keys):  # an unsupported data type gets its reason elsewhere
            peak = chip.cores.mcus * (inputs[keys[0]] * inputs[keys[1]]) * chip.cores.frequency
            share = np.minimum(inputs["chip.utilization"], inputs["chip.vector_utilization"])
            yield f"what kernels reach in {name} [flop/s]", np.where(dtype == name, share * peak, 0.0)
