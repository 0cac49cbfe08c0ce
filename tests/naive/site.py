"""Power of machines and of a site, from that of their devices."""


def site(point, devices, power, rate):
    """Return watts of machines at their plugs, and of the site; power: of all devices; rate: of a device's
    network between packages [B/s]."""
    of_parts = power
    for _ in range(devices):
        of_parts += point["power.host_fraction"] * point["chip.tdp"]
    with_fans = of_parts / (1.0 - point["power.fan_fraction"])
    machines = with_fans / point["power.conversion_efficiency"]
    switches = 0.0
    if devices > point["system.package.devices"]:
        ports = 0.0
        if point["system.topology"] in ("switch", "fat_tree"):
            ports += 1.0  # of the leaf
        if point["system.topology"] == "fat_tree":
            ports += 2.0 / point["system.oversubscription"]  # up, and of the spine
        switches = devices * ports * rate * point["power.switch"]
    return machines, (machines + switches) * point["power.pue"]
