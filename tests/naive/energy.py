"""Energy of one iteration of one device: what moves and computes, and what leaks meanwhile (Table 2)."""

from tests.naive.voltage import highest_voltage, speed


def lift(made, point, busy, times):
    """Return what an operation takes where idle cores leave their power to others, over that with none.

    busy: share of the cores that work. Those are at a higher supply, and energy goes with its square: as high
    as there is power for, but no higher than the kernel gains by. times: of its compute, its levels and its
    launch [s].
    """
    voltage, threshold = made["core_V"], point["tech.core.threshold_voltage"]
    highest = point["tech.core.maximum_voltage"]
    most = highest_voltage(1 / busy, voltage, threshold, voltage, highest)
    compute, longest = times[0], max(times[:-1])
    low, high = voltage, most
    for _ in range(100):
        middle = (low + high) / 2
        if compute * speed(most, voltage, threshold) / speed(middle, voltage, threshold) <= longest:
            high = middle
        else:
            low = middle
    return (high / voltage) ** 2


def awake(busy):
    """Return the share of the power of running kernels that some bundles draw: two fifths are of the chip."""
    return 0.4 + 0.6 * busy


def real_chip(kernels, per_byte, rest, running, budget, full, time):
    """Return joules of a device that draws `rest`, `running` more while kernels run, and never over budget.

    kernels: (launches, seconds of one, joules of its operations at the highest clock, bytes of each level and
    of main memory, share of the bundles that run); per_byte: joules of those levels; rest, running, budget,
    full: watts. Kernels together keep to the budget. With all units busy a device would draw `full` at the
    highest clock: above the budget the power of operations falls with the third power of the clock, their
    energy with the second.
    """
    joules, seconds_of_all = 0, 0
    for launches, seconds, of_operations, moved, busy in kernels:
        useful = of_operations / seconds / (full - rest - running)
        clock_squared = 1 / max(1, full * useful / budget)
        for _ in range(launches):
            joules += running * awake(busy) * seconds + of_operations * clock_squared
            for bytes_, energy in zip(moved, per_byte, strict=True):
                joules += bytes_ * energy
            seconds_of_all += seconds
    return min(joules, (budget - rest) * seconds_of_all) + rest * time


def iteration(kernels, per_bit, standing, running, time):
    """Return joules.

    kernels: (launches, and of one launch operations, joules of one, bytes of each level and of main memory,
    seconds, share of the bundles that run); per_bit: energies of those levels; standing: watts, of links too;
    running: watts more while a kernel runs on all bundles; time: seconds.
    """
    joules = standing * time
    for launches, flop, per_flop, moved, seconds, busy in kernels:
        for _ in range(launches):
            joules += flop * per_flop + running * awake(busy) * seconds
            for bytes_, energy in zip(moved, per_bit, strict=True):
                joules += bytes_ * 8 * energy
    return joules
