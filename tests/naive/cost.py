"""Cost of one point: a wafer's dies counted one by one, yields and bills written out."""

from math import exp, floor, pi, sqrt

HOUR = 3600.0


def whole_dies(width, height, diameter, shift=(0.0, 0.0)):
    """Count the dies of a grid that lie wholly on a disc; shift: of the grid, in dies."""
    radius, count = diameter / 2.0, 0
    across, up = floor(diameter / width) + 2, floor(diameter / height) + 2
    for column in range(-across, across):
        for row in range(-up, up):
            x, y = (column + shift[0]) * width, (row + shift[1]) * height
            corners = [(x + dx, y + dy) for dx in (0.0, width) for dy in (0.0, height)]
            count += all(a * a + b * b <= radius * radius for a, b in corners)
    return count


def dies(area, point):
    """De Vries's count of square dies."""
    usable = point["cost.wafer.diameter"] - 2.0 * point["cost.wafer.edge"]
    side = sqrt(area) + point["cost.wafer.scribe"]
    return pi * usable**2 / (4.0 * side * side) * exp(-2.32 * side / usable)


def works(area, density, cluster):
    return 1.0 / (1.0 + area * density / cluster) ** cluster


def device(point, stacks, capacity):
    """Return a device's bill; stacks: its memory devices, capacity: of all of them [B]."""
    area = point["chip.die_area"] / point["chip.dies"]
    critical = area - point["chip.salvage"] * area
    good = works(critical, point["tech.defect_density"], point["tech.defect_cluster"])
    bill = {"die_yield": good}
    bill["die_usd"] = point["chip.dies"] * (point["tech.wafer_price"] / (dies(area, point) * good))
    bill["memory_usd"] = point["mem.price"] * capacity
    package = point["cost.auxiliary"] * point["chip.tdp"]
    if point["mem.on_interposer"]:
        part = {key: point[f"cost.interposer.{key}"] for key in ("defect_density", "defect_cluster")}
        size = point["cost.interposer.margin"] * (point["chip.die_area"] + stacks * point["mem.device_area"])
        one = point["cost.interposer.wafer_price"] / dies(size, point) / works(size, *part.values())
        bonded = point["cost.interposer.bond_yield"] ** (point["chip.dies"] - 1)
        tried = 1.0 / (point["cost.interposer.assembly_yield"] * bonded)  # packages for each that works
        lost = (tried - 1.0) * (bill["die_usd"] + bill["memory_usd"])
        package += tried * one + lost
    bill["package_usd"] = package
    bill["device_usd"] = point["cost.markup"] * (bill["die_usd"] + bill["memory_usd"] + package)
    return bill


def network(point, devices, intra, inter):
    """Return what networks cost a device; intra, inter: its bandwidths [B/s]."""
    total, package = 0.0, point["system.package.devices"]
    if min(package, devices) > 1:
        total += intra * _of_bandwidth(point, "net.intra", point["system.package.topology"])
    if devices > package:
        total += inter * _of_bandwidth(point, "net.inter", point["system.topology"])
    return total


def _of_bandwidth(point, prefix, topology):
    price = point[f"{prefix}.adapter_price"]
    if topology in ("switch", "fat_tree"):
        price += point[f"{prefix}.cable_price"] + point[f"{prefix}.switch_price"]  # to a leaf
        if topology == "fat_tree":  # from a leaf to a spine, for less of the bandwidth
            second = point[f"{prefix}.cable_price"] + 2.0 * point[f"{prefix}.switch_price"]
            price += second / point["system.oversubscription"]
    else:
        price += point[f"{prefix}.cable_price"] / 2.0  # two devices share a cable
    return price


def listed(chip):
    """Return what a chip is called on the list of rents."""
    return "_".join(chip.split("-"))


def hours(point, device_usd, network_usd, devices, power):
    """Return bills of a system and of an hour; power: of the site [W]."""
    system = devices * device_usd + devices * network_usd + devices * point["cost.host.price"]
    electricity = power * HOUR * point["cost.electricity"]
    written_off = system / (point["cost.lifetime"] / HOUR)
    if "cost.rent" in point:  # the provider buys devices and pays for what they draw
        hour = devices * (point["cost.rent"] or point[f"cost.rents.{listed(point['chip.name'])}.price"])
        return {"system_usd": system, "power_usd_per_h": 0.0, "usd_per_h": hour}
    return {"system_usd": system, "power_usd_per_h": electricity, "usd_per_h": written_off + electricity}
