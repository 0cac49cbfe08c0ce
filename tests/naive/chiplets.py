"""Packages of several dies by the book: one point, one die at a time; all inputs in SI units."""

import math


def dies_of(point):
    """Name, number and area of one die of every kind; "" is that of the cores."""
    kinds = sorted({key.split(".")[2] for key in point if key.startswith("chip.chiplets.")})
    total = point["chip.dies"] + sum(point[f"chip.chiplets.{kind}.dies"] for kind in kinds)
    whole, link = point["chip.die_area"], point.get("chip.area.link", 0.0)
    found, taken = {}, 0.0
    for kind in kinds:
        number = point[f"chip.chiplets.{kind}.dies"]
        share = sum(point[f"chip.area.{part}"] for part in point[f"chip.chiplets.{kind}.holds"].split())
        area = (share + link * number / total) * whole
        area = number * point.get(f"chip.chiplets.{kind}.die_area", area / number)
        found[kind] = (number, area / number)
        taken += area
    found[""] = (point["chip.dies"], (whole - taken) / point["chip.dies"])
    return found


def place(point, part):
    """The kind of die that holds a part."""
    for key, text in point.items():
        if key.startswith("chip.chiplets.") and key.endswith(".holds") and part in text.split():
            return key.split(".")[2]
    return ""


def crossing_shares(point, scopes):
    """Which share of each level's traffic crosses, main memory last; scopes: of the levels."""
    if "chip.area.link" not in point:
        return [0.0] * (len(scopes) + 1)
    shares, before = [], ""
    for part, scope in [*((f"l{number}", scope) for number, scope in enumerate(scopes)), ("dram", "")]:
        kind = place(point, part)
        if kind != before:
            shares.append(1.0)
        elif scope == "global":
            number = point[f"chip.chiplets.{kind}.dies"] if kind else point["chip.dies"]
            shares.append(1.0 - 1.0 / number)
        else:
            shares.append(0.0)
        before = kind
    return shares


def inner_edge(point):
    """The edges between dies that tile a square: half of what is inside its outline."""
    total = sum(number for number, _ in dies_of(point).values())
    one = math.sqrt(point["chip.die_area"] / total)
    return (total * 4.0 * one - 4.0 * math.sqrt(point["chip.die_area"])) / 2.0
