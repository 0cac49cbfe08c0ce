"""The whole chip from a configuration point: dotted key to scalar, in SI units (4.2 to 4.4).

Section 9: area and power of a cell shrink 1.8x and 1.3x a node at the same performance. Scopes (4.2.2):
what one instance of a level serves.
"""

from math import ceil, inf, sqrt

from tests.naive import core, dram, link, scaling, sram, voltage


def _supply(point, prefix):
    return tuple(point[f"{prefix}.{name}_voltage"] for name in ("nominal", "threshold", "minimum", "maximum"))


def _served(point):
    """Return the most bundles that every level has instances of the wanted capacity for, one at least."""
    most, number = inf, 0
    while f"chip.memory.l{number}.scope" in point:
        wanted = point.get(f"chip.memory.l{number}.capacity")
        of_bundle = {"mcu": point["chip.mcus_per_bundle"], "bundle": 1, "global": None}
        of_bundle = of_bundle[point[f"chip.memory.l{number}.scope"]]
        if wanted is not None and of_bundle is not None:
            component = f"tech.memory.{point[f'chip.memory.l{number}.component']}"
            instances = sram.most_instances(
                point[f"chip.area.l{number}"] * point["chip.die_area"],
                point[f"chip.power.l{number}"] * point["chip.tdp"],
                wanted,
                point[f"{component}.ports"],
                point[f"{component}.static_power"] / scaling.divisor(point, "sram_power"),
                point[f"{component}.cell_area"] / scaling.divisor(point, "sram_area"),
                point[f"{component}.overhead"],
                point[f"{component}.bank_capacity"],
                point[f"{component}.controller_area"] / scaling.divisor(point, "logic_area"),
                point[f"{component}.link_area"] / scaling.divisor(point, "wire_area"),
            )
            most = min(most, max(instances // of_bundle, 1))
        number += 1
    return most


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
        _served(point),
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
    shares = [point[f"tech.core.{kind}_power_fraction"] for kind in ("idle", "active")]
    chip["_running_W"] = shares[1] * watts
    chip["_flop_J"] = (1 - sum(shares)) * watts / chip["compute_flops"] if mcus else 0.0
    chip["_pass_flop_J"] = chip["_flop_J"] * per_cycle / of_passes  # memory-bound passes compute in fp32

    def scaled(value, kind):
        return value / scaling.divisor(point, kind)

    number = 0
    chip["_standing_W"] = shares[0] * watts
    while f"chip.memory.l{number}.scope" in point:
        instances = {"mcu": mcus, "bundle": bundles, "global": 1}[point[f"chip.memory.l{number}.scope"]]
        bank = {
            name: point[f"tech.memory.{point[f'chip.memory.l{number}.component']}.{name}"]
            for name in (
                "dynamic_energy", "static_power", "cell_area", "overhead", "bank_capacity", "bank_width",
                "bank_frequency", "controller_power", "controller_area", "ports", "link_area",
            )
        }  # fmt: skip
        energy = scaled(bank["dynamic_energy"], "sram_power")
        controller = scaled(bank["controller_power"], "logic_power")
        banks, capacity, bandwidth, static, most = sram.generate(
            point[f"chip.area.l{number}"] * die if instances else 0.0,
            point[f"chip.power.l{number}"] * tdp,
            instances,
            point.get(f"chip.memory.l{number}.capacity", inf),
            energy,
            scaled(bank["static_power"], "sram_power"),
            scaled(bank["cell_area"], "sram_area"),
            bank["overhead"],
            bank["bank_capacity"],
            bank["bank_width"],
            bank["bank_frequency"],
            controller,
            scaled(bank["controller_area"], "logic_area"),
            bank["ports"],
            scaled(bank["link_area"], "wire_area"),
        )
        chip[f"l{number}_banks"], chip[f"l{number}_B"], chip[f"l{number}_Bps"] = banks, capacity, bandwidth
        chip[f"_l{number}_instances"], chip[f"_l{number}_banks_Bps"] = instances, most
        chip[f"_l{number}_bit_J"] = sram.moved(energy, controller, bank["bank_width"], bank["bank_frequency"])
        chip["_standing_W"] += static
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
        chip["_standing_W"] += 8 * chip[f"_{part}_bit_J"] * chip[f"{part}_Bps"]
    return chip
