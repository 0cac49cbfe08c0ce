"""Cores (4.4.1, Equation 1)."""

from tests.naive import voltage


def fit(area, mcu_area, mcus_per_bundle):
    """Return the most MCUs that fit the area, in whole bundles, counted up one bundle at a time.

    "Given the area budget, we first compute the maximum number of MCUs that can fit within the area
    allocated." That they come in whole bundles is fastflow's choice (hardware/core.py).
    """
    mcus = 0
    while (mcus + mcus_per_bundle) * mcu_area <= area:
        mcus += mcus_per_bundle
    return mcus


def generate(area, power, served, mcus_per_bundle, mcu_area, mcu_power, frequency, supply):
    """Return (MCUs, voltage, frequency); supply: nominal, threshold, minimum, maximum.

    served: the most bundles that on-chip memories hold what they want for.
    """
    mcus = min(fit(area, mcu_area, mcus_per_bundle), served * mcus_per_bundle)
    mcus, volts = voltage.operate(mcus, mcu_power, power, mcus_per_bundle, *supply)
    return mcus, volts, frequency * voltage.speed(volts, supply[0], supply[1])


def throughput(mcus, nominal_flop_per_s, frequency, nominal_frequency):
    """Equation 1."""
    return mcus * nominal_flop_per_s * frequency / nominal_frequency
