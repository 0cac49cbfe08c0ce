"""Carbon of one point: wafers, packages, machines and hours written out, in kilograms and grams.

ACT: Gupta et al., ISCA 2022. A die has the electricity, gases and materials of its part of a wafer.
"""

from math import pi

from tests.naive import cost

HOUR = 3600.0


def dies_of(point):
    """Return each kind of die: its inputs' prefix, number, and area."""
    rest, kinds = point["chip.die_area"], []
    for kind in dict.fromkeys(key.split(".")[2] for key in point if key.startswith("chip.chiplets.")):
        prefix = f"chip.chiplets.{kind}."
        held = point[f"{prefix}holds"].split()
        share = sum(point[f"chip.area.{part}"] for part in held)
        number = point[f"{prefix}dies"]
        links = point["chip.area.link"] * number / all_dies(point)
        area = (share + links) * point["chip.die_area"] / number
        kinds.append((prefix, number, area))
        rest -= number * area
    return [*kinds, ("tech.", point["chip.dies"], rest / point["chip.dies"])]


def all_dies(point):
    others = sum(
        value for key, value in point.items() if key.startswith("chip.chiplets.") and key.endswith(".dies")
    )
    return point["chip.dies"] + others


def wafer(point):
    """Return the area of a wafer [m^2]."""
    return pi * (point["cost.wafer.diameter"] / 2.0) ** 2


def device(point, stacks, capacity):
    """Return what making a device emits [kg]; stacks: its memory devices, capacity: of all of them [B]."""
    die = 0.0
    for prefix, number, area in dies_of(point):
        electricity = point[f"{prefix}fab_energy"] * wafer(point) * point["carbon.fab.intensity"]
        gases = point[f"{prefix}fab_gas"] * wafer(point)
        materials = point["carbon.fab.materials"] * wafer(point)
        critical = area * (1.0 - point["chip.salvage"]) if prefix == "tech." else area
        good = cost.works(critical, point[f"{prefix}defect_density"], point[f"{prefix}defect_cluster"])
        die += number * (electricity + gases + materials) / (cost.dies(area, point) * good)
    memory = capacity * point["mem.carbon"]
    made = die + memory
    if point["mem.on_interposer"]:
        size = point["cost.interposer.margin"] * (point["chip.die_area"] + stacks * point["mem.device_area"])
        defects = (point[f"cost.interposer.defect_{name}"] for name in ("density", "cluster"))
        made += (
            point["carbon.interposer"] * wafer(point) / (cost.dies(size, point) * cost.works(size, *defects))
        )
        made /= point["cost.interposer.assembly_yield"]
        made /= point["cost.interposer.bond_yield"] ** (all_dies(point) - 1)
    packages = point["carbon.packaging"] * (all_dies(point) + stacks)
    board = point["carbon.auxiliary"] * point["chip.tdp"]
    return {"die_carbon_kg": die, "memory_carbon_kg": memory, "device_carbon_kg": made + packages + board}


def system(point, device_kg, devices):
    """Return what making a system emits [kg]."""
    machine = (
        point["carbon.host.dram"] * point["carbon.dram"] + point["carbon.host.nand"] * point["carbon.nand"]
    )
    machine += point["carbon.host.other"]
    cards = 0.0
    if devices > point["system.package.devices"]:
        cards = 1.0
        if point["system.topology"] in ("switch", "fat_tree"):
            cards += 1.0
        if point["system.topology"] == "fat_tree":
            cards += 2.0 / point["system.oversubscription"]
    return devices * (device_kg + machine + cards * point["carbon.adapter"])


def work(point, system_kg, joules, seconds, intensity=None):
    """Return what some work emits [g]; joules: of the site; intensity: [kg/J]."""
    operational = 1000.0 * joules * (point["carbon.intensity"] if intensity is None else intensity)
    life = point["carbon.lifetime"] * point["carbon.utilization"]
    embodied = 1000.0 * system_kg * (seconds / life)
    return {"operational_g": operational, "embodied_g": embodied, "carbon_g": operational + embodied}


def mean_of(values, start, duration, steps=20_000):
    """Return the mean of hourly values over some time [s], by the middles of small steps."""
    times = (start + (step + 0.5) * duration / steps for step in range(steps))
    return sum(values[int(time // HOUR) % len(values)] for time in times) / steps
