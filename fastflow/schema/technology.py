"""Inputs of the scaling between logic nodes."""

from __future__ import annotations

from fastflow.core.field import Column, positive, text
from fastflow.physics.hardware.scaling import NODES, step_key

_QUANTITIES = {
    "logic_area": "area of logic",
    "logic_power": "power of logic, at the same speed",
    "sram_area": "area of SRAM cells",
    "sram_power": "power of SRAM",
    "wire_area": "area of crossbars",
    "analog_area": "area of links off the die",
}
_PAPER = "tech.scaling holds for every node"

SCALING: tuple[Column, ...] = (
    text("scaling.name", "rule by which areas and powers scale from node to node"),
    *(
        positive(
            step_key(node, kind),
            "",
            f"factor by which {node} shrinks the {quantity}, against the node before it",
        )._replace(absent=_PAPER)
        for node in NODES
        for kind, quantity in _QUANTITIES.items()
    ),
    positive(
        "tech.half_node.logic_area",
        "",
        "factor by which a half node shrinks the area of logic, against its full node",
    ),
    positive(
        "tech.half_node.logic_power",
        "",
        "factor by which a half node shrinks the power of logic, at the same speed, against its full node",
    ),
)
