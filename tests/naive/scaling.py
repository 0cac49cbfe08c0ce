"""From node to node: section 9's rule, or a step of each kind of cell for each node."""

NODES = ("n7", "n5", "n3", "n2", "n1_4", "n1")


def divisor(point, kind):
    """Return what an area or power of the base node is divided by; kind: logic_area, sram_power, ..."""
    divided = 1.0
    for node in range(point["tech.generation"]):
        if "scaling.n7.logic_area" in point:
            divided *= point[f"scaling.{NODES[node]}.{kind}"]
        elif kind != "analog_area":  # links do not scale
            divided *= point[f"tech.scaling.{kind.split('_')[1]}"]
    if kind.startswith("logic"):
        divided *= point[f"tech.half_node.{kind}"]
    return divided


def mcu(point, what):
    """Return area or power of one MCU: its own, and its share of what its bundle has once."""
    bundle = point["tech.core.nominal_bundle"] * point[f"tech.core.nominal_{what}"]
    once = bundle * point[f"tech.core.shared_{what}"]
    own = (bundle - once) / point["tech.core.nominal_bundle"]
    whole = once + own * point["chip.mcus_per_bundle"]
    return whole / point["chip.mcus_per_bundle"] / divisor(point, f"logic_{what}")
