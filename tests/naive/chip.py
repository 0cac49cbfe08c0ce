"""The whole chip from a configuration point: dotted key to scalar, in SI units (4.2 to 4.4).

Section 9: area and power of a cell shrink 1.8x and 1.3x a node at the same performance. Scopes (4.2.2):
what one instance of a level serves.
"""

from math import ceil, sqrt

from tests.naive import core, dram, link, scaling, sram, voltage


def _supply(point, prefix):
    return tuple(point[f"{prefix}.{name}_voltage"] for name in ("nominal", "threshold", "minimum", "maximum"))


def generate(point):
    """Return the generated quantities under the names of the result columns; nothing pinned.

    Names that begin with "_" are no result columns: instances of a level, energies [J], and the power
    that a chip takes whether it works or not [W].
    """
    die, tdp, edge = point["chip.die_area"], point["chip.tdp"], 4 * sqrt(point["chip.die_area"])
    chip = {}

    mcus, chip["core_V"], chip["core_Hz"] = core.generate(
        point["chip.area.core"] * die,
        point["chip.power.core"] * tdp,
        point["chip.mcus_per_bundle"],
        scaling.mcu(point, "area"),
        scaling.mcu(point, "power"),
        point["tech.core.nominal_frequency"],
        _supply(point, "tech.core"),
    )
    bundles = ceil(mcus / point["chip.mcus_per_bundle"])
    chip["mcus"], chip["bundles"] = mcus, bundles
    nominal = point["tech.core.nominal_frequency"]
    per_cycle, of_passes = (
        point[f"tech.core.flop_per_cycle.{dtype}"] * point[f"chip.rate.{dtype}"]
        for dtype in (point["model.dtype"], "fp32")
    )
    chip["compute_flops"] = core.throughput(mcus, per_cycle * nominal, chip["core_Hz"], nominal)

    watts = mcus * scaling.mcu(point, "power")
    watts *= voltage.power(chip["core_V"], *_supply(point, "tech.core")[:2])
    chip["_flop_J"] = watts / chip["compute_flops"] if mcus else 0.0
    chip["_pass_flop_J"] = chip["_flop_J"] * per_cycle / of_passes  # memory-bound passes compute in fp32

    smaller, thriftier = scaling.divisor(point, "sram_area"), scaling.divisor(point, "sram_power")
    served = mcus
    number = 0
    chip["_standing_W"] = 0.0
    while f"chip.memory.l{number}.scope" in point:
        instances = {"mcu": mcus, "bundle": bundles, "global": 1}[point[f"chip.memory.l{number}.scope"]]
        bank = {
            name: point[f"tech.memory.{point[f'chip.memory.l{number}.component']}.{name}"]
            for name in (
                "dynamic_energy", "static_power", "cell_area", "overhead", "bank_capacity", "bank_width",
                "bank_frequency", "controller_power", "controller_area", "link_area",
            )
        }  # fmt: skip
        banks, capacity, bandwidth, static = sram.generate(
            point[f"chip.area.l{number}"] * die,
            point[f"chip.power.l{number}"] * tdp,
            instances,
            served / instances,
            bank["dynamic_energy"] / thriftier,
            bank["static_power"] / thriftier,
            bank["cell_area"] / smaller,
            bank["overhead"],
            bank["bank_capacity"],
            bank["bank_width"],
            bank["bank_frequency"],
            bank["controller_power"] / scaling.divisor(point, "logic_power"),
            bank["controller_area"] / scaling.divisor(point, "logic_area"),
            bank["link_area"] / smaller,
        )
        chip[f"l{number}_banks"], chip[f"l{number}_B"], chip[f"l{number}_Bps"] = banks, capacity, bandwidth
        chip[f"_l{number}_instances"] = instances
        chip[f"_l{number}_bit_J"] = bank["dynamic_energy"] / thriftier
        chip["_standing_W"] += static
        served = instances
        number += 1

    memory = dram.generate(
        point["chip.node_area"] - die,
        point["chip.area.dram"] * die,
        point["chip.perimeter.dram"] * edge,
        point["chip.power.dram"] * tdp,
        point["mem.links_per_device"],
        point["mem.links_per_length"],
        point["mem.dynamic_energy"],
        point["mem.static_power"],
        point["mem.device_capacity"],
        point["mem.device_area"],
        point["mem.controller_area"],
        point["mem.nominal_frequency"],
        _supply(point, "mem"),
    )
    chip["dram_devices"], chip["dram_capacity_B"], chip["dram_Bps"], chip["_dram_bit_J"], standby = memory
    chip["_standing_W"] += standby
    for part in ("intra", "inter"):
        _, chip[f"{part}_Bps"], chip[f"_{part}_bit_J"] = link.generate(
            point[f"chip.area.{part}"] * die,
            point[f"chip.power.{part}"] * tdp,
            point[f"chip.perimeter.{part}"] * edge,
            point[f"net.{part}.nominal_frequency"],
            point[f"net.{part}.nominal_energy"],
            point[f"net.{part}.nominal_area"] / scaling.divisor(point, "analog_area"),
            point[f"net.{part}.links_per_length"],
            point[f"net.{part}.maximum_links"],
            _supply(point, f"net.{part}"),
        )
    return chip
