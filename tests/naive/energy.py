"""Energy of one iteration of one device: what moves and computes, and what leaks meanwhile (Table 2)."""

from tests.naive.voltage import highest_voltage


def lift(made, point, busy):
    """Return what an operation takes where idle cores leave their power to others, over that with none.

    busy: share of the cores that work. Those are at a higher supply, and energy goes with its square.
    """
    voltage, threshold = made["core_V"], point["tech.core.threshold_voltage"]
    highest = point["tech.core.maximum_voltage"]
    return (highest_voltage(1 / busy, voltage, threshold, voltage, highest) / voltage) ** 2


def iteration(kernels, per_bit, per_bit_sent, sent, standing, time):
    """Return joules.

    kernels: (launches, and of one launch operations, joules of one, bytes of each level and of main
    memory); per_bit: energies of those levels; sent: bytes on the network; standing: watts; time: seconds.
    """
    joules = standing * time + sent * 8 * per_bit_sent
    for launches, flop, per_flop, moved in kernels:
        for _ in range(launches):
            joules += flop * per_flop
            for bytes_, energy in zip(moved, per_bit, strict=True):
                joules += bytes_ * 8 * energy
    return joules
