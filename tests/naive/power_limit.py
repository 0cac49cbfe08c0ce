"""A kernel on a device whose power is limited: by bisection over the supply, a step of voltage at a time."""

from tests.naive.voltage import speed


def at_supply(kernel, chip, volts, share):
    """Return seconds and watts of a kernel at a supply, and a share of the clock that the supply allows.

    kernel: joules of operations and on-chip bytes, joules of bytes of main memory, seconds, seconds of each
    on-chip resource, of main memory and of launches, and the supply and the joules hold at `start` volts.
    """
    start, threshold = kernel["start"], chip["threshold"]
    clock = share * speed(volts, start, threshold)
    longest = sum((part / clock) ** 4 for part in kernel["inside"]) + kernel["memory"] ** 4
    first = sum(part**4 for part in kernel["inside"]) + kernel["memory"] ** 4
    seconds = kernel["seconds"] * (longest**0.25 + kernel["launches"]) / (first**0.25 + kernel["launches"])
    lift = (volts / start) ** 2
    watts = chip["rest"] - chip["leaking"] * (1 - (volts / start) ** 3) + chip["running"] * clock * lift
    return seconds, watts + (kernel["switching"] * lift + kernel["moving"]) / seconds


def limited(kernel, chip, limit):
    """Return seconds and watts of a kernel at a limit: at the highest supply, or clock, within it."""
    seconds, watts = at_supply(kernel, chip, kernel["start"], 1.0)
    if watts <= limit:
        return seconds, watts
    lowest = min(chip["minimum"], kernel["start"])
    if at_supply(kernel, chip, lowest, 1.0)[1] <= limit:
        low, high = lowest, kernel["start"]
        for _ in range(200):
            middle = (low + high) / 2
            if at_supply(kernel, chip, middle, 1.0)[1] <= limit:
                low = middle
            else:
                high = middle
        return at_supply(kernel, chip, low, 1.0)
    low, high = 1e-9, 1.0
    for _ in range(200):
        middle = (low * high) ** 0.5
        if at_supply(kernel, chip, lowest, middle)[1] <= limit:
            low = middle
        else:
            high = middle
    return at_supply(kernel, chip, lowest, low)
