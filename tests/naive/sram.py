"""Registers and caches (4.4.2, Equations 2 and 3).

The number of banks is the largest whose banks (cell area over 1 - overhead) and crossbar (banks x components
in scope x area of a link) fit the area, and whose leakage and controllers leave power to move data.
"""


def banks_of_one(
    area,
    power,
    components,
    static_power,
    cell_area,
    overhead,
    bank_bytes,
    controller_power,
    controller_area,
    link_area,
):
    """Return the banks of one instance, counted up one at a time.

    "Bank count is the largest number whose banks (cell area over 1 - overhead) and crossbar (banks x
    components in scope x area per link) fit the area, and whose static and controller power leaves
    power to move data." That is, at least a quarter of it.
    """
    banks = 0
    while True:
        more = banks + 1
        cells = more * bank_bytes * 8 * cell_area / (1 - overhead)
        crossbar = more * components * link_area
        standing = more * bank_bytes * 8 * static_power + more * controller_power
        controllers = more * controller_area
        if cells + controllers + crossbar > area or standing > 0.75 * power or power == 0:
            return banks
        banks = more


def generate(
    area, power, instances, components, dynamic_energy, static_power, cell_area, overhead,
    bank_bytes, bank_width, bank_frequency, controller_power, controller_area, link_area,
):  # fmt: skip
    """Return (banks, capacity [B], bandwidth [B/s], static power [W]) of all instances together."""
    each = banks_of_one(
        area / instances, power / instances, components, static_power, cell_area, overhead, bank_bytes,
        controller_power, controller_area, link_area,
    )  # fmt: skip
    banks = each * instances
    static = static_power * banks * bank_bytes * 8 + banks * controller_power  # Equation 2, and controllers
    by_power = (power - static) / dynamic_energy / 8  # Equation 3, in bytes
    by_banks = banks * bank_width * bank_frequency  # a bank moves at most its width each cycle of its clock
    return banks, banks * bank_bytes, max(0.0, min(by_power, by_banks)), static
