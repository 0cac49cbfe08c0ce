"""Network links (4.4.4)."""

from tests.naive import voltage


def generate(
    area, power, perimeter, link_rate, link_energy, link_area, links_per_length, maximum_links, supply
):
    """Return (links, bandwidth [B/s], energy [J/bit]).

    Links by area, die edge and port, then their rate by power.
    """
    links = 0
    while (
        (links + 1) * link_area <= area
        and links + 1 <= perimeter * links_per_length
        and links + 1 <= maximum_links
    ):
        links += 1
    links, volts = voltage.operate(links, link_rate * link_energy, power, 1, *supply)
    bandwidth = links * link_rate * voltage.speed(volts, supply[0], supply[1]) / 8
    return links, bandwidth, link_energy * (volts / supply[0]) ** 2
