"""Registers and caches (4.4.2, Equations 2 and 3).

The number of banks is the largest whose banks (cell area over 1 - overhead) and crossbar (banks x ports x
area of a link) fit the area, and whose leakage takes no more than a hundredth of the power. What is left
moves data: in cells, and in the controllers of the banks that are at work.
"""

from math import ceil, inf


def banks_of_all(
    area,
    power,
    ports,
    static_power,
    cell_area,
    overhead,
    bank_bytes,
    controller_area,
    link_area,
    leakage_share=0.01,
):
    """Return the banks of all instances, counted up one at a time; leakage_share: of the power."""
    banks = 0
    while True:
        more = banks + 1
        cells = more * bank_bytes * 8 * cell_area / (1 - overhead)
        crossbar = more * ports * link_area
        leakage = more * bank_bytes * 8 * static_power
        if cells + more * controller_area + crossbar > area or leakage > leakage_share * power or power == 0:
            return banks
        banks = more


def moved(dynamic_energy, controller_power, bank_width, bank_frequency):
    """Return what a bit takes, with the controller that is at work for it [J]."""
    return dynamic_energy + controller_power / (bank_width * bank_frequency) / 8


def most_instances(area, power, wanted, *bank):
    """Return how many instances of the wanted capacity the banks that fit are enough for; bank: as below."""
    bank_bytes = bank[4]
    held = banks_of_all(area, power, *bank) * bank_bytes
    instances = 0
    while (instances + 1) * wanted <= held:
        instances += 1
    return instances


def generate(
    area, power, instances, wanted, dynamic_energy, static_power, cell_area, overhead, bank_bytes, bank_width,
    bank_frequency,
    controller_power, controller_area, ports, link_area, leakage_share=0.01,
):  # fmt: skip
    """Return (banks, capacity [B], bandwidth [B/s], leakage [W]) of all instances together.

    And what the banks could move if power allowed [B/s].
    """
    banks = banks_of_all(
        area, power, ports, static_power, cell_area, overhead, bank_bytes, controller_area, link_area,
        leakage_share,
    )  # fmt: skip
    if wanted < inf:
        banks = min(banks, ceil(instances * wanted / bank_bytes))
    static = static_power * banks * bank_bytes * 8  # Equation 2
    bit = moved(dynamic_energy, controller_power, bank_width, bank_frequency)
    by_power = 0.99 * power / bit / 8  # Equation 3, in bytes
    by_banks = banks * bank_width * bank_frequency  # a bank moves at most its width each cycle of its clock
    return banks, min(banks * bank_bytes, instances * wanted), min(by_power, by_banks), static, by_banks
