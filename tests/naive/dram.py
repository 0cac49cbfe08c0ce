"""Main memory (4.4.3, Equation 4).

Devices are bounded by the package, the controllers' area and the die edge; bandwidth is that of their links
at the frequency that the power left over allows.
"""

from tests.naive import voltage


def devices(
    package_area,
    device_area,
    controller_budget,
    controller_area,
    perimeter,
    links_per_length,
    links_per_device,
):
    """Equation 4, counted up one device at a time."""
    count = 0
    while (
        (count + 1) * device_area <= package_area
        and (count + 1) * controller_area <= controller_budget
        and (count + 1) * links_per_device <= perimeter * links_per_length
    ):
        count += 1
    return count


def generate(
    package_area, controller_budget, perimeter, power, links_per_device, links_per_length, dynamic_energy,
    static_power, device_bytes, device_area, controller_area, link_rate, supply, standby_share=0.4,
):  # fmt: skip
    """Return (devices, capacity [B], bandwidth [B/s], energy [J/bit], standby power [W]).

    standby_share: of the power, the most that standby of several devices takes.
    """
    count = devices(
        package_area, device_area, controller_budget, controller_area, perimeter, links_per_length,
        links_per_device,
    )  # fmt: skip
    of_device = device_bytes * 8 * static_power
    link = link_rate * dynamic_energy * voltage.power(supply[2], supply[0], supply[1])
    while count > 1 and (
        count * (of_device + links_per_device * link) > power or count * of_device > standby_share * power
    ):  # the last device would take from the links of the others
        count -= 1
    standby = count * of_device
    left = power - standby
    links, volts = voltage.operate(count * links_per_device, link_rate * dynamic_energy, left, 1, *supply)
    rate = link_rate * voltage.speed(volts, supply[0], supply[1])
    # a bit at a scaled supply takes (V / Vn)^2 of its nominal energy
    energy = dynamic_energy * (volts / supply[0]) ** 2
    return count, count * device_bytes, links * rate / 8, energy, standby
