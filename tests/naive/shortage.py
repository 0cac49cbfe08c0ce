"""How much of their budgets the components of a chip lack, from what Section 4 says that they take.

A component lacks, of each of its budgets, the part of its smallest useful form that does not fit:
- cores: one bundle of MCUs, by area, and by power at the lowest supply (4.4.1);
- an on-chip level: a bank with its crossbar in every instance, by area, and by power, a quarter of
  which is left to move data (4.4.2);
- main memory: one device, by package area, controller area and die edge (Equation 4), and by power one
  link at the lowest supply beside the standby of the devices that fit (4.4.3);
- a network that the system needs: one link, by area, die edge, and power at the lowest supply (4.4.4).
"""

from math import inf, sqrt

from tests.naive import scaling, voltage
from tests.naive.chip import _supply


def lacking(budget, need):
    """Return the part of a need that a budget does not meet."""
    return 0.0 if budget >= need else (need - budget) / need


def shortage(point):
    """Return the sum over all components of a chip with nothing pinned: dotted key to scalar, in SI units."""
    die, tdp, edge = point["chip.die_area"], point["chip.tdp"], 4 * sqrt(point["chip.die_area"])
    group = point["chip.mcus_per_bundle"]
    total = 0.0

    def area(part):
        return point[f"chip.area.{part}"] * die

    def power(part):
        return point[f"chip.power.{part}"] * tdp

    def lowest(prefix):
        nominal, threshold, minimum, _ = _supply(point, prefix)
        return voltage.power(minimum, nominal, threshold)

    mcu_area, mcu_power = scaling.mcu(point, "area"), scaling.mcu(point, "power")
    total += lacking(area("core"), group * mcu_area)
    total += lacking(power("core"), group * mcu_power * lowest("tech.core"))

    number = 0
    while f"chip.memory.l{number}.scope" in point:
        part, where = f"l{number}", f"tech.memory.{point[f'chip.memory.l{number}.component']}"
        bits = 8 * point[f"{where}.bank_capacity"]
        bank = bits * point[f"{where}.cell_area"] / (1 - point[f"{where}.overhead"])
        bank /= scaling.divisor(point, "sram_area")
        bank += point[f"{where}.ports"] * point[f"{where}.link_area"] / scaling.divisor(point, "wire_area")
        bank += point[f"{where}.controller_area"] / scaling.divisor(point, "logic_area")
        leakage = bits * point[f"{where}.static_power"] / scaling.divisor(point, "sram_power")
        total += lacking(area(part), bank)
        total += lacking(power(part), leakage / 0.01)
        number += 1

    package, device = point["chip.node_area"] - die, point["mem.device_area"]
    controller, links = point["mem.controller_area"], point["mem.links_per_device"]
    dense = point["mem.links_per_length"]
    reach = point["chip.perimeter.dram"] * edge
    standby = 8 * point["mem.device_capacity"] * point["mem.static_power"]
    link = point["mem.nominal_frequency"] * point["mem.dynamic_energy"] * lowest("mem")
    total += lacking(package, device) + lacking(area("dram"), controller)
    total += lacking(reach * dense, links) + lacking(power("dram"), standby + link)

    of_package = point["system.package.devices"]
    needed = {"intra": of_package > 1, "inter": point["system.devices"] > of_package}
    for part, where in (("intra", "net.intra"), ("inter", "net.inter")):
        if needed[part]:
            link = point[f"{where}.nominal_frequency"] * point[f"{where}.nominal_energy"]
            smaller = scaling.divisor(point, "analog_area")
            total += lacking(area(part), point[f"{where}.nominal_area"] / smaller)
            total += lacking(point[f"chip.perimeter.{part}"] * edge * point[f"{where}.links_per_length"], 1)
            total += lacking(power(part), link * lowest(where))
    assert total < inf
    return total
