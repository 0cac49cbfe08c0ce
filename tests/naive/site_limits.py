"""Which limits of power points exceed, by how much, and the tokens of a megawatt; a point at a time."""

from math import log


def site_limits(row, rack_limit=None, site_limit=None):
    """Return the limits that a row of results exceeds, and the sum of the logs of powers over them.

    The power of a rack and of the system is found from a device's power, not read from their columns.
    """
    exceeded, excess = [], 0.0
    rack = row["machine_J"] / row["gpu_J"] * row["gpu_W"] * row["rack_devices"]
    system = row["site_J"] / row["gpu_J"] * row["gpu_W"] * row["devices"]
    for key, power, limit in (("rack", rack, rack_limit), ("site", system, site_limit)):
        if limit is not None and power > limit:
            exceeded.append(key)
            excess += log(power / limit)
    return exceeded, excess


def tokens_per_megawatt(tokens, seconds, joules):
    """Return tokens per second and megawatt; joules: of the site in the seconds."""
    megawatts = joules / seconds / 1e6
    return tokens / seconds / megawatts


def power_with_devices_at(row, watts, fans, conversion, pue, rack_devices):
    """Return the power of a rack and of the system with devices that draw some watts instead of a row's."""
    saved_at_a_plug = (row["gpu_W"] - watts) / (1.0 - fans) / conversion
    rack = row["rack_W"] - rack_devices * saved_at_a_plug
    system = row["system_W"] - row["devices"] * saved_at_a_plug * pue
    return rack, system
