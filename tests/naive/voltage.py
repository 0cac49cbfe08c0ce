"""Voltage and frequency: the operating point that a power budget allows.

Sections 4.4.1, 4.4.3 and 4.4.4, by the alpha-power law with alpha = 2:
f/f_nom = [(V-Vt)^2/V] / [(Vn-Vt)^2/Vn] and P/P_nom = (f/f_nom)(V/Vn)^2. The operating point is the
highest V in [V_min, V_max] whose power fits the budget. When even V_min does not fit, the number of units
falls until it fits; those that are left take what the last one leaves.
"""


def speed(voltage, nominal, threshold):
    """f / f_nom."""
    return ((voltage - threshold) ** 2 / voltage) / ((nominal - threshold) ** 2 / nominal)


def power(voltage, nominal, threshold):
    """P / P_nom."""
    return speed(voltage, nominal, threshold) * (voltage / nominal) ** 2


def highest_voltage(budget, nominal, threshold, minimum, maximum):
    """Climb from V_min in steps of a volt, a tenth, a hundredth ... as long as the power fits."""
    voltage, step = minimum, 1.0
    while step > 1e-16:
        while voltage + step <= maximum and power(voltage + step, nominal, threshold) <= budget:
            if voltage + step == voltage:
                break
            voltage += step
        step /= 10.0
    return maximum if power(maximum, nominal, threshold) <= budget else voltage


def operate(units, unit_power, budget, group, nominal, threshold, minimum, maximum):
    """Return (units, voltage) of `units` identical units that share a power budget.

    `group`: units come in whole groups of this many.
    """
    units -= units % group
    if units == 0:
        return 0, minimum
    while units > 0 and units * unit_power * power(minimum, nominal, threshold) > budget:
        units -= group
    if units == 0:
        return 0, minimum
    return units, highest_voltage(budget / (units * unit_power), nominal, threshold, minimum, maximum)
